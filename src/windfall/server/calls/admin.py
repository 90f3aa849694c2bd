"""The API calls about tokens, allowances, sites, pilots, and the server's health."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import windfall
from windfall.core.decide.grant import fair_share
from windfall.core.messages import events
from windfall.core.messages.bounds import MOST_CORE_MS
from windfall.core.read import views as queries
from windfall.core.state import accounts
from windfall.errors import BadInput, Conflict, Forbidden, NotFound
from windfall.server.calls.provisioners import site_event
from windfall.server.http import auth, schema, tokens
from windfall.server.http.server import BYTES, JSON, TEXT, Request, Response, reply_json
from windfall.server.writer import Writer

DEFAULT_DAYS = {"user": 365, "admin": 90, "enrol": 30}
VERSION = getattr(windfall, "__version__", "0")

_decode_token = msgspec.json.Decoder(schema.NewToken).decode
_decode_sharing = msgspec.json.Decoder(schema.Sharing).decode
_decode_weight = msgspec.json.Decoder(schema.NewWeight).decode
_decode_allowance = msgspec.json.Decoder(schema.NewAllowance).decode
_decode_site = msgspec.json.Decoder(schema.NewSite).decode
_decode_draining = msgspec.json.Decoder(schema.Draining).decode
_decode_trial = msgspec.json.Decoder(schema.NewTrial).decode
MAX_USER = 56  # bytes of a user's name; with what a trial adds, it still names a directory of blobs
MAX_TRIALS = 20  # site trials of one user at once
TRIAL = "+trial"  # part of the names of a trial's user and site, and of no others


class AdminCalls:
    def __init__(self, writer: Writer, home: Path) -> None:
        self._writer = writer
        self._state = writer.state
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._bundle: asyncio.Future[tuple[bytes, str]] | None = None
        self.describe: Any = None  # returns the OpenAPI document
        self.problems: Callable[[], list[str]] = list  # what keeps the server from working as it should
        self.measure: Any = None  # returns the figures for Prometheus
        self._trying: dict[str, None] = {}  # users of trials whose tokens are being made
        self.local_tls: Any = None  # returns address and certificate of the TLS port for this machine

    # --- tokens -----------------------------------------------------------------------------------------------

    async def make_token(self, request: Request) -> Response:
        wanted, who = _decode_token(request.body), request.who
        owner = wanted.user or who.owner
        if who.scope != "admin" and (owner != who.owner or wanted.scope == "admin"):
            raise Forbidden("only an admin may make tokens for other users, or admin tokens",
                            "ask the admin of this server")
        if TRIAL in wanted.user:
            raise BadInput(f"the name {wanted.user[:100]!r} is reserved for site trials", "choose another name")
        if wanted.user and not self._is_user(wanted.user):
            _check_user_name(wanted.user)
        if wanted.scope == "enrol":
            self._check_site(wanted.site, owner)
        days = wanted.days or DEFAULT_DAYS[wanted.scope]
        token, name = tokens.new_token(), os.urandom(6).hex()
        expires = self._writer.clock.now() + days * auth.DAY
        if who.expires:
            expires = min(expires, who.expires)  # a token cannot make one that outlives it
        site = wanted.site if wanted.scope == "enrol" else ""
        await self._writer.do(events.IssueToken(
            key=0, id=name, hash=tokens.digest(token), scope=wanted.scope, owner=owner, site=site, expires=expires,
            by=who.owner))
        return reply_json(schema.TokenMade(name, token, expires), 201)

    def _is_user(self, name: str) -> bool:
        return any(token.owner == name for token in self._state.tokens.values())

    def _check_site(self, name: str, owner: str) -> None:
        if not name:
            raise BadInput("an enrolment token needs a site", "name it in the field \"site\"")
        site = self._state.sites.get(name)
        if site is None or site.owner != owner:
            raise NotFound(f"there is no site {name[:100]}")

    def _visible(self, who: Any) -> list[Any]:
        """Return the tokens that a user may see and revoke: his own, those of his pilots included; an admin, all."""
        listed = self._state.tokens.values()
        return [t for t in listed if who.scope == "admin" or t.owner == who.owner]

    async def tokens(self, request: Request) -> Response:
        listed = [
            {"id": t.id, "scope": t.scope, "user": t.owner, "site": t.site, "expires": t.expires, "issued": t.issued}
            for t in self._visible(request.who)
        ]
        return reply_json({"tokens": listed, "position": self._writer.position})

    async def revoke(self, request: Request) -> Response:
        name = request.args[0]
        if not any(t.id == name for t in self._visible(request.who)):
            raise NotFound(f"there is no token {name[:40]}")
        await self._writer.do(events.RevokeToken(0, name, by=request.who.owner))
        return reply_json({"id": name})

    # --- allowances -------------------------------------------------------------------------------------------

    async def allowances(self, request: Request) -> Response:
        """Return the allowances: to an admin those of all users, to a user his own."""
        state, who = self._state, request.who
        this = accounts.month(state.now)
        users = {who.owner, *state.allowances, *state.weights}
        users.update(owner for owner, month in state.usage if month == this)
        seen = sorted(users) if who.scope == "admin" else [who.owner]
        rows = [schema.Allowance(user, most if (most := accounts.allowance(state, user)) >= 0 else None,
                                 state.usage.get((user, this), 0),
                                 min(state.pledged.get(user, 0), MOST_CORE_MS),
                                 fair_share.weight(state, user)) for user in seen]
        return reply_json(schema.Allowances(rows))

    async def set_allowance(self, request: Request) -> Response:
        wanted = _decode_allowance(request.body)
        known = {accounts.ANYBODY, *(token.owner for token in self._state.tokens.values())}
        if wanted.user not in known:
            raise NotFound(f"there is no user {wanted.user[:100]}", "'windfall user ls' lists those there are")
        await self._writer.do(events.SetAllowance(0, wanted.user, wanted.allowance, request.who.owner))
        return await self.allowances(request)

    async def set_weight(self, request: Request) -> Response:
        wanted = _decode_weight(request.body)
        if wanted.user not in {token.owner for token in self._state.tokens.values()}:
            raise NotFound(f"there is no user {wanted.user[:100]}", "'windfall user ls' lists those there are")
        await self._writer.do(events.SetWeight(0, wanted.user, wanted.weight, request.who.owner))
        return await self.allowances(request)

    # --- sites and pilots -------------------------------------------------------------------------------------

    async def sites(self, request: Request) -> Response:
        owner = request.who.owner
        mine = [s for s in self._state.sites.values() if not s.removed and (s.owner == owner or owner in s.shared)]
        views = [queries.site_view(self._state, s) for s in mine]
        return reply_json({"sites": views, "position": self._writer.position})

    async def add_site(self, request: Request) -> Response:
        wanted = _decode_site(request.body)
        if wanted.shared and request.who.scope != "admin":
            # The owner of a shared site gets the tasks, files and results of all users who share it.
            raise Forbidden("only an admin may share a site", "ask the admin of this server")
        await self._writer.do(site_event(self._state, request.who.owner, wanted))
        return reply_json(queries.site_view(self._state, self._state.sites[wanted.name]), 201)

    async def site(self, request: Request) -> Response:
        name, owner = request.args[0], request.who.owner
        site = self._state.sites.get(name)
        if site is None or site.removed or (site.owner != owner and owner not in site.shared):
            raise NotFound(f"there is no site {name[:100]}")
        view = queries.site_detail if site.owner == owner else queries.site_view  # decisions are the owner's business
        return reply_json(view(self._state, site))

    async def drain_site(self, request: Request) -> Response:
        now, owner = _decode_draining(request.body).now, request.who.owner
        await self._writer.do(events.DrainSite(0, request.args[0], owner, True, now=now, by=owner))
        return await self.site(request)

    async def undrain_site(self, request: Request) -> Response:
        await self._writer.do(events.DrainSite(0, request.args[0], request.who.owner, False, by=request.who.owner))
        return await self.site(request)

    async def share_site(self, request: Request) -> Response:
        """Share a site.  Only an admin may, since the site's owner gets the tasks, files and results of its users."""
        wanted, known = _decode_sharing(request.body), {token.owner for token in self._state.tokens.values()}
        if strangers := [user for user in wanted.add if user not in known]:
            raise NotFound(f"there is no user {strangers[0][:100]}", "'windfall user ls' lists those there are")
        await self._writer.do(events.ShareSite(0, request.args[0], wanted.add, wanted.remove, request.who.owner))
        return reply_json(queries.site_view(self._state, self._state.sites[request.args[0]]))

    async def remove_site(self, request: Request) -> Response:
        await self._writer.do(events.RemoveSite(0, request.args[0], request.who.owner, request.who.owner))
        return reply_json({"site": request.args[0]})

    async def try_site(self, request: Request) -> Response:
        """Create a user and a site for one trial, so that the trial's pilot takes the trial's task and no other, and no
        other pilot takes that task.  Both tokens expire within a day, or when the trial revokes them."""
        if TRIAL in request.who.owner:
            raise Forbidden("a site trial cannot start another trial", "use your own token")
        owner = self._trial_user(request.who.owner)
        name = f"{_decode_trial(request.body).site}+{owner}"
        self._trying[owner] = None
        try:
            return await self._let_in(request, owner, name)
        finally:
            del self._trying[owner]

    def _trial_user(self, owner: str) -> str:
        """Return a user name that no running trial has.  Names are used again, since the server keeps a site for each
        name for ever."""
        now = self._writer.clock.now()
        taken = {token.owner: None for token in self._state.tokens.values() if token.expires > now}
        names = (f"{owner}{TRIAL}{number}" for number in range(1, MAX_TRIALS + 1))
        for name in names:
            if name not in taken and name not in self._trying:
                return name
        raise Conflict(f"{MAX_TRIALS} of your site trials are running",
                       "wait for one to end; a trial whose command was killed ends within a day")

    async def _let_in(self, request: Request, owner: str, name: str) -> Response:
        await self._writer.do(events.AddSite(0, name, owner, "trial"))
        made = {"user": tokens.new_token(), "enrol": tokens.new_token()}
        expires = self._writer.clock.now() + auth.DAY
        expires = min(expires, request.who.expires or expires)
        for scope, token in made.items():
            await self._writer.do(events.IssueToken(
                key=0, id=os.urandom(6).hex(), hash=tokens.digest(token), scope=scope, owner=owner,
                site=name if scope == "enrol" else "", expires=expires, by=request.who.owner))
        inner = self.local_tls() if request.connection.local else ("", "")
        return reply_json(schema.TrialMade(name, made["user"], made["enrol"], expires, *inner), 201)

    async def pilots(self, request: Request) -> Response:
        mine = [p for p in self._state.pilots.values() if p.owner == request.who.owner]
        return reply_json({"pilots": [queries.pilot_view(p) for p in mine], "position": self._writer.position})

    async def gone(self, request: Request) -> Response:
        """Record the user's evidence that a pilot is dead."""
        text = request.args[0]
        pilot = self._state.pilots.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 16 else None
        if pilot is None or pilot.owner != request.who.owner:
            raise NotFound(f"there is no pilot {text[:20]}")
        await self._writer.do(events.Gone(0, pilot.number, "gone"))
        return reply_json(queries.pilot_view(pilot))

    async def bundle(self, request: Request) -> Response:
        body, sha = await self.pilot_file()
        return Response(body, 200, BYTES, (("ETag", f'"{sha}"'),))

    async def pilot_file(self) -> tuple[bytes, str]:
        """Return the pilot's zipapp and its hash; the first call builds them."""
        if self._bundle is None or (self._bundle.done() and self._bundle.exception()):
            self._bundle = asyncio.ensure_future(self._loop.run_in_executor(None, _build, self._home / "pilot"))
        return await asyncio.shield(self._bundle)

    # --- operation --------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        problems = self.problems()
        status = "degraded" if problems else "ok"
        return reply_json(schema.Health(status, VERSION, self._writer.position, problems))

    async def metrics(self, request: Request) -> Response:
        return Response(self.measure().encode(), 200, TEXT)

    async def openapi(self, request: Request) -> Response:
        return Response(await self._loop.run_in_executor(None, self.describe), 200, JSON)


def _check_user_name(name: str) -> None:
    """Refuse a new user's name that could be taken for a path, for several words, or for another name."""
    if not name.isprintable() or name[0] in ".-" or any(each.isspace() or each in "/\\" for each in name):
        raise BadInput(f"{name[:100]!a} cannot be the name of a user",
                       "use letters, digits and marks, without spaces and slashes; do not begin with '.' or '-'")
    if len(name.encode()) > MAX_USER:
        raise BadInput(f"the name {name[:100]!r} has more than {MAX_USER} bytes", "choose a shorter name")


def _build(folder: Path) -> tuple[bytes, str]:
    from windfall.pilot import bundle

    folder.mkdir(mode=0o700, exist_ok=True)
    path, sha = bundle.build(str(folder))
    body = Path(path).read_bytes()
    if hashlib.sha256(body).hexdigest() != sha:
        raise RuntimeError("the pilot's bundle changed while it was read")
    return body, sha
