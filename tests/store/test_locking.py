"""File systems whose locks lie, made by a library that lies in place of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.store import locking
from windfall.store.locking import Lock

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int locks(int cmd) {
    return cmd == F_SETLK || cmd == F_SETLKW || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
}
static int answer(const char *name, int fd, int cmd, void *arg) {
    const char *mode = getenv("SHIM");
    if (mode && locks(cmd)) {
        if (!strcmp(mode, "lie")) return 0;
        if (!strcmp(mode, "lie-classic") && (cmd == F_SETLK || cmd == F_SETLKW)) return 0;
        if (!strcmp(mode, "nolck")) { errno = ENOLCK; return -1; }
        if (!strcmp(mode, "nosup")) { errno = EOPNOTSUPP; return -1; }
    }
    return ((int (*)(int, int, ...)) dlsym(RTLD_NEXT, name))(fd, cmd, arg);
}
int fcntl(int fd, int cmd, ...) {
    va_list a; va_start(a, cmd); void *arg = va_arg(a, void *); va_end(a);
    return answer("fcntl", fd, cmd, arg);
}
int fcntl64(int fd, int cmd, ...) {
    va_list a; va_start(a, cmd); void *arg = va_arg(a, void *); va_end(a);
    return answer("fcntl64", fd, cmd, arg);
}
"""
OPEN = """
import sys
from pathlib import Path
from windfall.store.journal import Journal
Journal.open(Path(sys.argv[1])).close()
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux":
        pytest.skip("the lying library is written for Linux")
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to build a library whose locks lie")
    directory = tmp_path_factory.mktemp("shim")
    (directory / "shim.c").write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=directory, check=True)
    return directory / "shim.so"


def _open(journal: Path, shim: Path, mode: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_PRELOAD": str(shim), "SHIM": mode}
    return subprocess.run(
        [sys.executable, "-c", OPEN, str(journal)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("lie", "gives the same lock to two"),
        ("lie-classic", "gives the same lock to two"),
        ("nolck", "does not keep locks"),
        ("nosup", "does not keep locks"),
    ],
)
def test_such_a_file_system_is_refused(shim: Path, tmp_path: Path, mode: str, says: str) -> None:
    done = _open(tmp_path / "journal.db", shim, mode)
    assert "LocksUnreliable" in done.stderr and says in done.stderr and "local disk" in done.stderr
    assert not (tmp_path / "journal.db").exists()


def test_the_library_itself_does_no_harm(shim: Path, tmp_path: Path) -> None:
    done = _open(tmp_path / "journal.db", shim, "honest")
    assert (done.returncode, done.stderr) == (0, "")


def test_child_process_tests_locks_that_belong_to_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "_OWN_DESCRIPTOR", None)
    path = tmp_path / "lock"
    lock = Lock.take(path)
    assert f"process {os.getpid()}" in path.read_text()
    lock.release()
    monkeypatch.setattr(locking, "_try_classic", lambda descriptor, path: True)
    with pytest.raises(locking.LocksUnreliable):
        Lock.take(path)


def test_released_it_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(3):
        Lock.take(tmp_path / "lock").release()
    assert (tmp_path / "lock").read_text() == ""
