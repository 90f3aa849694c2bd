"""Blobs: immutable file content, named by its SHA-256.

    blobs.py    the blobs on the server's disk, and their uploads in pieces
    files.py    hashing, and paths that stay inside a directory
"""
