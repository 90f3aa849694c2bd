"""Callers of the relay: the connections that pilots make to it, with what each may still send and receive.

A caller comes by TCP (here) or through the spool (`postbox.py`).  Either kind has `send` (hand on what is held for it),
`send_soon`, `watch` (its credit has changed) and `close`.
"""

import select

from windfall.wire import frames

READ = 1 << 18
FIRST_WORD_SECONDS = 30.0    # how long a caller may stay silent after it connected,
IDLE_SECONDS = 900.0         # and after it has sent something


class Caller:
    """A connection that a pilot made to the relay."""

    def __init__(self, number, now):
        self.number = number
        self.flow = frames.CreditWindow()
        self.unsent = bytearray()    # bytes from home that the pilot has not got yet
        self.closed_here = False     # the relay has sent CLOSE home
        self.closed_at_home = False  # home has sent CLOSE
        self.has_sent = False
        self.last_active = now

    def is_overdue(self, now):
        return now - self.last_active > (IDLE_SECONDS if self.has_sent else FIRST_WORD_SECONDS)


class TcpCaller(Caller):
    def __init__(self, number, now, sock, poller):
        Caller.__init__(self, number, now)
        self.sock = sock
        self.host = ""               # the address it comes from
        self.poller = poller
        self.mask = select.EPOLLIN
        poller.register(sock.fileno(), self.mask)

    def send(self):
        """Return how many bytes the caller took; None when it is gone."""
        try:
            count = self.sock.send(self.unsent) if self.unsent else 0
        except BlockingIOError:
            count = 0
        except OSError:
            return None
        del self.unsent[:count]
        self.watch()
        return count

    def receive(self):
        """Return what the caller sent, b"" for nothing yet; None when it is gone."""
        try:
            return self.sock.recv(min(READ, self.flow.credit)) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def watch(self):
        mask = (select.EPOLLIN if self.flow.credit else 0) | (select.EPOLLOUT if self.unsent else 0)
        if mask != self.mask:
            self.mask = mask
            self.poller.modify(self.sock.fileno(), mask)

    def send_soon(self, relay):
        relay.send_to(self)

    def close(self):
        self.poller.unregister(self.sock.fileno())
        self.sock.close()
