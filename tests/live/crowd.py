"""Many pilots in one process: each the real agenda of the real pilot, over HTTPS of its own to a real server; tasks
only take their time.

They write down what the server did to them: connections that were lost, requests that were turned away (429, 503) and
for how long, and whether somebody came again before that was over.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
import threading
from collections import Counter
from typing import Any

from windfall.pilot import clock
from windfall.pilot.agenda.agenda import Agenda

HOST, MEMORY = "127.0.0.1", 1 << 30
TURNED_AWAY = (429, 503)


class Wire:
    """HTTP/1.1 over TLS, with connections that are kept."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.port, self.context = port, context
        self.kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, token: str, body: Any) -> tuple[int, float | None, Any]:
        """Status, seconds to stay away, answer.  OSError and EOFError: it is lost."""
        reader, writer = self.kept.pop() if self.kept else await asyncio.open_connection(
            HOST, self.port, ssl=self.context)
        try:
            data = json.dumps(body).encode()
            writer.write(f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {token}\r\n"
                         f"content-length: {len(data)}\r\n\r\n".encode() + data)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            answer = json.loads(await reader.readexactly(int(re.findall(r"content-length: (\d+)", head)[0])))
        except BaseException:
            writer.close()
            raise
        self.kept.append((reader, writer))
        after = re.findall(r"retry-after: (\d+)", head)
        return int(head[9:12]), float(after[0]) if after else None, answer

    def close(self) -> None:
        for _, writer in self.kept:
            writer.close()


class Member:
    def __init__(self, crowd: Crowd, name: str) -> None:
        self.crowd, self.name = crowd, name
        self.wire = Wire(crowd.port, crowd.context)
        self.agenda = Agenda(1, memory=MEMORY, jitter=random.random)
        self.token = ""
        self.placed: dict[int, Any] = {}
        self.running: dict[int, asyncio.TimerHandle] = {}
        self.stay_away = 0  # ms: until then, by the server's word
        self.lost_at: list[int] = []
        self.back_at = 0  # when it was heard after its last loss
        self.stirred = asyncio.Event()
        self.talks: set[asyncio.Task[None]] = set()

    # --- the network ------------------------------------------------------------------------------------------------

    async def enrol(self) -> None:
        host = {"id": self.name, "name": self.name, "cores": 1, "memory": MEMORY}
        message = {"v": 1, "site": self.crowd.site, "nonce": self.name, "host": host,
                   "shape": {"cores": 1, "memory": MEMORY}}
        while True:
            sent = clock.milliseconds()
            status, after, answer = await self.wire.post("/v1/enrol", self.crowd.token, message)
            if status == 200:
                break
            assert status in TURNED_AWAY and after, (status, answer)
            await asyncio.sleep(after)
        self.token = answer["token"]
        self.agenda.enrolled(clock.milliseconds(), answer, sent)

    async def exchange(self, request: dict[str, Any]) -> None:
        now = clock.milliseconds()
        self.crowd.hasty += now < self.stay_away
        self.crowd.requests += 1
        try:
            status, after, answer = await self.wire.post("/v1/exchange", self.token, request)
        except (OSError, EOFError):
            self._lost(request["seq"])
        else:
            self._answered(request["seq"], status, after, answer)
        self.stirred.set()

    def _lost(self, seq: int) -> None:
        now = clock.milliseconds()
        self.crowd.lost += 1
        self.lost_at.append(now)
        self.back_at = 0
        self.agenda.request_failed(now, seq)
        self.crowd.returns.append(self.agenda.not_before)

    def _answered(self, seq: int, status: int, after: float | None, answer: Any) -> None:
        now = clock.milliseconds()
        if status == 200:
            assert self.agenda.answer_received(now, answer), answer
            self.back_at = self.back_at or now
            return
        assert status in TURNED_AWAY and after, (status, answer)
        self.crowd.shed[status] += 1
        self.stay_away = max(self.stay_away, now + int(1_000 * after))
        self.agenda.request_failed(now, seq, after, lost=False)

    # --- its life ---------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        while not self.crowd.over:
            self.stirred.clear()
            now = clock.milliseconds()
            if (request := self.agenda.next_request(now)) is not None:
                talk = asyncio.ensure_future(self.exchange(request))
                self.talks.add(talk)
                talk.add_done_callback(self._talked)
            for order in self.agenda.orders(now):
                self._obey(order)
            self._run()
            due = self.agenda.due(now)
            seconds = 1.0 if due is None else min(1.0, max(0.001, (due - now) / 1_000))
            try:
                await asyncio.wait_for(self.stirred.wait(), seconds)
            except TimeoutError:
                pass

    def _talked(self, talk: asyncio.Task[None]) -> None:
        self.talks.discard(talk)
        if not talk.cancelled() and talk.exception() is not None:
            self.crowd.failure = talk.exception()

    def _obey(self, order: tuple[Any, ...]) -> None:
        if order[0] == "run":
            self.placed[order[1].attempt] = order[1]
        elif order[0] == "give_back":
            back = [attempt for attempt in order[2] if self.placed.pop(attempt, None) is not None]
            self.agenda.given_back(clock.milliseconds(), back)

    def _run(self) -> None:
        if self.placed and not self.running:
            attempt = next(iter(self.placed))
            del self.placed[attempt]
            self.crowd.ran[attempt] += 1
            self.agenda.running(clock.milliseconds(), [attempt])
            lasts = random.uniform(*self.crowd.lasts)
            self.running[attempt] = asyncio.get_running_loop().call_later(lasts, self._ended, attempt, lasts)

    def _ended(self, attempt: int, lasts: float) -> None:
        del self.running[attempt]
        self.agenda.task_ended(clock.milliseconds(), attempt, {"a": attempt, "wall": int(1_000 * lasts), "cpu": 1})
        self.stirred.set()

    def close(self) -> None:
        for each in [*self.talks, *self.running.values()]:
            each.cancel()
        self.wire.close()


class Crowd:
    """`with Crowd(…) as crowd`: all of them are enrolled, and live in a thread of their own until the end."""

    def __init__(
        self, profile: dict[str, Any], token: str, site: str, members: int, lasts: tuple[float, float]
    ) -> None:
        self.port = int(profile["server"].rpartition(":")[2])
        self.token, self.site, self.lasts = token, site, lasts
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.load_verify_locations(cadata=profile["certificate"])
        self.over = False
        self.requests = self.lost = self.hasty = 0
        self.shed: Counter[int] = Counter()
        self.returns: list[int] = []  # when each comes again that has lost the server
        self.ran: Counter[int] = Counter()  # attempt → how often it was begun
        self.failure: BaseException | None = None
        self._ready = threading.Event()
        self._count = members
        self.members: list[Member] = []
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self) -> Crowd:
        self._thread.start()
        assert self._ready.wait(60) and self.failure is None, self.failure
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        self._thread.join(20)
        assert self.failure is None, self.failure

    def _main(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as error:
            self.failure = error
        self._ready.set()

    async def _all(self) -> None:
        self.members = [Member(self, f"member-{number}") for number in range(self._count)]
        gate = asyncio.Semaphore(8)

        async def enrol(member: Member) -> None:
            async with gate:
                await member.enrol()

        await asyncio.gather(*map(enrol, self.members))
        self._ready.set()
        try:
            await asyncio.gather(*(member.live() for member in self.members))
        finally:
            for member in self.members:
                member.close()
