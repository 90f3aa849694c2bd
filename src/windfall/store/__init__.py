"""The store: the journal, and the views that are derived from it.

    journal.py     the truth: one row per commit group, and the snapshot that shortens replay
    schema.py      the journal's tables, and upgrades from older layouts
    locking.py     one writer per journal, and a check that the file system's locks work
    codec.py       facts to bytes and back, facts of older versions included
    retention.py   an edit that removes the facts of removed bags from the journal
    views.py       disposable tables for people and pages
    projection.py  fills the views from facts
    tally.py       sums per bag: usage, causes of failure, slowest attempts
    disk.py        free space on the disk, and a reserve for the journal
"""
