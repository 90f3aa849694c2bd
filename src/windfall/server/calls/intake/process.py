"""A worker process: it reads large submissions, so that the server's interpreter never holds its lock for long.

The socket on standard input brings one job after the other: a `ReadJob`, then the body.  An answer is the event and the
blobs it names, or an error as the API encodes it.  The process has bounds of memory and time, and ends when the server
does.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
from contextlib import suppress

import msgspec

from windfall.core.messages import events
from windfall.errors import TooLarge
from windfall.server.calls.intake import readers, reruns
from windfall.server.http.server import to_client_error

MEMORY = 4 << 30  # bytes of address space
TIME_S = 60  # of one job
NICENESS = 10
LENGTHS = struct.Struct("!QQ")
PIECE = 1 << 20


class ReadJob(msgspec.Struct):
    kind: str  # "bag", "show", "rerun", or a key of readers.APPENDERS
    owner: str
    key: str = ""
    bag: readers.Outline | None = None
    stored: reruns.StoredBag | None = None


class ReadAnswer(msgspec.Struct):
    submit: events.Submit | None = None
    append: events.Append | None = None
    part: events.AppendPart | None = None
    rerun: reruns.RequestedRerun | None = None
    inputs: dict[str, str] = {}
    shown: bytes = b""
    error: bytes = b""  # as the API encodes it, in MessagePack
    status: int = 200


_decode = msgspec.msgpack.Decoder(ReadJob).decode
_encode = msgspec.msgpack.Encoder().encode


def main() -> None:
    os.nice(NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    memory = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (memory, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    with socket.socket(fileno=0) as server, suppress(ConnectionError):
        while job := receive(server):
            signal.alarm(TIME_S + 10)  # the server's own limit comes first
            answer = _encode(_run(*job))
            signal.alarm(0)
            send(server, answer)


def _run(head: bytes, body: bytes) -> ReadAnswer:
    try:
        job = _decode(head)
        if job.kind == "show":
            return ReadAnswer(shown=readers.show_bag(body))
        if job.stored is not None:
            return ReadAnswer(rerun=reruns.read_rerun(body, job.stored, patient=True))
        event, inputs = _read(job, body)
    except MemoryError:
        return _failure(TooLarge("reading the request takes too much memory", "send it in several parts"))
    except Exception as error:
        return _failure(error)
    return ReadAnswer(
        submit=event if isinstance(event, events.Submit) else None,
        append=event if isinstance(event, events.Append) else None,
        part=event if isinstance(event, events.AppendPart) else None, inputs=inputs)


def _read(job: ReadJob, body: bytes) -> readers.Read:
    if job.bag is None:
        return readers.read_bag(body, job.owner, job.key, patient=True)
    return readers.APPENDERS[job.kind](body, job.bag, job.key)


def _failure(error: Exception) -> ReadAnswer:
    told = to_client_error(error)
    return ReadAnswer(error=_encode(told.to_wire()), status=told.status)


# --- frames ---------------------------------------------------------------------------------------------------


def send(peer: socket.socket, *parts: bytes | bytearray) -> None:
    """Send a head, and a body if there is one."""
    head, body = parts if len(parts) == 2 else (parts[0], b"")
    peer.sendall(LENGTHS.pack(len(head), len(body)))
    peer.sendall(head)
    peer.sendall(body)


def receive(peer: socket.socket) -> tuple[bytes, bytes] | None:
    """Return head and body; None if the other end has closed the socket."""
    lengths = _receive(peer, LENGTHS.size)
    if not lengths:
        return None
    head, body = LENGTHS.unpack(lengths)
    return _receive(peer, head), _receive(peer, body)


def _receive(peer: socket.socket, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = peer.recv(min(size, PIECE))
        if not piece:
            return b""
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


if __name__ == "__main__":
    main()
