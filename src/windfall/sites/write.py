"""A site's file, written for somebody who will edit it: what was given, and what could be, as a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

NOTE = """\
# A site of Windfall, written by `windfall site add`.  Edit it as you like; a running server sees the change.
# Every key: docs/reference/site-file.md.  `windfall site test {name}` says whether it works.
"""
BATCH = ("slurm", "gridengine", "htcondor", "pbs", "torque", "lsf")

# Key, what it may look like, what it is for; those not given stand there as a comment.
_SITE: tuple[tuple[str, str, str], ...] = (
    ("host", '"me@login.example.org"', "the machine where its commands run, over SSH; without it they run here"),
    ("port", "22", "of SSH there"),
    ("account", '"proj-7"', "what the batch system charges"),
    ("queue", '"normal"', "its partition or queue; without it the site's own default"),
    ("reach", '"auto"', "how pilots reach the server: direct, relay, spool, or auto; `windfall site test` finds out"),
    ("relay", '"10.1.0.1"', "the head node's address, as its nodes know it, if pilots come by the wrong one"),
    ("server", '"https://laptop.example.org:8765"', "where they find it, if not where it says"),
    ("folder", '"windfall/{name}"', "there, for the pilot's file and logs; all nodes must see it"),
    ("max-pilots", "50", "queued and running together; without it 100"),
    ("max-queued", "10", "of these, waiting in the batch queue"),
    ("core-hours", "5000", "to use in all; queued pilots count with all that they may take"),
    ("max-jobs", "500", "that you may have there, those that are no pilots included"),
    ("start-delay", '"10min"', "nothing is sent there for so long after a bag's submission: faster sites come first"),
    ("disk", '"2TB"', "that all tasks there have together"),
    ("grace", '"2min"', "between the signal and the end of a pilot's time"),
    ("python", '"python3"', "on the nodes; 3.6 or newer"),
    ("directives", '["#SBATCH --constraint=avx2"]', "lines for the batch system, as its users write them"),
    ("setup", '["module load python"]', "shell lines before the pilot starts"),
)
_SHAPE: tuple[tuple[str, str, str], ...] = (
    ("cores", "1", "of one pilot"),
    ("memory", '"4GB"', "without it whatever the site gives"),
    ("walltime", '"1h"', "how long a pilot may stay: short ones start sooner; 30min..24h follows the tasks"),
    ("gpus", "1", ""),
    ("nodes", "1", "for tasks that span several"),
    ("whole-node", "true", "nobody else on the node"),
)
_BATCH = ("account", "queue", "max-queued", "max-jobs", "directives")  # of no use to a machine without batch system
_DOOR = ("host", "port")  # what this machine has no use for


def written(site: Mapping[str, Any], shape: Mapping[str, Any], tables: Mapping[str, Mapping[str, str]]) -> str:
    """The text of the file.  Nothing is checked here: whoever writes it reads it back first."""
    lines = [NOTE.format(name=site["name"]), "[site]", _line("name", site["name"]), _line("dialect", site["dialect"])]
    idle = (*(() if site["dialect"] in BATCH else _BATCH), *(_DOOR if site["dialect"] == "local" else ()))
    lines += _section(site, [row for row in _SITE if row[0] not in idle or row[0] in site], str(site["name"]))
    lines += ["", "# What a pilot asks for.  There may be several, the preferred one first.", "[[shapes]]"]
    lines += _section(shape, _SHAPE, str(site["name"]))
    for name, about in (("variables", "environment of every task there"), ("options", "what only this dialect knows"),
                        ("staged", "files that lie there already")):
        if given := tables.get(name):
            lines += ["", f"[{name}]  # {about}", *(_line(_key(key), value) for key, value in given.items())]
    return "\n".join(lines) + "\n"


def changed(text: str, key: str, value: object) -> str:
    """The same file with one key of [site] said otherwise; its comments stay."""
    line = _line(key, value)
    head, bracket, rest = text.partition("\n[[shapes]]")
    found = re.search(rf"^(?:# *)?{re.escape(key)} *=.*$", head, re.MULTILINE)
    if found:
        return head[: found.start()] + line + head[found.end() :] + bracket + rest
    head = re.sub(r"^dialect *=.*$", lambda match: f"{match[0]}\n{line}", head, count=1, flags=re.MULTILINE)
    return head + bracket + rest


def _section(given: Mapping[str, Any], rows: Any, name: str) -> Iterator[str]:
    for key, example, about in rows:
        line = _line(key, given[key]) if key in given else f"# {key} = {example.replace('{name}', name)}"
        yield f"{line:<44}  # {about}" if about and key not in given else line


def _line(key: str, value: object) -> str:
    return f"{key} = {_value(value)}"


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else _value(key)


def _value(value: object) -> str:
    """TOML's texts, numbers and lists of texts are JSON's."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
