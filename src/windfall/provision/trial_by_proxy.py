"""A trial run by the provisioner over its open connection to the site: a person may have typed a code to open it."""

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
    """Run a trial: send each step as it ends, then the outcome.  End the trial when the command hangs up or sends a
    line."""
    news: asyncio.Queue[Step | None] = asyncio.Queue()
    limit = wanted.get("timeout")
    patience = min(max(float(limit), 0.0), MOST_S) if isinstance(limit, (int, float)) else 0.0
    with Client(profile) as client:
        one = Trial(site, channel, client, news.put_nowait)
        running = asyncio.ensure_future(one.run(patience))
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
