"""A user with sites: a home, `windfall serve` in it, and real batch systems behind login nodes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.real import environment, free_port, until
from tests.testbed.base import USER
from tests.testbed.login import Login
from tests.testbed.slurm import Slurm
from windfall import Client
from windfall.model.bagfile.reader import parse
from windfall.provision import control

NAME = f"q{os.getpid():x}"
SHAPE = '[[shapes]]\nwalltime = "20min"\ncores = 1\n'


class User:
    def __init__(self, folder: Path, *options: str) -> None:
        self.home, self.person = folder / "home", folder / "person"
        self.log = folder / "log"
        (self.person / ".ssh").mkdir(parents=True, mode=0o700)
        (self.home / "sites").mkdir(parents=True, mode=0o700)
        self.home.chmod(0o700)
        self.options = ("--listen", f"127.0.0.1:{free_port()}", "--lease", "5", "--idle", "3", *options)
        self.process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    # --- the server -------------------------------------------------------------------------------------------

    def serve(self) -> None:
        before = self._profile().get("pid")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windfall", "serve", *self.options], stdout=log, stderr=log, env=self.env)
        until(lambda: self._profile().get("pid") not in (None, before) or self._alive())
        self._client = Client(self._profile())

    @property
    def env(self) -> dict[str, str]:
        return environment(self.home, HOME=str(self.person))

    def _alive(self) -> None:
        assert self.process is not None and self.process.poll() is None, self.said()

    def _profile(self) -> dict[str, Any]:
        try:
            found = json.loads((self.home / "server.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.client.close()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(40)

    # --- sites and bags ---------------------------------------------------------------------------------------

    def site(self, name: str, dialect: str, more: str = "", shapes: str = SHAPE) -> None:
        text = f'[site]\nname = "{name}"\ndialect = "{dialect}"\n{more}\n{shapes}'
        fresh = self.home / f"{name}.new"
        fresh.write_text(text)
        fresh.rename(self.home / "sites" / f"{name}.toml")

    def knows(self, login: Login, host: str) -> None:
        """The login node is in the user's own ~/.ssh/config."""
        with (self.person / ".ssh" / "config").open("a") as file:
            file.write(login.ssh_config(host))

    def bag(self, command: str, tasks: int, more: str = "") -> int:
        made = parse(f"[bag]\nname = 'b'\ncommand = '{command}'\n[sweep]\nn = '1..{tasks}'\n"
                     f"[task]\nretries = 2\n{more}")
        return self.client.submit(made.bag)

    def site_view(self, name: str) -> dict[str, Any]:
        return next(dict(view) for view in self.client.sites() if view["site"] == name)

    def trouble(self, site: str) -> str:
        return str(self.tended()[site]["trouble"])

    def tended(self) -> dict[str, dict[str, Any]]:
        """Return the provisioner's line about each site."""
        with socket.socket(socket.AF_UNIX) as talk:
            talk.connect(str(control.path(self.home)))
            talk.sendall(b'{"do": "ls"}\n')
            said = json.loads(talk.makefile().readline())
        return {line["site"]: line for line in said["sites"]}


class Cluster:
    """A Slurm cluster and its login node."""

    def __init__(self, name: str, **options: Any) -> None:
        self.slurm = Slurm(f"{name}{NAME}", **options)
        self.home = self.slurm.bed.home
        wrapped = {each: f"/usr/bin/{each}" for each in ("sbatch", "squeue", "scancel")}
        self.login = Login(self.home, self.slurm.env, wrapped)
        own(self.home)

    def jobs(self) -> list[str]:
        """Return the user's jobs that wait or run."""
        done = subprocess.run(["squeue", "-h", "-r", "-t", "PD,R,CG,S", "-u", USER, "-o", "%j|%i|%t"],
                              capture_output=True, text=True, env={**os.environ, **self.slurm.env})
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def clear(self) -> None:
        """Cancel the jobs that a test has left."""
        subprocess.run(["scancel", "-u", USER], capture_output=True, env={**os.environ, **self.slurm.env})
        until(lambda: not self.jobs(), 60)

    def submitted(self) -> list[str]:
        """Return the nonces in the order of their submission."""
        return nonces(self.login.commands("sbatch"))

    def refused(self) -> list[str]:
        """Return the nonces of submissions that a busy controller did not take before a test killed them."""
        return nonces(self.login.commands("sbatch", "failed"))

    def stop(self) -> None:
        self.login.stop()
        self.slurm.stop()


def nonces(calls: list[str]) -> list[str]:
    """Return the nonces of the pilots that these calls of `sbatch` submitted."""
    found = []
    for line in calls:
        name = re.search(r"--job-name=wf(\w+)-(\d+)", line)
        many = re.search(r"--array=1-(\d+)", line)
        assert name
        found += [f"{name[1]}-{int(name[2]) + index}" for index in range(int(many[1]) if many else 1)]
    return found


def own(folder: Path) -> None:
    subprocess.run(["chown", "-R", f"{USER}:", str(folder)], check=True)


@contextmanager
def user(folder: Path, *options: str) -> Iterator[User]:
    with attended(User(folder, *options)) as made:
        yield made


@contextmanager
def attended(made: User) -> Iterator[User]:
    """Stop the user's server at the end; if the test failed, print the server's log first."""
    try:
        yield made
    except BaseException:
        print(made.said() if made.log.exists() else "")
        raise
    finally:
        made.stop()


@contextmanager
def started(make: Callable[[], Any]) -> Iterator[Any]:
    made = make()
    try:
        yield made
    finally:
        made.stop()
