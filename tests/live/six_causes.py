"""A sweep in which tasks fail in six ways, and what `windfall run` must say about it.

    python -m tests.live.six_causes [TASKS]     (default: 50,000; scripts/soak causes)
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.live.real import CommandLine, serving

EVERY = 200  # tasks of which six fail: 3 %

BAG = """\
[bag]
name = "mixed"
command = "sh mixed.sh {n}"
[sweep]
n = "0..LAST"
[task]
retries = 0
inputs = ["mixed.sh"]
outputs = ["out-{n}.txt"]
[check]
match = "done"
[targets.slow]
command = "sleep 30"
time = "5ms"
[targets.slow.sweep]
i = "1..EACH"
"""

SCRIPT = """\
case $(($1 % 200)) in
    11) exit 3 ;;
    33) kill -9 $$ ;;
    77) echo oops > out-$1.txt; exit 0 ;;
    99) echo done; exit 0 ;;
    121) exec no-such-program-anywhere ;;
esac
echo $1 > out-$1.txt
echo done
"""

CAUSES = {  # what the summary says → the remainder that fails so
    "exit 3": 11,
    "killed by signal 9": 33,
    "ran past the time limit": None,  # the target `slow`, which comes last: a limit is tripled three times
    "does not match": 77,
    "is missing": 99,
    "exit 127": 121,
}


def walk(windfall: CommandLine, tasks: int) -> None:
    """Runs the sweep, reads the summary, runs each command it names."""
    windfall.write("mixed.sh", SCRIPT)
    each = tasks // EVERY
    main = tasks - each
    windfall.write("mixed.toml", BAG.replace("LAST", str(main - 1)).replace("EACH", str(each)))
    done = windfall("run", "mixed.toml", timeout=60 + tasks / 20)
    assert done.returncode == 1, done.stderr
    found = re.findall(r"^ +([\d,]+) × (.*?)  \(task .*\n +windfall logs .* windfall (retry .*)$", done.stderr, re.M)
    failing = {
        says: range(main, tasks) if remainder is None else range(remainder, main, EVERY)
        for says, remainder in CAUSES.items()
    }
    failed = sum(map(len, failing.values()))
    assert f"{tasks - failed:,} succeeded, {failed:,} failed" in done.stderr, done.stderr
    assert len(found) == len(CAUSES), done.stderr
    for says, wanted in failing.items():
        ((count, command),) = [(count, command) for count, text, command in found if says in text]
        assert int(count.replace(",", "")) == len(wanted), done.stderr
        _check_retry(windfall, command, list(wanted), tasks)


def _check_retry(windfall: CommandLine, command: str, wanted: list[int], tasks: int) -> None:
    """Check that the command retries exactly the wanted tasks: only their generation has changed."""
    before = _generations(windfall)
    answer: Any = windfall.json(*shlex.split(command))
    assert answer["count"] == len(wanted)
    assert windfall("wait", "mixed", timeout=60 + tasks / 20).returncode == 1
    after = _generations(windfall)
    changed = [task for task, generation in after.items() if generation != before[task]]
    assert changed == wanted, command


def _generations(windfall: CommandLine) -> dict[int, int]:
    return {row["task"]: row["generation"] for row in windfall.json("results", "mixed", "--state", "failed")}


def main(tasks: int = 50_000) -> None:
    with TemporaryDirectory(prefix="windfall-causes-") as folder:
        home = Path(folder) / "home"
        with serving(home, "--pilot"):
            walk(CommandLine(home, Path(folder)), tasks)
    print(f"{tasks:,} tasks: six causes named, each retried alone")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
