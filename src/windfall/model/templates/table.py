"""Tables: reads a CSV file of points into a `Table`, and rows of a `Table` by number.

A table's text is canonical, so that client and server agree on where a row ends, and most rows can be split at commas:
fields are joined by commas, rows by newlines, and a field has double quotes, doubled inside, only where it must.
Values are texts: `007` and `1.50` stay as they are.

A file is read row by row; beside the resulting text, memory does not grow with the number of rows.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from windfall.errors import BadInput, TooLarge
from windfall.model.spec import MAX_TASKS, MAX_TEXT, Table

MAX_COLUMNS = 1_000
MAX_TABLE = 1 << 30  # characters
CHUNK = 4_096  # rows joined at a time
PIECE = 1 << 20  # characters split at a time

_SPECIAL = re.compile(r'[",\r\n]')
_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"(?:,|\Z)|([^,"]*)(?:,|\Z)')


def format_row(fields: list[str]) -> str:
    line = ",".join(fields)
    if line.count(",") == len(fields) - 1 and '"' not in line and "\n" not in line and "\r" not in line and line:
        return line
    quoted = ['"' + field.replace('"', '""') + '"' if _SPECIAL.search(field) else field for field in fields]
    return ",".join(quoted) or '""'  # an empty line would not be a row


def format_rows(columns: list[list[str]]) -> str:
    """Return the text of a table given as columns; quick where no field needs quotes."""
    rows = columns[0] if len(columns) == 1 else list(map(",".join, zip(*columns, strict=True)))
    text = "\n".join(rows)
    counts = (text.count("\n") + 1, text.count(","), '"' in text or "\r" in text)
    if counts == (len(rows), len(rows) * (len(columns) - 1), False) and all(rows):
        return text
    return "\n".join(map(format_row, map(list, zip(*columns, strict=True))))


def parse_row(line: str) -> list[str]:
    """Return the fields of a canonical row."""
    if '"' not in line:
        return line.split(",")
    fields, at = [], 0
    while True:
        match = _FIELD.match(line, at)
        if match is None:
            raise BadInput("a row of a table is not in canonical form", text=line[:100])
        fields.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        at = match.end()
        if at == len(line) and not match[0].endswith(","):
            return fields


def row_ends(data: bytes) -> Iterator[int]:
    """Yield the places where rows end: newlines outside quotes, and the end."""
    inside = False
    for match in re.finditer(b'["\n]' if b'"' in data else b"\n", data):
        if match[0] == b'"':
            inside = not inside
        elif not inside:
            yield match.start()
    if inside:
        raise BadInput("a quote in a table is not closed")
    yield len(data)


class TableRows:
    """The rows of a table by number: the text as bytes, and where each row ends, 8 bytes a row.

    If the text is part of `shared`, bytes that the caller keeps anyway, this reads it there instead of copying it.
    """

    def __init__(self, table: Table, shared: bytes = b""):
        data = table.text.encode()
        at = shared.find(data) if shared and data else -1
        self.text = memoryview(shared)[at : at + len(data)] if at >= 0 else memoryview(data)
        self.ends = array("Q", row_ends(data) if table.count and data else ())
        self._asked: list[int] = []
        self._rows: list[list[str]] = []

    def line(self, row: int) -> str:
        return str(self.text[self.ends[row - 1] + 1 if row else 0 : self.ends[row]], "utf-8")

    def rows(self, numbers: list[int]) -> list[list[str]]:
        """Return rows, and keep them until others are asked for: the columns ask for the same rows one by one."""
        if numbers != self._asked:
            self._rows = [parse_row(self.line(number)) for number in numbers]
            self._asked = numbers
        return self._rows


def lines(table: Table) -> Iterator[str]:
    if table.count and '"' not in table.text:
        yield from _split(table.text)
        return
    data = table.text.encode()
    start = 0
    for end in row_ends(data) if table.count else ():
        yield data[start:end].decode()
        start = end + 1


def _split(text: str) -> Iterator[str]:
    """Split a text at newlines, a piece at a time."""
    start, stop = 0, 0
    while stop >= 0:
        stop = text.find("\n", start + PIECE)
        yield from (text[start:] if stop < 0 else text[start:stop]).split("\n")
        start = stop + 1


def check_table(table: Table) -> None:
    """Refuse a table that is too large, has another number of rows than it says, or is not in canonical form."""
    width = len(table.columns)
    if not 1 <= width <= MAX_COLUMNS:
        raise TooLarge(f"a table of {width:,} columns; 1 to {MAX_COLUMNS:,} are allowed")
    if len(table.text) > MAX_TABLE:
        raise TooLarge(f"a table of {len(table.text):,} characters; at most {MAX_TABLE:,}")
    if not 0 <= table.count <= MAX_TASKS:
        raise TooLarge(f"a table of {table.count:,} rows; at most {MAX_TASKS:,}")
    found = 0
    for line in lines(table):
        found += 1
        _check_line(line, width, found)
    if found != table.count:
        raise BadInput(f"the table says {table.count} rows, but has {found}")


def _check_line(line: str, width: int, number: int) -> None:
    if len(line) > MAX_TEXT:
        raise TooLarge(f"row {number} of a table has {len(line):,} characters; at most {MAX_TEXT:,}")
    if '"' not in line:
        right = line.count(",") == width - 1 and "\r" not in line and line != ""
    else:
        fields = parse_row(line)
        right = len(fields) == width and format_row(fields) == line
    if not right:
        raise BadInput(f"row {number} of a table is not in canonical form", text=line[:100])


def longest(table: Table) -> dict[str, int]:
    """Return {column: the length of its longest text, or more}."""
    if table.count * len(table.columns) > 4_000_000:  # measuring every field would take too long
        return dict.fromkeys(table.columns, max(map(len, lines(table))))
    if len(table.columns) == 1 and '"' not in table.text:
        return {table.columns[0]: max(map(len, lines(table)), default=0)}
    most = [0] * len(table.columns)
    for line in lines(table):
        for at, field in enumerate(parse_row(line)):
            most[at] = max(most[at], len(field))
    return dict(zip(table.columns, most, strict=True))


# --- files -----------------------------------------------------------------------------------------------------


def read(file: Path, shown: str, columns: list[str] | None = None, delimiter: str = ",") -> Table:
    """Read a file with a header row; `columns` picks some, and `"header -> name"` renames one.

    The name "-" is standard input."""
    where = 0 if shown == "-" else file
    shown = "standard input" if shown == "-" else shown
    try:
        with open(where, encoding="utf-8-sig", newline="", closefd=where != 0) as stream:
            return _read(_records(stream, shown, delimiter), shown, columns)
    except OSError as error:
        raise BadInput(
            f"the table '{shown}' cannot be read: {error.strerror}",
            "its path is relative to the bag file",
            text=shown,
        ) from None
    except UnicodeDecodeError:
        raise BadInput("the table is not UTF-8 text", "save it as UTF-8", where=shown) from None
    except ValueError:
        raise BadInput("not a file name", text=shown[:100]) from None


def _records(stream: Iterable[str], shown: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line and fields of every row that is not blank."""
    import csv

    csv.field_size_limit(MAX_TEXT)
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadInput(f"not CSV: {error}", where=f"{shown}:{max(reader.line_num, 1)}") from None
        if fields:
            yield reader.line_num, fields


def _read(records: Iterator[tuple[int, list[str]]], shown: str, columns: list[str] | None) -> Table:
    line, header = next(records, (0, []))
    if not header:
        raise BadInput("the table is empty", "its first row must name the columns", where=shown)
    names, picked = _picked(header, columns, f"{shown}:{line}")
    text, count, pending = bytearray(), 0, []
    for line, fields in records:
        count += 1
        if len(fields) != len(header):
            raise BadInput(
                f"row {count} has {len(fields)} fields, the header has {len(header)}",
                "every row needs a field for every column",
                where=f"{shown}:{line}",
                text=",".join(fields)[:100],
            )
        pending.append(format_row(fields if picked is None else [fields[at] for at in picked]))
        if len(pending) == CHUNK:
            _put(text, pending, shown)
    _put(text, pending, shown)
    if not count:
        raise BadInput("the table has no rows, so the sweep is empty", "give it one below its header", where=shown)
    del text[-1:]
    return Table(columns=names, text=text.decode(), count=count)


def _put(text: bytearray, pending: list[str], shown: str) -> None:
    for line in pending:
        text += line.encode()
        text += b"\n"
    pending.clear()
    if len(text) > MAX_TABLE:
        raise TooLarge(f"the table is larger than {MAX_TABLE >> 20} MiB", where=shown)


def _picked(header: list[str], columns: list[str] | None, where: str) -> tuple[list[str], list[int] | None]:
    """Return (the names of the columns wanted, their indices), or (all names, None)."""
    header = _named(header, where)
    if columns is None:
        return header, None
    names, picked = [], []
    for text in columns:
        source, _, name = (part.strip() for part in text.partition("->"))
        if source not in header:
            raise _no_column(source, header)
        if (name or source) in names:
            raise BadInput(f"columns: '{(name or source)[:100]}' is given twice", text=text[:100])
        names.append(name or source)
        picked.append(header.index(source))
    return names, picked


def _named(header: list[str], where: str) -> list[str]:
    """Return the names of the columns; refuse an empty one, and one that is given twice."""
    names = [name.strip() for name in header]
    for at, name in enumerate(names):
        if not name:
            raise BadInput(f"column {at + 1} has no name", "the first row must name the columns", where=where)
        if name in names[:at]:
            raise BadInput(f"two columns are called '{name[:100]}'", "give each a name of its own", where=where)
    return names


def _no_column(name: str, header: list[str]) -> BadInput:
    from difflib import get_close_matches

    near = get_close_matches(name[:200], header, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(header[:20])}"
    return BadInput(f"the table has no column '{name[:100]}'", hint, text=name[:100])
