"""A site that asks for a one-time code: `windfall site login` on a terminal, once; then pilots, files and the relay for
as long as one likes, over that one connection.  Real: OpenSSH with PAM, a pseudo-terminal, `windfall serve`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import pwd
import select
import shutil
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import User
from tests.testbed.base import USER, require
from tests.testbed.codes import Codes
from windfall.errors import NoServer
from windfall.provision import control

pytestmark = [pytest.mark.slow, pytest.mark.testbed]
CODE = "314159"


@pytest.fixture
def site() -> Iterator[Codes]:
    require()
    made = Codes(CODE)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def person(tmp_path: Path, site: Codes) -> Iterator[User]:
    with user_of(tmp_path, site) as made:
        yield made


@contextmanager
def user_of(tmp_path: Path, site: Codes) -> Iterator[User]:
    """Yield a user who has an account at that site."""
    folder = f"windfall-login-{os.getpid()}"
    with rig.user(tmp_path) as made:
        (made.person / ".ssh" / "config").write_text(
            f"Host frontend\n  HostName 127.0.0.1\n  Port {site.sshd.port}\n  User {USER}\n"
            f"  IdentityFile {site.sshd.bed.root}/key\n  UserKnownHostsFile {site.sshd.known}\n")
        made.site("far", "ssh", f'host = "frontend"\nmax-pilots = 2\nfolder = "{folder}"\nreach = "relay"')
        yield made
    shutil.rmtree(Path(pwd.getpwnam(USER).pw_dir) / folder, ignore_errors=True)


def type_in(person: User, answer: str, *words: str) -> tuple[int, str]:
    """`windfall site …` on a terminal: what it said there, and how it ended."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "windfall", "site", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env=person.env, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0))
    os.close(theirs)
    said, answered = b"", False
    while True:
        if not select.select([ours], [], [], 60)[0]:
            process.kill()
            raise AssertionError(f"it waits for something: {said!r}")
        try:
            said += os.read(ours, 4096)
        except OSError:  # nobody is there any more
            break
        if b"Password:" in said and not answered:
            os.write(ours, answer.encode() + b"\n")
            answered = True
    os.close(ours)
    return process.wait(30), said.decode()


def trouble(person: User) -> str:
    said: list[dict[str, list[dict[str, str]]]] = []
    control.call(person.home, {"do": "ls"}, lambda line: said.append(line))  # type: ignore[func-returns-value]
    return said[0]["sites"][0]["trouble"]


def test_login_asks_for_a_code_once_for_all_later_commands(person: User, site: Codes) -> None:
    person.serve()
    bag = person.bag("sleep 0.1; echo {n}", 30)
    until(lambda: (person.home / "provision.sock").exists() and "asks for a code" in trouble(person))
    tried = site.calls
    time.sleep(4)  # in which somebody impatient would have tried again
    assert site.calls == tried == 1 and site.tried == []

    code, said = type_in(person, CODE, "login", "far")
    assert code == 0 and "frontend asks" in said and "logged in" in said, said
    assert CODE not in said, "it is not shown"
    assert person.client.wait(bag)["counts"]["succeeded"] == 30
    assert {row["site"] for row in person.client.results(bag)} == {"far"}

    again = person.bag("echo {n}", 30)
    assert person.client.wait(again)["counts"]["succeeded"] == 30
    assert site.tried == [CODE] and site.calls == 2, "the code was said once, and has been worthless since"
    code, said = type_in(person, "none", "login", "far")
    assert code == 0 and "is open" in said and "Password" not in said

    secret = CODE.encode()
    kept = [path for path in person.home.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert kept == [] and CODE not in person.said()


def test_a_wrong_code_is_told_and_not_tried_again(person: User, site: Codes) -> None:
    person.serve()
    until((person.home / "provision.sock").exists)
    code, said = type_in(person, "271828", "login", "far")
    assert code == 3 and "does not let you in" in said, said
    time.sleep(3)
    assert site.tried == ["271828"]


def test_a_trial_asks_for_itself(person: User, site: Codes) -> None:
    """A trial without provisioner opens its own connection, and closes it."""
    person.serve()
    code, said = type_in(person, CODE, "test", "far")
    assert code == 0 and "frontend asks" in said and "site far works" in said, said
    assert site.tried == [CODE]


def test_login_fails_without_a_provisioner(person: User, tmp_path: Path) -> None:
    code, said = type_in(person, "", "login", "far")
    assert code == 3 and "no provisioner runs" in said
    with pytest.raises(NoServer):
        control.call(tmp_path, {"do": "ls"}, lambda line: None)


def test_login_asks_nothing_without_a_terminal(person: User, site: Codes) -> None:
    person.serve()
    until((person.home / "provision.sock").exists)
    done = subprocess.run([sys.executable, "-m", "windfall", "site", "login", "far"], env=person.env, text=True,
                          input=CODE + "\n", capture_output=True, timeout=60, start_new_session=True)
    assert done.returncode == 2 and "no terminal" in done.stderr
    assert site.tried == []


def test_the_socket_is_its_owners(person: User) -> None:
    """Another user who reaches the socket gets an error and no data."""
    person.serve()
    path = person.home / "provision.sock"
    until(path.exists)
    assert path.stat().st_mode & 0o777 == 0o600
    for each in (path, *path.parents):
        if each != Path("/") and each.stat().st_mode & 0o007 == 0:
            each.chmod(each.stat().st_mode | (0o006 if each == path else 0o001))
    script = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
              "s.sendall(b'{\"do\": \"ls\"}\\n'); print(s.makefile().readline())")
    said = subprocess.run(["runuser", "-u", USER, "--", "/usr/bin/python3", "-c", script, str(path)],
                          capture_output=True, text=True, timeout=30)
    assert "belongs to another user" in json.loads(said.stdout)["error"]["message"], said


def test_lines_that_are_none(person: User) -> None:
    person.serve()
    path = person.home / "provision.sock"
    until(path.exists)
    for line in (b"nonsense\n", b"[]\n", b'{"do": "dance"}\n', b"x" * 200_000 + b"\n", b'{"do": "login", "site": 7}\n'):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(str(path))
            sock.sendall(line)
            answer = sock.makefile().readline()
            assert not answer or "error" in json.loads(answer), line
    assert trouble(person) is not None
