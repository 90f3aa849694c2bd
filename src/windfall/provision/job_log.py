"""The log of a job whose pilot never enrolled: find the cause and a cure.

The table knows the lines that the job script writes (`sites/dialects/script.py`, windfall-job: …), those of the pilot
(windfall-pilot: …), and those of shells and interpreters.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from windfall.sites.dialects.text import plain

MAX_LOG = 1 << 16


class Cause(NamedTuple):
    kind: str  # python, old, route, trust, disk, folder, damaged, refused, setup, other
    says: str
    cure: str
    sure: bool = True  # False: the pilot tries again, so the trouble may pass


_SHARED = "name a folder that all nodes see, such as one in your home directory: folder in the site's file"
_PYTHON = 'name one that nodes have (python = "…" in the site\'s file), or a set-up line such as "module load python"'
_ROUTE = "let nodes reach it (windfall serve --listen 0.0.0.0:PORT --name HOST), or go through the site's head node"

# Pattern, kind, meaning, cure.  The first pattern found counts; {} is replaced by the pattern's group.
_TABLE: tuple[tuple[str, str, str, str], ...] = (
    (r"windfall-job: no python: (.*)", "python", "there is no {} on the node", _PYTHON),
    (r"(?:exec|line \d{1,9}|\d{1,9}): ([^:\n]{0,200}python[^:\n]{0,200}): (?:not found|No such file)", "python",
     "there is no {} on the node", _PYTHON),
    (r"windfall-pilot: Python (\S+) is too old", "old", "Python {} on the node is too old: 3.6 is the oldest", _PYTHON),
    (r"windfall-job: damaged: (.*)", "damaged", "{} on the node is not the pilot that was put into the site's folder",
     "is there room in that folder, and can nobody else write to it?  Remove the file there: Windfall puts it there "
     "again"),
    (r"windfall: \S+ is neither in (\S+) nor beside the job", "folder", "the node does not see {}", _SHARED),
    (r"can't open file '?([^':\n]*\.pyz)", "folder", "the node does not see {}", _SHARED),
    (r"cannot read the ticket (\S+):", "folder", "the node does not see {}", _SHARED),
    (r"(No space left on device|Disk quota exceeded)", "disk", "the node has no room for the pilot's files: {}",
     'choose another place: setup = ["export TMPDIR=/scratch/$USER"] in the site\'s file'),
    (r"(server's certificate is not the one in the ticket)", "trust",
     "another machine or program answers at the server's address", "is the address right, and does no proxy on the way "
     "open TLS?  If the server has a new certificate, start it again, and then this test"),
    (r"no server at ([^\n]*?)(?:; trying again|\n|$)", "route", "the node does not reach the server at {}", _ROUTE),
    (r"windfall-pilot: (?!enrolled)(.*)", "refused", "the pilot says: {}", ""),
)


def cause(log: str) -> Cause | None:
    """Return the cause that a log tells; None if no line is known."""
    text = log[-MAX_LOG:]
    for pattern, kind, says, cure in _TABLE:
        if found := re.search(pattern, text):
            return Cause(kind, says.format(plain(found[1], 160)), cure, not text.rstrip().endswith("trying again"))
    return None


def last(log: str, lines: int = 5) -> str:
    """Return the last lines of a log, for a person."""
    filled = [plain(line, 160) for line in log[-MAX_LOG:].splitlines() if line.strip()]
    return "\n".join(filled[-lines:])
