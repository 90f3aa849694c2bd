"""Blobs: immutable file content, named by its SHA-256.

    blobs.py    where they lie, and how they arrive in pieces
    files.py    hashing, and paths that do not lead out
"""
