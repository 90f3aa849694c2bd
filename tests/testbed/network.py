"""A cluster's network in namespaces: this machine reaches the head node and the head node its nodes; it forwards
nothing. A node can also be cut off altogether."""

from __future__ import annotations

import os
import subprocess
from itertools import count
from pathlib import Path

_numbers = count()


class Network:
    def __init__(self, nodes: int = 1) -> None:
        mark = f"{os.getpid() % 65536:x}{next(_numbers) % 16:x}"
        subnet = f"198.18.{os.getpid() % 250}"
        self.head_name, self.node_names = f"wfh{mark}", [f"wfn{mark}{number}" for number in range(nodes)]
        self.alone_name = f"wfa{mark}"
        self.head = f"{subnet}.2"  # as seen from here
        self.inner, self.nodes = f"{subnet}.65", [f"{subnet}.{66 + number}" for number in range(nodes)]
        try:
            for name in (self.head_name, *self.node_names, self.alone_name):
                self._run("ip", "netns", "add", name)
                self._in(name, "ip", "link", "set", "lo", "up")
            self._outside(mark, f"{subnet}.1", subnet)
            self._inside(mark)
            self._in(self.head_name, "sysctl", "-qw", "net.ipv4.ip_forward=0")
        except BaseException:
            self.stop()
            raise

    def _outside(self, mark: str, ours: str, subnet: str) -> None:
        self._run("ip", "link", "add", f"o{mark}", "type", "veth", "peer", "name", "out", "netns", self.head_name)
        self._run("ip", "addr", "add", f"{ours}/30", "dev", f"o{mark}")
        self._run("ip", "link", "set", f"o{mark}", "up")
        self._in(self.head_name, "ip", "addr", "add", f"{self.head}/30", "dev", "out")
        self._in(self.head_name, "ip", "link", "set", "out", "up")

    def _inside(self, mark: str) -> None:
        self._in(self.head_name, "ip", "link", "add", "inner", "type", "bridge")
        self._in(self.head_name, "ip", "addr", "add", f"{self.inner}/26", "dev", "inner")
        self._in(self.head_name, "ip", "link", "set", "inner", "up")
        for number, (name, address) in enumerate(zip(self.node_names, self.nodes, strict=True)):
            self._in(self.head_name, "ip", "link", "add", f"n{number}", "type", "veth", "peer", "name", "eth",
                     "netns", name)
            self._in(self.head_name, "ip", "link", "set", f"n{number}", "master", "inner", "up")
            self._in(name, "ip", "addr", "add", f"{address}/26", "dev", "eth")
            self._in(name, "ip", "link", "set", "eth", "up")

    def _run(self, *argv: str) -> None:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{argv}: {done.stderr}"

    def _in(self, name: str, *argv: str) -> None:
        self._run(*inside(name), *argv)

    def stop(self) -> None:
        for name in (self.head_name, *self.node_names, self.alone_name):
            if Path("/run/netns", name).exists():
                subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)


def inside(name: str) -> tuple[str, ...]:
    """Return the words before a command that run it there; `ip netns exec` would hide the control groups."""
    return ("nsenter", f"--net=/run/netns/{name}")
