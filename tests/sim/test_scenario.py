"""Scenarios: each key has its effect, broken scenarios are refused with their line, a seed always gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.core.config import Config
from windfall.errors import BadInput
from windfall.sim import pages, scenario, scenario_words as words
from windfall.sim.models.hosts import Machines
from windfall.sim.play import Run
from windfall.sim.record import Record

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.toml"))
HOSTS = "[hosts.lab]\ncount = 4\n"
BAG = '[bags.main]\ntasks = 20\nduration = "5min"\n'


def played(text: str, seed: int = 1, base: Path = Path(".")) -> tuple[Run, Record]:
    run = Run(scenario.parse(text, base=base), seed)
    return run, run.play(most=2_000_000)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_scenarios_run_to_their_end(path: Path, tmp_path: Path) -> None:
    run = Run(scenario.load(path), 1)
    record = run.play(most=3_000_000)
    assert run.finished
    for summary in record.summaries():
        assert summary["accepted"] == summary["tasks"] > 0
    pages.write(record, tmp_path)
    assert (tmp_path / "gantt.svg").stat().st_size > 1_000


def test_failing_tasks_go_to_fail_over_site() -> None:
    """Every host of the first site is a black hole: all tasks fail there unless they can fail over."""
    text = """
        [hosts.bad]
        count = 4
        black-holes = 1
        [hosts.safe]
        count = 1
        [bags.main]
        tasks = 40
        duration = "1min"
        retries = 2
    """
    ends = []
    for more in ("", 'fail-over = "safe"\n'):
        _, record = played(text + more)
        ends.append(record.summaries()[0]["accepted"])
    assert ends[0] < ends[1] == 40


def test_same_seed_of_scenario_writes_same_bytes(tmp_path: Path) -> None:
    """The scenario uses everything that is drawn at random."""
    text = """
        [sites.north]
        processors = 32
        background = { busy = 0.8 }
        cores = 2
        wall = "2h"
        preempts = "3h"
        refresh = "5min"
        [hosts.lab]
        count = 5
        speed = "uniform(0.5, 2)"
        load = "uniform(0, 0.5)"
        availability = { up = "exponential(5h)", down = "exponential(1h)" }
        cuts = { every = "exponential(2h)", lasting = "5min" }
        loses = 0.02
        [links.wan]
        between = ["*", "home"]
        bandwidth = "1MB/s"
        start = "500ms"
        shared = true
        [server]
        deaths = 100
        [bags.main]
        submit = "2h"
        tasks = 150
        duration = "weibull(0.8, 10min)"
        fails = 0.05
        reads = "exponential(5MB)"
        leaves = "1MB"
        retries = 20
        time = "1h"
    """
    for name, seed in (("one", 4), ("two", 4), ("other", 5)):
        pages.write(played(text, seed)[1], tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 16 and {"asked.csv", "queued.svg", "transfers.csv"} <= set(files)
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert (tmp_path / "one" / "attempts.csv").read_bytes() != (tmp_path / "other" / "attempts.csv").read_bytes()


def test_scenarios_with_different_policies_have_same_tasks() -> None:
    walls = []
    for provision in ("swarm", "demand"):
        _, record = played('[sites.a]\nprocessors = 8\n[bags.main]\ntasks = 30\nduration = "exponential(5min)"\n'
                           f'provision = "{provision}"\n')
        walls.append(sorted((each.task, each.end - each.start) for each in record.attempts() if each.counts))
    assert walls[0] == walls[1] and len(walls[0]) == 30


def test_speed_cores_and_targets_change_wall_clock() -> None:
    text = '[hosts.fast]\ncores = 4\nspeed = 2\n[bags.main]\ntasks = 40\nduration = "10min"\n'
    _, record = played(text)
    assert record.summary(1)["wall_clock"] == pytest.approx(50 * 60_000, rel=0.01)
    _, record = played(text + '[bags.main.targets.then]\nafter = ["main"]\ncores = 4\ntasks = 2\nduration = "10min"\n')
    assert record.summary(1)["wall_clock"] == pytest.approx(60 * 60_000, rel=0.01)
    then = [each for each in record.attempts() if each.task >= 40]
    assert min(each.start for each in then) >= max(each.end for each in record.attempts() if each.task < 40)


PIPELINE = """
    [hosts.here]
    count = 2
    latency = "1ms"
    [hosts.there]
    count = 2
    latency = "1ms"
    [links.wan]
    between = ["here", "there"]
    bandwidth = "1MB/s"
    start = "1s"
    [bags.main]
    tasks = 24
    duration = "uniform(30s, 90s)"
    leaves = "20MB"
    select = "{select}"
    [bags.main.targets.parse]
    follows = "main"
    tasks = 24
    duration = "1s"
"""


def test_data_conscious_selection_avoids_transfers_between_sites() -> None:
    """A file between the sites takes 21 s; within a site it takes next to no time."""
    found = {}
    for select in ("fcfs", "data-conscious"):
        _, record = played(PIPELINE.format(select=select))
        far = [each for each in record.transfers if each.place.split()[1] != each.site]
        found[select] = len(far), record.summary(1)["wall_clock"]
        begin = {each.number: each.start for each in record.attempts() if each.counts}
        assert all(begin[each.attempt] - each.at >= 21_000 for each in far if each.attempt in begin)
        ends = {each.task: each.end for each in record.attempts() if each.counts}
        assert all(ends[task] < ends[task + 24] for task in range(24))
    assert found["fcfs"][0] > 3 * found["data-conscious"][0] and found["fcfs"][1] > found["data-conscious"][1]


def test_shared_link_of_scenario_divides_bandwidth() -> None:
    """Four hosts read 10 MB at once over 1 MB/s: 40 s for all, if they share; 10 s, if not."""
    text = HOSTS + '[links.l]\nbetween = ["lab", "home"]\nbandwidth = "1MB/s"\nshared = {}\n' \
        '[bags.main]\ntasks = 4\nduration = "1s"\nreads = "10MB"\n'
    for shared, seconds in (("true", 41), ("false", 11)):
        _, record = played(text.format(shared))
        assert record.summary(1)["wall_clock"] == pytest.approx(seconds * 1000, abs=600)


def test_client_polls_all_results_or_collects_them_in_sequence() -> None:
    """Five tasks of a minute, submitted one by one, all run at once; a collecting client takes one result at a time."""
    text = '[hosts.lab]\ncount = 5\n[bags.main]\ntasks = 5\nduration = "1min"\nclient = {}\n'
    ends = {}
    for kind, more in (("poll", ""), ("collect", ', fetch = "10s"')):
        run, record = played(text.format(f'{{ kind = "{kind}", every = "5s", call = "2s"{more} }}'))
        (found,) = run.summaries()
        assert run.finished and found["accepted"] == found["tasks"] == 5 == len(record.bags)
        assert found["wall_clock"] == pytest.approx(68_000, abs=1_000)  # the first submitted at 2 s, the last at 10 s
        ends[kind] = found["client_ended"]
    assert 70_000 <= ends["poll"] <= 76_000 and 110_000 <= ends["collect"] <= 125_000


def test_sjf_runs_shortest_task_first() -> None:
    text = '[hosts.one]\n[bags.main]\ntasks = 30\nduration = "uniform(1min, 1h)"\nselect = "sjf"\n'
    _, record = played(text)
    walls = [each.end - each.start for each in sorted(record.attempts(), key=lambda each: each.start) if each.counts]
    assert walls == sorted(walls)


def test_record_holds_intents_with_their_times() -> None:
    _, record = played('[sites.a]\nprocessors = 2\nstartup = "10s"\n[bags.main]\ntasks = 6\nduration = "5min"\n')
    ran = [each for each in record.asked.values() if each.running >= 0]
    assert len(ran) == 2 and all(each.made <= each.queued <= each.running for each in ran)
    assert max(y for series in pages.queued(record) for y in series.y) >= 4


def test_cut_off_host_keeps_working_and_reports_later() -> None:
    text = HOSTS + 'cuts = { every = "10min", lasting = "10min" }\n' + BAG
    run, record = played(text)
    assert run.finished and record.summary(1)["accepted"] == 20
    free = played(HOSTS + BAG)[1].summary(1)["wall_clock"]
    assert free < record.summary(1)["wall_clock"] < 3 * free


@pytest.mark.parametrize("where", ["[server]\n{}" + HOSTS, HOSTS + "{}", "[sites.a]\nprocessors = 4\n{}"])
def test_outage_stops_new_starts_and_loses_no_work(where: str) -> None:
    """For fifty minutes from the tenth on, running tasks go on, and granted tasks start until the lease is out."""
    dark = 'dark = [{ at = "10min", lasting = "50min" }]\n'
    text = where.format(dark) + '[bags.main]\ntasks = 40\nduration = "2min"\n'
    run, record = played(text)
    assert run.finished and record.summary(1)["accepted"] == 40 and record.summary(1)["redundant"] == 0
    starts = [each.start for each in record.attempts() if each.counts]
    assert not [at for at in starts if 13 * 60_000 < at < 60 * 60_000] and max(starts) >= 60 * 60_000


def test_run_stops_at_until_with_tasks_left() -> None:
    run, record = played('until = "12min"\n' + HOSTS + BAG)
    assert not run.finished and run.world.engine.now == 720_000 and record.summary(1)["accepted"] == 8


def test_background_load_from_log_delays_own_job(tmp_path: Path) -> None:
    """Nine jobs have the whole machine for an hour each; ours comes after the first and passes none of them."""
    job = "{} {} 0 3600 4 -1 -1 4 3600 -1 1 1 1 -1 -1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text("".join(job.format(n, n * 10) for n in range(1, 10)))
    text = ('[sites.a]\nprocessors = 4\ndiscipline = "fcfs"\nbackground = { log = "log.swf" }\nwall = "2h"\n'
            '[bags.main]\nsubmit = "5min"\nduration = "10min"\n')
    _, record = played(text, base=tmp_path)
    assert record.summary(1)["ended"] == pytest.approx((9 * 3600 + 600) * 1000, rel=0.01)


def test_documented_defaults_are_those_of_the_code() -> None:
    config, machines = Config(), Machines(1)
    for key in ("lease", "park", "idle", "silence", "prefetch", "deaths"):
        text = words.SERVER[key].default
        assert words.SERVER[key].read(int(text) if text.isdecimal() else text, key) == getattr(config, key), key
    for key, field in (("count", "count"), ("cores", "cores"), ("latency", "latency")):
        text = words.HOSTS[key].default
        assert words.HOSTS[key].read(int(text) if text.isdecimal() else text, key) == getattr(machines, field), key


# --- broken scenarios ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "line", "says"), [
    (HOSTS + BAG + 'fail-over = "lb"\n', 6, "there is no site 'lb'"),
    ("[hosts.lab]\ncont = 4\n" + BAG, 2, "did you mean 'count'"),
    ("[host.lab]\ncount = 4\n" + BAG, 1, "did you mean 'hosts'"),
    ("[hosts.lab]\ncount = 0\n" + BAG, 2, "1 or more"),
    ("[hosts.lab]\ncount = 1000000000\n" + BAG, 2, "can be simulated"),
    ("[hosts.lab]\ncount = 4\nspeed = -1\n" + BAG, 3, "negative"),
    ("[hosts.lab]\nspeed = 0\n" + BAG, 2, "larger than 0"),
    ("[hosts.lab]\nlatency = \"-5ms\"\n" + BAG, 2, "not a duration"),
    ("[hosts.lab]\nsite = \"nroth\"\n[sites.north]\n" + BAG, 2, "did you mean 'north'"),
    ("[hosts.lab]\navailability = { up = \"weibul(0.4, 4h)\", down = \"1h\" }\n" + BAG, 2, "did you mean 'weibull'"),
    ("[hosts.lab]\navailability = { up = \"1h\" }\n" + BAG, 2, "availability needs down"),
    ("[hosts.lab]\navailability = { up = \"1ms\", down = \"1h\" }\n" + BAG, 2, "shorter than a second"),
    ("[hosts.lab]\nsuspends = true\n" + BAG, 2, "say availability, too"),
    ("[sites.a]\nprocessors = 4\nbackground = { busy = 1.7 }\n" + BAG, 3, "from 0 to 1"),
    ("[sites.a]\nprocessors = 4\nbackground = { log = \"none.swf\" }\n" + BAG, 3, "there is no file 'none.swf'"),
    ("[sites.a]\nprocessors = 4\nbackground = { busy = 0.5, log = \"x\" }\n" + BAG, 3, "one or the other"),
    ("[sites.a]\ndiscipline = \"easy\"\n" + HOSTS + BAG, 2, "how many processors"),
    ("[sites.a]\nprocessors = 4\ncores = 8\n" + BAG, 3, "8 cores on a machine of 4"),
    ("[sites.a]\nprocessors = 4\ndiscipline = \"lottery\"\n" + BAG, 3, "known: fcfs, easy"),
    (HOSTS + "[bags.main]\ntasks = 1000000000000\nduration = \"1s\"\n", 4, "can be simulated"),
    (HOSTS + "[bags.main]\ntasks = 10\n", 3, "how long does a task take"),
    (HOSTS + BAG + "cores = 3\n", 3, "fits on no host"),
    (HOSTS + BAG + "select = \"best\"\n", 6, "best"),
    (HOSTS + BAG + "provision = \"swram\"\n", 6, "did you mean 'swarm'"),
    (HOSTS + BAG + "[bags.main.targets.b]\nafter = [\"mian\"]\nduration = \"1s\"\n", 7, "did you mean 'main'"),
    (HOSTS + BAG + "[bags.main.targets.b]\nafter = [\"c\"]\nduration = \"1s\"\n"
     "[bags.main.targets.c]\nafter = [\"b\"]\nduration = \"1s\"\n", 7, "wait for each other"),
    (HOSTS + "[links.l]\nbetween = [\"lab\", \"home\"]\nbandwidth = \"-5MB/s\"\n" + BAG, 5, "not a size"),
    (HOSTS + "[links.l]\nbetween = [\"lab\", \"home\"]\nbandwidth = \"0\"\n" + BAG, 5, "larger than 0"),
    (HOSTS + "[links.l]\nbetween = [\"lba\", \"home\"]\nbandwidth = \"5MB/s\"\n" + BAG, 4, "did you mean 'lab'"),
    (HOSTS + "[links.l]\nbetween = [\"lab\", \"home\"]\n" + BAG, 3, "needs bandwidth"),
    (HOSTS + BAG + "staged = [\"lob\"]\n", 6, "did you mean 'lab'"),
    (HOSTS + "dark = [{ at = \"1h\" }]\n" + BAG, 3, "lasting = "),
    ("[sites.a]\nprocessors = 4\nrefresh = \"1ms\"\n" + BAG, 3, "a second or more"),
    (HOSTS + BAG + "client = { every = \"3s\" }\n", 6, "client needs a kind"),
    (HOSTS + BAG + "conscious = { penalty = 3 }\n", 6, "data-conscious"),
    (HOSTS + BAG + "[bags.main.targets.b]\nfollows = \"main\"\nduration = \"1s\"\n", 7, "one by one"),
    (HOSTS + BAG + "[server]\nlease = 60\n", 7, "not a duration"),
    (HOSTS + "[bags]\nmain = 3\n", 4, "must be a table"),
    (HOSTS + "[bags.'a b']\nduration = '1s'\n", 3, "cannot be a name"),
    (BAG, 0, "nowhere to run"),
    (HOSTS, 0, "has no bag"),
    ("until = 5 5", 1, "not TOML"),
    ("", 0, "has no bag"),
])  # fmt: skip
def test_broken_scenario_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        scenario.parse(text, "it.toml")
    assert says in str(caught.value), str(caught.value)
    assert caught.value.where == (f"it.toml:{line}" if line else "it.toml")


def test_broken_log_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text("; fine\n1 2 3\n")
    (tmp_path / "it.toml").write_text('[sites.a]\nprocessors = 4\nbackground = { log = "log.swf" }\n' + BAG)
    with pytest.raises(BadInput, match="18 numbers") as caught:
        Run(scenario.load(tmp_path / "it.toml"), 1)
    assert caught.value.where == f"{tmp_path / 'log.swf'}:2"


STUCK = """
[hosts.h]
count = 2
[bags.b]
tasks = 10
duration = "10min"
{}
"""


def test_run_ends_with_reason_when_policy_matches_no_host() -> None:
    run, record = played(STUCK.format("requirements = 'Host.Site == \"nosuch\"'"))
    assert not run.finished and record.done == 0
    assert run.why.startswith("b: no pilot can run it: h: requirements (Host.Site == \"nosuch\" is false")


def test_scenario_bag_has_default_replication_and_takes_caps() -> None:
    run, _ = played(STUCK.format('replicas-share = "5%"'))
    bag = next(iter(run.world.server.core.state.bags.values()))
    assert bag.replicate_setting == "tail-safe" and bag.policy == {"replicas-share": "5%"}


def test_run_waits_for_hosts_through_long_outage() -> None:
    dark = 'dark = [{ at = "1h", lasting = "96h" }]'
    run, _ = played(f"[hosts.h]\ncount = 60\n{dark}\n[bags.b]\ntasks = 600\nduration = \"20min\"\n")
    assert run.finished
