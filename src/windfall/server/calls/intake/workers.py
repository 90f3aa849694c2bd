"""The worker processes that read large submissions.

Rules
  * A worker starts when a large submission needs it, and ends after a minute without one.
  * One owner has one job at a time, and few that wait, so nobody can occupy all workers.
  * A job that takes too long or too much memory ends with its worker; the next job gets a new one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import msgspec

from windfall import errors
from windfall.errors import TooLarge
from windfall.server.calls.intake import process
from windfall.server.calls.intake.readers import Read
from windfall.server.calls.intake.reruns import RequestedRerun, StoredBag
from windfall.server.http.server import overloaded

MOST = 4  # workers
WAITING = 8  # jobs of one owner that may wait
IDLE_S = 60.0

_decode = msgspec.msgpack.Decoder(process.ReadAnswer).decode
_encode = msgspec.msgpack.Encoder().encode


class Worker:
    """A worker process, seen from the server: one job at a time, in a thread of the server."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with theirs:
            self.process = subprocess.Popen([sys.executable, "-m", process.__name__], stdin=theirs.fileno(),
                                            stdout=subprocess.DEVNULL, env=environment)
        self._socket = ours
        self._socket.settimeout(process.TIME_S)

    def run(self, job: process.ReadJob, body: bytes | bytearray) -> process.ReadAnswer:
        process.send(self._socket, _encode(job), body)
        received = process.receive(self._socket)
        if received is None:
            raise ConnectionError
        return _decode(received[0])

    def stop(self) -> None:
        self._socket.close()
        self.process.kill()
        self.process.wait()


class Workers:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST, "intake")
        self._places = asyncio.Semaphore(MOST)
        self._owners: dict[str, tuple[asyncio.Lock, int]] = {}  # its jobs, the waiting ones included
        self._idle: list[Worker] = []
        self._alive: set[Worker] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, job: process.ReadJob, body: bytes | bytearray) -> Read:
        """Have a worker read a submission; raise what it raises."""
        answer = await self._answer(job, body)
        event = answer.submit or answer.append or answer.part
        assert event is not None
        return event, answer.inputs

    async def rerun(self, had: StoredBag, body: bytes | bytearray) -> RequestedRerun:
        """Have a worker compare a bag with its files as they are now."""
        answer = await self._answer(process.ReadJob("rerun", had.owner, stored=had), body)
        assert answer.rerun is not None
        return answer.rerun

    async def show(self, owner: str, packed: bytes) -> bytes:
        """Have a worker write a bag's specification as JSON."""
        return (await self._answer(process.ReadJob("show", owner), packed)).shown

    async def _answer(self, job: process.ReadJob, body: bytes | bytearray) -> process.ReadAnswer:
        async with self._turn(job.owner):
            answer = await self._loop.run_in_executor(self._threads, self._run, job, body)
        if answer.error:
            raise errors.from_wire(msgspec.msgpack.decode(answer.error), answer.status)
        return answer

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        lock, count = self._owners.get(owner) or (asyncio.Lock(), 0)
        if count > WAITING:
            raise overloaded("too many large submissions of this user are being read")
        self._owners[owner] = lock, count + 1
        try:
            async with lock, self._places:
                yield
        finally:
            count = self._owners[owner][1] - 1
            self._owners[owner] = lock, count
            if not count:
                del self._owners[owner]
            self._rest()

    def _run(self, job: process.ReadJob, body: bytes | bytearray) -> process.ReadAnswer:
        """Run a job on an idle worker, or on a new one; in a thread."""
        worker = self._take()
        try:
            answer = worker.run(job, body)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self._end(worker)
            late = isinstance(error, TimeoutError)
            raise TooLarge(f"reading the request takes more than {process.TIME_S} s" if late
                           else "reading the request takes too much memory", "send it in several parts") from None
        except BaseException:
            self._end(worker)
            raise
        self._idle.append(worker)
        return answer

    def _take(self) -> Worker:
        while (idle := self._pop_idle()) is not None:
            if idle.process.poll() is None:
                return idle
            self._end(idle)
        worker = Worker()
        self._alive.add(worker)
        return worker

    def _pop_idle(self) -> Worker | None:
        """Return one of the idle workers, None if there is none: other threads take some, too."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._owners else self._loop.call_later(IDLE_S, self._stop_idle)

    def _end(self, worker: Worker) -> None:
        self._alive.discard(worker)
        worker.stop()

    def _stop_idle(self) -> None:
        while (idle := self._pop_idle()) is not None:
            self._end(idle)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self._alive):  # a thread that waits for one gets an error
            worker.stop()
