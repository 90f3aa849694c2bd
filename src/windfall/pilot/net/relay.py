"""The relay: a program on a cluster's head node that carries the connections of pilots to the process that started it.

    python3 windfall-pilot.pyz relay --folder DIR [--listen ADDRESS] [--port N] [--spool] [--no-network]

Pilots connect to a port of this machine, or through the spool in DIR.  Frames (wire/frames.py) carry their bytes home
by stdout, and the server's bytes back by stdin.  TLS runs from the pilot to the server, so the relay sees ciphertext
only.  It can reach nothing but the other end of its pipes, so nobody can use it as a proxy.  The number of connections,
their idle time and the bytes held for them are bounded.  The relay ends when its stdin ends, when home has been silent
for a while, and when a newer relay took over its folder.
"""

import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

from windfall.errors import BadInput, WindfallError
from windfall.pilot import clock
from windfall.pilot.net import spool
from windfall.pilot.net.callers import READ, TcpCaller
from windfall.wire import frames

MAX_CALLERS = 8192
SPARE_FILES = 64
MAX_CLOSING = 1000           # callers that are gone, and whose CLOSE home has not answered
PIPE_ROOM = 1 << 20          # bytes waiting for stdout above which the relay does not read from its callers
MAX_HELD = 64 << 20          # bytes held for all callers together
HOME_SILENCE = 90.0          # seconds without a frame from home after which the relay ends
SWEEP_SECONDS = 1.0          # between two searches for overdue callers
PORT_TRIES, PORT_PAUSE = 30, 0.1     # for the port that home knows: its last user may be ending
MAX_ADDRESSES = 8
SIOCGIFADDR = 0x8915         # ioctl: the address of an interface


class Relay:
    def __init__(self, pipes, listener, postbox=None, owner=lambda: True):
        self.input, self.output = pipes
        self.listener = listener
        self.postbox = postbox
        self.owns_folder = owner         # function: has no newer relay taken over the folder?
        self.decoder = frames.Decoder()
        self.outbox = bytearray()        # frames for home
        self.callers = {}                # number → Caller
        self.by_fd = {}                  # descriptor → TcpCaller
        self.callers_from = {}           # host address → number of its callers: at most half of all
        self.unanswered = {}             # number → Caller that home has sent nothing to, the oldest first
        self.closing = 0                 # callers that are gone, and whose CLOSE home has not answered
        self.number = 0
        self.limit = min(MAX_CALLERS, _raise_file_limit() - SPARE_FILES)
        self.heard_home_at = self.swept_at = clock.seconds()
        self.ended = False
        self.main, self.inner = select.epoll(), select.epoll()
        self.output_full = False         # stdout takes no more for now
        self.callers_paused = False      # so much waits for stdout that the relay does not read from its callers
        self.held = 0                    # bytes held for all callers
        for fd in pipes:
            os.set_blocking(fd, False)
        self.main.register(self.input, select.EPOLLIN)
        self.main.register(self.inner.fileno(), select.EPOLLIN)
        if listener is not None:
            listener.setblocking(False)
            self.main.register(listener.fileno(), select.EPOLLIN)

    # --- the loop

    def run(self):
        while not self.ended:
            for fd, _ in self.main.poll(self._timeout()):
                self._handle(fd)
            now = clock.seconds()
            if self.postbox is not None and now >= self.postbox.due and len(self.outbox) < PIPE_ROOM:
                self.postbox.exchange(self, now)
            if now - self.swept_at >= SWEEP_SECONDS:
                self._sweep(now)
            self.flush()
        for caller in self.callers.values():
            if not caller.closed_here:
                caller.close()

    def _handle(self, fd):
        if fd == self.input:
            self._read_home()
        elif self.listener is not None and fd == self.listener.fileno():
            self._accept()
        elif fd == self.inner.fileno():
            self._serve_callers()

    def _timeout(self):
        wait = SWEEP_SECONDS
        if self.postbox is not None:
            wait = min(wait, self.postbox.due - clock.seconds())
        return max(0.001, wait)

    def flush(self):
        """Write to home what the pipe takes."""
        try:
            while self.outbox:
                del self.outbox[:os.write(self.output, memoryview(self.outbox)[:READ].tobytes())]
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        if bool(self.outbox) != self.output_full:
            self.output_full = not self.output_full
            self._watch_output()
        if (len(self.outbox) > PIPE_ROOM) != self.callers_paused:
            self.callers_paused = not self.callers_paused
            self.main.modify(self.inner.fileno(), 0 if self.callers_paused else select.EPOLLIN)

    def _watch_output(self):
        if self.output == self.input:
            self.main.modify(self.input, select.EPOLLIN | (select.EPOLLOUT if self.output_full else 0))
        elif self.output_full:
            self.main.register(self.output, select.EPOLLOUT)
        else:
            self.main.unregister(self.output)

    def _sweep(self, now):
        """End the relay if home is silent or the folder lost; close connections that were idle for too long."""
        self.swept_at = now
        if now - self.heard_home_at > HOME_SILENCE or not self.owns_folder():
            self.ended = True
        for caller in list(self.callers.values()):
            if caller.is_overdue(now):
                self.drop(caller)

    # --- callers

    def _accept(self):
        for _ in range(64):
            try:
                sock, address = self.listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(0.05)
                return
            host = address[0]
            if not self.make_room() or self.callers_from.get(host, 0) >= self.limit // 2:
                sock.close()
                continue
            self.callers_from[host] = self.callers_from.get(host, 0) + 1
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            caller = TcpCaller(self.next_number(), clock.seconds(), sock, self.inner)
            caller.host = host
            self.by_fd[sock.fileno()] = caller
            self.admit(caller)

    def make_room(self):
        """Make room for one more caller; return False if there is none.

        The oldest caller that home never answered goes first: the server answers a pilot at once, while intruders may
        come by thousands, from as many addresses as they like.
        """
        if len(self.callers) - self.closing < self.limit:
            return True
        if not self.unanswered or self.closing >= MAX_CLOSING:
            return False
        self.drop(next(iter(self.unanswered.values())))
        return True

    def next_number(self):
        while True:
            self.number = self.number % (frames.MAX_NUMBER - 1) + 1
            if self.number not in self.callers:
                return self.number

    def admit(self, caller):
        self.callers[caller.number] = self.unanswered[caller.number] = caller
        self.outbox += frames.frame(frames.OPEN, caller.number)

    def _serve_callers(self):
        for fd, event in self.inner.poll(0):
            caller = self.by_fd.get(fd)
            if caller is None:
                continue
            if event & select.EPOLLOUT:
                self.send_to(caller)
            if event & ~select.EPOLLOUT and not caller.closed_here:
                self._receive_from(caller)
            if len(self.outbox) > PIPE_ROOM:
                return

    def _receive_from(self, caller):
        if not caller.flow.credit:  # without credit its socket is watched for errors alone
            self.drop(caller)
            return
        content = caller.receive()
        if content is None:
            self.drop(caller)
        elif content:
            self.send_home(caller, content)
            caller.watch()

    def send_home(self, caller, content):
        """Send home bytes of a caller, at most as many as its credit."""
        caller.flow.credit -= len(content)
        caller.has_sent = True
        caller.last_active = clock.seconds()
        self.outbox += frames.data(caller.number, content)

    def send_to(self, caller):
        """Hand on to a caller what is held for it; return how many bytes it took."""
        if caller.closed_here:
            return 0
        count = caller.send()
        if count is None:
            self.drop(caller)
            return 0
        if count:
            self.held -= count
            caller.last_active = clock.seconds()
            given = caller.flow.passed(count)
            self.outbox += frames.credit(caller.number, given) if given else b""
        if caller.closed_at_home and not caller.unsent:
            self.drop(caller)
        return count

    def drop(self, caller):
        """Close a connection at this end; its number stays taken until home has closed it, too."""
        if caller.closed_here:
            return
        caller.closed_here = True
        self.unanswered.pop(caller.number, None)
        self.held -= len(caller.unsent)
        caller.unsent = bytearray()
        if isinstance(caller, TcpCaller):
            self._forget_socket(caller)
        caller.close()
        self.outbox += frames.frame(frames.CLOSE, caller.number)
        if caller.closed_at_home:
            del self.callers[caller.number]
        else:
            self.closing += 1

    def _forget_socket(self, caller):
        self.by_fd.pop(caller.sock.fileno(), None)
        self.callers_from[caller.host] -= 1
        if not self.callers_from[caller.host]:
            del self.callers_from[caller.host]

    # --- home

    def _read_home(self):
        try:
            content = os.read(self.input, READ)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self.ended = True
            return
        self.heard_home_at = clock.seconds()
        for kind, number, payload in self.decoder.feed(content):
            self._obey(kind, number, payload)

    def _obey(self, kind, number, payload):
        """Do what a frame from home says."""
        if kind == frames.PING:
            self.outbox += frames.frame(frames.PONG)
            return
        caller = self.callers.get(number)
        if caller is None or caller.closed_at_home or kind not in (frames.DATA, frames.CREDIT, frames.CLOSE):
            raise frames.Malformed("home sent a frame of kind {} for connection {}, which is not open".format(
                kind, number))
        if kind == frames.CLOSE:
            self._close_from_home(caller)
        elif kind == frames.CREDIT:
            caller.flow.earn(frames.credit_of(payload))
            if not caller.closed_here:
                caller.watch()
        else:
            self._hold(caller, payload)

    def _hold(self, caller, payload):
        """Hold bytes from home for a caller.  When too much is held, drop the caller that most of it is for."""
        caller.flow.take(len(payload))
        if caller.closed_here:
            return
        self.unanswered.pop(caller.number, None)
        caller.unsent += payload
        self.held += len(payload)
        caller.send_soon(self)
        if self.held > MAX_HELD:
            self.drop(max(self.callers.values(), key=lambda other: len(other.unsent)))

    def _close_from_home(self, caller):
        caller.closed_at_home = True
        if caller.closed_here:
            self.closing -= 1
            del self.callers[caller.number]
        else:
            self.send_to(caller)


# --- starting


def _raise_file_limit():
    """Raise the limit of open descriptors as far as the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass
    return MAX_CALLERS + SPARE_FILES if soft == resource.RLIM_INFINITY else soft


def bind(address, port):
    """Return a listening socket: on this port if it can be had (0: on any), else on another."""
    family = socket.AF_INET6 if ":" in address or (not address and socket.has_ipv6) else socket.AF_INET
    for _ in range(PORT_TRIES if port else 0):
        try:
            return _bind(family, address, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break
            time.sleep(PORT_PAUSE)
    try:
        return _bind(family, address, 0)
    except OSError as error:
        if address:
            raise BadInput("relay: cannot listen on {}: {}".format(address, error.strerror),
                           "--listen takes an address of this machine")
        return _bind(socket.AF_INET, "", 0)


def _bind(family, address, port):
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not address:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.listen(1024)
    except BaseException:
        sock.close()
        raise
    return sock


def addresses():
    """Return names and addresses by which other nodes may reach this machine, the likely ones first."""
    names = [socket.gethostname()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode("utf-8")[:15]))
            except OSError:
                continue  # the interface has no address
            names.append(socket.inet_ntoa(answer[20:24]))
    outside = [name for name in names if not name.startswith("127.")]
    return outside[:MAX_ADDRESSES] + ["127.0.0.1"]


def claim(base):
    """Take over a relay's folder; return a function that says whether this process still owns it."""
    if not os.path.isdir(base):
        os.makedirs(base, 0o700)
        os.chmod(base, 0o700)
    spool.check_folder(base)
    name = os.urandom(8).hex()
    path = os.path.join(base, "owner")
    with open(os.open(path + "." + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(name)
    os.rename(path + "." + name, path)

    def owns():
        try:
            with open(path) as file:
                return file.read(64) == name
        except OSError as error:
            return error.errno != errno.ENOENT
    return owns


_WITH_VALUE = ("--folder", "--listen", "--port")
_ALONE = ("--spool", "--no-network")


def parse(argv):
    options, rest = {"--listen": "", "--port": "0"}, list(argv)
    while rest:
        name = rest.pop(0)
        if name in _ALONE:
            options[name] = True
        elif name in _WITH_VALUE and rest:
            options[name] = rest.pop(0)
        else:
            raise BadInput("relay: the argument {} is unknown, or lacks its value".format(name), "see --help")
    if not options.get("--folder"):
        raise BadInput("relay: --folder is missing", "see --help")
    if not options["--port"].isdigit():
        raise BadInput("relay: --port needs a number, not {!r}".format(options["--port"]))
    return options


def main(argv):
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(0))
    try:
        options = parse(argv)
        relay = _make(options)
        relay.run()
    except (WindfallError, OSError) as error:
        sys.stderr.write("windfall-relay: {}\n".format(error))
        return 3
    return 0


def _make(options):
    base = os.path.abspath(os.path.expanduser(options["--folder"]))
    owner = claim(base)
    listener = None if "--no-network" in options else bind(options["--listen"], int(options["--port"]))
    hello = {"v": 1, "host": socket.gethostname(), "port": 0, "addresses": [], "spool": ""}
    if listener is not None:
        hello["port"] = listener.getsockname()[1]
        hello["addresses"] = [options["--listen"]] if options["--listen"] else addresses()
    postbox = None
    if "--spool" in options:
        from windfall.pilot.net.postbox import Postbox
        postbox = Postbox(base, clock.seconds())
        hello["spool"] = base
    relay = Relay((0, 1), listener, postbox, owner)
    relay.outbox += frames.frame(frames.HELLO, 0, json.dumps(hello).encode("utf-8"))
    relay.flush()
    return relay
