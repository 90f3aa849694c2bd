"""Requests about tokens: issue and revoke."""

from __future__ import annotations

from windfall.core.decide.requests.request import refusing
from windfall.core.messages import events as e, facts as f
from windfall.core.state.world import TokenState
from windfall.core.turn import Turn
from windfall.errors import Conflict, NotFound

MAX_TOKENS = 1_000  # of one user, beside those of pilots

RENEWAL = 366 * 86_400_000  # ms before its end: a server that is started once a year never has a dead one


def ends_soon(token: TokenState, now: int) -> bool:
    """Should the server make a new token in place of this one, its own, now?"""
    return 0 < token.expires < now + RENEWAL


@refusing
def issue_token(turn: Turn, event: e.IssueToken) -> None:
    """Issue a token, and drop the owner's expired ones.  The server's own requests, without `by`, have no bound."""
    mine = [token for token in turn.state.tokens.values() if token.owner == event.owner and token.scope != "pilot"]
    expired = [token for token in mine if token.expires and token.expires <= turn.now]
    if event.by and len(mine) - len(expired) >= MAX_TOKENS:
        raise Conflict(f"{event.owner} has {MAX_TOKENS:,} tokens; no more are given",
                       "windfall token ls lists them, windfall token rm revokes what is not used any more")
    for token in expired:
        turn.emit(f.TokenRevoked(turn.now, token.id, event.by))
    turn.emit(f.TokenIssued(
        turn.now, event.id, event.hash, event.scope, event.owner, site=event.site, expires=event.expires, by=event.by
    ))
    turn.done(event)


@refusing
def revoke_token(turn: Turn, event: e.RevokeToken) -> None:
    """Revoke a token."""
    if event.id not in turn.state.token_ids:
        raise NotFound("there is no such token")
    turn.emit(f.TokenRevoked(turn.now, event.id, event.by))
    turn.done(event)
