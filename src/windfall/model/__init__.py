"""Nouns: frozen, validated, owned by nobody.  Imports nothing of ours but errors."""
