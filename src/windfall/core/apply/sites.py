"""Fold into the state what is decided about a site, and keep its history."""

from __future__ import annotations

from windfall.core.messages import facts as f
from windfall.core.state.world import SiteState, State

KEPT = 100  # lines of a site's history


def site_judged(state: State, fact: f.SiteJudged) -> None:
    site = state.sites[fact.site]
    site.suspect_since = fact.suspect
    state.version += 1  # work that was to go to this site may go elsewhere
    state.sites_with_orders[site.name] = None
    note_on_site(site, fact.at, "suspect" if fact.suspect else "answers", fact.says)


def site_noted(state: State, fact: f.SiteNoted) -> None:
    note_on_site(state.sites[fact.site], fact.at, fact.kind, fact.says)


def note_on_site(site: SiteState, at: int, kind: str, says: str) -> None:
    site.history.append((at, kind, says))
    del site.history[:-KEPT]
