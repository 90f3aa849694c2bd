"""The channel over SSH: one authenticated connection per site, shared by all commands.

The channel uses keys, agent, ProxyJump and everything else of `~/.ssh/config`.  It checks host keys against the user's
own files, and refuses a host that is not in them.  If a site, or a host on the way to it, asks for a code or a
password, the channel asks the person through `ask`, once; without `ask` the login fails and the error says what to do.

Many sites lock an account after a few failures, so after a refusal the channel does not log in again by itself for
REFUSED_S; at a site that asks for a code, not before a person logs in (`connect` with `ask`).

A command that was under way when the connection broke may have done its work: that raises `SiteUnreachable`, and only
a listing can tell.  A command that was not sent yet is sent over a new connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

import asyncssh
from asyncssh.constants import OPEN_REQUEST_SESSION_FAILED
from asyncssh.encryption import get_default_encryption_algs

from windfall.errors import SiteError, SiteRefused, SiteUnreachable, TrustError
from windfall.sites.channels.channel import MAX_WORDS, Ask, Channel, Question, Raw, Stream, checked, too_much
from windfall.sites.dialects.text import plain, words

SESSIONS = 8  # at once; most servers allow ten
CONNECT_S = 30.0
LOGIN_S = 300.0  # time for a person to find a code
OPEN_S, CLOSE_S = 30.0, 5.0
PAUSES_S = (0.0, 0.2, 1.0, 3.0)  # before another request for a session
ALIVE_S, ALIVE_COUNT = 30, 4
QUICK = "^aes256-gcm@openssh.com,aes128-gcm@openssh.com"  # preferred: a relay is up to three times as fast with these
WINDOW, STREAM = 2 << 20, 16 << 20  # bytes under way from a command or a stream, over long distances
REFUSED_S = 600.0  # after a refused login, before the channel tries again by itself
MAX_ERRORS = 1 << 20
MAX_BANNER = 1 << 16  # bytes that a login script may print before the command


class Secure(Channel):
    def __init__(self, host: str, user: str = "", port: int = 0, ask: Ask | None = None,
                 options: dict[str, Any] | None = None) -> None:
        """`options` are asyncssh's own, for settings that `~/.ssh/config` lacks."""
        self.host, self._ask = host, ask
        self._options: dict[str, Any] = {**({"username": user} if user else {}), **({"port": port} if port else {}),
                                         **(options or {})}
        self._connection: asyncssh.SSHClientConnection | None = None
        self._jumps: list[asyncssh.SSHClientConnection] = []  # connections to hosts on the way
        self._refused: SiteRefused | None = None
        self._again = 0.0  # when to try again, by the loop's clock; 0: not before a person logs in
        self._open = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._sessions = asyncio.Semaphore(SESSIONS)
        self.logins = 0

    # --- the connection ----------------------------------------------------------------------------------------

    async def connect(self, ask: Ask | None = None) -> asyncssh.SSHClientConnection:
        """Return the open connection, or open one."""
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                self._check_refused(ask or self._ask)
                await self._close_jumps()
                self._connection = await self._login(ask or self._ask)
                self.logins += 1
                self._refused = None
                self._open.set()
            return self._connection

    async def login(self, ask: Ask) -> str:
        if self.connected:
            return f"the connection to {self.host} is open"
        await self.connect(ask)
        return f"logged in at {self.host}; Windfall keeps the connection"

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    @property
    def needs_login(self) -> bool:
        return self._refused is not None and not self._again

    def _check_refused(self, ask: Ask | None) -> None:
        """Raise the last refusal again unless it is time for another login, or a person answers questions."""
        waiting = not self._again or asyncio.get_running_loop().time() < self._again
        if self._refused is not None and ask is None and waiting:
            raise SiteRefused(self._refused.message, self._refused.hint, kind="login")

    async def logged_in(self) -> None:
        """Wait until a login works, if the last one was refused."""
        while self._refused is not None and not self.connected:
            self._open.clear()
            pause = self._again - asyncio.get_running_loop().time() if self._again else None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._open.wait(), pause)
                continue
            return

    def _note_refusal(self, refused: SiteRefused, asked: bool) -> SiteRefused:
        self._refused = refused
        self._again = 0.0 if asked else asyncio.get_running_loop().time() + REFUSED_S
        return refused

    async def _login(self, ask: Ask | None) -> asyncssh.SSHClientConnection:
        """Log in, through hosts on the way, each of which may ask for a code, too."""
        clients: list[_Client] = []
        try:
            return await self._dial(self.host, ask, clients, self._options)
        except asyncssh.HostKeyNotVerifiable as error:
            raise TrustError(f"the host key of {self.host} is not known: {plain(error.reason)}",
                             f"compare it with what the site publishes, then: ssh {self.host}") from None
        except asyncssh.PermissionDenied as error:
            asking = [client.host for client in clients if client.wanted]
            if asking and not ask:
                refused = SiteRefused(f"{asking[0]} asks for a code or a password beside the key",
                                      "run windfall site login NAME: it asks you once, and Windfall keeps the "
                                      "connection", kind="login")
            else:
                refused = SiteRefused(f"{self.host} does not let you in: {plain(error.reason)}",
                                      f"does `ssh {quote(self.host)}` work?  If it asks for a code, run: windfall "
                                      "site login NAME", kind="login")
            raise self._note_refusal(refused, bool(asking)) from None
        except (asyncssh.Error, OSError, TimeoutError, ValueError) as error:
            raise _unreachable(self.host, error) from None

    async def _dial(self, host: str, ask: Ask | None, clients: list[_Client],
                    options: dict[str, Any]) -> asyncssh.SSHClientConnection:
        known = await asyncssh.SSHClientConnectionOptions.construct(host=host, **{"config": (), **options})
        tunnel = await self._tunnel(known.tunnel, ask, clients, options)
        chosen = known.encryption_algs != get_default_encryption_algs()  # by the user
        clients.append(_Client(host, ask))
        return await asyncssh.connect(
            host, client_factory=lambda: clients[-1], connect_timeout=CONNECT_S,
            login_timeout=LOGIN_S if ask else CONNECT_S, keepalive_interval=ALIVE_S, keepalive_count_max=ALIVE_COUNT,
            **{**options, **({"tunnel": tunnel} if tunnel else {}), **({} if chosen else {"encryption_algs": QUICK})})

    async def _tunnel(self, way: object, ask: Ask | None, clients: list[_Client],
                      options: dict[str, Any]) -> asyncssh.SSHClientConnection | None:
        """Connect to the hosts of ProxyJump one by one: asyncssh would do that, too, but without asking for codes."""
        last: asyncssh.SSHClientConnection | None = None
        for jump in way.split(",") if isinstance(way, str) and way else ():
            user, _, place = jump.strip().rpartition("@")
            name, _, port = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
            mine: dict[str, Any] = {key: options[key] for key in ("config", "known_hosts", "agent_path", "client_keys")
                                    if key in options}
            mine |= ({"username": user} if user else {}) | ({"port": int(port)} if port else {})
            mine |= {"tunnel": last} if last else {}
            last = await self._dial(name, ask, clients, mine)
            self._jumps.append(last)
        return last

    async def _close_jumps(self) -> None:
        jumps, self._jumps = self._jumps, []
        for jump in reversed(jumps):
            jump.close()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            with suppress(asyncssh.Error, OSError, TimeoutError):
                await asyncio.wait_for(self._connection.wait_closed(), CLOSE_S)
            self._connection.abort()  # in case the host did not answer
            self._connection = None
        await self._close_jumps()

    # --- commands ----------------------------------------------------------------------------------------------

    async def raw(self, argv: Sequence[str], stdin: bytes, timeout: float, most: int) -> Raw:
        """Run a command.  The time limit is that of the command; a login has another."""
        mark = f"windfall-{os.urandom(8).hex()}"
        async with self._sessions:
            process = await self._start(_command(argv, mark))
            try:
                async with asyncio.timeout(timeout):
                    raw = await _talk(process, stdin, most + MAX_BANNER)
            except TimeoutError:
                with suppress(asyncssh.Error, OSError):
                    process.kill()
                raise SiteUnreachable(f"{argv[0]} on {self.host} has not ended within {timeout:g} s") from None
            except (asyncssh.Error, OSError) as error:
                raise SiteUnreachable(f"the connection to {self.host} broke: {plain(error)}") from None
            finally:
                await _close(process)
        return _without_banner(raw, mark.encode(), most, self.host)

    async def stream(self, argv: Sequence[str]) -> Stream:
        """Start a command over the shared connection; its session does not count against SESSIONS."""
        mark = f"windfall-{os.urandom(8).hex()}"
        stream = _Stream(await self._start(_command(checked(argv), mark), STREAM), self.host, mark + "\n")
        try:
            async with asyncio.timeout(OPEN_S):
                await stream.skip_banner()
        except TimeoutError:
            raise SiteUnreachable(f"{argv[0]} on {self.host} does not start: {plain(await stream.close())}") from None
        return stream

    async def _start(self, command: str, window: int = WINDOW) -> asyncssh.SSHClientProcess[bytes]:
        """Start a command in a new session; ask again after a pause if the server has too many sessions open."""
        pauses = iter(PAUSES_S)
        while True:
            connection = await self.connect()
            try:
                async with asyncio.timeout(OPEN_S):
                    return await connection.create_process(command, encoding=None, stderr=asyncssh.PIPE, window=window)
            except asyncssh.ChannelOpenError as error:
                pause = next(pauses, None)
                if pause is None or error.code == OPEN_REQUEST_SESSION_FAILED:
                    raise SiteUnreachable(f"{self.host} opens no session: {plain(error)}") from None
            except (asyncssh.Error, OSError, TimeoutError) as error:
                connection.abort()  # the command may be on its way
                raise SiteUnreachable(f"the connection to {self.host} broke: {plain(error)}") from None
            await asyncio.sleep(pause)


class _Stream(Stream):
    def __init__(self, process: asyncssh.SSHClientProcess[bytes], host: str, mark: str) -> None:
        self._process, self._host, self._mark = process, host, mark
        self._early = b""
        self._words = asyncio.ensure_future(_read(process.stderr, MAX_WORDS, keep_on=True))

    async def skip_banner(self) -> None:
        mark = self._mark.encode()
        while mark not in self._early:
            part = await self.read_some(1 << 14)
            if not part or len(self._early) > MAX_BANNER:
                raise SiteError(f"{self._host} ran nothing: {plain(await self.close()) or 'no output'}",
                                "does a login script end, or replace, the shell?")
            self._early += part
        self._early = self._early.partition(mark)[2]

    async def read(self, most: int) -> bytes:
        early, self._early = self._early, b""
        return early or await self.read_some(most)

    async def read_some(self, most: int) -> bytes:
        try:
            return await self._process.stdout.read(most)
        except (asyncssh.Error, OSError):
            return b""

    def write(self, data: bytes) -> None:
        with suppress(asyncssh.Error, OSError):  # `drain` raises it
            self._process.stdin.write(data)

    async def drain(self) -> None:
        try:
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise SiteUnreachable(f"the connection to {self._host} broke: {plain(error)}") from None

    async def close(self) -> str:
        with suppress(asyncssh.Error, OSError):
            self._process.stdin.write_eof()
        await _close(self._process)
        with suppress(asyncssh.Error, OSError):
            text = (await self._words).decode("utf-8", "replace")
            return text.rpartition(self._mark)[2]
        return ""


def _unreachable(host: str, error: Exception) -> SiteUnreachable:
    why, cure = plain(error) or type(error).__name__, f"does `ssh {quote(host)}` work from here?"
    if isinstance(error, socket.gaierror):
        why, cure = "no host of that name is known", "is the name right?  Your ~/.ssh/config may have short names"
    elif isinstance(error, ConnectionRefusedError):
        why, cure = f"nothing listens there ({why})", f"are host and port right?  {cure}"
    elif isinstance(error, TimeoutError):
        why, cure = f"it does not answer within {CONNECT_S:g} s", f"is the host up, and do you need a VPN?  {cure}"
    return SiteUnreachable(f"{host} cannot be reached: {why}", cure)


async def _close(process: asyncssh.SSHClientProcess[bytes]) -> None:
    """Close a session and wait for the server to close it, too: until then the server counts the session."""
    process.close()
    with suppress(asyncssh.Error, OSError, TimeoutError):
        await asyncio.wait_for(process.wait_closed(), CLOSE_S)


class _Client(asyncssh.SSHClient):
    """Answers a server's questions by asking the person; without `ask`, it offers no such login."""

    def __init__(self, host: str, ask: Ask | None) -> None:
        self.host, self._ask, self._tried = host, ask, False
        self.wanted = False  # has the server asked for a code or a password?

    def kbdint_auth_requested(self) -> str | None:
        """Offer one try, with any number of questions: a wrong answer must not be sent a second time."""
        self.wanted = True
        first, self._tried = not self._tried, True
        return "" if self._ask and first else None

    async def kbdint_challenge_received(
            self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]) -> Sequence[str] | None:
        if not prompts:
            return []
        if self._ask is None:
            return None
        shown = tuple((plain(text), echo) for text, echo in prompts[:10])
        return await self._ask(Question(self.host, plain(f"{name} {instructions}", 1000), shown)) or None

    async def password_auth_requested(self) -> str | None:
        self.wanted = True
        ask = None if self._tried else self._ask  # one try in all
        self._tried = True
        answers = await ask(Question(self.host, "", (("Password:", False),))) if ask else ()
        return answers[0] if answers else None


def _command(argv: Sequence[str], mark: str) -> str:
    """Return the command for a login shell, which knows where the batch system's programs are.  The mark separates
    the output of login scripts from that of the command."""
    return "exec /bin/sh -lc " + quote(f"echo {mark}; echo {mark} >&2; exec {words(argv)}")


async def _talk(process: asyncssh.SSHClientProcess[bytes], stdin: bytes, most: int) -> Raw:
    feeding = asyncio.ensure_future(_feed(process, stdin))
    reading = asyncio.ensure_future(_read(process.stderr, MAX_ERRORS, keep_on=True))
    try:
        out = await _read(process.stdout, most)
        err = await reading
        await feeding
        await process.wait_closed()
    finally:
        feeding.cancel()
        reading.cancel()
    if process.exit_status is None:
        raise asyncssh.ConnectionLost("no exit status")
    # asyncssh returns -1 for an end by a signal; 137 is what a shell returns after SIGKILL.
    return Raw(process.exit_status if process.exit_status >= 0 else 137, out, err)


async def _feed(process: asyncssh.SSHClientProcess[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError, asyncssh.Error):  # the command may not read all its input
        for at in range(0, len(data), 1 << 16):
            process.stdin.write(data[at : at + (1 << 16)])
            await process.stdin.drain()
        process.stdin.write_eof()


async def _read(stream: Any, most: int, keep_on: bool = False) -> bytes:
    parts, size = [], 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size <= most:
            parts.append(part)
        elif not keep_on:
            raise too_much(most)
    return b"".join(parts)


def _without_banner(raw: Raw, mark: bytes, most: int, host: str) -> Raw:
    _, found, out = raw.out.partition(mark + b"\n")
    if not found:
        raise SiteError(f"{host} ran nothing: {plain(raw.err.decode('utf-8', 'replace')) or 'no output'}",
                        "does a login script end, or replace, the shell?")
    if len(out) > most:
        raise too_much(most)
    err = raw.err.rpartition(mark + b"\n")[2]
    return Raw(raw.exit, out, err)
