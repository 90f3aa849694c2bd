"""Provisioning: starts and stops pilots at a user's sites, under that user's credentials.

This package decides nothing: the core commits intents and gives orders.  `order_book` turns orders into commands,
`tender` carries them out at one site, and `provisioner` keeps a tender for each site.  A provisioner runs inside a
single user's server, or as a process of its own (`windfall provision`).
"""
