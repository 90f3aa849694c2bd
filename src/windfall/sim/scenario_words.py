"""The words of a scenario: the keys of each table, how each key is read, and what it means.

These tables serve the reader (`scenario.py`) and the page of the reference.  A key that a bag file has, too, has the
same name here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from windfall.errors import BadInput, TooLarge
from windfall.model import units
from windfall.model.bagfile import words
from windfall.model.bagfile.words import wrong
from windfall.model.checks.bag import EXPRESSIONS, USUAL
from windfall.model.policies.replica_caps import CAPS
from windfall.sim.models import laws
from windfall.sim.models.batch import DISCIPLINES


class Word(NamedTuple):
    read: Callable[[Any, str], Any]
    default: str  # as a scenario would write it; empty: there is none, or the key is required
    says: str


# --- kinds of value --------------------------------------------------------------------------------------------------


def share(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise wrong(key, value, "a number from 0 to 1")
    return float(value)


def positive(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise wrong(key, value, "a number larger than 0")
    return float(value)


def deviation(value: object, key: str) -> float:
    """Read the standard deviation of a logarithm."""
    if positive(value, key) > 10:
        raise wrong(key, value, "a number larger than 0, and 10 at most")
    return positive(value, key)


def at_most(most: int) -> Callable[[object, str], int]:
    def read(value: object, key: str) -> int:
        if words.count(value, key) > most:
            raise TooLarge(f"{key} is more than the {most:,} that can be simulated")
        return words.count(value, key)

    return read


def some_time(value: object, key: str) -> int:
    """Read a duration of 1 ms or more."""
    found = units.parse_duration(value, key)
    if found < 1:
        raise wrong(key, value, "longer than nothing")
    return found


def a_second(value: object, key: str) -> int:
    """Read a duration of a second or more: days of something that happens every millisecond cannot be simulated."""
    found = units.parse_duration(value, key)
    if found < 1_000:
        raise wrong(key, value, "a second or more")
    return found


def now_or_a_second(value: object, key: str) -> int:
    return 0 if units.parse_duration(value, key) == 0 else a_second(value, key)


def speed(value: object, key: str) -> laws.Law:
    law = laws.plain(value, key)
    if law.mean <= 0 or (not law.kind and law.arguments[0] <= 0):
        raise wrong(key, value, "larger than 0")
    return law


def bandwidth(value: object, key: str) -> int:
    """Read a bandwidth, in bytes per second."""
    text = value.strip().removesuffix("/s") if isinstance(value, str) else value
    found = units.parse_size(text, key)
    if found < 1:
        raise wrong(key, value, "larger than 0, as in 10MB/s")
    return found


def spans(value: object, key: str) -> list[tuple[int, int]]:
    """Read a list of spans of time: begin and end of each, in ms."""
    if not isinstance(value, list) or len(value) > 1_000:
        raise wrong(key, value, 'a list, as in [{ at = "2h", lasting = "10min" }]')
    found = []
    for each in value:
        if not isinstance(each, dict) or sorted(each) != ["at", "lasting"]:
            raise wrong(key, each, '{ at = "2h", lasting = "10min" }')
        begin = units.parse_duration(each["at"], f"{key}: at")
        found.append((begin, begin + some_time(each["lasting"], f"{key}: lasting")))
    return found


def table(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(key, value, "a table, as in { busy = 0.7 }")
    return value


SELECT = ("fcfs", "sjf", "data-conscious")
PROVISION = ("swarm", "msr", "broker", "demand")
MAX_TASKS = 10_000_000  # in all bags
MAX_HOSTS = 100_000  # in all groups
MAX_PROCESSORS = 1_000_000
MAX_CORES = 100_000

# --- the tables ------------------------------------------------------------------------------------------------------

TOP = {
    "name": Word(words.string, "", "what it is called"),
    "seed": Word(words.whole, "1", "the same seed gives the same run, to the last byte; `--seed` says another"),
    "until": Word(some_time, "", "stop then, even if tasks are left"),
}
SERVER = {
    "lease": Word(a_second, "1min", "how long a pilot may start tasks without having heard from the server"),
    "park": Word(a_second, "20s", "the server keeps a poll waiting for this long at most"),
    "idle": Word(a_second, "2min", "a pilot without work leaves after this"),
    "silence": Word(some_time, "1h", "a silent pilot without limits is given up after this"),
    "prefetch": Word(units.parse_duration, "500ms", "worth of work that a slot holds beyond its running task"),
    "deaths": Word(words.count, "3", "pilots that die under a task before it is quarantined"),
    "dark": Word(spans, "", '`[{ at = "2h", lasting = "10min" }]`: when no pilot can reach the server'),
    "service": Word(units.parse_duration, "0s", "each request holds the server, which is one queue, for this long"),
}
HOSTS = {
    "site": Word(words.string, "", "a site of `[sites]`; without it the hosts are a site, named as the table"),
    "count": Word(at_most(MAX_HOSTS), "1", "how many hosts"),
    "cores": Word(at_most(MAX_CORES), "1", "cores of each host"),
    "memory": Word(units.parse_size, "", "memory of each host; without it more than any task needs"),
    "speed": Word(speed, "1", "work that a core does in a second: a number, or a law to draw it by for each host"),
    "load": Word(laws.plain, "", "share of a core that others take: a number, or a law to draw it by for each task"),
    "latency": Word(units.parse_duration, "0s", "time of a message to the server, each way"),
    "availability": Word(table, "", "`{ up = LAW, down = LAW }`: how long a host is there and away, in turns"),
    "suspends": Word(words.flag, "false", "running tasks wait while their host is away; else they are lost with it"),
    "turnaround": Word(laws.time, "", "from the end of a task until its result is sent: volunteers call rarely"),
    "black-holes": Word(share, "0", "share of the hosts on which every task fails at once"),
    "loses": Word(share, "0", "share of the attempts that kill their pilot"),
    "dark": Word(spans, "", '`[{ at = "2h", lasting = "10min" }]`: when none of the hosts can be reached'),
    "cuts": Word(table, "", "`{ every = LAW, lasting = LAW }`: when the network is cut, and for how long"),
}
AVAILABILITY = {
    "up": Word(laws.time, "", "how long a host is there"),
    "down": Word(laws.time, "", "how long a host is away"),
}
CUTS = {
    "every": Word(laws.time, "", "from the end of one cut to the next"),
    "lasting": Word(laws.time, "", "how long a cut lasts"),
}
SITES = {
    "processors": Word(at_most(MAX_PROCESSORS), "", "of the batch system; without them the site has `[hosts]` only"),
    "discipline": Word(words.one_of(*DISCIPLINES), "easy", "`easy` backfills, `fcfs` does not"),
    "speed": Word(positive, "1", "work that a processor does in a second"),
    "background": Word(table, "", "other people's jobs: `{ log = FILE }` or `{ busy = 0.7 }`"),
    "cores": Word(at_most(MAX_CORES), "1", "cores of a pilot"),
    "memory": Word(units.parse_size, "", "memory of a pilot"),
    "wall": Word(some_time, "", "wall time that a pilot asks for; without it a pilot has no limit"),
    "startup": Word(units.parse_duration, "0s", "from the start of a job to its pilot's first message"),
    "refresh": Word(now_or_a_second, "0s", "time between two reports of the information system"),
    "preempts": Word(a_second, "", "mean time after which a running pilot is preempted"),
    "requeues": Word(words.flag, "false", "a preempted pilot goes back into the batch queue"),
    "disk": Word(words.flag, "false", "the hosts share a disk: files that a task leaves are at hand on all of them"),
    "dark": Word(spans, "", '`[{ at = "2h", lasting = "10min" }]`: when no pilot there can be reached'),
    "most": Word(words.count, "", "most jobs that the batch system takes from one user"),
    "submission": Word(units.parse_duration, "0s", "time to submit a job"),
    "cancellation": Word(units.parse_duration, "0s", "time to cancel a job"),
    "latency": Word(units.parse_duration, "0s", "time of a message to the server, each way"),
    "pilots": Word(words.count, "", "most pilots at once, queued and running"),
    "queued": Word(words.count, "", "most queued pilots at once"),
    "share": Word(share, "1", "most slots there for a bag, as a share of its tasks"),
    "delay": Word(units.parse_duration, "0s", "time from a bag's submission to its first pilot there"),
}
LINKS = {
    "between": Word(words.strings, "", 'two places: sites, `"home"` (where the server is) or `"*"` (any)'),
    "bandwidth": Word(bandwidth, "", "bytes per second, as in `500kB/s`"),
    "start": Word(units.parse_duration, "0s", "time that each file takes before its first byte"),
    "shared": Word(words.flag, "false", "transfers divide the bandwidth; else each transfer has all of it"),
}
BACKGROUND = {
    "log": Word(words.string, "", "a log in Standard Workload Format, beside the scenario"),
    "start": Word(units.parse_duration, "0s", "where in the log to begin"),
    "length": Word(some_time, "", "how much of the log to take"),
    "busy": Word(share, "", "made-up jobs: share of the processors that they keep busy"),
    "widest": Word(words.count, "", "made-up jobs: most processors of a job"),
    "median": Word(some_time, "30min", "made-up jobs: median of the run times, which are lognormal"),
    "deviation": Word(deviation, "1.2", "made-up jobs: standard deviation of the logarithm of the run times"),
}
NEEDS = ("cores", "memory", "gpus", "disk", "whole-node", "time", "expect", "priority", "retries", "memory-retries",
         "time-retries")
TARGETS = {
    "tasks": Word(at_most(MAX_TASKS), "1", "how many tasks"),
    "duration": Word(laws.time, "", "duration of a task at speed 1: a time, or a law to draw it by for each task"),
    "after": Word(words.strings, "", "targets that must have succeeded before"),
    "follows": Word(words.string, "", "a target of as many tasks: task n waits for task n there, and reads its files"),
    "reads": Word(laws.size, "0", "bytes that a task reads from outside: a size, or a law to draw it by for each task"),
    "read-files": Word(words.count, "1", "number of files that a task reads from outside"),
    "leaves": Word(laws.size, "0", "bytes that a task leaves: a size, or a law to draw it by for each task"),
    "leave-files": Word(words.count, "1", "number of files that a task leaves"),
    **{key: Word(words.TASK[key].read, "", words.TASK[key].says) for key in NEEDS},
}
BAGS = {
    **{key: word for key, word in TARGETS.items() if key not in ("after", "follows")},
    "targets": Word(table, "", "further targets, each a table `[bags.NAME.targets.NAME]`"),
    "submit": Word(units.parse_duration, "0s", "when the bag is submitted"),
    "fails": Word(share, "0", "share of the attempts that end in failure"),
    "batch": Word(words.count, "", "number of tasks that go together to one host"),
    "staged": Word(words.strings, "", "sites that hold the files from outside; other sites fetch them from home"),
    "stays": Word(words.flag, "true", "the files that a task leaves stay where it ran; else they come home"),
    "keeps": Word(words.flag, "false", "fetched files stay where they were fetched to, as further copies"),
    "select": Word(words.one_of(*SELECT), "fcfs", words.POLICY["select"].says),
    "client": Word(table, "", "a script submits the tasks one by one, and waits for all results"),
    "conscious": Word(table, "", "parameters of `data-conscious`"),
    "provision": Word(words.one_of(*PROVISION), "swarm", "decides how many pilots to have where"),
    **{key: Word(words.POLICY[key].read, USUAL * (key == "replicate"), f"an expression: {words.POLICY[key].says}")
       for key in EXPRESSIONS},
    **{key: Word(words.POLICY[key].read, "", words.POLICY[key].says) for key in CAPS},
    "fail-over": Word(words.string, "", words.POLICY["fail-over"].says),
}
CLIENT = {
    "kind": Word(words.one_of("poll", "collect"), "", "`poll` asks about all tasks, `collect` about one by one"),
    "every": Word(a_second, "5s", "how often the script asks"),
    "call": Word(laws.time, "0s", "time that one submission takes"),
    "fetch": Word(laws.time, "0s", "`collect`: time to bring one result home"),
    "notice": Word(laws.time, "0s", "`collect`: from the end of a task until the script can know it"),
}
CONSCIOUS = {
    "arrivals": Word(words.count, "32", "number of next pilots to look ahead to"),
    "candidates": Word(words.count, "128", "number of tasks, or batches, to compare"),
    "penalty": Word(positive, "25", "factor on the time of a transfer"),
    "latency": Word(some_time, "650ms", "each `latency` in the queue raises a task's priority by 1"),
    "unit": Word(some_time, "10ms", "each `unit` that a transfer saves raises a task's priority by 1"),
    "withhold": Word(words.flag, "true", "a task is not granted to a host while its cost is lower on another one"),
}
TABLES = {"": TOP, "server": SERVER, "sites.NAME": SITES, "sites.NAME.background": BACKGROUND, "hosts.NAME": HOSTS,
          "hosts.NAME.availability": AVAILABILITY, "hosts.NAME.cuts": CUTS, "links.NAME": LINKS, "bags.NAME": BAGS,
          "bags.NAME.client": CLIENT, "bags.NAME.conscious": CONSCIOUS, "bags.NAME.targets.NAME": TARGETS}


def bad_law(what: str, law: laws.Law) -> BadInput | None:
    """Return an error if a law of presence or cuts draws less than a second: simulating that would take for ever."""
    if law.mean < 1_000:
        return BadInput(f"{what} = '{law.text}' is shorter than a second", "nothing that short can be simulated")
    return None
