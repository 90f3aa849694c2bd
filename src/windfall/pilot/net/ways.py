"""Ways to the server: the ticket's routes, tried in order; the one that worked is tried first from then on.

    direct, relay    https://host:port: TLS to the server, or to a relay that hands the bytes on to it
    spool            a folder of a shared file system (spool.py); TLS inside
    unix:/path       the server's own socket, on its machine

Whatever the way, it is the pinned certificate that says who is at the other end.  When none of them works the ticket
is read again: whoever started us may have written a new address into it.
"""

import socket

from windfall.errors import BadInput, NoServer, TrustError, WindfallError
from windfall.pilot import clock

CONNECT_TIMEOUT = 10.0
EACH_TIMEOUT = 5.0       # where there are several
REREAD_SECONDS = 2.0
CLOSE_SECONDS = 2.0


def address(server):
    """("unix", path) or (host, port)."""
    if server.startswith("unix:"):
        return ("unix", server[5:])
    if not server.startswith("https://"):
        raise BadInput("the server's address must be https://host:port or unix:/path, not {}".format(server))
    host, colon, port = server[8:].rstrip("/").rpartition(":")
    if not colon or not port.isdigit():
        raise BadInput("the server's address {} lacks a port".format(server))
    return (host.strip("[]"), int(port))


def tls_context(certificate):
    import ssl  # late: a Unix socket does not need it, and it is the dearest import we have
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=certificate)
        context.verify_flags |= 0x80000  # X509_PARTIAL_CHAIN: the pinned certificate need not be a root
    except (ssl.SSLError, ValueError) as error:
        raise TrustError("the ticket's certificate cannot be used: {}".format(error))
    return context


class Way:
    """One of them."""

    def __init__(self, kind, where):
        self.kind = kind
        self.where = where
        self.place = None if kind == "spool" else address(where)

    def connect(self, context, timeout):
        """A connected socket.  Raises NoServer, or TrustError when what answers is not our server."""
        try:
            return self._connect(context, timeout)
        except OSError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise TrustError("the server's certificate is not the one in the ticket")
            raise NoServer("no server at {}: {}".format(self.shown(), error.strerror or error))

    def _connect(self, context, timeout):
        if self.place is None:
            from windfall.pilot.net import spool
            return _secured(spool.dial(self.where), context, "localhost", timeout)
        if self.place[0] == "unix":
            return _unix(self.place[1], timeout)
        sock = socket.create_connection(self.place, timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _secured(sock, context, self.place[0], timeout)

    def host(self):
        """For the request's Host: a relay's name means nothing to the server."""
        return self.shown() if self.kind == "direct" and self.place[0] != "unix" else "localhost"

    def shown(self):
        if self.place is None:
            return "the spool " + self.where
        return self.place[1] if self.place[0] == "unix" else "{}:{}".format(*self.place)


def _unix(path, timeout):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def _secured(sock, context, name, timeout):
    try:
        sock.settimeout(timeout)
        return context.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


class Ways:
    """All of them, shared by every connection of a pilot; called from any thread."""

    def __init__(self, server, certificate="", routes=(), again=None):
        """`again`: function that reads the ticket once more; a Ticket or None."""
        self.again = again
        self.read = clock.seconds()
        self._set(server, certificate, routes)

    @classmethod
    def of(cls, ticket):
        return cls(ticket.server, ticket.certificate, ticket.routes, ticket.again)

    def _set(self, server, certificate, routes):
        wanted = [(route["kind"], route["address"]) for route in routes] or [("direct", server)]
        self.wanted = (certificate, wanted)
        self.certificate = certificate
        self.context = None
        self.ways = [Way(*each) for each in wanted]
        self.best = 0                # the one that worked last

    def connect(self, timeout=CONNECT_TIMEOUT):
        """(socket, Way); raises NoServer or TrustError, which says what was tried."""
        try:
            return self._connect(timeout)
        except (NoServer, TrustError):
            if not self._changed():
                raise
        return self._connect(timeout)

    def close(self):
        """Before the process ends."""
        if any(way.place is None for way in self.ways):
            from windfall.pilot.net import spool
            spool.hang_up(CLOSE_SECONDS)

    def _connect(self, timeout):
        ways, best = self.ways, self.best
        if len(ways) > 1:
            timeout = min(timeout, EACH_TIMEOUT)
        errors = []
        for way in [ways[best]] + ways[:best] + ways[best + 1:]:
            try:
                sock = way.connect(self._tls(way), timeout)
            except (NoServer, TrustError) as error:
                errors.append(error)
                continue
            if ways is self.ways:
                self.best = ways.index(way)
            return sock, way
        raise _all_of(errors)

    def _tls(self, way):
        if self.context is None and not (way.place and way.place[0] == "unix"):
            self.context = tls_context(self.certificate)
        return self.context

    def _changed(self):
        """Does the ticket say something new?"""
        now = clock.seconds()
        if self.again is None or now - self.read < REREAD_SECONDS:
            return False
        self.read = now
        try:
            ticket = self.again()
            before = self.wanted
            if ticket is not None:
                self._update(ticket)
        except WindfallError:
            return False
        return self.wanted != before

    def _update(self, ticket):
        wanted = (ticket.certificate, [(route["kind"], route["address"]) for route in ticket.routes]
                  or [("direct", ticket.server)])
        if wanted != self.wanted:
            self._set(ticket.server, ticket.certificate, ticket.routes)


def _all_of(errors):
    """One error for all: somebody else's certificate on one way does not make the others hopeless."""
    if len(errors) == 1:
        return errors[0]
    kind = TrustError if all(isinstance(error, TrustError) for error in errors) else NoServer
    return kind("; ".join(error.message for error in errors))
