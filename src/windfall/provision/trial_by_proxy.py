"""A trial by whoever tends the site already, over the connection that is there: it may have cost somebody a code."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from windfall.client.client import Client
from windfall.client.profile import Profile
from windfall.provision.control import Talk
from windfall.provision.trial import Trial
from windfall.provision.trial_pilot import Step
from windfall.sites.channels.channel import Channel
from windfall.sites.site_file import Site

MOST_S = 7 * 86_400.0


async def trial(talk: Talk, wanted: dict[str, Any], site: Site, channel: Channel, profile: Profile) -> None:
    """Steps out as they come, then what came of it.  When whoever asked hangs up, or says anything, it is ended."""
    news: asyncio.Queue[Step | None] = asyncio.Queue()
    said = wanted.get("timeout")
    patience = min(max(float(said), 0.0), MOST_S) if isinstance(said, (int, float)) else 0.0
    with Client(profile) as client:
        one = Trial(site, channel, client, news.put_nowait, patience)
        running = asyncio.ensure_future(one.run())
        running.add_done_callback(lambda _: news.put_nowait(None))
        listening = asyncio.ensure_future(_until_told(talk, running))
        try:
            while (step := await news.get()) is not None:
                with suppress(OSError):
                    await talk.say(step=step._asdict())
            await talk.say(passed=not running.cancelled() and running.result(), found=one.found)
        finally:
            listening.cancel()
            running.cancel()
            await asyncio.gather(running, listening, return_exceptions=True)


async def _until_told(talk: Talk, running: asyncio.Future[bool]) -> None:
    with suppress(OSError, ValueError):
        await talk.hear()
    running.cancel()
