"""The API calls about bags: submit, append, order, ask, and follow the output of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from windfall.core.decide.grant.order import POLICIES, looked_at, prospects
from windfall.core.decide.replicas.caps import effective_policy
from windfall.core.decide.requests.rerun import selection, total
from windfall.core.messages import events
from windfall.core.messages.lifecycle import FIRST_FINAL, TASK_STATES, WAITING
from windfall.core.read import explain, host_views, views as queries
from windfall.core.read.story import Protagonist
from windfall.core.state.world import BagState
from windfall.data.blobs import Blobs
from windfall.errors import BadInput, NotFound
from windfall.model.checks import bag as check
from windfall.model.checks.bounds import at_most
from windfall.model.spec import MAX_NAMED, Sweep
from windfall.server.calls.intake import readers
from windfall.server.calls.intake.process import ReadJob
from windfall.server.calls.intake.reruns import RequestedRerun, read_rerun, stored
from windfall.server.calls.intake.workers import Workers
from windfall.server.calls.logs import LOOK_S, LiveOutput, stream_output
from windfall.server.files.disk_guard import DiskGuard
from windfall.server.files.quota import Quota
from windfall.server.grants import Rendering, Renderings
from windfall.server.http import schema
from windfall.server.http.server import BYTES, JSON, Request, Response, Stream, reply_json
from windfall.server.views import rows
from windfall.server.views.projector import Projector
from windfall.server.views.story_pages import MOST_LINES, StoryPages, place_lines
from windfall.server.views.subscribe import Hub
from windfall.server.writer import Writer

T = TypeVar("T")
LARGE = 256 << 10  # bytes of a submission beyond which a worker process reads it
LONG = 64 << 10  # bytes of appended commands beyond which a thread reads them
MAX_PAGE = 10_000
HOSTS_PAGE = 500  # hosts in one answer; each takes about 0.1 ms of the loop
PAGE_STEP = 250  # rows per query
PAGE_BYTES = 8 << 20
MAX_KEY = 200
SHORT = 64 << 10  # bytes of a bag's description that do not count against the quota

_decode_budget = msgspec.json.Decoder(schema.NewBudget).decode
_decode_policy = msgspec.json.Decoder(schema.NewPolicy).decode
_decode_selection = msgspec.json.Decoder(schema.Selection).decode


class _Page(NamedTuple):
    rows: list[Any]
    next: int | None


def _page(views: Any, bag: int, after: int, limit: int, state: str) -> _Page:
    """Return up to `limit` rows, fewer if they are large: one value may have megabytes."""
    found: list[Any] = []
    size = 0
    while len(found) < limit and size < PAGE_BYTES:
        step = min(limit - len(found), PAGE_STEP)
        more = views.results(bag, after, step, state)
        found += more
        size += sum(map(_row_bytes, more))
        if len(more) < step:
            return _Page(found, None)
        after = more[-1].task
    return _Page(found, after)


def _appended_page(appended: list[bytes], after: int) -> list[bytes]:
    """Return as many appended sources as fit into one answer, at least one."""
    size, page = 0, appended[after : after + MAX_PAGE]
    for count, packed in enumerate(page):
        size += len(packed)
        if size > PAGE_BYTES:
            return page[: max(count, 1)]
    return page


def _row_bytes(row: Any) -> int:
    """Estimate a row's bytes from the fields that may be large."""
    lists = sum(map(len, row.values.values())) + sum(len(file[0]) + 100 for file in [*row.files, *row.saved])
    return len(row.value) + len(row.note) + lists


def _rows_of(rendering: Rendering, page: _Page) -> _Page:
    """Return the page's rows with their parameters, which may be long; cut the page at PAGE_BYTES."""
    made: list[Any] = []
    size = 0
    for row in page.rows:
        made.append(rows.from_view(rendering, row))
        size += sum(len(value) for value in made[-1].params.values() if isinstance(value, str)) + _row_bytes(row)
        if size > PAGE_BYTES and len(made) < len(page.rows):
            return _Page(made, row.task)
    return _Page(made, page.next)


class BagCalls:
    def __init__(
        self, writer: Writer, renderings: Renderings, projector: Projector, hub: Hub, *, live: LiveOutput,
        disk: DiskGuard, blobs: Callable[[], Blobs], nudge: Callable[[int], None], stories: StoryPages,
    ) -> None:
        self._writer = writer
        self._state = writer.state
        self._renderings = renderings
        self._projector = projector
        self._hub = hub
        self._live = live
        self._disk = disk
        self._blobs = blobs
        self._nudge = nudge
        self._stories = stories
        self.quota: Quota | None = None
        self.free: Callable[[str], Awaitable[int]] | None = None
        self._loop = asyncio.get_running_loop()
        self._checks = ThreadPoolExecutor(2, "checks")  # separate threads: slow checks must not delay file transfers
        self._workers = Workers()

    def _own_bag(self, request: Request) -> BagState:
        """Return the bag that the call names; report another user's bag as absent."""
        text = request.args[0]
        bag = self._state.bags.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 16 else None
        if bag is None or bag.owner != request.who.owner:
            raise NotFound(f"there is no bag {text[:20]}", "`windfall ls` lists yours")
        return bag

    def _view(self, bag: BagState) -> dict[str, Any]:
        view = queries.bag_view(self._state, self._writer.clock.now(), bag.number)
        view["position"] = self._writer.position
        return view

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, so that the loop stays free."""
        return await self._loop.run_in_executor(self._checks, function)

    def stop(self) -> None:
        self._checks.shutdown(wait=False, cancel_futures=True)
        self._workers.stop()

    # --- submit -----------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Response:
        self._disk.admit()
        key, owner, body = _idempotency(request), request.who.owner, request.body
        request.body = b""
        await self._admit(owner, len(body))
        event, inputs = await self._read_bag(body, owner, key)
        done = await self._do_with_inputs(event, owner, inputs)
        return reply_json(schema.Submitted(done.value, done.extra, self._writer.position), 201)

    async def _read_bag(self, body: bytes | bytearray, owner: str, key: str) -> readers.Read:
        if len(body) <= LARGE:
            with suppress(readers.TooHeavy):
                return await self._in_thread(lambda: readers.read_bag(body, owner, key, patient=False))
        return await self._workers.read(ReadJob("bag", owner, key), body)

    async def _admit(self, owner: str, more: int) -> None:
        """Check the quota for a new description; a short one does not count."""
        if self.quota is not None:
            await self.quota.admit(owner, more if more > SHORT else 0)

    async def _do_with_inputs(self, event: events.Event, owner: str, inputs: dict[str, str]) -> Any:
        """Put an event whose tasks take these inputs; from then on the bag keeps the files."""
        if not inputs:
            return await self._writer.do(event)
        await self._loop.run_in_executor(None, self._find_inputs, owner, inputs)
        done = await self._writer.do(event)
        await self._loop.run_in_executor(None, self._blobs().settle, owner, inputs)
        return done

    def _find_inputs(self, owner: str, inputs: dict[str, str]) -> None:
        blobs = self._blobs()
        for sha, path in inputs.items():
            try:
                blobs.size(owner, sha)
            except NotFound:
                raise BadInput(f"the input '{path}' has not been sent", "PUT it to /v1/blobs first") from None

    async def append(self, request: Request) -> Response:
        self._disk.admit()
        bag, key, body = self._own_bag(request), _idempotency(request), request.body
        request.body = b""
        await self._admit(bag.owner, len(body))
        outline = self._outline(bag, "append")
        if len(body) <= LONG and not any(isinstance(target.source, Sweep) for target in outline.targets):
            event, inputs = readers.read_append(body, outline, key)
        else:
            event, inputs = await self._read("append", body, outline, key)
        done = await self._do_with_inputs(event, bag.owner, inputs)
        return reply_json(schema.AppendedTasks(done.value, done.extra))

    async def append_part(self, request: Request) -> Response:
        """Append tasks of several targets at once, with the tasks that each waits for."""
        return await self._append_parts(request, "part")

    async def extend(self, request: Request) -> Response:
        """Append tasks to a bag that is closed or has ended."""
        return await self._append_parts(request, "extend")

    async def _append_parts(self, request: Request, kind: str) -> Response:
        self._disk.admit()
        bag, key, body = self._own_bag(request), _idempotency(request), request.body
        request.body = b""
        await self._admit(bag.owner, len(body))
        event, inputs = await self._read(kind, body, self._outline(bag, kind), key)
        done = await self._do_with_inputs(event, bag.owner, inputs)
        return reply_json(schema.AppendedTasks(done.value, done.extra))

    def _outline(self, bag: BagState, kind: str) -> readers.Outline:
        rendering = self._renderings.of(bag)
        targets = rendering.spec.targets
        return readers.Outline(
            number=bag.number, owner=bag.owner, open=bag.open, size=bag.size, runs=bag.runs,
            hands_over=rendering.hands_over, targets=targets,
            files=[rendering.family_files(index) for index in range(len(targets))] if kind == "extend" else [])

    async def _read(self, kind: str, body: bytes | bytearray, outline: readers.Outline, key: str) -> readers.Read:
        """Read appended tasks, in a worker process if they are many."""
        if len(body) <= LARGE:
            return await self._in_thread(lambda: readers.APPENDERS[kind](body, outline, key))
        outline.targets = [readers.without_texts(target) for target in outline.targets]
        return await self._workers.read(ReadJob(kind, outline.owner, key, outline), body)

    async def appended(self, request: Request) -> Response:
        """Return the sources that `append` and `extend` added to the bag's `spec`."""
        bag, after = self._own_bag(request), max(0, request.number("after", 0))
        rendering, packed = self._renderings.of(bag), _appended_page(bag.appended, after)
        following = after + len(packed)
        next_ = following if following < len(bag.appended) else None
        encoded = await self._in_thread(
            lambda: msgspec.json.encode(schema.AppendedPage(rendering.appended(packed, after), next_)))
        return Response(encoded, 200, JSON)

    # --- orders -----------------------------------------------------------------------------------------------

    async def close(self, request: Request) -> Response:
        bag = self._own_bag(request)
        await self._writer.do(events.Close(0, bag.number, by=request.who.owner))
        return reply_json(self._view(bag))

    async def set_budget(self, request: Request) -> Response:
        bag, wanted = self._own_bag(request), _decode_budget(request.body)
        await self._writer.do(events.SetBudget(0, bag.number, wanted.budget, by=request.who.owner))
        return reply_json(self._view(bag))

    async def policy(self, request: Request) -> Response:
        bag = self._own_bag(request)
        found = prospects(self._state, self._writer.clock.now(), bag)
        return reply_json(schema.PolicyView(bag.number, effective_policy(bag), *found))

    async def set_policy(self, request: Request) -> Response:
        bag, wanted = self._own_bag(request), _decode_policy(request.body).policy
        policy = {key: check.setting(text, key) if text and key in POLICIES else text for key, text in wanted.items()}
        await self._writer.do(events.SetPolicy(0, bag.number, policy, by=request.who.owner))
        return await self.policy(request)

    async def hosts(self, request: Request) -> Response:
        """Return the hosts as expressions see them; for a bag, also whether each matches, its rank and its limit."""
        bag = self._own_bag(request) if request.args else None
        most, after = min(max(1, request.number("limit", HOSTS_PAGE)), HOSTS_PAGE), request.number("after", -1)
        most = most if bag is None else min(most, looked_at(bag))
        found = host_views.hosts(
            self._state, self._writer.clock.now(), request.who.owner, bag, after=after, most=most)
        return reply_json(schema.HostViews(found, found[-1]["pilot"] if len(found) >= most else None))

    async def pause(self, request: Request) -> Response:
        bag = self._own_bag(request)
        await self._writer.do(events.Pause(0, bag.number, True, by=request.who.owner))
        return reply_json(self._view(bag))

    async def unpause(self, request: Request) -> Response:
        bag = self._own_bag(request)
        await self._writer.do(events.Pause(0, bag.number, False, by=request.who.owner))
        return reply_json(self._view(bag))

    async def remove(self, request: Request) -> Response:
        bag = self._own_bag(request)
        view = self._view(bag)
        await self._writer.do(events.Remove(0, bag.number, by=request.who.owner))
        self._renderings.forget(bag.number)
        return reply_json(view)

    async def collect(self, request: Request) -> Response:
        """Delete the user's files that no bag needs, and say how many bytes that freed."""
        assert self.free is not None
        return reply_json(schema.Freed(await self.free(request.who.owner)))

    async def cancel(self, request: Request) -> Response:
        bag = self._own_bag(request)
        chosen = _selection(request, bag)
        event = events.Cancel(0, bag.number, _named_tasks(chosen), by=request.who.owner, waiting=chosen.waiting)
        done = await self._writer.do(event)
        return reply_json(schema.TaskCount(done.value))

    async def retry(self, request: Request) -> Response:
        bag = self._own_bag(request)
        tasks = await self._to_retry(bag, _selection(request, bag))
        done = await self._writer.do(events.Retry(0, bag.number, tasks, by=request.who.owner))
        return reply_json(schema.TaskCount(done.value))

    async def rerun(self, request: Request) -> Response:
        """Run again what failed or changed; the body may hold the bag as its files say now."""
        self._disk.admit()
        bag, body = self._own_bag(request), request.body
        request.body = b""
        await self._admit(bag.owner, len(body))
        asked = await self._read_rerun(body, bag)
        if asked.dry:
            chosen = selection(self._state, asked.event)
            counts = (total(chosen.again), total(chosen.outdated))
        else:
            done = await self._do_with_inputs(asked.event, bag.owner, asked.inputs)
            counts = (done.value, done.extra)
        return reply_json(structs.replace(asked.answer, count=counts[0], outdated=counts[1]))

    async def _read_rerun(self, body: bytes | bytearray, bag: BagState) -> RequestedRerun:
        had = stored(bag)
        if len(body) + len(had.spec) <= LARGE:
            with suppress(readers.TooHeavy):
                return await self._in_thread(lambda: read_rerun(body, had, patient=False))
        return await self._workers.rerun(had, body)

    async def _to_retry(self, bag: BagState, chosen: schema.Selection) -> Any:
        """Return the tasks to retry: those named, or those of one cause of failure; None means all failed ones."""
        names = ("state", "why", "exit", "signal", "note")
        cause = {name: value for name in names if (value := getattr(chosen, name)) is not None}
        if not cause:
            return _named_tasks(chosen)
        if chosen.tasks is not None or chosen.ranges is not None:
            raise BadInput("the request names both tasks and a cause of failure", "name one of them")
        return await self._projector.ask(lambda views: views.failed_tasks(bag.number, cause))

    # --- questions --------------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        mine = [bag for bag in self._state.bags.values() if bag.owner == request.who.owner]
        return reply_json({"bags": [queries.summary(bag) for bag in mine], "position": self._writer.position})

    async def usage(self, request: Request) -> Response:
        """Return the bytes of files per bag of the user and, under a quota, per user; an admin sees all users."""
        who, quota = request.who, self.quota
        owners = {who.owner}
        if who.scope == "admin":
            owners |= {token.owner for token in self._state.tokens.values() if token.scope in ("user", "admin")}
        users = {owner: await quota.used(owner) for owner in sorted(owners)} if quota else {}
        bags: dict[int, int] = {}
        if request.option("bags", "1") in ("1", "true"):
            bags = await self._projector.ask(lambda views: views.stored(who.owner))
        return reply_json(schema.Usage(quota.limit if quota else 0, users.get(who.owner, 0), users, bags))

    async def show(self, request: Request) -> Response:
        return reply_json(self._view(self._own_bag(request)))

    async def spec(self, request: Request) -> Response:
        bag = self._own_bag(request)
        if len(bag.spec) > LARGE:
            return Response(await self._workers.show(bag.owner, bag.spec), 200, JSON)
        return Response(await self._in_thread(lambda: readers.show_bag(bag.spec)), 200, JSON)

    async def results(self, request: Request) -> Response:
        bag = self._own_bag(request)
        limit = min(max(1, request.number("limit", 1000)), MAX_PAGE)
        after, state = request.number("after", -1), request.option("state")
        if state and state not in TASK_STATES[FIRST_FINAL:]:
            raise BadInput(f"unknown final state '{state[:40]}'", f"choose {', '.join(TASK_STATES[FIRST_FINAL:])}")
        position, found = await self._projector.ask(  # the position first: rows may be added during the query
            lambda views: (views.position, _page(views, bag.number, after, limit, state)))
        page = _rows_of(self._renderings.of(bag), found)
        return reply_json(schema.ResultPage(page.rows, page.next, position))

    async def statistics(self, request: Request) -> Response:
        bag = self._own_bag(request)
        found = await self._projector.ask(lambda views: views.statistics(bag.number, bag.busy_ms, bag.busy_since))
        return reply_json({"bag": bag.number, "tasks": bag.size, "counts": queries.counts(bag), **found})

    async def failures(self, request: Request) -> Response:
        bag = self._own_bag(request)
        found = await self._projector.ask(lambda views: (views.position, views.failures(bag.number)))
        return reply_json({"failures": found[1], "position": found[0]})

    async def running(self, request: Request) -> Response:
        bag = self._own_bag(request)
        most = min(max(1, request.number("limit", 1000)), MAX_PAGE)
        return reply_json(schema.Running(queries.running(self._state, bag.number, most), self._writer.position))

    async def explain(self, request: Request) -> Response:
        bag = self._own_bag(request)
        task = request.number("task", -1)
        if task >= bag.size:
            raise NotFound(f"bag {bag.number} has no task {task}")
        now = self._writer.clock.now()
        return reply_json(explain.explain(self._state, now, bag.number, task if task >= 0 else None))

    async def watch(self, request: Request) -> None:
        await self._hub.watch(request, self._own_bag(request))

    async def events(self, request: Request) -> None:
        await self._hub.events(request)

    # --- one task ---------------------------------------------------------------------------------------------

    def _task(self, request: Request, bag: BagState) -> int:
        text = request.args[1]
        if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) >= bag.size:
            raise NotFound(f"bag {bag.number} has no task {text[:20]}")
        return int(text)

    async def task(self, request: Request) -> Response:
        bag = self._own_bag(request)
        task = self._task(request, bag)
        rendering = self._renderings.of(bag)
        target, index = bag.locate(task)
        renderer = rendering.renderer(target)
        attempts = await self._projector.ask(lambda views: views.attempts(bag.number, task))
        now = self._writer.clock.now()
        taken = {name: [f"{name}/..."] for name in renderer.target.takes}  # many files: where they lie for the task
        command = renderer.command(index, taken)
        view = schema.TaskView(
            task=task, target=renderer.target.name, params=renderer.params(index), command=command,
            state=queries.task_state(bag, task), attempts=[rows.from_view(rendering, row) for row in attempts],
            in_play=[schema.InPlay(**each) for each in queries.in_play(self._state, now, bag.number, task)])
        return reply_json(view)

    async def task_spec(self, request: Request) -> Response:
        """Return a task's description as a pilot reads it."""
        bag = self._own_bag(request)
        task = self._task(request, bag)
        if queries.task_state(bag, task) == TASK_STATES[WAITING]:  # its input files do not exist yet
            raise BadInput(f"task {task} waits for other tasks", f"windfall wait {bag.number}")
        return reply_json(self._renderings.of(bag).one(task))

    async def story(self, request: Request) -> Response:
        bag = self._own_bag(request)
        task = self._task(request, bag)
        most = min(max(1, request.number("limit", MOST_LINES)), MOST_LINES)
        who = Protagonist(bag.number, task, bag.target_of(task))
        position = self._writer.position
        page = await self._stories.page(who, bag.submitted, request.option("after"), most)
        place_lines(page.lines, self._state.pilots, await self._projector.ask(
            lambda views: views.attempts(bag.number, task)))
        return reply_json(schema.StoryPage(page.lines, page.next or None, page.since, position))

    async def log(self, request: Request) -> Response | None:
        bag = self._own_bag(request)
        task, stream = self._task(request, bag), request.option("stream", "out")
        if stream not in ("out", "err"):
            raise BadInput(f"there is no stream '{stream[:20]}'", "choose out or err")
        if request.option("follow") in ("1", "true"):
            await self._follow(request, bag, task, stream)
            return None
        kept, size = await self._projector.ask(lambda views: views.logs(bag.number, task, None, stream))
        return Response(kept, 200, BYTES, (("X-Size", str(size)),))

    async def _follow(self, request: Request, bag: BagState, task: int, stream: str) -> None:
        out = request.start(BYTES)
        sent = 0
        while not out.closed and not self._live.stopped:
            found = self._live.running(bag.number, task)
            if found is not None:
                sent = await self._stream_attempt(request, out, found, stream)
                if bag.tasks.state[task] >= FIRST_FINAL:
                    break
            elif bag.tasks.state[task] >= FIRST_FINAL or bag.number not in self._state.bags:
                break
            await asyncio.sleep(LOOK_S)
        if ended_task(bag, task) and not (out.closed or self._live.stopped):
            await out.write(await self._rest(bag, task, stream, sent))
        out.end()

    async def _stream_attempt(self, request: Request, out: Stream, found: tuple[int, int], stream: str) -> int:
        attempt, pilot = found
        tail = self._live.open(attempt, pilot, stream)
        self._nudge(pilot)
        try:
            return await stream_output(self._live, request, out, attempt, tail)
        finally:
            self._live.close(attempt, stream)

    async def _rest(self, bag: BagState, task: int, stream: str, sent: int) -> bytes:
        """Return the output that came too late for the live stream, from the task's result.  If the pilot cut out its
        middle, return it only to a client that has received nothing."""
        try:
            kept, size = await self._projector.ask(lambda views: views.logs(bag.number, task, None, stream))
        except NotFound:
            return b""
        if size <= len(kept):
            return bytes(kept[sent:])
        return b"" if sent else bytes(kept)


def ended_task(bag: BagState, task: int) -> bool:
    return bool(bag.tasks.state[task] >= FIRST_FINAL)


def _idempotency(request: Request) -> str:
    key = request.header(b"idempotency-key")
    if len(key) > MAX_KEY:
        raise BadInput(f"the Idempotency-Key is longer than {MAX_KEY} characters")
    return key


def _selection(request: Request, bag: BagState) -> schema.Selection:
    chosen = _decode_selection(request.body or b"{}")
    if max((*(chosen.tasks or ()), *map(max, chosen.ranges or ())), default=-1) >= bag.size:
        raise BadInput(f"bag {bag.number} has {bag.size} tasks, numbered from 0")
    return chosen


def _named_tasks(chosen: schema.Selection) -> NDArray[np.int64] | None:
    """Return the tasks that a selection names, each once; None means all."""
    if chosen.tasks is None and chosen.ranges is None:
        return None
    ranges = sorted([*((task, task) for task in chosen.tasks or ()), *(chosen.ranges or ())])
    pieces, end, count = [np.empty(0, np.int64)], 0, 0
    for first, last in ranges:
        if last >= end:
            begin, end = max(first, end), last + 1
            count += end - begin
            at_most(count, MAX_NAMED, "tasks named in one request")
            pieces.append(np.arange(begin, end))
    return np.concatenate(pieces)
