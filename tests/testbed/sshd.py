"""An OpenSSH server on loopback, with keys of its own, for one ordinary user."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.base import USER, Bed, eventually, free_ports

_CONF = """\
{first}
Port {port}
ListenAddress {address}
HostKey {root}/host
PidFile {root}/sshd.pid
AuthorizedKeysFile {root}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin {root_login}
AllowUsers {user}
AllowTcpForwarding yes
LogLevel VERBOSE
{extra}
"""


class Sshd:
    def __init__(self, extra: str = "", user: str = USER, address: str = "127.0.0.1",
                 prefix: Sequence[str] = (), first: str = "", program: str = "/usr/sbin/sshd") -> None:
        """`prefix`: words before the daemon's command, such as those of a network.  `first`: lines of the configuration
        before all others; `extra`: lines after them, where {root} is the server's folder."""
        self.bed = Bed("sshd")
        self.address, self.prefix, self.program = address, tuple(prefix), program
        self.port = free_ports(1)[0]
        self.user = user
        root = self.bed.root
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for name in ("host", "key"):
            self.bed.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)])
        self.bed.write("authorized", (root / "key.pub").read_text())
        self.known = self.bed.write("known_hosts", f"[{address}]:{self.port} {(root / 'host.pub').read_text()}")
        root_login = "yes" if user == "root" else "no"
        self.conf = self.bed.write("sshd_config", _CONF.format(
            port=self.port, root=root, user=user, root_login=root_login, address=address, first=first,
            extra=extra.replace("{root}", str(root))))
        self.daemon: subprocess.Popen[bytes]
        self._start()

    @property
    def options(self) -> dict[str, object]:
        """Return options for asyncssh that use nothing of the person who runs the tests."""
        return {"config": None, "known_hosts": str(self.known), "client_keys": [str(self.bed.root / "key")],
                "agent_path": None}

    def _start(self) -> None:
        self.daemon = self.bed.start([*self.prefix, self.program, "-D", "-e", "-f", str(self.conf)])
        eventually(self._listens, "sshd comes up", 20)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def stop(self) -> None:
        self.bed.stop()
