"""`rerun` runs again what failed or what a changed file concerns, and keeps the rest."""

from __future__ import annotations

from tests.live.real import CommandLine

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
