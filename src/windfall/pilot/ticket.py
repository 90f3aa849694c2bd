"""The ticket: where the server is and what lets us in.  A file of ours with mode 0600, or it is refused.

Secrets never leave this object by way of arguments, environment or logs.
"""

import json
import os
import stat

from windfall.errors import BadInput, TrustError

KINDS = ("direct", "relay", "spool")
MAX_ROUTES = 32


class Ticket:
    __slots__ = ("server", "certificate", "token", "site", "nonce", "routes", "path")

    def __init__(self, server, certificate="", token="", site="local", nonce="", routes=(), path=""):
        self.server = server
        self.certificate = certificate
        self.token = token
        self.site = site
        self.nonce = nonce
        self.routes = routes     # ways to the server, in the order in which to try them; none: `server` alone
        self.path = path

    def again(self):
        """The ticket as it stands now: who started us may have written another address, or token, into it."""
        fresh = read(self.path, self.nonce) if self.path else None
        if fresh is None or fresh.site != self.site:
            return None
        self.token, self.server, self.certificate, self.routes = (
            fresh.token, fresh.server, fresh.certificate, fresh.routes)
        return self

    def __repr__(self):
        return "Ticket({}, site {})".format(self.server, self.site)


def read(path, nonce=""):
    """The ticket in `path`; raises TrustError or BadInput saying what is wrong with it."""
    text = read_private(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise BadInput("the ticket {} is not JSON: {}".format(path, error))
    return from_fields(fields, path, nonce)


def from_fields(fields, path, nonce=""):
    if not isinstance(fields, dict):
        raise BadInput("the ticket {} is not a JSON object".format(path))
    for name in ("server", "token", "site"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise BadInput("the ticket {} lacks '{}'".format(path, name))
    certificate = fields.get("certificate") or ""
    server = fields["server"]
    routes = _routes(fields.get("routes") or [], path)
    if (routes or server.startswith("https://")) and not certificate:
        raise TrustError("the ticket {} names no certificate to pin".format(path),
                         "ask the server for a new ticket; TLS without a pinned certificate is refused")
    # A ticket for many pilots has no nonce: each of them is another pilot, and its job's script may say which.
    said = os.environ.pop("WINDFALL_NONCE", "")  # a pilot that a task of ours starts is not this one
    nonce = nonce or fields.get("nonce") or said or os.urandom(8).hex()
    return Ticket(server, certificate, fields["token"], fields["site"], str(nonce), routes, path)


def _routes(given, path):
    """[{"kind": …, "address": …}, …], as they are; a kind that we do not know is for newer pilots."""
    if not isinstance(given, list) or len(given) > MAX_ROUTES:
        raise BadInput("the ticket {} has no list of routes".format(path))
    for route in given:
        if not isinstance(route, dict) or not all(isinstance(route.get(name), str) for name in ("kind", "address")):
            raise BadInput("the ticket {} has a route without kind or address".format(path))
        if route["kind"] == "spool" and not os.path.isabs(route["address"]):
            raise BadInput("the ticket {} has a spool that is not an absolute path".format(path))
    routes = [route for route in given if route["kind"] in KINDS]
    if given and not routes:
        raise BadInput("the ticket {} has no route that this pilot knows".format(path), "get a newer pilot")
    return routes


def read_private(path):
    """Text of a file that only we can read."""
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
