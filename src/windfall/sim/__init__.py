"""The simulator: the core in virtual time, and models of what surrounds it."""
