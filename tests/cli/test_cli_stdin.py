"""Tasks from standard input: a table, APST's lines, a command per line."""

from __future__ import annotations

import subprocess
import sys

from tests.live.real import CommandLine, environment


def given(windfall: CommandLine, text: str | bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with this standard input."""
    return subprocess.run(
        [sys.executable, "-m", "windfall", *words], cwd=windfall.folder, env=environment(windfall.home),
        input=text if isinstance(text, bytes) else text.encode(), capture_output=True, timeout=120, check=False)


def outputs(windfall: CommandLine, name: str) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in (windfall.folder / f"{name}.results").iterdir()}


def test_table_from_standard_input_gives_the_points(windfall: CommandLine) -> None:
    done = given(windfall, 'x,y\n1,2\n3,"4 5"\n', "run", "echo {y} > o-{x}", "--csv", "-", "--output", "o-{x}",
                 "--name", "piped")
    assert done.returncode == 0, done.stderr
    assert outputs(windfall, "piped") == {"o-1": "2", "o-3": "4 5"}


def test_lines_from_standard_input_are_tasks(windfall: CommandLine) -> None:
    done = given(windfall, "echo a > {b}\n\n# a comment\ntest -e '{b}' && exit 3\n", "run", "-", "--retries", "0",
                 "--name", "lines")
    assert done.returncode == 1 and b"2 tasks: 1 succeeded, 1 failed" in done.stderr
    nothing = given(windfall, "", "run", "-")
    assert nothing.returncode == 2 and b"standard input: the file has no tasks" in nothing.stderr
    spoiled = given(windfall, b"echo\n\xff\n", "run", "--apst", "-")
    assert spoiled.returncode == 2 and b"standard input:2: the tasks are not UTF-8" in spoiled.stderr


def test_tasks_from_standard_input_run_again_with_their_files_of_now(windfall: CommandLine) -> None:
    windfall.write("a.sh", "echo old $1 > o-$1")
    for x in (1, 2):
        windfall.write(f"in-{x}", str(x))
    lines = "sh a.sh 1 ; in: a.sh ; out: o-1\nsh a.sh 2 ; in: a.sh -> a.sh, in-2 ; out: o-2 ; cost: 2\n"
    assert given(windfall, lines, "run", "--apst", "-", "--name", "apst-again").returncode == 0
    assert given(windfall, "x\n1\n2\n", "run", "cat in > c-{x}", "--csv", "-", "--input", "in-{x} -> in", "--output",
                 "c-{x}", "--name", "csv-again").returncode == 0
    windfall.write("in-2", "two")
    again = windfall("rerun", "apst-again")
    assert "changed: input in-2" in again.stderr and "1 of 2 tasks to run again" in again.stderr, again.stderr
    assert windfall.json("rerun", "csv-again")["again"] == 1
    assert windfall.json("rerun", "csv-again")["again"] == 0
    assert outputs(windfall, "csv-again") == {"c-1": "1", "c-2": "two"}
    windfall.write("a.sh", "echo new $1 > o-$1")
    assert windfall.json("rerun", "apst-again")["again"] == 2
    assert outputs(windfall, "apst-again") == {"o-1": "new 1", "o-2": "new 2"}
