"""Makes the golden journals.  Run once per layout, keep the file for ever: `python tests/store/golden/make.py VERSION`.

v0.db   three rows, a snapshot at 2 with two chunks; made from the layout below, which no release wrote
v1.db   the same in layout 1, made by `Journal` itself when 1 was the newest
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROWS = [(1, 1000, b"first"), (2, 2000, b"second"), (3, 3000, b"third" * 100)]
CHUNKS = {"tasks/0": b"\x00\x01" * 50, "tasks/1": b""}
META = b"head of the snapshot"

LAYOUT_0 = """
CREATE TABLE journal (seq INTEGER PRIMARY KEY, at INTEGER, body BLOB);
CREATE TABLE chunk (name TEXT PRIMARY KEY, body BLOB);
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB);
PRAGMA application_id = 0x57464A31;
PRAGMA user_version = 0;
"""


def make_0(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(LAYOUT_0)
    connection.executemany("INSERT INTO journal VALUES (?, ?, ?)", ROWS)
    connection.executemany("INSERT INTO chunk VALUES (?, ?)", CHUNKS.items())
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [("position", 2), ("snapshot", META)])
    connection.commit()
    connection.close()


def make_2(path: Path) -> None:
    from windfall.store.journal import Journal

    journal = Journal.open(path)
    for _, at, body in ROWS:
        journal.append(at, body)
    journal.save_snapshot(2, META, CHUNKS)
    journal.close()
    path.with_suffix(".lock").unlink()
    path.with_suffix(".mark").unlink()


if __name__ == "__main__":
    {"0": make_0, "2": make_2, "3": make_2}[sys.argv[1]](HERE / f"v{sys.argv[1]}.db")
