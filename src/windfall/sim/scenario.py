"""Read a scenario (TOML): the sites, hosts, links and bags of a world to be simulated.

The language is the tables of `scenario_words.py`.  A word that is not in them is an error that names the nearest known
word; every error carries file and line.

    [server]  [sites.NAME]  [hosts.NAME]  [links.NAME]  [bags.NAME]  [bags.NAME.targets.NAME]
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from windfall.errors import BadInput, TooLarge
from windfall.model.bagfile import reader
from windfall.model.checks import bag as check
from windfall.model.checks.cycles import find_circle
from windfall.model.policies.replica_caps import CAPS
from windfall.model.suggest import nearest
from windfall.model.templates.template import excerpt
from windfall.model.units import format_duration, format_size
from windfall.sim import scenario_words as w
from windfall.sim.models.hosts import ONE, Availability, Cuts, Machines
from windfall.sim.models.laws import Law

MAX_FILE = 1 << 20
MAX_NAMES = 1_000  # most tables of sites, hosts, links, bags, or of one bag's targets
_NAME = re.compile(r"[\w.-]{1,60}")

NOTHING = Law("0", "", (0.0,))

Values = dict[str, Any]


@dataclass
class ScenarioTarget:
    name: str
    tasks: int
    duration: Law
    after: list[str]
    needs: Values  # the keys of a bag file's [task]
    follows: str = ""
    reads: Law = NOTHING
    read_files: int = 1
    leaves: Law = NOTHING
    leave_files: int = 1


@dataclass
class ScenarioBag:
    name: str
    targets: list[ScenarioTarget]
    submit: int = 0
    fails: float = 0.0
    batch: int = 0
    select: str = "fcfs"
    provision: str = "swarm"
    fail_over: str = ""
    staged: list[str] = field(default_factory=list)
    stays: bool = True
    keeps: bool = False
    policy: dict[str, str] = field(default_factory=dict)
    conscious: Values = field(default_factory=dict)
    client: Values = field(default_factory=dict)

    @property
    def tasks(self) -> int:
        return sum(target.tasks for target in self.targets)


@dataclass
class ScenarioHosts:
    name: str
    site: str
    machines: Machines


@dataclass
class ScenarioSite:
    """A table `[sites.NAME]`.  `values`: its keys, read; `log`: the file with the jobs of its background load."""

    name: str
    values: Values
    background: Values = field(default_factory=dict)
    log: Path | None = None


@dataclass
class ScenarioLink:
    a: str
    b: str
    bandwidth: int  # bytes per second
    start: int = 0
    shared: bool = False


@dataclass
class Scenario:
    name: str
    seed: int
    until: int | None
    server: Values
    sites: list[ScenarioSite]
    hosts: list[ScenarioHosts]
    links: list[ScenarioLink]
    bags: list[ScenarioBag]

    @property
    def tasks(self) -> int:
        return sum(bag.tasks for bag in self.bags)


def load(path: str | Path, bags: bool = True) -> Scenario:
    """Read a scenario file; without `bags`, only its places, on which a caller plays a bag of its own."""
    path = Path(path)
    return parse(reader.read_text(path, "the scenario"), str(path), path.parent, bags)


def parse(text: str, file: str = "scenario", base: Path = Path("."), bags: bool = True) -> Scenario:
    """Read a scenario.  `file`: its name in messages; `base`: the folder of the logs that it names."""
    if len(text) > MAX_FILE:
        raise TooLarge(f"the scenario is larger than {MAX_FILE >> 20} MiB", where=file)
    found = ScenarioReader(reader.KeyLocator(file, text), base, bags).scenario(reader.toml(text, file))
    return found if bags else replace(found, bags=[])


class ScenarioReader:
    def __init__(self, place: reader.KeyLocator, base: Path, bags: bool = True) -> None:
        self.place, self.base, self.bags = place, base, bags

    def scenario(self, data: Values) -> Scenario:
        tables = {key: data.pop(key, {}) for key in ("server", "sites", "hosts", "links", "bags")}
        top = self._values(data, (), w.TOP, [*w.TOP, *tables])
        sites = [self._site(name, table) for name, table in self._named(tables["sites"], "sites")]
        hosts = [self._hosts(name, table, [site.name for site in sites])
                 for name, table in self._named(tables["hosts"], "hosts")]
        places = [site.name for site in sites] + [group.site for group in hosts]
        links = [self._link(name, table, places) for name, table in self._named(tables["links"], "links")]
        bags = [self._bag(name, table, places) for name, table in self._named(tables["bags"], "bags")]
        server = self._values(self._table(tables["server"], ("server",)), ("server",), w.SERVER)
        found = Scenario(name=top.get("name", Path(self.place.file).stem), seed=top.get("seed", 1),
                         until=top.get("until"), server=server, sites=sites, hosts=hosts, links=links, bags=bags)
        self._check_size(found)
        self._check_fit(found)
        return found

    def _check_size(self, found: Scenario) -> None:
        """Check that the scenario has bags and hosts, and not too many."""
        with self.place.at("bags"):
            if not found.bags and self.bags:
                raise BadInput("the scenario has no bag", '[bags.main] with tasks = 100 and duration = "5min"')
            if found.tasks > w.MAX_TASKS:
                raise TooLarge(f"{found.tasks:,} tasks are more than the {w.MAX_TASKS:,} that can be simulated")
        with self.place.at("hosts"):
            if not found.hosts and not any("processors" in site.values for site in found.sites):
                raise BadInput("there is nowhere to run anything", "[hosts.NAME], or [sites.NAME] with processors")
            count = sum(hosts.machines.count for hosts in found.hosts)
            if count > w.MAX_HOSTS:
                raise TooLarge(f"{count:,} hosts are more than the {w.MAX_HOSTS:,} that can be simulated")

    def _check_fit(self, found: Scenario) -> None:
        for bag in found.bags:
            for number, target in enumerate(bag.targets):
                path = ("targets", target.name) if number or target.name != "main" else ()
                with self.place.at("bags", bag.name, *path):
                    _check_room(target, found)

    # --- sites ------------------------------------------------------------------------------------------------------

    def _site(self, name: str, table: Values) -> ScenarioSite:
        path = ("sites", name)
        values = self._values(table, path, w.SITES)
        if "processors" not in values:
            for key in (key for key in values if key != "disk"):
                with self.place.at(*path, key):
                    raise BadInput(f"[sites.{name}]: '{key}' belongs to a batch system, and this site has none",
                                   "say how many processors it has")
        with self.place.at(*path, "cores"):
            if values.get("cores", 1) > values.get("processors", 1):
                raise BadInput(f"a pilot cannot have {values['cores']} cores on a machine of {values['processors']} "
                               "processors")
        background = self._values(values.pop("background", {}), (*path, "background"), w.BACKGROUND)
        return ScenarioSite(name, values, background, self._log(background, (*path, "background")))

    def _log(self, background: Values, path: tuple[str, ...]) -> Path | None:
        made_up = [key for key in ("busy", "widest", "median", "deviation") if key in background]
        read = [key for key in ("log", "start", "length") if key in background]
        with self.place.at(*path):
            if made_up and read:
                raise BadInput(f"background: '{read[0]}' belongs to a log, '{made_up[0]}' to made-up jobs",
                               "give one or the other")
            if background and not ("log" in background or background.get("busy")):
                raise BadInput("background names no jobs", 'give { log = "jobs.swf" } or { busy = 0.7 }')
            if "log" not in background:
                return None
            file = self.base / str(background["log"])
            if not file.is_file():
                raise BadInput(f"background: there is no file '{excerpt(background['log'])}'",
                               "give its path from the scenario's folder")
            return file

    # --- hosts ------------------------------------------------------------------------------------------------------

    def _hosts(self, name: str, table: Values, sites: list[str]) -> ScenarioHosts:
        path = ("hosts", name)
        values = self._values(table, path, w.HOSTS)
        site = values.get("site", name)
        with self.place.at(*path, "site"):
            if "site" in values and site not in sites:
                hint = nearest(site, sites) or f"[sites.{excerpt(site)}], or leave it out"
                raise BadInput(f"[hosts.{name}]: there is no site '{excerpt(site)}'", hint, text=excerpt(site))
        presence = self._pair(values.get("availability"), (*path, "availability"), w.AVAILABILITY)
        cuts = self._pair(values.get("cuts"), (*path, "cuts"), w.CUTS)
        with self.place.at(*path, "suspends"):
            if values.get("suspends") and presence is None:
                raise BadInput(f"[hosts.{name}]: suspends needs availability, for these hosts are never away",
                               "say availability, too")
        machines = Machines(
            count=values.get("count", 1), cores=values.get("cores", 1), memory=values.get("memory", 1 << 50),
            latency=values.get("latency", 0), speed=values.get("speed", ONE), load=values.get("load"),
            holes=values.get("black-holes", 0.0), loses=values.get("loses", 0.0),
            availability=Availability(*presence) if presence else None, suspends=values.get("suspends", False),
            turnaround=values.get("turnaround"), cuts=Cuts(*cuts) if cuts else None,
            dark=tuple(values.get("dark", ())))
        return ScenarioHosts(name, site, machines)

    def _pair(self, table: Values | None, path: tuple[str, ...], known: dict[str, w.Word]) -> list[Law] | None:
        """Read a table of two laws, both of them required."""
        if table is None:
            return None
        values = self._values(table, path, known)
        with self.place.at(*path):
            for key in known:
                if key not in values:
                    raise BadInput(f"{path[-1]} needs {key}", f"{{ {', '.join(f'{each} = LAW' for each in known)} }}")
                problem = w.bad_law(f"{path[-1]}: {key}", values[key])
                if problem is not None:
                    raise problem
        return [values[key] for key in known]

    # --- links ------------------------------------------------------------------------------------------------------

    def _link(self, name: str, table: Values, places: list[str]) -> ScenarioLink:
        path = ("links", name)
        values = self._values(table, path, w.LINKS)
        with self.place.at(*path):
            for key in ("between", "bandwidth"):
                if key not in values:
                    raise BadInput(f"[links.{name}] needs {key}", 'between = ["here", "home"], bandwidth = "10MB/s"')
        with self.place.at(*path, "between"):
            if len(values["between"]) != 2:
                raise BadInput("a link connects two places", 'between = ["here", "home"]')
            for each in values["between"]:
                self._known_place(each, [*places, "home", "*"])
        a, b = values["between"]
        return ScenarioLink(a, b, values["bandwidth"], values.get("start", 0), values.get("shared", False))

    def _known_place(self, name: str, places: list[str]) -> None:
        if name not in places:
            raise BadInput(f"there is no site '{excerpt(name)}'", nearest(name, places), text=excerpt(name))

    # --- bags -------------------------------------------------------------------------------------------------------

    def _bag(self, name: str, table: Values, places: list[str]) -> ScenarioBag:
        path = ("bags", name)
        values = self._values(table, path, w.BAGS)
        targets = self._targets(path, values)
        self._order(path, targets)
        with self.place.at(*path, "staged"):
            for each in values.get("staged", []):
                self._known_place(each, places)
        with self.place.at(*path, "fail-over"):
            if values.get("fail-over"):
                self._known_place(values["fail-over"], places)
        conscious = self._conscious(path, values)
        client = self._client(path, values, targets, conscious)
        own = ("submit", "fails", "batch", "select", "provision", "staged", "stays", "keeps")
        given = {key: values[key] for key in own if key in values}
        policy = {key: values[key] for key in (*check.EXPRESSIONS, *CAPS) if key in values}
        return ScenarioBag(name, targets, policy=policy, conscious=conscious, client=client,
                           fail_over=values.get("fail-over", ""), **given)

    def _targets(self, path: tuple[str, ...], values: Values) -> list[ScenarioTarget]:
        """Read the targets of a bag: its own, `main`, if it has a duration, and its tables of targets."""
        further = values.pop("targets", {})
        targets = [] if "duration" not in values and further else [self._target("main", values, path)]
        for each, inner in self._named(further, *path, "targets"):
            with self.place.at(*path, "targets", each):
                if targets and each == "main":
                    raise BadInput("the target 'main' is the bag's own", "give this target another name")
            inner_path = (*path, "targets", each)
            targets.append(self._target(each, self._values(inner, inner_path, w.TARGETS), inner_path))
        return targets

    def _conscious(self, path: tuple[str, ...], values: Values) -> Values:
        """Read the parameters of data-conscious selection."""
        conscious = self._values(values.pop("conscious", {}), (*path, "conscious"), w.CONSCIOUS)
        with self.place.at(*path, "conscious"):
            if conscious and values.get("select") != "data-conscious":
                raise BadInput("conscious holds parameters of a selection that the bag does not use",
                               'select = "data-conscious"')
        return conscious

    def _client(self, path: tuple[str, ...], values: Values, targets: list[ScenarioTarget],
                conscious: Values) -> Values:
        """Read the script that submits a bag's tasks one by one."""
        client = self._values(values.pop("client", {}), (*path, "client"), w.CLIENT)
        with self.place.at(*path, "client"):
            if client and ("kind" not in client or len(targets) > 1 or len(conscious) or values.get("batch")):
                raise BadInput("client needs a kind, and a bag of one target whose tasks do not go together",
                               'client = { kind = "collect", every = "5s" }')
            if client and targets[0].tasks > MAX_NAMES:
                raise TooLarge(f"a script submits {MAX_NAMES:,} tasks at most")
        return client

    def _target(self, name: str, values: Values, path: tuple[str, ...]) -> ScenarioTarget:
        with self.place.at(*path):
            if "duration" not in values:
                raise BadInput(f"[{'.'.join(path)}] needs a duration: how long does a task take?", 'duration = "5min"')
        needs = {key: value for key, value in values.items() if key in w.NEEDS}
        get = values.get
        return ScenarioTarget(
            name=name, tasks=get("tasks", 1), duration=values["duration"], after=get("after", []), needs=needs,
            follows=get("follows", ""), reads=get("reads", NOTHING), read_files=get("read-files", 1),
            leaves=get("leaves", NOTHING), leave_files=get("leave-files", 1))

    def _order(self, path: tuple[str, ...], targets: list[ScenarioTarget]) -> None:
        after = {target.name: target.after for target in targets}
        for target in targets:
            with self.place.at(*path, "targets", target.name, "after"):
                check.check_after(target.name, after)
        sizes = {target.name: target.tasks for target in targets}
        for target in targets:
            if target.follows:
                with self.place.at(*path, "targets", target.name, "follows"):
                    check.check_after(target.name, {**after, target.name: [target.follows]})
                    if sizes[target.follows] != target.tasks:
                        raise BadInput(f"{target.tasks:,} tasks cannot follow {sizes[target.follows]:,} one by one",
                                       "use after, or give both targets as many tasks")
                after[target.name] = list(dict.fromkeys([*target.after, target.follows]))
        circle = find_circle(after)
        if circle:
            with self.place.at(*path, "targets", circle[0], "after"):
                raise BadInput(f"targets wait for each other: {' → '.join(reversed(circle))}", "leave one of them out")

    # --- tables and keys --------------------------------------------------------------------------------------------

    def _named(self, table: object, *path: str) -> list[tuple[str, Values]]:
        """Return the tables in a table, each with its name."""
        with self.place.at(*path):
            found = self._table(table, path)
            if len(found) > MAX_NAMES:
                raise TooLarge(f"[{'.'.join(path)}] holds more than {MAX_NAMES:,} tables")
        for name, each in found.items():
            with self.place.at(*path, name):
                if not _NAME.fullmatch(name):
                    raise BadInput(f"'{excerpt(name)}' cannot be a name here", "letters, digits, '-', '_' and '.'")
                self._table(each, (*path, name))
        return list(found.items())

    def _table(self, value: object, path: tuple[str, ...]) -> Values:
        if not isinstance(value, dict):
            with self.place.at(*path):
                raise BadInput(f"'{'.'.join(path)}' must be a table", f"write [{'.'.join(path)}] and its keys below it")
        return value

    def _values(self, table: Values, path: tuple[str, ...], known: dict[str, w.Word],
                names: list[str] | None = None) -> Values:
        where = f"[{'.'.join(path)}]" if path else "a scenario"
        found = {}
        for key, value in table.items():
            with self.place.at(*path, key):
                if key not in known:
                    hint = nearest(key, names or known)
                    if path[:1] == ("bags",) and key == "policy":
                        hint = "policies stand beside its other keys: rank = 5"
                    raise BadInput(f"{where} has no key '{excerpt(key)}'", hint, text=excerpt(key))
                found[key] = known[key].read(value, key)
        return found


def _check_room(target: ScenarioTarget, found: Scenario) -> None:
    """Raise an error if the tasks of a target fit nowhere: they would wait for ever."""
    places = [(hosts.machines.cores, hosts.machines.memory) for hosts in found.hosts]
    places += [(site.values.get("cores", 1), site.values.get("memory", 1 << 50)) for site in found.sites
               if "processors" in site.values]
    cores, memory = target.needs.get("cores", 1), target.needs.get("memory", 0)
    if not any(cores <= has and memory <= room for has, room in places):
        takes = f"{cores} cores" + (f" and {format_size(memory)}" if memory else "")
        raise BadInput(f"a task of '{target.name}' fits on no host and no pilot: it takes {takes}",
                       "give [hosts.NAME] or [sites.NAME] more")
    walls = [site.values.get("wall", 0) for site in found.sites if "processors" in site.values]
    limit = target.needs.get("time", 0)
    if not found.hosts and all(0 < wall < limit for wall in walls):
        raise BadInput(f"a task of '{target.name}' may take {format_duration(limit)}, and no pilot has so much time",
                       "give the task a shorter time, or the pilots a longer wall")
