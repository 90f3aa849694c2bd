"""A login node: an OpenSSH server that leads to one batch system, as an ordinary user's shell would see it.

The wrapper of a wrapped command records each call, and can hold the answer back or kill the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.testbed.base import USER
from tests.testbed.sshd import Sshd

_ENTER = """#!/bin/sh
cd {home} || exit 1
HOME={home}; export HOME
exec {enter}/bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
_WRAPPER = """#!/bin/sh
printf '%s\\n' "{name} $(date +%s.%N) $*" >>"$HOME/commands"
[ ! -e "$HOME/kill-{name}" ] || {{ {real} "$@" >/dev/null && kill -9 $$; said=$?
  printf '%s\\n' "{name} $(date +%s.%N) $*" >>"$HOME/failed"; exit $said; }}
[ -e "$HOME/hold-{name}" ] || exec {real} "$@"
{real} "$@" >"$HOME/answer-{name}"
while [ -e "$HOME/hold-{name}" ]; do sleep 0.1; done
cat "$HOME/answer-{name}"
"""


class Login:
    def __init__(self, home: Path, env: Mapping[str, str], wrapped: Mapping[str, str] | None = None,
                 enter: Sequence[str] = (), inside: str = "") -> None:
        """`home`: the folder as seen from here; `inside`: as seen there; `enter`: words that lead there, run as root;
        `wrapped`: name of a command → its real path."""
        self.home = home
        there = inside or str(home)
        self.sshd = Sshd("ForceCommand {root}/enter", user="root" if enter else USER)
        self.sshd.bed.write("enter", _ENTER.format(
            home="/" if enter else there, enter=" ".join(enter) + " " if enter else ""), 0o755)
        lines = [f"{key}='{value}'; export {key}" for key, value in env.items()]
        self._write(".profile", "\n".join([*lines, f'PATH="{there}/bin:$PATH"']) + "\n", 0o644)
        (home / "bin").mkdir(exist_ok=True)
        for name, real in (wrapped or {}).items():
            self._write(f"bin/{name}", _WRAPPER.format(name=name, real=real), 0o755)

    def _write(self, name: str, text: str, mode: int) -> None:
        (self.home / name).write_text(text)
        (self.home / name).chmod(mode)

    def ssh_config(self, host: str) -> str:
        """Return what the user of the login node has in ~/.ssh/config."""
        root = self.sshd.bed.root
        return (f"Host {host}\n  HostName 127.0.0.1\n  Port {self.sshd.port}\n  User {self.sshd.user}\n"
                f"  IdentityFile {root}/key\n  UserKnownHostsFile {self.sshd.known}\n")

    def commands(self, name: str = "", which: str = "commands") -> list[str]:
        """Return the recorded calls; `failed`: the calls to be killed that did nothing which a kill could have
        hidden."""
        path = self.home / which
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split()[0] == name or not name]

    def times(self, name: str) -> list[float]:
        """Return when the command was called."""
        return [float(line.split()[1]) for line in self.commands(name)]

    def hold(self, name: str) -> None:
        """Let the command do its work from now on, and hold its answer back."""
        (self.home / f"hold-{name}").touch()

    def held(self, name: str) -> bool:
        path = self.home / f"answer-{name}"
        return path.exists() and path.stat().st_size > 0

    def release(self, name: str) -> None:
        (self.home / f"hold-{name}").unlink(missing_ok=True)

    def kill(self, name: str, kills: bool = True) -> None:
        """Let the command do its work and be killed before it answers, from now on or no more."""
        if kills:
            (self.home / f"kill-{name}").touch()
        else:
            (self.home / f"kill-{name}").unlink(missing_ok=True)

    def stop(self) -> None:
        self.sshd.stop()
