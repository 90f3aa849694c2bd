"""The ticket: where the server is and what lets us in.  A file of ours with mode 0600, or it is refused.

Secrets never leave this object by way of arguments, environment or logs.
"""

import json
import os
import stat

from windfall.errors import BadInput, TrustError


class Ticket:
    __slots__ = ("server", "certificate", "token", "site", "nonce")

    def __init__(self, server, certificate="", token="", site="local", nonce=""):
        self.server = server
        self.certificate = certificate
        self.token = token
        self.site = site
        self.nonce = nonce

    def __repr__(self):
        return "Ticket({}, site {})".format(self.server, self.site)


def read(path):
    """The ticket in `path`; raises TrustError or BadInput saying what is wrong with it."""
    text = read_private(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise BadInput("the ticket {} is not JSON: {}".format(path, error))
    return from_fields(fields, path)


def from_fields(fields, path):
    if not isinstance(fields, dict):
        raise BadInput("the ticket {} is not a JSON object".format(path))
    for name in ("server", "token", "site"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise BadInput("the ticket {} lacks '{}'".format(path, name))
    certificate = fields.get("certificate") or ""
    server = fields["server"]
    if server.startswith("https://") and not certificate:
        raise TrustError("the ticket {} names no certificate to pin".format(path),
                         "ask the server for a new ticket; TLS without a pinned certificate is refused")
    # A ticket for many pilots has no nonce: each of them is another pilot, and its job's script may say which.
    said = os.environ.pop("WINDFALL_NONCE", "")  # a pilot that a task of ours starts is not this one
    nonce = fields.get("nonce") or said or os.urandom(8).hex()
    return Ticket(server, certificate, fields["token"], fields["site"], str(nonce))


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
