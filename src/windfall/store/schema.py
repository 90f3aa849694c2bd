"""The journal's tables, version by version.

The file's `user_version` is the number of its layout; its `application_id` marks it as a journal of Windfall.  To
change the layout, add one to VERSION and a function to UPGRADES.  A file of every version lies in `tests/store/golden`
and must still open.

    0   no checksums
    1   a checksum with every body; snapshot chunks separate from their names, so that they can be written ahead
    2   the same tables; facts have more fields: extended bags, whole pilots, gathered files, checkpoints.  An older
        Windfall would drop these fields without a word, so it must refuse the file
    3   the checksum of a snapshot covers its position, its time and its parts, too; `rows` counts the journal's rows up
        to the snapshot, which may have gaps, so that a lost one is noticed.  A mark beside the file (`mark.py`)

Since layout 1, the journal writes a snapshot's chunks one by one into `chunk` while commits go on.  The chunks become
the snapshot when `part` names them, in one short transaction, however large the state.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable

APPLICATION = 0x57464A31  # "WFJ1"
VERSION = 3

TABLES = """
CREATE TABLE journal (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE chunk (id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE part (name TEXT PRIMARY KEY, chunk INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), position INTEGER NOT NULL, at INTEGER NOT NULL,
                       parts INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL, rows INTEGER NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('identity', lower(hex(randomblob(16))));
"""


def checksum(seq: int, at: int, body: bytes) -> int:
    """Return the checksum of a journal row.  It covers number and time too, so that it reveals a misplaced row."""
    return zlib.crc32(body, (seq * 0x9E3779B1 ^ at) & 0xFFFFFFFF)


def head_checksum(connection: sqlite3.Connection, position: int, at: int, meta: bytes) -> int:
    """Return the checksum of a snapshot's head: its place, its body, and the names and checksums of its parts."""
    parts = connection.execute(
        "SELECT name, crc FROM part JOIN chunk ON chunk.id = part.chunk ORDER BY name").fetchall()
    return zlib.crc32(repr(parts).encode(), checksum(position, at, meta))


def create(connection: sqlite3.Connection) -> None:
    run(connection, TABLES)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def run(connection: sqlite3.Connection, script: str) -> None:
    """Execute the statements of a script, without the commit that `executescript` begins with."""
    for statement in script.split(";"):
        if statement.strip():
            connection.execute(statement)


def _add_checksums(connection: sqlite3.Connection) -> None:
    connection.create_function("checksum", 3, checksum, deterministic=True)
    connection.create_function("crc32", 1, zlib.crc32, deterministic=True)
    for table in ("journal", "chunk", "meta"):
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    run(connection, TABLES)
    run(connection, """
        INSERT INTO journal SELECT seq, at, checksum(seq, at, body), body FROM old_journal ORDER BY seq;
        INSERT INTO chunk SELECT rowid, crc32(body), body FROM old_chunk;
        INSERT INTO part SELECT name, rowid FROM old_chunk;
        INSERT INTO snapshot
            SELECT 1, p.value, coalesce((SELECT at FROM journal WHERE seq = p.value), 0),
                   (SELECT count(*) FROM part), crc32(m.value), m.value, 0
            FROM old_meta p, old_meta m WHERE p.name = 'position' AND m.name = 'snapshot';
        DROP TABLE old_journal; DROP TABLE old_chunk; DROP TABLE old_meta""")


def _cover_head(connection: sqlite3.Connection) -> None:
    if "rows" not in [column[1] for column in connection.execute("PRAGMA table_info(snapshot)")]:
        connection.execute("ALTER TABLE snapshot ADD COLUMN rows INTEGER NOT NULL DEFAULT 0")
    for position, at, crc, meta in connection.execute("SELECT position, at, crc, body FROM snapshot").fetchall():
        if crc != zlib.crc32(meta):
            raise ValueError("the snapshot's head does not read back as it was written")
        connection.execute("UPDATE snapshot SET crc = ?, rows = (SELECT count(*) FROM journal WHERE seq <= ?)",
                           (head_checksum(connection, position, at, meta), position))


UPGRADES: dict[int, Callable[[sqlite3.Connection], None]] = {
    0: _add_checksums, 1: lambda connection: None, 2: _cover_head}
