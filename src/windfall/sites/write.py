"""A new site file: the settings given to `windfall site add`, and all others as comments, for a person to edit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

NOTE = """\
# A site of Windfall, written by `windfall site add`.  Edit it as you like; a running server sees the change.
# docs/reference/site-file.md describes every key.  `windfall site test {name}` tells whether the site works.
"""
BATCH = ("slurm", "gridengine", "htcondor", "pbs", "torque", "lsf")

# Key, example, meaning.  A key that was not given stands in the file as a comment.
_SITE: tuple[tuple[str, str, str], ...] = (
    ("host", '"me@login.example.org"', "the machine where commands run, over SSH; without it they run here"),
    ("port", "22", "of SSH on that host"),
    ("account", '"proj-7"', "the account that the batch system charges"),
    ("queue", '"normal"', "the partition or queue; without it the site's default"),
    ("reach", '"auto"', "how pilots reach the server: direct, relay, spool, or auto; `windfall site test` finds out"),
    ("relay", '"10.1.0.1"', "the head node's address as its nodes know it, if pilots use a wrong one"),
    ("server", '"https://laptop.example.org:8765"', "the server's address for pilots, if it differs from its own"),
    ("folder", '"windfall/{name}"', "at the site, for the pilot's file and logs; all nodes must see it"),
    ("max-pilots", "50", "pilots queued and running together; without it 100"),
    ("max-queued", "10", "pilots waiting in the batch queue"),
    ("core-hours", "5000", "that pilots may use in all; a queued pilot counts with its whole wall time"),
    ("max-jobs", "500", "that you may have there, jobs that are no pilots included"),
    ("start-delay", '"10min"', "after a bag's submission, before pilots start here: faster sites go first"),
    ("disk", '"2TB"', "for all tasks there together"),
    ("grace", '"2min"', "between the signal and the end of a pilot's time"),
    ("python", '"python3"', "on the nodes; 3.6 or newer"),
    ("directives", '["#SBATCH --constraint=avx2"]', "lines for the batch system, as in a job script"),
    ("setup", '["module load python"]', "shell lines before the pilot starts"),
)
_SHAPE: tuple[tuple[str, str, str], ...] = (
    ("cores", "1", "of one pilot"),
    ("memory", '"4GB"', "without it the site's default"),
    ("walltime", '"1h"', "of a pilot: short ones start sooner; with 30min..24h Windfall chooses for the tasks"),
    ("gpus", "1", ""),
    ("nodes", "1", "for tasks that span several"),
    ("whole-node", "true", "no jobs of others on the node"),
)
_BATCH = ("account", "queue", "max-queued", "max-jobs", "directives")  # keys that need a batch system
_LOGIN = ("host", "port")  # keys that need another machine


def written(site: Mapping[str, Any], shape: Mapping[str, Any], tables: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of the file.  This function checks nothing: its caller reads the text back before writing it."""
    lines = [NOTE.format(name=site["name"]), "[site]", _line("name", site["name"]), _line("dialect", site["dialect"])]
    idle = (*(() if site["dialect"] in BATCH else _BATCH), *(_LOGIN if site["dialect"] == "local" else ()))
    lines += _section(site, [row for row in _SITE if row[0] not in idle or row[0] in site], str(site["name"]))
    lines += ["", "# The resources of a pilot.  There may be several shapes, the preferred one first.", "[[shapes]]"]
    lines += _section(shape, _SHAPE, str(site["name"]))
    for name, about in (("variables", "environment of every task there"), ("options", "settings of this dialect only"),
                        ("staged", "files that lie at the site already")):
        if given := tables.get(name):
            lines += ["", f"[{name}]  # {about}", *(_line(_key(key), value) for key, value in given.items())]
    return "\n".join(lines) + "\n"


def changed(text: str, key: str, value: object) -> str:
    """Return the file with another value for one key of [site]; its comments stay."""
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
    """Write a value as JSON, whose texts, numbers and lists of texts are TOML's, too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
