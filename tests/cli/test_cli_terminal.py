"""Progress, colours and Ctrl-C on a real terminal, on a dumb one, and on none."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from tests.live.real import environment, until
from windfall.cli.present.output import say
from windfall.cli.watch.progress import Progress

CONTROL = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f]")


class Terminal:
    """A command on a terminal of its own: `seen` is its output, `type` its input."""

    def __init__(self, line, *arguments, columns=100, **env):
        self.controller, terminal = pty.openpty()
        os.environ.pop("NO_COLOR", None)
        subprocess.run(["stty", "cols", str(columns)], stdin=terminal, check=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windfall", *map(str, arguments)], cwd=line.folder, stdin=terminal, stdout=terminal,
            stderr=terminal, start_new_session=True, preexec_fn=_take_terminal,
            env=environment(line.home, **{"TERM": "xterm", **env}),
        )
        os.close(terminal)
        self.seen = ""

    def until(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            self._read(0.1)
        return self.seen

    def _read(self, seconds):
        if select.select([self.controller], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.controller, 65536).decode("utf-8", "replace")
            except OSError:
                return False
            return True
        return None

    def type(self, text):
        self.seen = ""
        os.write(self.controller, text.encode())

    def end(self, seconds=60):
        end = time.monotonic() + seconds
        while self.process.poll() is None or self._read(0):
            assert time.monotonic() < end, self.seen
            self._read(0.05)
        os.close(self.controller)
        return self.process.returncode


def _take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def waiting(windfall):
    """Submit a bag that no pilot can run; return its number, and a terminal with `windfall wait` on it."""
    bag = windfall.json("submit", "true", "--cores", "1000", "--name", "never")["bag"]
    terminal = Terminal(windfall, "wait", bag)
    terminal.until("0/1")
    yield bag, terminal
    if terminal.process.poll() is None:
        terminal.process.kill()
    windfall("cancel", bag)


def test_ctrl_c_asks_and_goes_on_or_detaches(windfall, waiting):
    bag, terminal = waiting
    terminal.type("\x03")
    terminal.until(f"bag {bag}: [d]etach")
    terminal.type("what?\n")
    terminal.until(f"bag {bag}: [d]etach")
    terminal.type("g\n")
    terminal.until("0/1")
    terminal.type("\x03")
    terminal.until("[c]ancel")
    terminal.type("\n")
    terminal.until(f"bag {bag} is kept; it goes on without you")
    assert terminal.end() == 130
    assert windfall.json("show", bag)["state"] not in ("cancelled", "failed", "succeeded")


def test_a_second_ctrl_c_detaches(windfall, waiting):
    bag, terminal = waiting
    terminal.type("\x03")
    terminal.until("[c]ancel")
    terminal.type("\x03")
    terminal.until(f"windfall wait {bag}")
    assert terminal.end() == 130


def test_cancel_at_the_prompt(windfall, waiting):
    bag, terminal = waiting
    terminal.type("\x03")
    terminal.until("[c]ancel")
    terminal.type("cancel\n")
    assert terminal.end() == 1
    assert f"bag {bag}: 1 task cancelled" in terminal.seen and "1 cancelled" in terminal.seen
    assert windfall.json("show", bag)["state"] == "cancelled"


def test_cancel_of_an_embedded_run(alone):
    terminal = Terminal(alone, "run", "sleep 60", "--name", "long")
    terminal.until("1 running")
    terminal.type("\x03")
    terminal.until("[c]ancel")
    terminal.type("c\n")
    assert terminal.end() == 1
    until(lambda: alone.json("ls")[0]["state"] == "cancelled")


FAILS = ["run", "sleep 0.4; exit {x}", "-s", "x=1,1,1,1,1,1", "--retries", "0"]


def test_a_terminal_gets_a_bar_and_red(windfall):
    terminal = Terminal(windfall, *FAILS)
    assert terminal.end() == 1
    assert "[####" in terminal.seen and "\x1b[K" in terminal.seen and "\x1b[31m" in terminal.seen


def test_no_color_means_no_colour(windfall):
    terminal = Terminal(windfall, *FAILS, NO_COLOR="1")
    assert terminal.end() == 1
    assert "\x1b[K" in terminal.seen and "\x1b[3" not in terminal.seen


def test_a_dumb_terminal_gets_lines(windfall):
    terminal = Terminal(windfall, *FAILS, TERM="dumb")
    assert terminal.end() == 1
    assert not CONTROL.search(terminal.seen.replace("\r\n", "\n")), terminal.seen


@pytest.mark.parametrize("columns", [20, 40])
def test_a_narrow_terminal_is_not_overrun(windfall, columns):
    terminal = Terminal(windfall, *FAILS, columns=columns)
    assert terminal.end() == 1
    drawn = [part for part in terminal.seen.split("\r") if part.endswith("\x1b[K")]
    drawn = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", part) for part in drawn]
    assert any(drawn) and all(len(line) < columns for line in drawn)


def test_a_pipe_gets_lines_without_control_codes(windfall, tmp_path):
    run = windfall.start("run", f"until test -e {tmp_path}/go; do sleep 0.05; done", "--name", "long")
    seen = iter(run.stderr.readline, "")
    lines = [next(seen)]
    while not re.search(r"^long  0/1  .*1 (active|running)$", lines[-1]):
        lines.append(next(seen))
    (tmp_path / "go").touch()
    _, rest = run.communicate(timeout=60)
    assert (run.returncode, CONTROL.search("".join(lines) + rest)) == (0, None)


def test_bar_shows_counts_failures_eta_and_rate(monkeypatch):
    progress = Progress("sweep", 1000)
    progress.terminal = False
    progress._history.extend([(0.0, 0), (10.0, 200)])
    progress.why = lambda: "exit 3"
    assert progress.text({"succeeded": 150, "failed": 50, "active": 4, "ready": 796}) == (
        "sweep  200/1,000  50 failed  ETA 40s  20/s  4 active  exit 3"
    )
    progress.running = 1
    assert progress.text({"failed": 50, "active": 4}).endswith("  1 running  3 held  exit 3")
    progress.running = 9
    assert progress.text({"failed": 50, "active": 2}).endswith("  2 running  exit 3")


def test_eta_disappears_once_it_has_passed():
    progress = Progress("sweep", 8)
    progress.terminal = False
    progress._history.extend([(0.0, 0), (1.0, 7)])
    assert "ETA 1s" in progress.text({"succeeded": 7, "active": 1})
    progress._history.append((9.0, 7))
    assert "ETA" not in progress.text({"succeeded": 7, "active": 1})


STEERING = r"printf 'a\033[2Jb\302\233c\r\nd\007'; printf 'e\033]0;title' >&2; exit {x}"


def test_output_of_a_task_does_not_steer_the_terminal(windfall):
    done = windfall("run", STEERING, "-s", "x=3,0", "--retries", "0", "--name", "steer", text=False)
    assert done.returncode == 1
    for arguments in (["logs", "steer", "0"], ["logs", "steer", "0", "--json"], ["show", "steer", "0"],
                      ["results", "steer", "--csv"], ["results", "steer", "--jsonl"]):
        terminal = Terminal(windfall, *arguments)
        assert terminal.end() == 0, terminal.seen
        assert not set("\x1b\x9b\x07") & set(terminal.seen), arguments
    terminal = Terminal(windfall, "logs", "steer", "0")
    terminal.end()
    assert "a\\x1b[2Jb\\x9bc" in terminal.seen and "e\\x1b]0;title" in terminal.seen
    piped = windfall("logs", "steer", "0", "--out", text=False)
    assert piped.stdout == b"a\x1b[2Jb\xc2\x9bc\r\nd\x07"


def test_messages_spell_out_control_characters(capsys):
    say("task \x1b[2J\x9b\x07 of\tus\nagain")
    Progress("bag", 1, quiet=True).say("\x1b]0;x")
    assert capsys.readouterr().err == "task \\x1b[2J\\x9b\\x07 of\tus\nagain\n\\x1b]0;x\n"
