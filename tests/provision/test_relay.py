"""The relay: real processes over real pipes, against a server that echoes.  Bytes come through as they are, in bounded
memory, by way of a port and by way of files; what breaks the rules ends it; it comes back on the same port."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from windfall.errors import NoServer, SiteError, TrustError
from windfall.pilot import bundle
from windfall.pilot.net import callers, relay as program, spool
from windfall.provision import relay as relays
from windfall.provision.relay import Hello, Relay
from windfall.sites.channels.here import Here
from windfall.wire import frames


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bundle.build(str(tmp_path_factory.mktemp("pilot")))[0]


class Echo:
    """Sends everything back; `GO` first makes it send that many bytes on its own and hang up."""

    def __init__(self) -> None:
        self.open = 0
        self.seen = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.seen += 1
        try:
            while data := await reader.read(1 << 16):
                if data.startswith(b"GO "):
                    writer.write(bytes(int(data[3:])))
                    await writer.drain()
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def relaying(pilot: str, folder: Path, *options: str, python: tuple[str, ...] = (sys.executable,)
                   ) -> AsyncIterator[tuple[Relay, Hello, Echo]]:
    echo = Echo()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    argv = (*python, "-I", "-S", pilot, "relay", "--folder", str(folder / "relay"), *options)
    relay = Relay(Here(home=str(folder)), argv, address)
    try:
        yield relay, await relay.ready(), echo
    finally:
        await relay.close()
        server.close()


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(90):
            return await work()

    return asyncio.run(within())


async def eventually(ask: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < end, "in vain"
        await asyncio.sleep(0.02)


def call(offer: Hello, kind: str) -> socket.socket:
    return spool.dial(offer.spool) if kind == "spool" else socket.create_connection(("127.0.0.1", offer.port), 20)


def talk(sock: socket.socket, content: bytes) -> str:
    """Sends and receives at once; the hash of what came back."""
    sock.settimeout(60)
    digest, left = hashlib.sha256(), len(content)
    thread = threading.Thread(target=sock.sendall, args=(content,))
    thread.start()
    while left:
        part = sock.recv(1 << 16)
        assert part, f"{left} bytes are missing"
        digest.update(part)
        left -= len(part)
    thread.join()
    return digest.hexdigest()


@pytest.mark.parametrize("kind", ["relay", "spool"])
def test_bytes_come_through_as_they_are(pilot: str, tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--spool") as (relay, offer, echo):
            for size in (1, 70_000, 9 << 20):
                content = os.urandom(size)
                sock = call(offer, kind)
                assert await asyncio.to_thread(talk, sock, content) == hashlib.sha256(content).hexdigest()
                sock.close()
            await eventually(lambda: not echo.open and relay.mux and not relay.mux.connections)
            if kind == "spool":
                await eventually(lambda: not _files(offer.spool))

    run(work)


def _files(folder: str) -> list[str]:
    return [name for part in ("up", "down") for name in os.listdir(os.path.join(folder, part))]


@pytest.mark.parametrize("kind", ["relay", "spool"])
def test_many_at_once(pilot: str, tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--spool") as (relay, offer, echo):
            contents = [os.urandom(200_000 + 1000 * number) for number in range(40)]
            socks = [call(offer, kind) for _ in contents]
            said = await asyncio.gather(*(asyncio.to_thread(talk, *each) for each in zip(socks, contents, strict=True)))
            assert said == [hashlib.sha256(content).hexdigest() for content in contents]
            assert echo.open == 40 and relay.lives == 1
            for sock in socks:
                sock.close()
            await eventually(lambda: not echo.open)

    run(work)


@pytest.mark.parametrize("kind", ["relay", "spool"])
def test_the_server_hangs_up_after_its_last_word(pilot: str, tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--spool") as (_, offer, _echo):
            sock = call(offer, kind)
            sock.sendall(b"GO 3000000")
            sock.settimeout(30)
            count = 0
            while part := await asyncio.to_thread(sock.recv, 1 << 16):
                count += len(part)
            assert count == 3_000_000
            sock.close()
            if kind == "spool":
                await eventually(lambda: not _files(offer.spool))

    run(work)


@pytest.mark.parametrize("kind", ["relay", "spool"])
def test_slow_reader_delays_no_other_connection(pilot: str, tmp_path: Path, kind: str) -> None:
    """And little is kept for him, here and there: the server is held back."""
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--spool") as (relay, offer, _echo):
            slow = [call(offer, kind) for _ in range(8)]
            for sock in slow:
                sock.sendall(b"GO 20000000")
            await asyncio.sleep(1)
            quick = call(offer, kind)
            content = os.urandom(1 << 20)
            assert await asyncio.to_thread(talk, quick, content) == hashlib.sha256(content).hexdigest()
            assert relay.mux is not None and not relay.mux.choked
            assert _memory("relay", str(tmp_path)) < 150 << 20
            on_disk = sum(path.stat().st_size for path in Path(offer.spool).rglob("*") if path.is_file())
            assert on_disk < 8 * (spool.MAX_UNTAKEN + 2) * spool.CHUNK
            for sock in (*slow, quick):
                sock.close()

    run(work)


def _pids(folder: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"relay" in words and any(folder.encode() in word for word in words):
            found.append(int(path.parent.name))
    return found


def _memory(word: str, folder: str) -> int:
    pid, = _pids(folder)
    rss = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(rss.split()[1]) * 1024


def test_relay_returns_on_the_same_port_after_a_kill(pilot: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--spool") as (relay, offer, echo):
            socks = [call(offer, "relay"), call(offer, "spool")]
            for sock in socks:
                await asyncio.to_thread(talk, sock, b"once")
            for pid in _pids(str(tmp_path)):
                os.kill(pid, signal.SIGKILL)
            await eventually(lambda: relay.lives == 2 and relay.offer)
            for sock in socks:
                sock.settimeout(30)
                assert await asyncio.to_thread(_ends, sock), "what was open is broken, and is told so"
                sock.close()
            assert relay.offer is not None and relay.offer.port == offer.port
            again = [call(offer, "relay"), call(offer, "spool")]
            for sock in again:
                await asyncio.to_thread(talk, sock, b"twice")
                sock.close()
            await eventually(lambda: not echo.open)

    run(work)


def _ends(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_relay_listens_only_where_its_options_say(pilot: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--listen", "127.0.0.1") as (_, offer, _echo):
            assert offer.addresses == ("127.0.0.1",) and offer.port and not offer.spool
            with socket.socket() as other, pytest.raises(ConnectionRefusedError):
                other.connect(("127.0.0.2", offer.port))
        async with relaying(pilot, tmp_path, "--spool", "--no-network") as (_, offer, _echo):
            assert offer.addresses == () and not offer.port and offer.spool

    run(work)


def test_relay_ends_when_its_input_closes(pilot: str, tmp_path: Path) -> None:
    process = _bare(pilot, tmp_path)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0


def test_a_newer_one_takes_over(pilot: str, tmp_path: Path) -> None:
    old = _bare(pilot, tmp_path)
    new = _bare(pilot, tmp_path)
    assert old.wait(20) == 0 and new.poll() is None
    new.kill()
    new.wait()


def _bare(pilot: str, folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, pilot, "relay", "--folder", str(folder / "relay"), "--spool"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    kind, number, length = frames.HEADER.unpack(process.stdout.read(frames.HEADER.size))
    assert (kind, number) == (frames.HELLO, 0)
    relays.hello(process.stdout.read(length))
    return process


WRONG = {
    "noise": b"\xff" * 64,
    "too long": frames.HEADER.pack(frames.DATA, 1, 1 << 30),
    "nobody's": frames.frame(frames.DATA, 77, b"x"),
    "for home only": frames.frame(frames.OPEN, 5),
    "a short credit": frames.frame(frames.CREDIT, 1, b"x"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_relay_ends_at_a_frame_that_is_none(pilot: str, tmp_path: Path, what: str) -> None:
    process = _bare(pilot, tmp_path)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(WRONG[what])
    process.stdin.flush()
    assert process.wait(20) == 3
    assert b"windfall-relay" in process.stderr.read()


class Script(relays.Stream):
    """The output of a relay that breaks the protocol."""

    def __init__(self, *said: bytes) -> None:
        self.said = list(said)

    async def read(self, most: int) -> bytes:
        if self.said:
            return self.said.pop(0)
        await asyncio.sleep(3600)
        return b""

    def write(self, data: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass

    async def close(self) -> str:
        return ""


GREETING = frames.frame(frames.HELLO, 0, b'{"host": "h", "port": 1, "addresses": ["a"], "spool": ""}')
MAD = {
    "noise": (b"\xff" * 64,),
    "no greeting": (frames.frame(frames.OPEN, 1),),
    "a greeting that is none": (frames.frame(frames.HELLO, 0, b"{}"),),
    "an address with a line break": (frames.frame(frames.HELLO, 0, GREETING[9:].replace(b'"a"', b'"a\\nb"')),),
    "the same twice": (GREETING, frames.frame(frames.OPEN, 1) * 2),
    "unknown": (GREETING, frames.frame(frames.DATA, 1, b"x")),
    "beyond its credit": (GREETING, frames.frame(frames.OPEN, 1) + frames.data(1, bytes(frames.WINDOW + 1))),
    "credit beyond reason": (GREETING, frames.frame(frames.OPEN, 1) + frames.credit(1, 1)),
}


@pytest.mark.parametrize("what", MAD)
def test_home_ends_a_relay_that_breaks_the_rules(what: str) -> None:
    async def work() -> None:
        server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
        mux = relays.Mux(Script(*MAD[what]), server.sockets[0].getsockname()[:2])
        with pytest.raises(frames.Malformed):
            await mux.serve(lambda offer: None)
        server.close()

    run(work)


def test_a_relay_that_cannot_start_says_why(pilot: str, tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "relay").mkdir(mode=0o777)
        (tmp_path / "relay").chmod(0o777)
        with pytest.raises(SiteError, match="open to other users"):
            async with relaying(pilot, tmp_path):
                pass

    run(work)


def test_relay_refuses_connections_beyond_its_limits(pilot: str, tmp_path: Path) -> None:
    """The system's own limit counts, too, and one host may have half of that; who comes then is sent away."""
    argv = [sys.executable, pilot, "relay", "--folder", str(tmp_path / "relay")]
    process = subprocess.Popen(["sh", "-c", 'ulimit -n 90; exec "$@"', "sh", *argv],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    _, _, length = frames.HEADER.unpack(process.stdout.read(frames.HEADER.size))
    port = relays.hello(process.stdout.read(length)).port
    socks = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(40)]
    other = socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.2", 0))
    other.settimeout(0.2)
    with pytest.raises(TimeoutError):
        other.recv(1)
    for sock in socks[13:]:
        sock.settimeout(20)
        assert _ends(sock)
    socks[0].settimeout(0.2)
    with pytest.raises(TimeoutError):
        socks[0].recv(1)
    for sock in (*socks, other):
        sock.close()
    process.kill()
    process.wait()


def test_strangers_who_take_all_places_keep_no_pilot_out(pilot: str, tmp_path: Path) -> None:
    """The strangers come from many addresses, none of which has half of the places.  Answered connections stay."""
    few = ("sh", "-c", 'ulimit -n 90; exec "$@"', "sh", sys.executable)

    async def work() -> None:
        async with relaying(pilot, tmp_path, python=few) as (relay, offer, echo):
            first = call(offer, "relay")
            await asyncio.to_thread(talk, first, b"a pilot")
            strangers = []
            for n in range(60):
                strangers.append(socket.create_connection(("127.0.0.1", offer.port), 20, (f"127.0.1.{n + 1}", 0)))
            second = call(offer, "relay")
            await asyncio.to_thread(talk, second, b"another")
            await asyncio.to_thread(talk, first, b"the first once more")
            for sock in (first, second, *strangers):
                sock.close()
            await eventually(lambda: not echo.open)

    run(work)


@pytest.fixture
def idle() -> Iterator[program.Relay]:
    """Yield a relay whose clock the test sets."""
    inputs, outputs = os.pipe(), os.pipe()
    listener = program.bind("127.0.0.1", 0)
    made = program.Relay((inputs[0], outputs[1]), listener)
    yield made
    listener.close()
    for fd in (*inputs, *outputs):
        os.close(fd)


def test_silent_connection_is_closed_by_the_sweep(idle: program.Relay) -> None:
    with socket.create_connection(idle.listener.getsockname()) as silent, \
            socket.create_connection(idle.listener.getsockname()) as busy:
        idle._accept()
        mute, spoken = idle.callers.values()
        idle.send_home(spoken, b"hello")
        now = mute.last_active
        idle._sweep(now + callers.FIRST_WORD_SECONDS - 1)
        assert not mute.closed_here and not spoken.closed_here
        idle.heard_home_at = now + callers.FIRST_WORD_SECONDS + 1
        idle._sweep(now + callers.FIRST_WORD_SECONDS + 1)
        assert mute.closed_here and not spoken.closed_here
        idle.heard_home_at = spoken.last_active + callers.IDLE_SECONDS + 1
        idle._sweep(spoken.last_active + callers.IDLE_SECONDS + 1)
        assert spoken.closed_here and not idle.ended
        assert silent.recv(1) == busy.recv(1) == b""


def test_a_home_that_says_nothing_is_left(idle: program.Relay) -> None:
    idle._sweep(idle.heard_home_at + program.HOME_SILENCE - 1)
    assert not idle.ended
    idle._sweep(idle.heard_home_at + program.HOME_SILENCE + 1)
    assert idle.ended


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(0, frames.MAX_NUMBER), st.binary(max_size=200))),
       st.data())
def test_frames_are_the_same_however_they_are_cut(wanted: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    content, decoder, found = b"".join(frames.frame(*each) for each in wanted), frames.Decoder(), []
    while content:
        at = data.draw(st.integers(1, len(content)))
        found += decoder.feed(content[:at])
        content = content[at:]
    assert found == wanted


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_malformed(content: bytes) -> None:
    try:
        found = frames.Decoder().feed(content)
    except frames.Malformed:
        return
    assert sum(frames.HEADER.size + len(payload) for _, _, payload in found) <= len(content)


# --- the spool's own -----------------------------------------------------------------------------------------------


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    for name in ("relay", "relay/up", "relay/down"):
        (tmp_path / name).mkdir(mode=0o700)
    yield tmp_path / "relay"


def test_a_spool_that_others_can_open_is_refused(box: Path, tmp_path: Path) -> None:
    box.chmod(0o750)
    with pytest.raises(TrustError, match="open to other users"):
        spool.dial(str(box))
    box.chmod(0o700)
    (tmp_path / "link").symlink_to(box)
    with pytest.raises(TrustError, match="not a folder"):
        spool.dial(str(tmp_path / "link"))
    with pytest.raises(NoServer):
        spool.dial(str(tmp_path / "none"))


def test_unread_files_of_a_closed_connection_are_removed(box: Path) -> None:
    sock = spool.dial(str(box))
    sock.sendall(b"x" * 100_000)
    while len(os.listdir(box / "up")) < 2:
        time.sleep(0.01)
    sock.close()
    while any(_files(str(box))):
        time.sleep(0.01)


def test_malformed_chunk_files_are_refused(box: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(spool.HEADER.pack(spool.MAGIC, 0, 0) + b"secret")
    cases: dict[str, Callable[[Path], Any]] = {
        "link": lambda path: path.symlink_to(tmp_path / "secret"),
        "short": lambda path: path.write_bytes(b"x"),
        "unmarked": lambda path: path.write_bytes(b"x" * 100),
        "long": lambda path: path.write_bytes(spool.HEADER.pack(spool.MAGIC, 0, 0) + bytes(spool.CHUNK + 1)),
        "folder": lambda path: path.mkdir(),
        "pipe": lambda path: os.mkfifo(path),
    }
    for name, make in cases.items():
        make(box / "up" / name)
        with pytest.raises((OSError, spool.BadChunk)):
            spool.read(str(box / "up" / name))


def test_a_pilot_that_writes_nonsense_harms_no_other(pilot: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with relaying(pilot, tmp_path, "--spool") as (relay, offer, _echo):
            good = call(offer, "spool")
            await asyncio.to_thread(talk, good, b"before")
            name = "ab" * 8
            os.mkdir(os.path.join(offer.spool, "down", name), 0o700)
            Path(offer.spool, "up", f"{name}.0").write_bytes(b"nonsense")
            Path(offer.spool, "up", "what is this").write_bytes(b"")
            spool.write(os.path.join(offer.spool, "up"), f"{'cd' * 8}.0", b"x", 0, 4_000_000)
            await eventually(lambda: not os.path.exists(os.path.join(offer.spool, "down", name)))
            await asyncio.to_thread(talk, good, b"after")
            assert relay.lives == 1
            good.close()

    run(work)
