"""Site files: one TOML file per site; every error names file and line.

    [site]        name, dialect, host (user@login.example.org; without it commands run here), port, account, queue (or
                  partition), folder, arrays, room, max-pilots, max-queued, core-hours, grace, python, directives,
                  setup, reach, server (https://host:port, the server's address for pilots), relay (the head node's
                  address for its nodes), max-jobs (of the user, those that are no pilots included), balance (reserve
                  no more than the account has left), start-delay and share (a bag's slots there), disk (of all tasks
                  together), counts (against allowances)
    [[shapes]]    cores, memory, walltime, gpus, nodes, whole-node of a pilot; the preferred shape first
    [variables]   environment of every task there
    [options]     settings that only this dialect has
    [staged]      files that lie at the site already: name = "path"

A data folder has one file per site, sites/NAME.toml.  An error in one of them does not affect the others.

A site file holds no secret: keys and codes stay with the user, and the pilots' token lies in the ticket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windfall.errors import BadInput, WindfallError
from windfall.model import units
from windfall.model.bagfile import reader, words
from windfall.model.suggest import nearest
from windfall.sites.dialects import text
from windfall.sites.dialects.job import GRACE, Command, Job, Shape, check as check_job
from windfall.sites.dialects.script import with_setup
from windfall.sites.dialects.table import DIALECTS, dialect

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
_HOST = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?([A-Za-z0-9][A-Za-z0-9_.:-]{0,252})")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{2,45}")
_SERVER = re.compile(r"https://[A-Za-z0-9_.:\[\]-]{1,260}:\d{1,5}")
REACH = ("direct", "relay", "spool", "auto")
MAX_PILOTS = 100_000


@dataclass(frozen=True)
class Site:
    name: str
    dialect: str
    shapes: tuple[Shape, ...]
    host: str = ""  # "": commands run on this machine
    user: str = ""
    port: int = 0
    account: str = ""
    queue: str = ""
    folder: str = ""  # at the site; by default windfall/NAME
    arrays: bool = True
    max_pilots: int = 0  # queued and running; 0: 100, or without a batch system as many as the cores allow
    max_queued: int = 0
    core_hours: int = 0  # 0: no budget
    grace: int = GRACE
    python: str = "python3"
    directives: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    reach: str = "direct"  # how pilots reach the server
    server: str = ""  # the server's address for pilots; "": the address that the server gives
    relay: str = ""  # address of the head node for its nodes; "": all its addresses
    room: bool = False  # ask how full the site is, for policies that choose sites by that
    max_jobs: int = 0  # of the user, those that are no pilots included; 0: no limit
    balance: bool = False  # ask for the account's balance, and reserve no more
    start_delay: int = 0  # seconds after a bag's submission before pilots start there for it
    share: int = 1000  # most slots there for a bag, in thousandths of its tasks
    disk: int = 0  # bytes of disk for all tasks there together; 0: no limit
    counts: bool | None = None  # does use count against allowances?  None: for all users but the owner

    def __post_init__(self) -> None:
        if not self.folder:  # sites have different folders, since two may share a home directory
            object.__setattr__(self, "folder", f"windfall/{self.name}")

    def job(self, nonce: str, shape: Shape, command: tuple[str, ...], count: int = 1) -> Job:
        """Return the submission of `count` pilots."""
        return Job(nonce=nonce, shape=shape, command=command, count=count, folder=self.folder, account=self.account,
                   queue=self.queue, directives=self.directives, setup=self.setup,
                   variables=(*self.variables.items(), *_staged_variable(self.staged)), options=self.options,
                   grace=self.grace)

    def head_node_command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command for the head node, with the variables and set-up lines of the site's jobs."""
        return with_setup(argv, self.variables.items(), self.setup)


def _staged_variable(staged: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variable that tells a pilot of files at the site; the pilot hides it from tasks."""
    return (("WINDFALL_STAGED", json.dumps(staged)),) if staged else ()


def shown(command: Command) -> str:
    """Return a command as a person would type it, with its input."""
    line = "$ " + text.words(command.argv)
    return f"{line} <<'…'\n{command.stdin}…\n" if command.stdin else line + "\n"


# --- reading ---------------------------------------------------------------------------------------------------


def load(path: str | Path) -> Site:
    return parse(reader.read_text(Path(path), "the site's file"), str(path))


def every(folder: str | Path) -> Iterator[tuple[str, Site | WindfallError]]:
    """Yield the sites of a folder by name: each site, or the error in its file."""
    for path in sorted(Path(folder).glob("*.toml")):
        try:
            yield path.stem, named(path)
        except WindfallError as error:
            yield path.stem, error


def named(path: Path) -> Site:
    """Return the site of a file; refuse one whose name differs from the site's."""
    site = load(path)
    if site.name != path.stem:
        raise BadInput(f"the file of site {site.name} is called {path.name}", f"rename it to {site.name}.toml",
                       str(path))
    return site


def parse(content: str, file: str = "site") -> Site:
    return _Reader(reader.KeyLocator(file, content)).site(reader.toml(content, file))


def _duration(value: object, key: str) -> int:
    seconds = units.parse_duration(value, key) // 1000
    if seconds < 1:
        raise BadInput(f"{key} is shorter than a second")
    return seconds


def _number(value: object, key: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return words.whole(value, key)


def _walltime(value: object, key: str) -> tuple[int, int]:
    """Parse `"30min..24h"` into the least and the most; for a single duration, the least is 0."""
    least, dots, most = value.partition("..") if isinstance(value, str) else ("", "", "")
    if not dots:
        return 0, _duration(value, key)
    found = _duration(least, key), _duration(most, key)
    if found[0] > found[1]:
        raise BadInput(f"{key}: in {text.plain(value, 60)!r} the first duration is the longer one",
                       'write it as in "30min..24h"')
    return found


def _share(value: object, key: str) -> int:
    """Parse a share into thousandths."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if not 0.001 <= number <= 1:
        raise BadInput(f"{key}: {text.plain(value, 60)} is not a share",
                       "write a number above 0 and at most 1: share = 0.7")
    return round(number * 1000)


def _host(value: object, key: str) -> str:
    if not _HOST.fullmatch(words.string(value, key)):
        raise BadInput(f"{key}: {text.plain(value, 60)!r} is not a host", 'write it as in "me@login.example.org"')
    return words.string(value, key)


def _dialect(value: object, key: str) -> str:
    dialect(words.string(value, key))
    return words.string(value, key)


def _lines(value: object, key: str) -> tuple[str, ...]:
    return tuple(words.strings(value, key))


def _address(value: object, key: str) -> str:
    if not _ADDRESS.fullmatch(words.string(value, key)):
        raise BadInput(f"{key}: {text.plain(value, 60)!r} is not an address",
                       'write the head node\'s address for its nodes, as in "10.1.0.1"')
    return words.string(value, key)


def _server(value: object, key: str) -> str:
    if not _SERVER.fullmatch(words.string(value, key)):
        raise BadInput(f"{key}: {text.plain(value, 60)!r} is not a server's address",
                       'write it as in "https://laptop.example.org:7430"')
    return words.string(value, key)


Read = Callable[[Any, str], Any]

_SITE: dict[str, Read] = {
    "name": words.string, "dialect": _dialect, "host": _host, "port": words.count, "account": words.string,
    "queue": words.string, "partition": words.string, "folder": words.string, "arrays": words.flag, "room": words.flag,
    "max-pilots": words.count, "max-queued": words.count, "core-hours": _number, "grace": _duration,
    "python": words.string, "directives": _lines, "setup": _lines,
    "reach": words.one_of(*REACH), "server": _server, "relay": _address,
    "max-jobs": words.count, "balance": words.flag, "start-delay": _duration, "share": _share,
    "disk": units.parse_size, "counts": words.flag,
}
_SHAPE: dict[str, Read] = {
    "cores": words.count, "memory": units.parse_size, "walltime": _walltime, "gpus": words.whole,
    "nodes": words.count, "whole-node": words.flag,
}
_TABLES = ("site", "shapes", "variables", "options", "staged")
KEYS = {"site": tuple(_SITE), "shapes": tuple(_SHAPE), "tables": _TABLES}


class _Reader:
    def __init__(self, place: reader.KeyLocator):
        self.place = place

    def site(self, data: dict[str, Any]) -> Site:
        self._known(data, _TABLES, ())
        given = self._read(self._table(data, "site"), _SITE, ("site",))
        with self.place.at("site"):
            for needed in ("name", "dialect"):
                if needed not in given:
                    raise BadInput(f"[site] lacks '{needed}'", "choose one of " + ", ".join(DIALECTS)
                                   if needed == "dialect" else "choose any short name")
        shapes = self._shapes(data.get("shapes", []))
        tables = {name: self._texts(data, name) for name in ("variables", "options", "staged")}
        site = self._made(given, shapes, tables)
        self._check(site)
        return site

    def _made(self, given: dict[str, Any], shapes: tuple[Shape, ...], tables: dict[str, dict[str, str]]) -> Site:
        if "queue" in given and "partition" in given:
            with self.place.at("site", "partition"):
                raise BadInput("queue and partition mean the same, and both are given", "remove one of them")
        if "partition" in given:
            given["queue"] = given.pop("partition")
        found = _HOST.fullmatch(given.pop("host", "")) if "host" in given else None
        where = {"user": found[1] or "", "host": found[2]} if found else {}
        fields: dict[str, Any] = {key.replace("-", "_"): value for key, value in given.items()}
        return Site(**{**fields, **where, **tables, "shapes": shapes})

    def _shapes(self, value: object) -> tuple[Shape, ...]:
        with self.place.at("shapes"):
            if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
                raise BadInput("a site needs at least one [[shapes]]",
                               'write it as in [[shapes]], walltime = "4h", cores = 4')
        return tuple(self._shape(table, number) for number, table in enumerate(value))

    def _shape(self, table: dict[str, Any], number: int) -> Shape:
        given = self._read(table, _SHAPE, ("shapes", number))
        with self.place.at("shapes", number):
            if "walltime" not in given:
                raise BadInput("a shape needs a walltime", 'write it as in walltime = "4h"')
        least, walltime = given.pop("walltime")
        return Shape(walltime, whole=given.pop("whole-node", False), least=least, **given)

    def _check(self, site: Site) -> None:
        with self.place.at("site", "name"):
            if not _NAME.fullmatch(site.name):
                raise BadInput(f"name: {text.plain(site.name, 60)!r} cannot be the name of a site",
                               "use letters, digits and _.-, and begin with a letter")
            if site.name == "local":
                raise BadInput("the name 'local' is reserved for the pilot that runs beside the server",
                               "choose another name")
        with self.place.at("site", "host"):
            if site.dialect == "ssh" and not site.host:
                raise BadInput("a site of dialect ssh needs a host", 'write it as in host = "me@workstation"')
            if site.dialect == "local" and site.host:
                raise BadInput("a site of dialect local has no host", 'remove it, or write dialect = "ssh"')
        with self.place.at("site", "balance"):
            if site.balance and dialect(site.dialect).balance("me", site.account) is None:
                raise BadInput(f"balance: Windfall cannot ask {site.dialect} for an account's balance",
                               "write core-hours = … instead")
        with self.place.at("site", "max-pilots"):
            if site.max_pilots > MAX_PILOTS:
                raise BadInput(f"max-pilots = {site.max_pilots} is more than {MAX_PILOTS}")
        for number, shape in enumerate(site.shapes):
            self._check_shape(site, shape, number)

    def _check_shape(self, site: Site, shape: Shape, number: int) -> None:
        """Refuse a shape that the dialect cannot submit now, not when the first pilot is wanted."""
        with self.place.at("site"):
            job = check_job(site.job("example-1", Shape(60), ("true",)))
        with self.place.at("shapes", number):
            if (shape.least or shape.walltime) <= site.grace:
                raise BadInput("the walltime must be longer than the grace at its end",
                               f'[site] has grace = "{units.exact_duration(site.grace * 1000)}"')
            dialect(site.dialect).submit(site.job(job.nonce, shape, job.command))

    # --- tables ------------------------------------------------------------------------------------------------

    def _table(self, data: dict[str, Any], key: str) -> dict[str, Any]:
        table = data.get(key, {})
        with self.place.at(key):
            if not isinstance(table, dict):
                raise BadInput(f"'{key}' must be a table", f"write [{key}] and its keys below it")
        return table

    def _known(self, table: dict[str, Any], known: Any, path: tuple[str | int, ...]) -> None:
        for key in table:
            if key not in known:
                with self.place.at(*path, key):
                    raise BadInput(f"there is no key '{text.plain(key, 60)}' here", nearest(key, known))

    def _read(self, table: dict[str, Any], known: dict[str, Read], path: tuple[str | int, ...]) -> dict[str, Any]:
        self._known(table, known, path)
        given = {}
        for key, value in table.items():
            with self.place.at(*path, key):
                given[key] = known[key](value, key)
        return given

    def _texts(self, data: dict[str, Any], name: str) -> dict[str, str]:
        """Return a table of texts; numbers become texts."""
        given = {}
        for key, value in self._table(data, name).items():
            with self.place.at(name, key):
                plain = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
                given[key] = words.string(plain, key)
        return given
