"""Last words of a job: those that our own script and pilot write, and those of shells and interpreters."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from windfall.pilot import bundle
from windfall.provision.job_log import cause, last
from windfall.provision.trial import _run_to_end
from windfall.sites.dialects import slurm
from windfall.sites.dialects.job import Job, Shape


@pytest.mark.parametrize(("log", "kind", "says"), [
    ("windfall-job: no python: python3.99\n", "python", "no python3.99 on the node"),
    ("/bin/sh: 9: exec: python3: not found\n", "python", "no python3 on the node"),
    ("windfall-pilot: Python 2.7 is too old: 3.6 is the oldest\n", "old", "Python 2.7"),
    ("python3: can't open file '/home/me/windfall/x/pilot.pyz': [Errno 2] No such file or directory\n", "folder",
     "/home/me/windfall/x/pilot.pyz"),
    ("windfall-job: damaged: pilot-0.pyz\n", "damaged", "pilot-0.pyz on the node is not the pilot"),
    ("windfall: pilot.pyz is neither in /home/me/wf nor beside the job: is that folder shared?\n", "folder",
     "/home/me/wf"),
    ("windfall-pilot: cannot read the ticket windfall/x/ticket.json: No such file\n", "folder", "windfall/x/ticket"),
    ("windfall-pilot: no server at 10.0.0.1:8765: Connection refused; trying again\n", "route", "10.0.0.1:8765"),
    ("windfall-pilot: could not enrol: no server at h:1: timed out\n", "route", "h:1: timed out"),
    ("windfall-pilot: the server's certificate is not the one in the ticket\n", "trust", "another machine or program"),
    ("OSError: [Errno 28] No space left on device: '/tmp/x'\n", "disk", "No space left"),
    ("windfall-pilot: ticket.json can be read by others (mode 0644)\n", "refused", "mode 0644"),
])  # fmt: skip
def test_job_log_tells_the_cause(log: str, kind: str, says: str) -> None:
    found = cause("some module says hello\n" + log)
    assert found is not None and found.kind == kind and says in found.says
    assert found.cure or kind == "refused"


def test_cause_is_not_sure_while_the_pilot_tries_again() -> None:
    tries = "windfall-pilot: no server at h:1: timed out; trying again\n"
    assert not cause(tries).sure and cause(tries + "windfall-pilot: could not enrol\n").sure  # type: ignore[union-attr]
    assert cause("windfall-pilot: enrolled at h:1 with 4 cores\n") is None and cause("") is None


def test_a_script_says_that_python_is_missing() -> None:
    text = slurm.render(Job("abc-1", Shape(60), ("/no/such/python3", "pilot.pyz")))
    done = subprocess.run(["/bin/sh"], input=text, capture_output=True, text=True, timeout=20)
    found = cause(done.stderr)
    assert done.returncode == 127 and found is not None and found.says == "there is no /no/such/python3 on the node"


def test_a_script_runs_the_file_that_was_put_there_and_no_other(tmp_path: Path) -> None:
    """The pilot's file may have been cut off, or replaced, while the job waited in its queue."""
    file = tmp_path / "pilot.pyz"
    file.write_text("print('a pilot')")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    command = (sys.executable, "pilot.pyz")
    text = slurm.submit(Job("abc-1", Shape(60), command, 1, str(tmp_path), files=("pilot.pyz",), digest=digest)).stdin

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(["/bin/sh"], input=text, capture_output=True, text=True, timeout=20, cwd="/")

    assert run().stdout == "a pilot\n"
    file.write_text("print('another')")
    done = run()
    found = cause(done.stderr)
    assert (done.returncode, done.stdout) == (72, "") and found is not None and found.kind == "damaged", done.stderr


def test_the_pilot_says_that_python_is_too_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 5, 2, "final", 0))
    with pytest.raises(SystemExit) as ended:
        exec(bundle._MAIN, {})
    found = cause(capsys.readouterr().err)
    assert ended.value.code == 3 and found is not None and found.kind == "old" and "3.5" in found.says


@given(st.text(max_size=200))
def test_hostile_log_gives_printable_text_or_no_cause(log: str) -> None:
    found = cause("windfall-pilot: " + log)
    assert found is None or not any(ord(char) < 32 for char in found.says)
    assert last(log).count("\n") < 5


def test_cleanup_finishes_before_its_cancellation_is_passed_on() -> None:
    """A person may press Ctrl-C several times meanwhile; the cancellation follows the cleanup."""
    done = []

    async def clean() -> None:
        await asyncio.sleep(0.2)
        done.append(True)

    async def play() -> None:
        task = asyncio.ensure_future(_run_to_end(clean()))
        for _ in range(3):
            await asyncio.sleep(0.02)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())
    assert done == [True]


@pytest.mark.parametrize("line", ["1" * 60_000, "1: " + "python" * 10_000, "line " * 12_000, "1: " * 20_000])
def test_no_log_takes_long(line: str) -> None:
    """A pattern with quadratic run time would exceed the test's time limit."""
    assert cause(line) is None
