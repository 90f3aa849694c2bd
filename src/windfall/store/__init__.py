"""Journal and projections.

    journal.py     the truth: one row per commit group, and the snapshot that shortens replay
    schema.py      its tables, and how older ones are brought up to date
    locking.py     one writer, and file systems whose locks can be believed
    codec.py       facts to bytes and back, old facts included
    views.py       disposable tables for people and pages
    projection.py  which facts fill which view
    disk.py        room on the disk, and a reserve for results
"""
