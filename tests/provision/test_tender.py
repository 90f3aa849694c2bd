"""A tender bounds the commands that it runs at its site, whatever the core orders."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from windfall.provision.server_link import TendReply, TendRequest
from windfall.provision.site_files import Equipped
from windfall.provision.site_limits import SALVAGES as SALVAGED
from windfall.provision.tender import SALVAGES, Tender
from windfall.sites.channels.here import Here
from windfall.sites.dialects.job import Shape
from windfall.sites.site_file import Site

MANY = 3 * SALVAGED + 7
PYTHON = """#!/bin/sh
mkdir -p "{folder}/now" && touch "{folder}/now/$$"
ls "{folder}/now" | wc -l >>"{folder}/seen"
sleep 0.2
rm "{folder}/now/$$"
[ "$READY-$LOADED-$(cat)" = yes-yes- ] || exit 9
while [ $# -gt 0 ]; do
    [ "$1" = --nonce ] && [ "$2" != m-3 -o $# -lt 9 ] && said="$said, \\"$2\\": 1"
    shift
done
echo "{{\\"found\\": {{${{said#,}}}}}}"
"""


class Line:
    """A server that has lost all pilots of a site at once."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self.done = asyncio.Event()

    async def tend(self, event: TendRequest) -> TendReply:
        self.found.update(event.salvaged)
        if len(self.found) == MANY:
            self.done.set()
        if event.wait:
            await asyncio.sleep(0.05)
        lost = [f"m-{n}" for n in range(MANY) if f"m-{n}" not in self.found]
        return TendReply(0, "s", 1, 1, salvage=lost)


def test_a_rack_that_is_gone_does_not_take_the_login_node_with_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON.format(folder=tmp_path))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    site = Site("s", "local", (Shape(600),), python=str(python), variables={"READY": "yes"},
                setup=("cat  # eats what is not for it", "echo a module is loaded", "LOADED=yes", "export LOADED"))

    async def equip() -> Equipped:
        return Equipped("me", str(tmp_path), "pilot", "ticket")

    async def tended() -> None:
        line = Line()
        running = asyncio.ensure_future(Tender(site, Here(), line, equip).run())  # type: ignore[arg-type]
        await asyncio.wait_for(line.done.wait(), 60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(tended())
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == 5 and max(seen) <= SALVAGES  # the fifth: one that failed in company, by itself
