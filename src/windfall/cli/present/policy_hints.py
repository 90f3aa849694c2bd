"""Say what a person should know of a bag's policies: sites that do not exist, hosts that do not match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from windfall.cli.present.output import say, shown
from windfall.errors import BadInput
from windfall.model.policies.language import Token, tokens
from windfall.model.suggest import nearest
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.types import PolicyInfo, SiteInfo

SITE = ("site.name", "host.site")
COMPARES = ("==", "!=", "=?=", "=!=", "is", "isnt")
SHOWN = 10  # names of sites


def warn(client: Client, view: PolicyInfo) -> None:
    for text in warnings(client, view):
        say(text)


def warnings(client: Client, view: PolicyInfo) -> list[str]:
    """Return warnings of names that are no site's, and one if the bag's policies match no host."""
    if not view["policy"]:
        return []
    sites = client.sites()
    found = list(unknown_sites(view["policy"], [site["site"] for site in sites]))
    if view["why"] and not view["match"]:
        found.append(no_match(view, sites))
    return found


def no_match(view: PolicyInfo, sites: Iterable[SiteInfo]) -> str:
    """Say that no host matches: a mistake, unless a site has yet to show its hosts."""
    why = shown(view["why"], 500)
    if not view["hosts"]:
        return f"the bag's policies match none of the sites that you have: {why}"
    coming = [site["site"] for site in sites if not site["pilots"] and not site["drained"] and site["queued"]]
    if coming:
        return (f"waiting for pilots at {_listed(coming)}: their hosts may match; "
                f"{plural(view['hosts'], 'host')} elsewhere cannot have the bag's tasks ({why})")
    return f"the bag's policies match none of the hosts that serve you now ({view['hosts']}): {why}"


def unknown_sites(policy: dict[str, str], sites: list[str]) -> Iterator[str]:
    """Yield a sentence for each name that a policy compares a site's name with, and that no site has."""
    known = {name.lower() for name in sites}
    for key, text in policy.items():
        try:
            names = list(_names(tokens(text)))
        except BadInput:
            continue
        for name in dict.fromkeys(names):
            if name.lower() not in known:
                hint = nearest(name, sites) or f"you have: {_listed(sites) or 'none'}"
                yield f"{key} names '{shown(name, 60)}', but there is no such site; {hint}"


def _names(found: list[Token]) -> Iterator[str]:
    """Yield the texts that are compared with a site's name: beside an operator, or in the list of `member`."""
    for place, token in enumerate(found):
        if token.kind == "name" and token.text.lower() in SITE:
            after, before = found[place + 1 : place + 3], found[max(0, place - 2) : place][::-1]
            yield from (pair[1].text[1:-1] for pair in (after, before)
                        if len(pair) == 2 and pair[0].text.lower() in COMPARES and pair[1].kind == "text")
            if [each.text for each in after] == [",", "{"]:
                members = takewhile(lambda each: each.text != "}", found[place + 3 :])
                yield from (each.text[1:-1] for each in members if each.kind == "text")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN:,} others" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
