"""Starts and stops pilots at a user's sites, under that user's credentials.

It decides nothing: the core commits intents and gives orders; `carrying` says which commands they come to, `tender`
carries those out at one site, `provisioner` keeps a tender for each.  Inside a single user's server, or on its own.
"""
