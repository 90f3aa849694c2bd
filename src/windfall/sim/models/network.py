"""The network between sites: how long files take.

A link has a start-up cost per file (a connection, a handshake) and a bandwidth.  Transfers over a *shared* link divide
its bandwidth evenly, so that each transfer that starts or ends changes the ends of the others; over any other link each
transfer has the whole bandwidth.  Start-up costs pass before the first byte, and use no bandwidth.

A link is found by its two sites ("home" is the server's), in either order; then by one site and "*", any other site.  A
site's link to itself connects its hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from windfall.errors import BadInput
from windfall.sim.engine import Engine

ANY = "*"


@dataclass(eq=False)
class Flow:
    """A transfer over a shared link."""

    left: float  # bytes
    done: Callable[[], None]


@dataclass
class NetworkLink:
    start: int  # ms per file
    rate: float  # bytes per second
    shared: bool = False
    under_way: list[Flow] = field(default_factory=list)
    since: int = 0  # until when `left` of each transfer is counted
    version: int = 0  # of `under_way`: an end that was planned for an older version is void


class Network:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.bytes = self.files = 0  # sent so far
        self._links: dict[tuple[str, str], NetworkLink] = {}

    def link(self, a: str, b: str, *, start: int = 0, rate: float = 1e9, shared: bool = False) -> None:
        if rate <= 0 or start < 0:
            raise BadInput(f"a link cannot have {rate} bytes per second and {start} ms per file",
                           "give a positive bandwidth, and a start of 0 ms or more")
        self._links[a, b] = NetworkLink(start, rate, shared)

    def send(self, a: str, b: str, size: int, files: int, done: Callable[[], None]) -> None:
        """Send files of `size` bytes together; `done` is called when the last byte has arrived."""
        link = self._find(a, b)
        self.bytes += size
        self.files += files
        wait = files * link.start
        if link.shared:
            self.engine.after(wait, self._join, link, Flow(float(size), done))
        else:
            self.engine.after(wait + ceil(size * 1000 / link.rate), done)

    def _find(self, a: str, b: str) -> NetworkLink:
        links = self._links
        for pair in ((a, b), (b, a), (a, ANY), (b, ANY), (ANY, ANY)):
            if pair in links:
                return links[pair]
        raise BadInput(f"there is no link between {a!r} and {b!r}", "add one, or one for '*'")

    # --- shared links -----------------------------------------------------------------------------------------------

    def _join(self, link: NetworkLink, transfer: Flow) -> None:
        self._pass(link)
        link.under_way.append(transfer)
        self._plan(link)

    def _pass(self, link: NetworkLink) -> None:
        """Count the bytes that were sent since the last change."""
        passed, link.since = self.engine.now - link.since, self.engine.now
        if link.under_way:
            share = passed * link.rate / 1000 / len(link.under_way)
            for transfer in link.under_way:
                transfer.left -= share

    def _plan(self, link: NetworkLink) -> None:
        """Schedule the end of the transfer that ends next."""
        link.version += 1
        if link.under_way:
            least = min(transfer.left for transfer in link.under_way)
            wait = ceil(max(least, 0.0) * 1000 * len(link.under_way) / link.rate - 1e-6)
            self.engine.after(wait, self._end, link, link.version)

    def _end(self, link: NetworkLink, version: int) -> None:
        if version != link.version:
            return
        self._pass(link)
        over = [transfer for transfer in link.under_way if transfer.left <= 1e-6]
        link.under_way = [transfer for transfer in link.under_way if transfer.left > 1e-6]
        self._plan(link)
        for transfer in over:
            transfer.done()
