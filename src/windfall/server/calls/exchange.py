"""The exchange: a pilot sends reports and receives grants.

This is the hot path.  Per request the server decodes once, straight into the core's event, hashes one token and puts
one event into the writer's inbox; after the flush it renders, encodes and writes once.  A parked poll costs one entry
in a table.
"""

from __future__ import annotations

import asyncio

import msgspec

from windfall.core.messages import effects, events
from windfall.errors import TooLarge, VersionMismatch
from windfall.model.calls import STORED
from windfall.server.calls.blobs import BlobCalls
from windfall.server.calls.logs import LiveOutput
from windfall.server.grants import Renderings
from windfall.server.http import lenient_decode, schema, tokens
from windfall.server.http.density import is_dense
from windfall.server.http.server import Request, Response, reply_json, to_client_error
from windfall.server.http.waiting import WaitingRequests
from windfall.server.writer import Writer
from windfall.wire import messages

VERSION = messages.VERSIONS[-1]
LEFT_OUT = 500  # ms until a pilot asks again if some of its grants could not be rendered yet
LARGE = 1 << 20  # bytes of a message whose values are counted before the server decodes it
MAX_VALUES = 50_000  # values, and escaped characters, of a large message
MAX_LENIENT_VALUES = 20_000  # of a message that is decoded leniently, in Python
MAX_LENIENT_BYTES = 4 << 20  # bytes of such a message
MAX_NAMES = 10_000  # files and captured values in one message of several reports
QUICK = 5_000_000  # ns for which the loop compares the files of one message with outputs
RESTART_SPREAD = 2_000  # ms over which pilots come back after a clean stop

_decode = msgspec.json.Decoder(schema.Exchange).decode
_decode_enrol = msgspec.json.Decoder(schema.Enrol).decode
_encode = msgspec.json.Encoder().encode


class ExchangeCalls:
    def __init__(
        self, writer: Writer, renderings: Renderings, live: LiveOutput, blobs: BlobCalls
    ) -> None:
        self._writer = writer
        self._pilots = writer.state.pilots
        self._renderings = renderings
        self._live = live
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._checking: set[asyncio.Task[None]] = set()
        self._waiting = WaitingRequests(writer, self.render, self._gone)  # about: pilot, epoch, seq
        self.count = self.reports = 0

    @property
    def parked(self) -> int:
        return len(self._waiting.open)

    # --- exchange ---------------------------------------------------------------------------------------------

    def exchange(self, request: Request) -> None:
        m = _read(request.body)
        request.body = b""
        if m.v not in messages.VERSIONS:
            raise _mismatch(m.v)
        self.count += 1
        self.reports += len(m.reports)
        quick = QUICK // max(1, len(m.reports))
        slow = [report for report in m.reports if _has_files(report) and not self._blobs.check_files(report, quick)]
        if slow:
            checking = self._loop.create_task(self._check_slowly(slow, m, request))
            self._checking.add(checking)
            checking.add_done_callback(self._checking.discard)
        else:
            self._put(m, request)

    async def _check_slowly(self, slow: list[schema.Report], m: schema.Exchange, request: Request) -> None:
        """Check reports whose files take long to compare; then put the exchange into the inbox."""
        try:
            for report in slow:
                await self._blobs.check_slowly(report)
            if not request.connection.closed:
                self._put(m, request)
        except Exception as error:  # the process goes on
            request.fail(to_client_error(error))

    def _put(self, m: schema.Exchange, request: Request) -> None:
        pilot = request.who.pilot
        event = events.Exchange(
            key=0, pilot=pilot, epoch=m.epoch, seq=m.seq, ack=m.ack, want=m.want, wait=m.wait, left=m.left,
            started=m.started, reports=m.reports, held=m.held, bye=m.bye,  # type: ignore[arg-type]
            trouble=m.trouble, dead=m.dead)
        self._waiting.put(event, request, (pilot, m.epoch, m.seq))

    def render(self, effect: effects.ExchangeReply) -> bytes:
        grants = self._renderings.grants(effect.grants) if effect.grants else []
        return _encode(schema.ExchangeResponse(
            v=VERSION, epoch=effect.epoch, seq=effect.seq, lease=effect.lease, grants=grants, cancel=effect.cancel,
            recall=effect.recall, stream=self._live.watched(effect.pilot), look=effect.look, census=effect.census,
            stop=effect.stop,
            again=0 if len(grants) == len(effect.grants) else LEFT_OUT, spread=effect.spread))

    def _gone(self, key: int, about: tuple[int, int, int]) -> None:
        """Tell the core that a pilot closed the connection of its parked poll."""
        self._writer.put(events.DropRequest(0, about[0], key))

    def nudge(self, pilot: int) -> None:
        """Answer a pilot's parked poll, so that the pilot learns which output a user has begun to watch."""
        parked = self._pilots[pilot].waiting_request if pilot in self._pilots else None
        if parked is not None and parked.key in self._waiting.open:
            self._answer_early(parked.key, 0)
            self._writer.put(events.DropRequest(0, pilot, parked.key))

    def _answer_early(self, key: int, again: int) -> None:
        """Answer a parked poll without the core: the answer grants and acknowledges nothing."""
        request, (pilot, epoch, seq) = self._waiting.take(key)
        answer = schema.ExchangeResponse(VERSION, epoch, seq, stream=self._live.watched(pilot), again=again)
        answer.spread = RESTART_SPREAD if again else 0
        request.reply(_encode(answer))

    def stop(self) -> None:
        """Answer every parked poll, so that no connection holds up the stop; spread the pilots' returns over time."""
        step = RESTART_SPREAD / max(1, self.parked)
        for place, key in enumerate(list(self._waiting.open)):
            self._answer_early(key, 50 + int(place * step))

    # --- enrol ------------------------------------------------------------------------------------------------

    async def enrol(self, request: Request) -> Response:
        message = _read_enrol(request.body)
        version = messages.negotiate(message.versions or [message.v])
        if version is None:
            raise _mismatch(message.v)
        if request.who.site and request.who.site != message.site:
            message.site = request.who.site  # the ticket decides
        token = tokens.new_token()
        effect = await self._writer.do(_enrol_event(message, tokens.digest(token)))
        return reply_json(schema.Enrolled(
            v=version, pilot=effect.pilot, epoch=effect.epoch, token=token, lease=effect.lease, idle=effect.idle,
            spread=effect.spread, park=effect.park))


def _read(body: bytes | bytearray) -> schema.Exchange:
    """Decode an exchange in one pass; if a field does not fit, decode leniently, so that the other reports arrive.

    The loop waits meanwhile, so a message with too many values is refused; its pilot sends the reports one by one."""
    if len(body) > LARGE and is_dense(body, MAX_VALUES):
        raise _too_many_values(MAX_VALUES)
    try:
        message = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if len(body) > MAX_LENIENT_BYTES or is_dense(body, MAX_LENIENT_VALUES):
            raise
        message = msgspec.convert(lenient_decode.exchange(lenient_decode.parse(body)), schema.Exchange)
    if len(message.reports) > 1 and sum(map(_names, message.reports)) > MAX_NAMES:
        raise _too_many_values(MAX_NAMES)
    return message


def _has_files(report: schema.Report) -> bool:
    return bool(report.files or report.saved or report.scratch or report.value == STORED)


def _names(report: schema.Report) -> int:
    """Count the files and captured values of a report."""
    return len(report.files) + len(report.saved) + len(report.values)


def _too_many_values(most: int) -> TooLarge:
    return TooLarge(f"the message has more than {most:,} values", "send fewer reports at once")


def _read_enrol(body: bytes | bytearray) -> schema.Enrol:
    try:
        return _decode_enrol(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(lenient_decode.enrol(lenient_decode.parse(body)), schema.Enrol)


def _enrol_event(message: schema.Enrol, token: bytes) -> events.Enrol:
    host, shape = message.host, message.shape
    return events.Enrol(
        key=0, site=message.site, nonce=message.nonce, host=host.id, host_name=host.name, cores=shape.cores,
        memory=shape.memory, gpus=shape.gpus, disk=shape.disk, left=shape.left, token=token,
        detail=f"{host.platform} python {host.python}".strip(), nodes=shape.nodes,
        boot=host.boot, life=host.life, hardware=host.hardware)


def _mismatch(version: int) -> VersionMismatch:
    spoken = ", ".join(map(str, messages.VERSIONS))
    return VersionMismatch(f"this server speaks version {spoken} of the exchange, not {version}",
                           "GET /v1/pilot.pyz has a pilot that fits")
