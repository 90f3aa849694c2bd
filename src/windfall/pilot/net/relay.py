"""The relay: a program on a cluster's head node that hands connections of pilots to whoever started it.

    python3 windfall-pilot.pyz relay --folder DIR [--listen ADDRESS] [--port N] [--spool] [--no-network]

Pilots connect to a port here, or by the spool in DIR; what they say goes out by stdout and what they are told comes in
by stdin, in frames (wire/frames.py).  It sees bytes only: TLS runs from the pilot to the server.  It can reach nothing
but the other end of its pipes, so it is nobody's proxy.  Connections, their idle time and what is held for them are
bounded.  It ends with its stdin, when nothing came that way for a while, and when a newer one took over its folder.
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
from windfall.wire import frames

MAX_CALLERS = 8192
SPARE_FILES = 64
CLOSING = 1000               # of which home has not heard that they are gone
PIPE_ROOM = 1 << 20          # bytes waiting for stdout above which nobody is listened to
HELD = 64 << 20              # bytes held for all callers together
READ = 1 << 18
SILENCE = 90.0               # seconds without a word from home after which we go
MUTE = 30.0                  # seconds a caller may take to say something
IDLE = 900.0                 # and to say something more
SWEEP = 1.0                  # seconds between looks at all that
PORT_TRIES, PORT_PAUSE = 30, 0.1     # for the port that is known at home: its last user may be on the way out
ADDRESSES = 8
SIOCGIFADDR = 0x8915         # of an interface: its address


class Caller:
    """One connection, whichever way it came."""

    def __init__(self, number, now):
        self.number = number
        self.flow = frames.CreditWindow()
        self.out = bytearray()       # from home, not handed on yet
        self.told = False            # we have said CLOSE
        self.left = False            # home has said it
        self.spoke = False
        self.last = now

    def overdue(self, now):
        return now - self.last > (IDLE if self.spoke else MUTE)


class TcpCaller(Caller):
    def __init__(self, number, now, sock, poller, host):
        Caller.__init__(self, number, now)
        self.host = host
        self.sock = sock
        self.poller = poller
        self.mask = select.EPOLLIN
        poller.register(sock.fileno(), self.mask)

    def push(self):
        """Bytes handed on; None when he is gone."""
        try:
            count = self.sock.send(self.out) if self.out else 0
        except BlockingIOError:
            count = 0
        except OSError:
            return None
        del self.out[:count]
        self.watch()
        return count

    def pull(self):
        """What he says, b"" for nothing yet; None when he is gone."""
        try:
            return self.sock.recv(min(READ, self.flow.credit)) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def watch(self):
        mask = (select.EPOLLIN if self.flow.credit else 0) | (select.EPOLLOUT if self.out else 0)
        if mask != self.mask:
            self.mask = mask
            self.poller.modify(self.sock.fileno(), mask)

    def soon(self, relay):
        relay.push(self)

    def close(self):
        self.poller.unregister(self.sock.fileno())
        self.sock.close()


class Relay:
    def __init__(self, pipes, listener, postbox=None, owner=lambda: True):
        self.input, self.output = pipes
        self.listener = listener
        self.postbox = postbox
        self.owner = owner               # function: is the folder still ours?
        self.decoder = frames.Decoder()
        self.outbox = bytearray()
        self.callers = {}                # number → Caller
        self.by_fd = {}
        self.hosts = {}                  # address → its callers: none may have more than half of the places
        self.unanswered = {}             # number → Caller that home has never said anything to, the oldest first
        self.closing = 0                 # callers that are gone, but for home's word
        self.number = 0
        self.limit = min(MAX_CALLERS, _files() - SPARE_FILES)
        self.heard = self.swept = clock.seconds()
        self.over = False
        self.main, self.inner = select.epoll(), select.epoll()
        self.blocked = False             # stdout has no room,
        self.deaf = False                # and so little that nobody is listened to
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
        while not self.over:
            for fd, _ in self.main.poll(self._timeout()):
                if fd == self.input:
                    self._from_home()
                elif self.listener is not None and fd == self.listener.fileno():
                    self._accept()
                elif fd == self.inner.fileno():
                    self._from_callers()
            now = clock.seconds()
            if self.postbox is not None and now >= self.postbox.due and len(self.outbox) < PIPE_ROOM:
                self.postbox.look(self, now)
            if now - self.swept >= SWEEP:
                self._sweep(now)
            self._flush()
        for caller in self.callers.values():
            if not caller.told:
                caller.close()

    def _timeout(self):
        wait = SWEEP
        if self.postbox is not None:
            wait = min(wait, self.postbox.due - clock.seconds())
        return max(0.001, wait)

    def _flush(self):
        try:
            while self.outbox:
                del self.outbox[:os.write(self.output, memoryview(self.outbox)[:READ].tobytes())]
        except BlockingIOError:
            pass
        except OSError:
            self.over = True
        if bool(self.outbox) != self.blocked:
            self.blocked = not self.blocked
            self._watch_output()
        if (len(self.outbox) > PIPE_ROOM) != self.deaf:
            self.deaf = not self.deaf
            self.main.modify(self.inner.fileno(), 0 if self.deaf else select.EPOLLIN)

    def _watch_output(self):
        if self.output == self.input:
            self.main.modify(self.input, select.EPOLLIN | (select.EPOLLOUT if self.blocked else 0))
        elif self.blocked:
            self.main.register(self.output, select.EPOLLOUT)
        else:
            self.main.unregister(self.output)

    def _sweep(self, now):
        self.swept = now
        if now - self.heard > SILENCE or not self.owner():
            self.over = True
        for caller in list(self.callers.values()):
            if caller.overdue(now):
                self.drop(caller)

    # --- callers

    def _accept(self):
        for _ in range(64):
            try:
                sock, place = self.listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(0.05)
                return
            if self.full() or self.hosts.get(place[0], 0) >= self.limit // 2:
                sock.close()
                continue
            self.hosts[place[0]] = self.hosts.get(place[0], 0) + 1
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            caller = TcpCaller(self.next_number(), clock.seconds(), sock, self.inner, place[0])
            self.by_fd[sock.fileno()] = caller
            self.admit(caller)

    def full(self):
        """No place is free, and none can be made.  Whoever the server never answered goes first: a pilot is answered
        at once, and others may come by thousands, from as many addresses as they like."""
        if len(self.callers) - self.closing < self.limit:
            return False
        if not self.unanswered or self.closing >= CLOSING:
            return True
        self.drop(next(iter(self.unanswered.values())))
        return False

    def next_number(self):
        while True:
            self.number = self.number % (frames.MAX_NUMBER - 1) + 1
            if self.number not in self.callers:
                return self.number

    def admit(self, caller):
        self.callers[caller.number] = self.unanswered[caller.number] = caller
        self.outbox += frames.frame(frames.OPEN, caller.number)

    def _from_callers(self):
        for fd, event in self.inner.poll(0):
            caller = self.by_fd.get(fd)
            if caller is None:
                continue
            if event & select.EPOLLOUT:
                self.push(caller)
            if event & ~select.EPOLLOUT and not caller.told:
                self._pull(caller)
            if len(self.outbox) > PIPE_ROOM:
                return

    def _pull(self, caller):
        if not caller.flow.credit:  # only an error wakes us then
            self.drop(caller)
            return
        content = caller.pull()
        if content is None:
            self.drop(caller)
        elif content:
            self.say(caller, content)
            caller.watch()

    def say(self, caller, content):
        """Send home what a caller said; not more than his credit."""
        caller.flow.credit -= len(content)
        caller.spoke = True
        caller.last = clock.seconds()
        self.outbox += frames.data(caller.number, content)

    def push(self, caller):
        """Hand on to a caller what is held for him."""
        if caller.told:
            return 0
        count = caller.push()
        if count is None:
            self.drop(caller)
            return 0
        if count:
            self.held -= count
            caller.last = clock.seconds()
            given = caller.flow.passed(count)
            self.outbox += frames.credit(caller.number, given) if given else b""
        if caller.left and not caller.out:
            self.drop(caller)
        return count

    def drop(self, caller):
        """Over, from our side; the number stays taken until home has said so, too."""
        if caller.told:
            return
        caller.told = True
        self.unanswered.pop(caller.number, None)
        self.held -= len(caller.out)
        caller.out = bytearray()
        if isinstance(caller, TcpCaller):
            self._vacate(caller)
        caller.close()
        self.outbox += frames.frame(frames.CLOSE, caller.number)
        if caller.left:
            del self.callers[caller.number]
        else:
            self.closing += 1

    def _vacate(self, caller):
        self.by_fd.pop(caller.sock.fileno(), None)
        self.hosts[caller.host] -= 1
        if not self.hosts[caller.host]:
            del self.hosts[caller.host]

    # --- home

    def _from_home(self):
        try:
            content = os.read(self.input, READ)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self.over = True
            return
        self.heard = clock.seconds()
        for kind, number, payload in self.decoder.feed(content):
            self._frame(kind, number, payload)

    def _frame(self, kind, number, payload):
        if kind == frames.PING:
            self.outbox += frames.frame(frames.PONG)
            return
        caller = self.callers.get(number)
        if caller is None or caller.left or kind not in (frames.DATA, frames.CREDIT, frames.CLOSE):
            raise frames.Malformed("frame {} for connection {}".format(kind, number))
        if kind == frames.CLOSE:
            self._left(caller)
        elif kind == frames.CREDIT:
            caller.flow.earn(frames.credit_of(payload))
            if not caller.told:
                caller.watch()
        else:
            self._told(caller, payload)

    def _told(self, caller, payload):
        caller.flow.take(len(payload))
        if caller.told:
            return
        self.unanswered.pop(caller.number, None)
        caller.out += payload
        self.held += len(payload)
        caller.soon(self)
        if self.held > HELD:
            self.drop(max(self.callers.values(), key=lambda each: len(each.out)))

    def _left(self, caller):
        caller.left = True
        if caller.told:
            self.closing -= 1
            del self.callers[caller.number]
        else:
            self.push(caller)


# --- starting


def _files():
    """How many descriptors we may have; as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass
    return MAX_CALLERS + SPARE_FILES if soft == resource.RLIM_INFINITY else soft


def bind(address, port):
    """A listening socket: on the port of before if it can be had."""
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
            raise BadInput("cannot listen on {}: {}".format(address, error.strerror))
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
    """Names and addresses by which nodes may know this machine, the likely ones first."""
    found = [socket.gethostname()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode("utf-8")[:15]))
            except OSError:
                continue  # it has none
            found.append(socket.inet_ntoa(answer[20:24]))
    outside = [each for each in found if not each.startswith("127.")]
    return outside[:ADDRESSES] + ["127.0.0.1"]


def claim(base):
    """Take over a relay's folder; returns a function that says whether it is still ours."""
    if not os.path.isdir(base):
        os.makedirs(base, 0o700)
        os.chmod(base, 0o700)
    spool.folder(base)
    name = os.urandom(8).hex()
    path = os.path.join(base, "owner")
    with open(os.open(path + "." + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(name)
    os.rename(path + "." + name, path)

    def ours():
        try:
            with open(path) as file:
                return file.read(64) == name
        except OSError as error:
            return error.errno != errno.ENOENT
    return ours


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
            raise BadInput("relay: unknown argument, or one without its value: {}".format(name))
    if not options.get("--folder") or not options["--port"].isdigit():
        raise BadInput("relay needs --folder DIR, and a number for --port")
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
    relay._flush()
    return relay
