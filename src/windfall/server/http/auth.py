"""Authentication: tokens are opaque, have a scope, expire, and can be revoked; the server stores only their hashes.

Rules
  * The server looks a token up by its hash and never compares tokens byte by byte.
  * An absent, malformed, unknown, expired or revoked token gets 401, a valid one of the wrong scope 403.
  * Failures of others never slow down a valid token, not even failures from the same address.
  * No token is ever written to a log.
"""

from __future__ import annotations

import hashlib
import socket
from typing import Any

from windfall.core.state.world import State
from windfall.errors import Forbidden, Overloaded, Unauthorised, WindfallError
from windfall.server.clock import Clock
from windfall.server.http.server import Request

DAY = 86_400_000  # ms
MAX_FAILURES = 30  # a minute, per address
MAX_PEERS = 10_000  # addresses whose failures are counted

_SCOPES = {  # scope of a route → scopes of tokens that it accepts
    "user": frozenset(("user", "admin")),
    "admin": frozenset(("admin",)),
    "enrol": frozenset(("enrol",)),
    "pilot": frozenset(("pilot",)),
    "user pilot": frozenset(("user", "admin", "pilot")),
    "any": frozenset(("user", "admin", "enrol", "pilot")),
}


class Auth:
    def __init__(self, state: State, clock: Clock) -> None:
        self._tokens = state.tokens
        self._clock = clock
        self._failures: dict[str, tuple[int, int]] = {}  # address → (minute, failures)
        self.failed = 0

    def check(self, request: Request) -> None:
        """Set `request.who` to the token's record, or raise."""
        assert request.route is not None
        scope = request.route.scope
        if not scope:
            return
        who = self._find(request.headers.get(b"authorization", b""))
        if who is None:
            raise self._failure(request.connection.peer)
        if who.scope not in _SCOPES[scope]:
            raise Forbidden(f"this token has the scope {who.scope}, which does not permit this call",
                            f"use a token with the scope {scope.replace(' ', ' or ')}")
        request.who = who

    def _find(self, header: bytes) -> Any:
        if header[:7].lower() != b"bearer ":
            return None
        who = self._tokens.get(hashlib.sha256(header[7:].strip()).digest())
        if who is None or (who.expires and who.expires <= self._clock.now()):
            return None
        return who

    def _failure(self, peer: str) -> WindfallError:
        self.failed += 1
        minute = self._clock.now() // 60_000
        since, count = self._failures.get(peer, (minute, 0))
        if since != minute:
            since, count = minute, 0
        if len(self._failures) >= MAX_PEERS and peer not in self._failures:
            self._failures.clear()
        self._failures[peer] = (since, count + 1)
        if count >= MAX_FAILURES:
            return Overloaded("too many requests from this address had no valid token", "wait a minute", retry_after=60)
        return Unauthorised(
            "the request has no valid token",
            "copy server.json from the server's data folder again, or have its owner run 'windfall token add'",
        )


class OriginGuard:
    """The check of the headers Host and Origin, against requests of other web pages and against names that an attacker
    points at this server (DNS rebinding)."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        host = socket.gethostname().lower()
        self._names = frozenset(("localhost", host, host.partition(".")[0], *(name.lower() for name in names)))

    def check(self, request: Request) -> None:
        host = request.header(b"host")
        origin = request.headers.get(b"origin")
        if not request.connection.local:
            if not self._known(host):
                raise Forbidden("the header Host names no name of this server", "add the name with serve --name")
            if origin is not None and origin.decode("latin-1").lower() != f"https://{host.lower()}":
                raise Forbidden("this server refuses requests from other sites' web pages")
        elif origin is not None:
            raise Forbidden("this server refuses requests from web pages on its Unix socket")

    def _known(self, host: str) -> bool:
        name = _without_port(host.lower())
        return name in self._names or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_address(name: str) -> bool:
    """Is this host an IP address?  Unlike a name, an attacker cannot point it at another machine."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False
