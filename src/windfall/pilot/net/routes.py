"""Routes to the server, tried in the ticket's order; the route that worked last is tried first.

    direct, relay    https://host:port: TLS to the server, or to a relay that passes the bytes on to it
    spool            a folder of a shared file system (spool.py); TLS inside
    unix:/path       the server's own socket, on its machine

On every route, the pinned certificate identifies the server.  When no route works, the pilot reads its ticket again,
since the process that started the pilot may have written a new address into it.
"""

import socket

from windfall.errors import BadInput, NoServer, TrustError, WindfallError
from windfall.pilot import clock

CONNECT_TIMEOUT = 10.0
EACH_TIMEOUT = 5.0       # for each of several routes
REREAD_SECONDS = 2.0
CLOSE_SECONDS = 2.0


def address(server):
    """Return a server's address as ("unix", path) or (host, port)."""
    if server.startswith("unix:"):
        return ("unix", server[5:])
    if not server.startswith("https://"):
        raise BadInput("the server's address must be https://host:port or unix:/path, not {}".format(server))
    host, colon, port = server[8:].rstrip("/").rpartition(":")
    if not colon or not port.isdigit():
        raise BadInput("the server's address {} lacks a port".format(server))
    return (host.strip("[]"), int(port))


def tls_context(certificate):
    import ssl  # late: a Unix socket does not need it, and its import takes longest
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=certificate)
        context.verify_flags |= 0x80000  # X509_PARTIAL_CHAIN: the pinned certificate need not be a root
    except (ssl.SSLError, ValueError) as error:
        raise TrustError("the ticket's certificate cannot be used: {}".format(error))
    return context


class Route:
    """A route to the server: its kind, and an address or a folder."""

    def __init__(self, kind, where):
        self.kind = kind
        self.where = where
        self.place = None if kind == "spool" else address(where)

    def connect(self, context, timeout):
        """Return a connected socket.  Raise NoServer, or TrustError when another server answers."""
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
        """Return the Host of requests: the server's own name, or localhost, since it does not know a relay's name."""
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


class Routes:
    """A ticket's routes, shared by all connections of a pilot; any thread may call it."""

    def __init__(self, server, certificate="", routes=(), reread=None):
        """Take the routes; `reread` is a function that reads the ticket again, and returns a Ticket or None."""
        self.reread = reread
        self.read_at = clock.seconds()
        self._set(server, certificate, routes)

    @classmethod
    def of(cls, ticket):
        return cls(ticket.server, ticket.certificate, ticket.routes, ticket.reread)

    def _set(self, server, certificate, routes):
        wanted = [(route["kind"], route["address"]) for route in routes] or [("direct", server)]
        self.wanted = (certificate, wanted)
        self.certificate = certificate
        self.context = None
        self.routes = [Route(*each) for each in wanted]
        self.best = 0                # index of the route that worked last

    def connect(self, timeout=CONNECT_TIMEOUT):
        """Return (socket, Route); raise NoServer or TrustError with the errors of all routes."""
        try:
            return self._connect(timeout)
        except (NoServer, TrustError):
            if not self._changed():
                raise
        return self._connect(timeout)

    def close(self):
        """End connections through the spool, before the process ends."""
        if any(route.place is None for route in self.routes):
            from windfall.pilot.net import spool
            spool.hang_up(CLOSE_SECONDS)

    def _connect(self, timeout):
        routes, best = self.routes, self.best
        if len(routes) > 1:
            timeout = min(timeout, EACH_TIMEOUT)
        errors = []
        for route in [routes[best]] + routes[:best] + routes[best + 1:]:
            try:
                sock = route.connect(self._tls(route), timeout)
            except (NoServer, TrustError) as error:
                errors.append(error)
                continue
            if routes is self.routes:
                self.best = routes.index(route)
            return sock, route
        raise _join(errors)

    def _tls(self, route):
        if self.context is None and not (route.place and route.place[0] == "unix"):
            self.context = tls_context(self.certificate)
        return self.context

    def _changed(self):
        """Read the ticket again; does it name other routes now?"""
        now = clock.seconds()
        if self.reread is None or now - self.read_at < REREAD_SECONDS:
            return False
        self.read_at = now
        try:
            ticket = self.reread()
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


def _join(errors):
    """Return one error for all routes: a TrustError only if no route failed for another reason, which may pass."""
    if len(errors) == 1:
        return errors[0]
    kind = TrustError if all(isinstance(error, TrustError) for error in errors) else NoServer
    return kind("; ".join(error.message for error in errors))
