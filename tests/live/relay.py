"""A network that can be cut: a relay between a client, or a pilot, and a real server.

`cuts` breaks connections at a chosen byte of an answer, which the server has given in good faith; `stall` lets nothing
through in either direction and closes nothing, as a lost route does.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

Address = str | tuple[str, int]


class Relay:
    def __init__(self, upstream: Address, listen: Path | None = None) -> None:
        self.upstream = upstream
        self.cuts: list[int] = []  # of the next answers, forward so many bytes, then break the connection
        self.connections = 0
        self._flowing = threading.Event()
        self._flowing.set()
        self._ends: set[socket.socket] = set()
        self._listener = _listen(upstream, listen)
        self.address: Address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def close(self) -> None:
        self._listener.close()
        self._flowing.set()
        for end in list(self._ends):
            _shut(end)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._flowing.wait()
        far = socket.socket(near.family, socket.SOCK_STREAM)
        try:
            far.connect(self.upstream)
        except OSError:
            _shut(near)
            return
        self._ends |= {near, far}
        threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
        self._pump(far, near, True)

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                self._flowing.wait()
                if answers and self.cuts:
                    sink.sendall(data[: self.cuts.pop(0)])
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            _shut(end)
            self._ends.discard(end)


def _listen(upstream: Address, where: Path | None) -> socket.socket:
    if isinstance(upstream, tuple):
        return socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(where))
    listener.listen(64)
    return listener


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
