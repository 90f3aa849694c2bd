"""The ticket: the server's address, certificate and routes, and the token that lets the pilot in.

The pilot refuses a ticket file that another user owns or can read.  The token never appears in arguments, environment
or logs.
"""

import json
import os
import stat

from windfall.errors import BadInput, TrustError

KINDS = ("direct", "relay", "spool")
MAX_ROUTES = 32


class Ticket:
    __slots__ = ("server", "certificate", "token", "site", "nonce", "routes", "path")

    def __init__(self, server, *, certificate="", token="", site="local", nonce="", routes=(), path=""):
        self.server = server
        self.certificate = certificate
        self.token = token
        self.site = site
        self.nonce = nonce
        self.routes = routes     # [{"kind", "address"}] in the order in which to try them; none: `server` alone
        self.path = path

    def reread(self):
        """Read the file again and take over its address, routes and token; return None if it is for another site."""
        fresh = read(self.path, self.nonce) if self.path else None
        if fresh is None or fresh.site != self.site:
            return None
        self.token, self.server, self.certificate, self.routes = (
            fresh.token, fresh.server, fresh.certificate, fresh.routes)
        return self

    def __repr__(self):
        return "Ticket({}, site {})".format(self.server, self.site)


def read(path, nonce=""):
    """Return the ticket in the file `path`; TrustError or BadInput says what is wrong with it."""
    text = read_private(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise BadInput("the ticket {} is not JSON: {}".format(path, error))
    return from_fields(fields, path, nonce)


def from_fields(fields, path, nonce=""):
    _check_texts(fields, path)
    certificate = fields.get("certificate") or ""
    routes = _known_routes(fields.get("routes") or [], path)
    if (routes or fields["server"].startswith("https://")) and not certificate:
        raise TrustError("the ticket {} names no certificate to pin".format(path),
                         "ask the server for a new ticket; TLS without a pinned certificate is refused")
    nonce = _nonce(nonce or fields.get("nonce"))
    return Ticket(fields["server"], certificate=certificate, token=fields["token"], site=fields["site"], nonce=nonce,
                  routes=routes, path=path)


def _check_texts(fields, path):
    if not isinstance(fields, dict):
        raise BadInput("the ticket {} is not a JSON object".format(path))
    for name in ("server", "token", "site"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise BadInput("the ticket {} lacks '{}'".format(path, name))


def _nonce(given):
    """Return the nonce given, or else the one in the job's environment: a ticket for many pilots has none."""
    from_job = os.environ.pop("WINDFALL_NONCE", "")  # removed, since a pilot that a task starts is another pilot
    return str(given or from_job or os.urandom(8).hex())


def _known_routes(given, path):
    """Return the routes of known kinds; the others are for newer pilots."""
    if not isinstance(given, list) or len(given) > MAX_ROUTES:
        raise BadInput("the ticket {} has no list of routes, or more than {} routes".format(path, MAX_ROUTES))
    for route in given:
        _check_route(route, path)
    routes = [route for route in given if route["kind"] in KINDS]
    if given and not routes:
        raise BadInput("the ticket {} has no route that this pilot knows".format(path), "get a newer pilot")
    return routes


def _check_route(route, path):
    if not isinstance(route, dict) or not all(isinstance(route.get(name), str) for name in ("kind", "address")):
        raise BadInput("the ticket {} has a route without kind or address".format(path))
    if route["kind"] == "spool" and not os.path.isabs(route["address"]):
        raise BadInput("the ticket {} has a spool that is not an absolute path".format(path))


def read_private(path):
    """Return the text of a file that belongs to this user and that others cannot read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise BadInput("cannot read the ticket {}: {}".format(path, error.strerror))
    with os.fdopen(fd, encoding="utf-8") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise TrustError("{} is not a plain file".format(path))
        if about.st_uid != os.geteuid():
            raise TrustError("{} belongs to another user (uid {})".format(path, about.st_uid))
        if about.st_mode & 0o077:
            raise TrustError("{} can be read by others (mode {:04o})".format(path, about.st_mode & 0o777),
                             "chmod 600 {}".format(path))
        try:
            return file.read(1 << 20)
        except UnicodeDecodeError:
            raise BadInput("{} is not text".format(path))
