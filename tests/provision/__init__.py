"""The provisioner with real batch systems."""
