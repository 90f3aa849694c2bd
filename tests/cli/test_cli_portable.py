"""A client on macOS or Windows: nothing that only Linux has is touched while the modules load."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.real import SOURCE, environment

MISSING = ("fcntl", "termios", "tty", "pty", "resource", "pwd", "grp", "uvloop", "httptools")
BLOCK = f"""
import sys, os, signal
for name in {MISSING!r}:
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "setitimer", "SIGCHLD"):
    if hasattr(signal, name): delattr(signal, name)
for name in ("getuid", "geteuid", "fork", "setsid", "O_CLOEXEC", "O_NONBLOCK"):
    if hasattr(os, name): delattr(os, name)
import socket
del socket.AF_UNIX
"""
PARTS = sorted(
    path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
    for part in ("cli", "client") for path in Path(SOURCE, "windfall", part).glob("*.py") if path.stem != "__init__"
)  # fmt: skip


@pytest.mark.parametrize("module", PARTS)
def test_module_loads_without_linux_features(module):
    run(f"{BLOCK}\nimport {module}")


def test_commands_that_need_no_server_work(tmp_path):
    bag = tmp_path / "b.toml"
    bag.write_text('[bag]\nname = "b"\ncommand = "echo {x}"\n[sweep]\nx = "1..3"\n')
    code = f"{BLOCK}\nfrom windfall.cli.main import main\nsys.exit(main(['run', '--dry-run', {str(bag)!r}]))"
    assert "echo 3" in run(code)


def test_command_without_unix_sockets_points_to_login(tmp_path):
    """No embedded server there: it is said how to reach one elsewhere."""
    code = f"{BLOCK}\nfrom windfall.cli.main import main\nsys.exit(main(['ls']))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path / "home"), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 3 and "windfall login" in done.stderr, done.stderr


def run(code):
    done = subprocess.run([sys.executable, "-c", code], env=environment("/nowhere"), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
