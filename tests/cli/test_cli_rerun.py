"""`rerun` runs again what failed or what a changed file concerns, and keeps the rest."""

from __future__ import annotations

from tests.live.real import CommandLine
from windfall import Client
from windfall.client.profile import load

BAG = """\
[bag]
name = "NAME"
command = "test -e ALLOWED || test {x} -le 2 && echo {x} > out-{x}"
[sweep]
x = "1..LAST"
[task]
outputs = ["out-{x}"]
retries = 0
"""


def write(windfall: CommandLine, name: str, last: int) -> str:
    text = BAG.replace("NAME", name).replace("LAST", str(last)).replace("ALLOWED", str(windfall.folder / "allowed"))
    return windfall.write(f"{name}.toml", text)


def test_rerun_finds_the_failed_tasks_that_came_by_extend(windfall: CommandLine) -> None:
    assert windfall.json("run", write(windfall, "extended", 2))["succeeded"] == 2
    assert windfall.json("run", write(windfall, "extended", 4), "--extend", "extended", code=1)["failed"] == 2
    failed = windfall("rerun", "extended")
    assert failed.returncode == 1 and "2 of 4 tasks to run again" in failed.stderr, failed.stderr
    windfall.write("allowed", "")
    done = windfall.json("rerun", "extended")
    assert (done["tasks"], done["succeeded"]) == (4, 4)
    assert (windfall.folder / "extended.results" / "out-4").read_text() == "4\n"


MENDED = """\
[bag]
name = "NAME"
command = "sh sim.sh {x}"
[sweep]
x = "1..4"
[task]
inputs = ["sim.sh"]
outputs = ["out-{x}"]
retries = 0
"""


def counts(windfall: CommandLine, *words: object, code: int = 0) -> tuple[int, int, int]:
    """Return how many tasks started again, have succeeded, and keep results of former files."""
    done = windfall.json("rerun", *words, code=code)
    return done["again"], done["succeeded"], done["outdated"]


def results(windfall: CommandLine, name: str) -> list[str]:
    return [file.read_text().strip() for file in sorted((windfall.folder / f"{name}.results").iterdir())]


def test_mended_script_runs_for_what_failed_and_then_for_the_rest(windfall: CommandLine) -> None:
    windfall.write("sim.sh", "[ $1 -le 2 ] && echo old $1 > out-$1")
    windfall("run", windfall.write("mended.toml", MENDED.replace("NAME", "mended")))
    windfall.write("sim.sh", "echo new $1 > out-$1")
    tried = windfall("rerun", "mended", "--dry-run")
    assert tried.returncode == 0 and "changed: input sim.sh" in tried.stderr, tried.stderr
    assert "4 of 4 tasks would run again (2 of them failed; --failed takes these alone)" in tried.stderr
    assert counts(windfall, "mended", "--failed") == (2, 4, 2)
    assert results(windfall, "mended") == ["old 1", "old 2", "new 3", "new 4"]
    asked = windfall("rerun", "mended.toml", "--failed")
    assert asked.returncode == 0 and "no task to run again: no task has failed" in asked.stderr
    assert "2 results of the former files stay" in asked.stderr, "no all-clear"
    assert counts(windfall, "mended.toml") == (2, 4, 0)
    assert results(windfall, "mended") == ["new 1", "new 2", "new 3", "new 4"]
    assert "nothing has failed or changed" in windfall("rerun", "mended").stderr
    assert counts(windfall, "mended", "--all") == (4, 4, 0)


def test_changed_file_of_one_task_runs_that_task_alone(windfall: CommandLine) -> None:
    """The second half of the points comes by options, so that only the bag knows their files."""
    for x in range(1, 5):
        windfall.write(f"d-{x}", f"data {x}")
    words = ("cat in > out-{x}", "--name", "readers", "--input", "d-{x} -> in", "--output", "out-{x}")
    bag = windfall.json("run", *words, "--sweep", "x=1..2")["bag"]
    windfall.json("run", *words, "--sweep", "x=3..4", "--extend", bag)
    for x in (2, 3):
        windfall.write(f"d-{x}", f"other {x}")
    assert counts(windfall, bag) == (2, 4, 0)
    assert results(windfall, "readers") == ["data 1", "other 2", "other 3", "data 4"]
    assert counts(windfall, bag) == (0, 4, 0)
    assert windfall.json("run", *words, "--sweep", "x=1..4", "--extend", bag)["tasks"] == 4, "it has all points"


def test_targets_after_a_changed_one_take_its_new_files(windfall: CommandLine) -> None:
    windfall.write("first.sh", "echo $1 > part-$1")
    windfall.write("chain.toml", """
[bag]
name = "chain"
command = "sh first.sh {x}"
[sweep]
x = "1..2"
[task]
inputs = ["first.sh"]
outputs = ["part-{x}"]
[targets.merge]
after = ["main"]
command = "cat {main.outputs} > all"
outputs = ["all"]
""")
    assert windfall.json("run", "chain.toml")["succeeded"] == 3
    windfall.write("first.sh", "echo 1$1 > part-$1")
    assert counts(windfall, "chain") == (3, 3, 0)
    assert (windfall.folder / "chain.results" / "all").read_text() == "11\n12\n"


def test_memory_of_the_bag_file_holds_for_what_failed(windfall: CommandLine) -> None:
    windfall.write("sim.sh", "echo $1 > out-$1; [ $1 != 3 ]")
    windfall("run", windfall.write("limits.toml", MENDED.replace("NAME", "limits")))
    windfall.write("limits.toml", MENDED.replace("NAME", "limits") + 'memory = "77MB"\n')
    done = windfall("rerun", "limits")
    assert done.returncode == 1 and "no result depends on it: memory" in done.stderr
    assert "1 of 4 tasks to run again" in done.stderr
    with Client(load(windfall.home / "server.json")) as client:
        assert client.task_spec("limits", 2)["memory"] == 77_000_000


def test_rerun_says_what_is_wrong_and_what_to_do(windfall: CommandLine) -> None:
    file = windfall.write("wrong.toml", MENDED.replace("NAME", "wrong"))
    windfall.write("sim.sh", "echo $1 > out-$1")
    unknown = windfall("rerun", file)
    assert unknown.returncode == 2 and "there is no bag 'wrong'" in unknown.stderr and f"run {file}" in unknown.stderr
    for _ in range(2):
        windfall("run", file)
    assert "2 bags are called 'wrong'; this is the latest" in windfall("rerun", file).stderr
    (windfall.folder / "sim.sh").unlink()
    gone = windfall("rerun", "wrong")
    assert gone.returncode == 2 and "the input 'sim.sh' cannot be read" in gone.stderr
    assert f"was described in {windfall.folder}" in gone.stderr
    sleeper = windfall.json("submit", "--name", "sleeper", "sleep 600")["bag"]
    runs = windfall("rerun", sleeper)
    assert runs.returncode == 3 and "still runs, with 1 task to go" in runs.stderr
    windfall("cancel", sleeper)


def test_files_of_a_rerun_land_where_those_of_the_run_did(windfall: CommandLine) -> None:
    windfall.write("sim.sh", "echo old > out-$1")
    file = windfall.write("placed.toml", MENDED.replace("NAME", "placed"))
    windfall.json("run", file, "-o", "there", "--files", "{x}/{path}")
    for what, text in (("placed", "new"), (file, "newer"), ("placed", "newest")):
        windfall.write("sim.sh", f"echo {text} > out-$1")
        windfall.json("rerun", what)
        assert (windfall.folder / "there" / "3" / "out-3").read_text().strip() == text
    assert not (windfall.folder / "placed.results").exists()


def test_rerun_of_a_bag_without_input_files_gives_no_all_clear(windfall: CommandLine) -> None:
    bag = windfall.json("run", "true")["bag"]
    done = windfall("rerun", bag)
    assert done.returncode == 0 and "names no input files" in done.stderr and f"rerun {bag} --all" in done.stderr


def test_rerun_needs_no_server(alone: CommandLine) -> None:
    alone.write("sim.sh", "exit 1")
    assert alone("run", alone.write("solo.toml", MENDED.replace("NAME", "solo"))).returncode == 1
    alone.write("sim.sh", "echo $1 > out-$1")
    done = alone("rerun", "solo")
    assert done.returncode == 0 and "4 of 4 tasks to run again" in done.stderr, done.stderr
    assert results(alone, "solo") == ["1", "2", "3", "4"]


def test_bag_with_a_large_description_is_compared_in_a_process_of_its_own(windfall: CommandLine) -> None:
    rows = [f"{x}{'.' * 2_000}" for x in range(200)]
    windfall.write("rows.csv", "\n".join(["x", *rows]))
    bag = windfall("submit", "true {x}", "--csv", "rows.csv", "--name", "wide").stdout.strip()
    windfall("cancel", bag)
    windfall("wait", bag)
    windfall.write("rows.csv", "\n".join(["x", *rows[:7], "other", *rows[8:]]))
    done = windfall("rerun", bag, "-n", "--changed")
    assert "changed: row 8 of the table" in done.stderr and "1 of 200 tasks would run again" in done.stderr, done.stderr
