import hashlib
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.model.everything import texts

from windfall.errors import BadInput, Mistakes, TooLarge
from windfall.model.bagfile import reader
from windfall.model.checks.bag import setting, validate
from windfall.model.spec import Bag, Derived, Range, Values, Zip
from windfall.model.templates.render import Renderer, source_count

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))

FULL = """\
[bag]
name = "ldla"
command = "ldla --position {position} --seed {seed} --out {out}"
effects = "external"
[sweep]
position = "1..200"
seed = [1, 2, 3]
fixed = true
out = "result-{position}-{seed}.txt"
[[sweep.zip]]
a = ["x", "y"]
b = "0.5..1:0.5"
[task]
cores = 2
memory = "2GB"
gpus = 1
disk = "1GiB"
time = "30min"
expect = "5min"
cost = "{position}"
outputs = ["{out}"]
retries = 5
memory-retries = 2
time-retries = 1
environment = { OMP_NUM_THREADS = 2, SEED = "{seed}" }
setup = ["module load gcc"]
priority = 3
grace = "10s"
[check]
exit = [0, 3]
file = "{out}"
match = "converged"
[policy]
select = "sjf"
[targets.merge]
after = ["main"]
command = ["merge", "{k}"]
memory = "4GB"
[targets.merge.sweep]
k = "1..2"
[targets.merge.check]
exit = 1
"""


def test_batch_policies_are_read_from_the_bag_file():
    policy = reader.parse(FULL.replace('"external"', '"none"').replace("select =", "batch = 16\nselect =")).bag.policy
    assert (policy.batch, policy.batch_timeout) == (16, 30_000)
    text = '[bag]\nname = "b"\ncommand = "true"\n[policy]\nbatch = 4\nbatch-timeout = "2min"'
    assert reader.parse(text).bag.policy.batch_timeout == 120_000


def test_every_key_of_the_bag_file_is_read():
    bag = reader.parse(FULL).bag
    main, merge = bag.targets
    assert (bag.name, bag.effects, bag.policy.select) == ("ldla", "external", "sjf")
    assert main.source.axes == [
        Range(name="position", first=1, last=200),
        Values(name="seed", values=[1, 2, 3]),
        Values(name="fixed", values=[True]),
        Zip(columns=[Values(name="a", values=["x", "y"]), Values(name="b", values=[0.5, 1.0])]),
    ]
    assert main.source.derived == [Derived(name="out", template="result-{position}-{seed}.txt")]
    assert (main.resources.cores, main.resources.memory, main.resources.gpus, main.resources.disk) == (
        2,
        2 * 10**9,
        1,
        1 << 30,
    )
    assert (main.time, main.expect, main.grace, main.cost) == (1_800_000, 300_000, 10_000, "{position}")
    assert (main.outputs, main.retries, main.memory_retries, main.time_retries) == (["{out}"], 5, 2, 1)
    assert (main.environment, main.setup, main.priority) == (
        {"OMP_NUM_THREADS": "2", "SEED": "{seed}"},
        ["module load gcc"],
        3,
    )
    assert (main.check.exit, main.check.file, main.check.match) == ([0, 3], ["{out}"], "converged")
    assert (merge.name, merge.after, merge.command, merge.check.exit) == ("merge", ["main"], ["merge", "{k}"], [1])
    assert source_count(main.source) == 200 * 3 * 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_bag_files_are_valid(path):
    validate(reader.load(path).bag)


# old text, new text, line, what the message says, what the hint says
WRONG = [
    ("cores = 2", "core = 2", "no key 'core'", "'cores'"),
    ("cores = 2", "wibble = 2", "no key 'wibble'", "cores"),
    ("cores = 2", 'cores = "two"', "whole number", ""),
    ("cores = 2", "cores = true", "whole number", ""),
    ("cores = 2", "cores = 0", "1 or more", ""),
    ("cores = 2", "nodes = 0", "1 or more", ""),
    ("cores = 2", "select = 2", "no key", "belongs in [policy]"),
    ('memory = "2GB"', "memory = 2", "not a size", "2GB"),
    ('time = "30min"', 'time = "30 mim"', "not a duration", "30min"),
    ('"{out}"]', '"/tmp/{out}"]', "working directory", "below"),
    ('"{out}"]', '"../{out}"]', "working directory", ""),
    ('"{out}"]', '"{out} @stay"]', "left in place", ""),
    ("retries = 5", "retries = 5000", "retries must be 0 to 1000", ""),
    ("time-retries = 1", "time-retries = 4", "time-retries must be 0 to 3", ""),
    ("retries = 5", 'inputs = ["nothing.dat"]', "cannot be read", "folder of the bag file"),
    ("retries = 5", 'inputs = ["."]', "directory", ""),
    ("retries = 5", 'inputs = ["site:x/y"]', "absolute path", "site:/"),
    ("retries = 5", 'inputs = ["site:"]', "absolute path", "site:/"),
    ("retries = 5", 'inputs = ["in-{seed}"]', "task 0: the input 'in-1' cannot be read", "folder of the bag file"),
    ("retries = 5", 'inputs = ["in-{sede}"]', "{sede}", "{seed}"),
    ("retries = 5", 'inputs = ["a -> ../b"]', "working directory", ""),
    ('"converged"', '"conv(erged"', "regular expression", ""),
    ('select = "sjf"', 'select = "adaptive"', "does not exist", "fcfs, sjf"),
    ('select = "sjf"', 'attempt-deadline = "2 fortnights"', "not a duration", "1h30m"),
    ('select = "sjf"', 'budget = "100 hours"', "not a core time", "100 core-hours"),
    ('select = "sjf"', "budget = 100", "not a core time", "100 core-hours"),
    ('select = "sjf"', "replicas-per-task = 0", "replicas-per-task: '0' is not a valid value", "from 1 to 32"),
    ('select = "sjf"', "replicas-per-task = true", "replicas-per-task: True is not", "from 1 to 32"),
    ('select = "sjf"', "replicas-per-task = 2.5", "replicas-per-task: 2.5 is not", "from 1 to 32"),
    ('select = "sjf"', "replicas-share = 15", "replicas-share: '15' is not a valid value", "as in 15%"),
    ('select = "sjf"', 'replicas-share = "1001%"', "replicas-share: '1001%' is not", "up to 1000%"),
    ('select = "sjf"', 'replicas-cost = "3 hours"', "replicas-cost: '3 hours' is not a core time", "core-hours"),
    ('select = "sjf"', "fail-over = true", "must be a text", ""),
    ('select = "sjf"', 'fail-over = " "', "printable characters", ""),
    ('select = "sjf"', 'failover = "safe"', "failover", "fail-over"),
    ("select =", "deadline =", "does not exist yet", "select"),
    ("retries = 5", 'checkpoint = ["/s"]', "working directory", ""),
    ("retries = 5", 'modules = ["a b"]', "name of a module", "gcc"),
    ("retries = 5", 'container = "a b"', "is not the name of an image", "docker://"),
    ("retries = 5", 'scratch = "always"', "does not exist", "failed"),
    ("retries = 5", 'python = "nowhere"', "does not exist", "beside the bag file"),
    ("retries = 5", "whole-node = 1", "true or false", ""),
    ("exit = [0, 3]", 'schema = "nowhere.json"', "cannot be read", "relative to the bag file"),
    ("exit = [0, 3]", 'command = "validate {uot}"', "{uot}", "{out}"),
    ('"1..200"', '"1...200"', "'1...200' is not a range: write 1..200", ""),
    ('"external"', '"maybe"', "effects", "external"),
    ("{seed} --out", "{sede} --out", "{sede}", "{seed}"),
    ('"1..200"', '"1..x"', "not a range", "1..10"),
    ('"1..200"', '"200..1"', "empty", "negative step"),
    ('"1..200"', '"1..200:0"', "step 0", ""),
    ('"1..200"', '{ sample = "uniform(0,1)" }', "needs n", "n = 50"),
    ('"1..200"', '{ sample = "unifrom(0,1)", n = 5 }', "'unifrom' does not exist", "'uniform'"),
    ('"1..200"', '{ sample = "uniform(1,0)", n = 5 }', "smaller", "uniform(0, 1)"),
    ('"1..200"', '{ sample = "uniform(0)", n = 5 }', "two numbers", ""),
    ('"1..200"', '{ sample = "normal(0,1)", m = 5 }', "no key 'm'", ""),
    ("[1, 2, 3]", "[]", "empty", ""),
    ("[1, 2, 3]", "[1, [2]]", "a list cannot be a value", ""),
    ("[1, 2, 3]", "1979-05-27", "date", "quotes"),
    ("[1, 2, 3]", "nan", "finite", ""),
    ("[1, 2, 3]", "99999999999999999999", "64 bits", ""),
    ('["x", "y"]', '["x"]', "equally long", ""),
    ('out = "result', 'out = "{out}result', "circle", ""),
    ('out = "result', 'out = "{nix}result', "{nix}", ""),
    ('after = ["main"]', 'after = ["mian"]', "does not exist", "'main'"),
    ('after = ["main"]', 'after = ["merge"]', "circle", ""),
    ("[policy]", "[polcy]", "no key 'polcy'", "'policy'"),
    ('select = "sjf"', "batch = 16", "granted one by one", "leave batch out"),
    ('select = "sjf"', 'replicate = "tail-fast"', "never run twice at a time", "leave replicate out"),
    ('select = "sjf"', 'attempt-deadline = "1h"', "never run twice at a time", "leave attempt-deadline out"),
    ('select = "sjf"', "batch = 0", "1 or more", ""),
    ('select = "sjf"', "batch = 1001", "at most 1,000", ""),
    ('select = "sjf"', 'batch-timeout = "5s"', "has no effect without batch", "set batch"),
    ('select = "sjf"', 'batch-timeout = "5"', "batch-timeout", ""),
    ('select = "sjf"', "pipeline = true", "pipeline", "one target's tasks"),
    ("[policy]", "[captures]", "no key 'captures'", "'capture'"),
    ("[targets.merge.check]", "[targets.merge.task]", "has no table 'task'", "directly"),
    ('name = "ldla"', 'name = "ldla', "not TOML", ""),
    ('name = "ldla"', "name = 7", "a text", ""),
    ("{k}", "{main.output}", "only the output files of another target", "{main.outputs}"),
    ("{k}", "{other.outputs}", "does not wait for it", "after"),
    ("{k}", "--in={main.outputs}", "word of its own", "space"),
    ('"{out}"]', '"{main.outputs}"]', "only a command can use", ""),
]


SJF = 'select = "sjf"'


def test_overlong_attempt_deadline_is_refused_before_parsing():
    """The server parses policies, too, while other users wait."""
    began = time.process_time()
    with pytest.raises(TooLarge, match="at most 4,096"):
        setting("1ms" * 1_000_000, "attempt-deadline")
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(("line", "says", "hints", "column"), [
    ('replicate = "twice"', "replicate: there is no attribute 'twice'", "or one of none, deadline, tail-safe", 14),
    ('replicate = "Host.Cores > 1"', "replicate cannot use Host.Cores", "Replica", 14),
    ('attempt-deadline = "Tail"', "attempt-deadline must be a number", "number", 21),
])  # fmt: skip
def test_invalid_replication_policy_is_refused_with_its_column(line, says, hints, column):
    text = FULL.replace(SJF, line, 1)
    with pytest.raises(BadInput) as caught:
        reader.parse(text, "sweep.toml")
    number = text[: text.index(line)].count("\n") + 1
    assert says in caught.value.message and hints in caught.value.hint
    assert caught.value.where == f"sweep.toml:{number}:{column}"


@pytest.mark.parametrize(("line", "key", "text"), [
    ('replicate = "deadline"', "replicate", "deadline"),
    ('ReplicationRequirements = "NumberOfReplicas < 3"', "replicate", "NumberOfReplicas < 3"),
    ('attempt-deadline = "1h30m"', "attempt_deadline", "5400"),
    ('attempt-deadline = "500ms"', "attempt_deadline", "0.5"),
    ("per-host = 4", "per_host", "4"),
    ('Concurrency = "2 * Host.NumCpus"', "per_host", "2 * Host.NumCpus"),
    ('Deadline = "2 * Task.Time"', "attempt_deadline", "2 * Task.Time"),
    ("replicas-per-task = 3", "replicas_per_task", "3"),
    ('replicas-share = " 15 % "', "replicas_share", "15 %"),
    ('replicas-cost = "2.5 core-days"', "replicas_cost", "2.5 core-days"),
])  # fmt: skip
def test_replication_policy_is_stored_in_its_normal_form(line, key, text):
    text_of = FULL.replace('"external"', '"none"').replace(SJF, line, 1)
    assert getattr(reader.parse(text_of, "f.toml").bag.policy, key) == text


@pytest.mark.parametrize("text", ["0", "-5", "'0'", "'-5'", "' - 0.5'", "'0s'", "'0h 0ms'", "'0.0'", "'0e3'"])
@pytest.mark.parametrize("name", ["attempt-deadline", "Deadline"])
def test_attempt_deadline_of_zero_or_less_is_refused(name, text):
    """A deadline of 0 or less would silently be no deadline."""
    with pytest.raises(BadInput, match="leaves no time for an attempt") as caught:
        reader.parse(f"[bag]\ncommand = 'true'\n[policy]\n{name} = {text}\n", "f.toml")
    assert caught.value.where == "f.toml:4" and caught.value.hint == "leave it out for no deadline"


BATCHES, OWN_PILOTS = "batch = 4", 'provision = "msr"'


@pytest.mark.parametrize(("line", "way", "says", "hints"), [
    ('replicate = "tail-fast"', BATCHES, "replicate: tasks that go together in batches never run twice", "or batch"),
    ('replicate = "NumberOfReplicas < 3"', BATCHES, "replicate: tasks that go together", "leave replicate out"),
    ('attempt-deadline = "1h"', BATCHES, "attempt-deadline: tasks that go together", "leave attempt-deadline out"),
    ('replicate = "deadline"', OWN_PILOTS, "replicate: tasks with pilots of their own never", "or provision = msr"),
    ('attempt-deadline = "1h"', 'provision = "broker"', "attempt-deadline: tasks with pilots", "provision = broker"),
    ("per-host = 4", BATCHES, "per-host and batch exclude each other", "one slot"),
])  # fmt: skip
def test_replication_is_refused_for_tasks_that_never_run_twice(line, way, says, hints):
    text = FULL.replace('"external"', '"none"').replace(SJF, f"{way}\n{line}", 1)
    with pytest.raises(BadInput) as caught:
        reader.parse(text, "sweep.toml")
    assert says in caught.value.message and hints in caught.value.hint
    assert caught.value.where == f"sweep.toml:{text[: text.index(line)].count(chr(10)) + 1}"


@pytest.mark.parametrize("way", [BATCHES, OWN_PILOTS, 'provision = "broker"'])
def test_default_replication_does_not_conflict_with_other_policies(way):
    plain = FULL.replace('"external"', '"none"')
    assert reader.parse(plain.replace(SJF, way, 1), "f.toml").bag.policy.replicate == "tail-safe"
    without = reader.parse(plain.replace(SJF, f'{way}\nreplicate = "none"', 1), "f.toml")
    assert without.bag.policy.replicate == "none"


@pytest.mark.parametrize(("text", "line"), [
    ('[bag]\ncommand = "true"\n[task', 3), ('[bag]\ncommand = """true\n\n# end\n', 2),
    ('[bag]\ncommand = "p"\n[sweep]\nx = [1,\n  2\n', 4), ('[bag]\ncommand = "a"\ncommand = "b"\n', 3),
    ("x = '''", 1),
])
def test_file_that_is_not_toml_is_an_error_with_the_line_of_the_entry(text, line):
    with pytest.raises(BadInput) as caught:
        reader.parse(text, "sweep.toml")
    assert caught.value.where == f"sweep.toml:{line}" and caught.value.text and not caught.value.hint


@pytest.mark.parametrize(("old", "new", "says", "hints"), WRONG, ids=[new for _, new, _, _ in WRONG])
def test_mistake_in_a_bag_file_is_reported_with_its_line(old, new, says, hints):
    assert old in FULL
    text = FULL.replace(old, new, 1)
    with pytest.raises(BadInput) as caught:
        reader.parse(text, "sweep.toml")
    error = caught.value
    assert says in error.message
    assert hints in error.hint
    line = FULL[: FULL.index(old)].count("\n") + 1
    line -= {"equally long": 1, "circle": error.text.startswith("[targets")}.get(says, 0)  # said of the table
    assert error.where == f"sweep.toml:{line}"
    assert error.text
    assert error.exit_code == 2


def mistakes_of(text):
    """Return the mistakes that the reader tells together."""
    with pytest.raises(Mistakes) as caught:
        reader.parse(text, "sweep.toml", Path("/nowhere"))
    assert caught.value.where == "sweep.toml" and caught.value.exit_code == 2
    assert caught.value.message.startswith(f"{len(caught.value.each)} mistakes")
    return caught.value.each


def test_all_mistakes_of_a_bag_file_are_reported_in_the_order_of_its_lines():
    found = mistakes_of("""\
[bag]
command = "prog {x} {y}"
[sweep]
x = "1...3"
y = "1..2:0"
[task]
memory = "two"
retrys = 3
cores = 0
inputs = ["absent.dat", "missing.dat"]
[check]
match = "("
[capture]
lod = 3
[policy]
select = "fifo"
rank = "Host.Corez"
""")
    lines = [int(each.where.split(":")[1]) for each in found]
    assert lines == sorted(lines) == [4, 5, 7, 8, 9, 10, 10, 12, 14, 16, 17], [str(each) for each in found]
    assert all(each.text for each in found)
    assert "did you mean 'retries'?" in found[3].hint


def test_semantic_mistakes_of_all_targets_are_reported_together():
    found = mistakes_of("""\
[bag]
command = "prog {x}"
[task]
memory = "two"
[targets.merge]
command = "merge"
setup = "\\u0000"
environment = { "A-B" = 1 }
[targets.plot]
command = "plot {z}"
outputs = ["/tmp/plot.png"]
""")
    assert [each.where for each in found] == [f"sweep.toml:{line}" for line in (2, 4, 8, 10, 11)], [*map(str, found)]


@pytest.mark.parametrize("text", [
    '[bag]\ncommand = "p {x}"\n[sweeep]\nx = "1..3"\n',
    '[bag]\ncomand = "p {x}"\n[sweep]\nx = "1..3"\n',
    '[bag]\ncommand = "p {x}"\n[sweep]\nx = "1...3"\n',
    '[bag]\ncommand = "p"\n[targets.m]\nafter = ["main"]\ncomand = "p {x}"\n[targets.m.sweep]\nx = 1\n',
    '[bag]\ncommand = "p"\n[task]\noutputs = 3\n[targets.m]\nafter = ["main"]\ncommand = "p {main.outputs}"\n',
    '[bag]\ncommand = "p"\n[capture]\nlod = { match = 3 }\n',
    '[bag]\ncommand = "p"\n[policy]\nbatch = "many"\nbatch-timeout = "1min"\n',
    '[bag]\ncommand = 3\n[task]\ncores = 2\n',
    '[bag]\ncommand = "p"\n[check]\nschema = 3\n',
])
def test_single_mistake_causes_no_second_message(text):
    with pytest.raises(BadInput) as caught:
        reader.parse(text, "sweep.toml", Path("/nowhere"))
    assert not isinstance(caught.value, Mistakes), str(caught.value)


def test_a_hundred_mistakes_are_counted_and_fifty_are_shown():
    text = '[bag]\ncommand = "p"\n[task]\n' + "".join(f"wrong{n} = {n}\n" for n in range(300))
    with pytest.raises(Mistakes) as caught:
        reader.parse(text, "sweep.toml")
    assert caught.value.message == "100 mistakes or more; the first 50 are shown"
    assert [each.where for each in caught.value.each] == [f"sweep.toml:{n}" for n in range(4, 54)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no command"),
        ("[bag]\nname='x'", "no command"),
        ("bag = 3", "must be a table"),
        ("[bag]\ncommand = []", "a text or a list"),
        ("[bag]\ncommand = ''", "no command"),
        ("[bag]\ncommand='p'\n[sweep]", "the sweep is empty"),
        ("[sweep]\nx=1\n[targets.a]\ncommand='p'", "main target"),
        ("[bag]\ncommand='p'\n[targets.main]\ncommand='q'", "main"),
        ("[bag]\ncommand='p'\n[targets]\na=1", "must be a table"),
        ("[bag]\ncommand='p'\n[targets.a]\nafter=['main']", "no command"),
        ("[bag]\ncommand='p'\n[sweep]\nzip=[1]", "vary together"),
        ("[bag]\ncommand='p'\n[[sweep.zip]]", "empty"),
        ("[bag]\ncommand='p'\n[sweep]\n'a b'=1", "name of a parameter"),
        ("x = " + "[" * 5000, "TOML"),
        ("[bag]\nx = " + "9" * 5000, "TOML"),
        ("[bag]\ncommand='p'\n[sweep.csv]\nfile='x'", "cannot be read"),
        ("[bag]\ncommand='p'\n[sweep]\ncsv='x'", "cannot name a parameter"),
        ("[bag]\ncommand='p'\n[sweep]\nlatin='x'", "cannot name a parameter"),
        ("[bag]\ncommand='p'\n[sweep.latin]\nn=5", "no parameters"),
        ("[bag]\ncommand='p'\n[sweep.latin]\nn=5\nx=3", "must be a text"),
        ("[bag]\ncommand='p'\n[capture]\nx=3", "regular expression"),
        ("[bag]\ncommand='p'\n[capture]\nx='('", "regular expression"),
        ("[bag]\ncommand='p'\n[capture]\nexit='1'", "already a fixed column of results"),
        ("[bag]\ncommand='p {x}'\n[sweep]\nx=1\n[capture]\nx='1'", "already a parameter"),
        ("[bag]\ncommand='p'\n[capture]\nx={file='../x', match='a'}", "working directory"),
    ],
)
def test_bag_file_of_the_wrong_shape_is_refused(text, says):
    with pytest.raises(BadInput) as caught:
        reader.parse(text, "f.toml")
    assert says in str(caught.value) or "nested" in str(caught.value)
    assert caught.value.where.startswith("f.toml")


def test_too_many_tasks_and_too_large_files_are_refused(monkeypatch, tmp_path):
    with pytest.raises(TooLarge, match="1,000,000,000,000 tasks"):
        reader.parse("[bag]\ncommand='p {x}'\n[sweep]\nx = '1..1000000000000'")
    monkeypatch.setattr(reader, "MAX_FILE", 10)
    (tmp_path / "b.toml").write_text("[bag]\ncommand='p'")
    with pytest.raises(TooLarge):
        reader.load(tmp_path / "b.toml")


def test_unreadable_bag_file_is_refused(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"[bag]\ncommand = '\xff'")
    for name, says in (
        ("nix.toml", "cannot read"),
        ("latin.toml", "UTF-8"),
        (".", "cannot read"),
        ("a\0b", "file name"),
    ):
        with pytest.raises(BadInput, match=says):
            reader.load(tmp_path / name)


def test_inputs_are_hashed_and_get_their_paths_and_modes(tmp_path):
    (tmp_path / "a.dat").write_bytes(b"alpha")
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    text = f"[bag]\ncommand='p'\n[task]\ninputs = ['a.dat', './run.sh -> bin/run', '{tmp_path}/a.dat -> z', './run.sh']"
    parsed = reader.parse(text, "x.toml", tmp_path)
    alpha = hashlib.sha256(b"alpha").hexdigest()
    inputs = parsed.bag.targets[0].inputs
    assert (inputs[0].path, inputs[0].blob, inputs[0].size, inputs[0].mode) == ("a.dat", alpha, 5, 0o644)
    assert [(each.path, each.mode) for each in inputs[1:]] == [("bin/run", 0o755), ("z", 0o644), ("run.sh", 0o755)]
    assert parsed.uploads[alpha].read_bytes() == b"alpha"


def test_two_inputs_at_the_same_path_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(BadInput, match="the same path"):
        reader.parse("[bag]\ncommand='p'\n[task]\ninputs = ['a', 'a -> a']", "x.toml", tmp_path)


def test_options_of_windfall_run_make_a_bag():
    parsed = reader.from_options("p {x} {y} {o}", ["x=1..3", "y=a,007,1.50,2", "o=r-{x}.txt"], "n", {"memory": "1GB"})
    target = parsed.bag.targets[0]
    assert target.source.axes == [Range(name="x", first=1, last=3), Values(name="y", values=["a", "007", "1.50", 2])]
    assert target.resources.memory == 10**9
    assert Renderer(target).command(0) == ["p", "1", "a", "r-1.txt"]
    for wrong in (["x"], ["=1"], ["x=1", "x=2"], ["x=5..1"], ["x y=1"]):
        with pytest.raises(BadInput):
            reader.from_options("p", wrong, "n", {})


@pytest.mark.parametrize("value", ["../up", "a..b", "v1..2/x", ".", "..", "1.5", "-", "hg38", ""])
def test_text_that_resembles_a_range_stays_a_constant(value):
    assert reader.axis("x", value) == Values(name="x", values=[value])


# --- five hundred mutated files ----------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts(FULL))
def test_mutated_bag_file_gives_a_bag_or_bad_input(text):
    try:
        bag = reader.parse(text, "mutant.toml", Path("/nowhere")).bag
    except BadInput as error:
        assert error.where.startswith("mutant.toml")
        assert error.message
        return
    assert isinstance(bag, Bag)
    for target in bag.targets:
        renderer = Renderer(target)
        for index in (0, renderer.count - 1):
            renderer.command(index), renderer.outputs(index), renderer.environment(index), renderer.params(index)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_random_text_is_bad_input(text):
    with pytest.raises(BadInput):
        reader.parse(text)


def test_byte_order_mark_of_an_editor_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_bytes(b'\xef\xbb\xbf[bag]\r\nname = "n"\r\ncommand = "true"\r\n')
    assert reader.load(path).bag.name == "n"


def test_command_cannot_use_files_of_a_target_without_outputs() -> None:
    text = '[bag]\nname = "n"\ncommand = "true"\n[targets.merge]\nafter = ["main"]\ncommand = "cat {main.outputs}"\n'
    with pytest.raises(BadInput, match="'main' has no outputs") as caught:
        reader.parse(text, "b.toml")
    assert caught.value.where == "b.toml:6"


def test_fail_over_names_a_site():
    text = '[bag]\nname = "b"\ncommand = "true"\n[policy]\nfail-over = "safe"\n'
    assert reader.parse(text).bag.policy.fail_over == "safe"
    assert reader.parse(text.replace("safe", "")).bag.policy.fail_over == ""


def test_budget_needs_time_limits():
    text = '[bag]\nname = "b"\ncommand = "true"\n[policy]\nbudget = "1.5 core-hours"\n'
    with pytest.raises(BadInput, match="every task needs a time limit"):
        reader.parse(text)
    bag = reader.parse(text + '[task]\ntime = "1min"\nnodes = 2\n').bag
    assert bag.policy.budget == 5_400_000 and bag.targets[0].resources.nodes == 2
