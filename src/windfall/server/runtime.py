"""The server's parts, built and connected; `main` and `embedded` both start one."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from windfall.core.config import Config
from windfall.core.decide.requests.tokens import ends_soon
from windfall.core.messages import events
from windfall.server import metrics
from windfall.server.calls.admin import AdminCalls
from windfall.server.calls.bags import BagCalls
from windfall.server.calls.blobs import BlobCalls
from windfall.server.calls.exchange import ExchangeCalls
from windfall.server.calls.logs import LiveOutput
from windfall.server.calls.provisioners import ProvisionerCalls
from windfall.server.dataflow.gather import Gatherer
from windfall.server.dataflow.handover import Handover
from windfall.server.files.disk_guard import DiskGuard
from windfall.server.files.quota import Quota
from windfall.server.grants import Renderings
from windfall.server.http import auth, listen, tokens
from windfall.server.http.routes import Calls, routes
from windfall.server.http.server import HttpServer, log
from windfall.server.local.data_folder import Home, user
from windfall.server.recovery import recover
from windfall.server.retention import Retention
from windfall.server.views.projector import Projector
from windfall.server.views.story_pages import StoryPages
from windfall.server.views.subscribe import Hub
from windfall.server.writer import Die, Writer, die as end_process
from windfall.store.disk import DiskRoom
from windfall.store.journal import Journal

OWNER_DAYS = 3660
SMALL_TAIL = 256 << 10  # a journal tail that is replayed faster than a snapshot is written


@dataclass(frozen=True)
class ServerOptions:
    """How to run a server."""

    socket: bool = True  # listen on the Unix socket, too
    names: tuple[str, ...] = ()  # names of the server, for its certificate and the header Host
    limit: int = 20_000  # connections
    config: Config | None = None  # of the core
    keep: int = 0  # ms after its end when the server removes a bag; 0: never
    quota: int = 0  # bytes of file contents that each owner may have here; 0: unlimited
    enrol: str = ""  # a token, made beforehand, with which a local pilot enrols
    mark: dict[str, Any] = field(default_factory=dict)  # fields to add to server.json
    claimed: Any = None  # the Unix socket, if it is bound already
    room: DiskRoom | None = None  # for tests: the disk's free space
    die: Die = end_process


class Runtime:
    """A running server: its parts, from `start` to `stop`."""

    home: Home
    journal: Journal
    writer: Writer
    http: HttpServer
    profile: dict[str, Any]
    room: DiskRoom

    @classmethod
    async def start(cls, home: Path | Home, address: str | None, options: ServerOptions) -> Runtime:
        """Start a server, with a TLS port at `address` if one is given."""
        self = cls()
        self.home = home if isinstance(home, Home) else Home(home)
        self.room = options.room or DiskRoom(self.home.path)
        self.room.open()
        config = replace(options.config or Config(), mark=self.home.mark)
        core, self.journal, clock = recover(self.home.journal, config)
        self.journal.make_room = self.room.give
        try:
            if clock.problem:
                log.warning("%s", clock.problem)
            self.writer = Writer(core, self.journal, clock, options.die)
            self._build(options)
            token = await self._bootstrap(options.enrol)
            listener = (options.claimed or self.home.claim()) if options.socket else None
            await self._listen(address, listener, options.names, {"token": token, **options.mark})
        except BaseException:
            self.journal.close()
            self.home.release()
            raise
        return self

    def _build(self, options: ServerOptions) -> None:
        w, home = self.writer, self.home
        self.disk = DiskGuard(self.room, w)
        self.renderings = Renderings(w.state)
        self.live = LiveOutput(w.state)
        self.projector = Projector(home.views, self.journal, self.room.give_if_full)
        self.hub = Hub(w, self.renderings, self.projector)
        self.blobs = BlobCalls(home.path, w.state, self.renderings, self.disk)
        self.exchanges = ExchangeCalls(w, self.renderings, self.live, self.blobs)
        self.gatherer = Gatherer(w, self.projector, self.renderings, self.blobs.store)
        self.renderings.find = self.gatherer.find
        self.handover = Handover(w, self.projector)
        self.renderings.made_by = self.handover.files
        self.handover.hands = lambda bag: self.renderings.of(bag).hands_over
        w.early.append(self.handover.commit)
        self.stories = StoryPages(self.journal)
        self.bags = BagCalls(w, self.renderings, self.projector, self.hub, live=self.live, disk=self.disk,
                             blobs=self.blobs.store, nudge=self.exchanges.nudge, stories=self.stories)
        self.admin = AdminCalls(w, home.path)
        self.auth = auth.Auth(w.state, w.clock)
        self.provisioners = ProvisionerCalls(w)
        table = routes(Calls(bags=self.bags, blobs=self.blobs, exchanges=self.exchanges, live=self.live,
                             admin=self.admin, provisioners=self.provisioners))
        self.http = HttpServer(table, self.auth.check, auth.OriginGuard(options.names).check, options.limit)
        self.admin.measure = lambda: metrics.text(self)
        self.admin.local_tls = self.local_tls
        self.admin.problems = self.problems
        self.admin.describe = lambda: _describe(table)
        self.keeper = Retention(w, self.projector, self.blobs.store,
                                lambda: self.gatherer.list_blobs() | self.blobs.sent.of_attempts_in_play())
        self.keeper.keep = options.keep
        self.bags.free = self.keeper.free
        if options.quota:
            self.bags.quota = self.blobs.quota = Quota(options.quota, self.blobs.store, self.projector, w.state.bags)
        heard = (self.projector, self.gatherer, self.hub, self.live, self.keeper)
        w.listeners += [each.commit for each in heard]

    def problems(self) -> list[str]:
        """Return what a person must see to, a sentence each."""
        problems = (self.disk.problem, self.writer.snapshot_problem, self.writer.clock.problem)
        return [problem for problem in problems if problem]

    # --- first things -----------------------------------------------------------------------------------------

    async def _bootstrap(self, enrol: str) -> str:
        """Create the owner's token and the local site where they are missing, in one commit."""
        owner, state = user(), self.writer.state
        token = str(self.home.read_profile().get("token", ""))
        orders: list[events.Event] = []
        known, now = state.tokens.get(tokens.digest(token)), self.writer.clock.now()
        if known is None or known.scope != "admin" or known.owner != owner or ends_soon(known, now):
            token = tokens.new_token()
            orders.append(self.issue(token, "admin", "", OWNER_DAYS))
        if "local" not in state.sites:
            orders.append(events.AddSite(0, "local", owner, "local"))
        if enrol:
            orders += self._admission(enrol)
        await asyncio.gather(*(self.writer.do(order) for order in orders))
        return token

    async def admit_local(self, token: str) -> None:
        """Let a pilot of this machine enrol with this token."""
        await asyncio.gather(*(self.writer.do(order) for order in self._admission(token)))

    def _admission(self, token: str) -> list[events.Event]:
        """Return the events that let a pilot enrol with a token for years: none where it may already."""
        known = self.writer.state.tokens.get(tokens.digest(token))
        if known is not None and not ends_soon(known, self.writer.clock.now()):
            return []
        revoked: list[events.Event] = [events.RevokeToken(0, known.id)] if known is not None else []
        return [*revoked, self.issue(token, "enrol", "local", OWNER_DAYS)]

    def issue(self, token: str, scope: str, site: str, days: int) -> events.IssueToken:
        """Return the event that issues a token to the server's own user."""
        return events.IssueToken(
            key=0, id=os.urandom(6).hex(), hash=tokens.digest(token), scope=scope, owner=user(), site=site,
            expires=self.writer.clock.now() + days * auth.DAY)

    async def _listen(self, address: str | None, listener: Any, names: tuple[str, ...], mark: dict[str, Any]) -> None:
        self._unix = await listen.unix(self.http, listener) if listener is not None else None
        self._tls: listen.TlsListener | None = None
        self._inner = "", ""
        server, certificate = f"unix:{self.home.socket}", ""
        if address is not None:
            server, certificate = self._listen_tls(address, names)
            host = listen.address(address)[0]
            inner = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
            self._inner = f"https://{inner}:{server.rpartition(':')[2]}", certificate
        self.profile = {"server": server, "certificate": certificate, "pid": os.getpid(), **mark}
        self.home.write_profile(self.profile)
        self.keeper.start()
        self.gatherer.start()
        self.writer.kick()

    def local_tls(self) -> tuple[str, str]:
        """Return address and certificate of the TLS port for processes on this machine; open one if there is none."""
        if self._tls is None:
            self.listen_for_pilots("127.0.0.1:0")
        return self._inner

    def listen_for_pilots(self, address: str) -> None:
        """Listen for pilots at this address, too."""
        self._inner = self._listen_tls(address, ())

    def _listen_tls(self, address: str, names: tuple[str, ...]) -> tuple[str, str]:
        from windfall.server.http import tls

        host, port = listen.address(address)
        context, certificate = tls.context(self.home.tls, names)
        self._tls = listen.TlsListener(self.http, context, host, port)
        shown = names[0] if names else {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"https://{f'[{shown}]' if ':' in shown else shown}:{self._tls.port}", certificate

    # --- last things ------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Refuse new requests, answer the waiting ones, and save the state."""
        self.close_listeners()
        self.writer.finish()
        self.exchanges.stop()
        self.provisioners.stop()
        self.hub.stop()
        self.live.stop()
        self.keeper.stop()
        self.gatherer.stop()
        self.handover.stop()
        await self.http.stop()
        self.disk.stop()
        if self.journal.tail_bytes > SMALL_TAIL:
            self.writer.snapshot()
        await self.projector.close()
        self.blobs.close()
        self.bags.stop()
        self.stories.stop()
        self.journal.close()
        self.room.close()
        self.home.release()

    def close_listeners(self) -> None:
        if self._unix is not None:
            self._unix.close()
            self.home.socket.unlink(missing_ok=True)
            self._unix = None
        if self._tls is not None:
            self._tls.close()
            self._tls = None


def _describe(table: list[Any]) -> bytes:
    from windfall.server.http import openapi

    return openapi.document(table)
