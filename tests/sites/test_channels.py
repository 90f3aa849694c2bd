"""Channels: exact words, bounded answers, one login."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import uvloop

from tests.testbed.base import USER, require
from tests.testbed.sshd import Sshd
from windfall.errors import BadInput, SiteError, SiteRefused, SiteUnreachable, TooLarge, TrustError
from windfall.sites.channels import keys
from windfall.sites.channels.channel import Channel, checked
from windfall.sites.channels.here import Here
from windfall.sites.channels.ssh import Question, Secure

pytestmark = [pytest.mark.testbed]
ODD = ["it's", '"x"', "$HOME", "`id`", "a\\b", "*", "a;b", "#c", "", "ü", "-n", "{x}", "~", "!1", "a  b", "%s", "\t"]


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    require()
    made = Sshd()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(params=["here", "ssh"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Channel]:
    if request.param == "here":
        return lambda: Here(home=str(tmp_path))
    server: Sshd = request.getfixturevalue("server")
    return lambda: secure(server)


def secure(server: Sshd, **options: Any) -> Secure:
    return Secure("127.0.0.1", USER, server.port, options={**server.options, **options})


def go(work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    return asyncio.run(work(*arguments))  # type: ignore[arg-type]


def with_channel(connect: Callable[[], Channel], work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        channel = connect()
        try:
            return await work(channel)
        finally:
            await channel.close()

    return asyncio.run(run())


def test_words_arrive_exactly(connect: Callable[[], Channel]) -> None:
    answer = with_channel(connect, lambda channel: channel.run(["printf", "%s\\n", *ODD]))
    assert answer.exit == 0 and answer.out.split("\n")[:-1] == ODD and answer.err == ""


def test_input_output_and_exit(connect: Callable[[], Channel]) -> None:
    answer = with_channel(connect, lambda channel: channel.run(["sh", "-c", "cat >&2; echo out; exit 7"], "said\n"))
    assert answer == (7, "out\n", "said\n")


def test_much_input_and_output(connect: Callable[[], Channel]) -> None:
    much = "0123456789abcdef" * (1 << 16)
    assert with_channel(connect, lambda channel: channel.run(["cat"], much)).out == much


def test_a_command_that_reads_nothing(connect: Callable[[], Channel]) -> None:
    assert with_channel(connect, lambda channel: channel.run(["true"], "x" * (1 << 20))).exit == 0


def test_an_unknown_command(connect: Callable[[], Channel]) -> None:
    try:
        answer = with_channel(connect, lambda channel: channel.run(["no-such-command"]))
    except SiteRefused as refused:
        assert refused.kind == "missing"
    else:
        assert answer.exit == 127


def test_command_beyond_its_time_limit_is_killed(connect: Callable[[], Channel]) -> None:
    before = time.monotonic()
    with pytest.raises(SiteUnreachable, match="not ended within"):
        with_channel(connect, lambda channel: channel.run(["sleep", "61.25"], timeout=0.5))
    assert time.monotonic() - before < 20
    for _ in range(50):
        if not _processes("61.25"):
            break
        time.sleep(0.1)
    assert _processes("61.25") == []


def test_processes_that_hold_a_commands_output_end_with_it() -> None:
    """A process in the background holds the command's output open, so the command seems to run until its time limit.
    A process in another session survives, but leaves no descriptor open here."""
    async def run() -> None:
        channel, before = Here(), len(os.listdir("/proc/self/fd"))
        for command in ("sleep 62.25 & exit 0", "setsid sleep 30.25 & exit 0"):
            with pytest.raises(SiteUnreachable, match="not ended within"):
                await channel.run(["sh", "-c", command], timeout=0.5)
        async with asyncio.timeout(20):
            while len(os.listdir("/proc/self/fd")) > before:
                await asyncio.sleep(0.01)

    asyncio.run(run())
    for _ in range(50):
        if not _processes("62.25"):
            break
        time.sleep(0.1)
    assert _processes("62.25") == []


def _processes(word: str) -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if line == f"sleep\0{word}\0".encode():
            found.append(line)
    return found


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_detached_process_does_not_delay_the_answer(tmp_path: Path, loop: Any) -> None:
    """The server's loop is not the command line's, and starts processes in its own way."""
    script = "sleep 600 </dev/null >/dev/null 2>&1 & echo $!"
    with asyncio.Runner(loop_factory=loop) as runner:
        answer = runner.run(Here(home=str(tmp_path)).run(("/bin/sh",), script))
    os.kill(int(answer.out), 9)  # it is still there


def test_too_much_output_is_an_error(connect: Callable[[], Channel]) -> None:
    with pytest.raises(SiteError, match="more than"):
        with_channel(connect, lambda channel: channel.raw(["head", "-c", "300000", "/dev/zero"], b"", 20, 100_000))


def test_output_that_is_no_text(connect: Callable[[], Channel]) -> None:
    assert with_channel(connect, lambda channel: channel.run(["printf", "\\377\\376x"])).out == "\ufffd\ufffdx"


def test_files_go_there_and_back(connect: Callable[[], Channel]) -> None:
    data, name = os.urandom(200_000), f"wf-test-{os.getpid()}/it's a file"

    async def work(channel: Channel) -> None:
        await channel.put(name, data)
        assert await channel.get(name) == data
        assert (await channel.run(["stat", "-c", "%a", name])).out == "600\n"
        await channel.put(name, b"new", 0o755)
        assert await channel.get(name) == b"new" and (await channel.run(["stat", "-c", "%a", name])).out == "755\n"
        assert (await channel.run(["ls", name.partition("/")[0]])).out == "it's a file\n", "nothing else is left"
        with pytest.raises(SiteError, match="cannot be read"):
            await channel.get("no/such/file")
        with pytest.raises(SiteError, match="cannot be written"):
            await channel.put("/proc/no/such", b"x")
        with pytest.raises(SiteError, match="more than"):
            await channel.get(name, most=2)
        await channel.run(["rm", "-r", name.partition("/")[0]])

    with_channel(connect, work)


def test_many_commands_at_once(connect: Callable[[], Channel]) -> None:
    async def work(channel: Channel) -> None:
        answers = await asyncio.gather(*(channel.run(["echo", str(number)]) for number in range(40)))
        assert [answer.out for answer in answers] == [f"{number}\n" for number in range(40)]
        assert getattr(channel, "logins", 1) == 1

    with_channel(connect, work)


@pytest.mark.parametrize("argv", [[], ["a\nb"], ["a", "\0"], ["x" * 200_000]])
def test_malformed_command_is_refused(argv: list[str]) -> None:
    with pytest.raises((BadInput, TooLarge)):
        checked(argv)


# --- SSH alone -------------------------------------------------------------------------------------------------


def test_output_of_login_scripts_is_not_part_of_the_answer(server: Sshd) -> None:
    home = Path(pwd.getpwnam(USER).pw_dir)
    before = home.joinpath(".profile").read_text() if home.joinpath(".profile").exists() else None
    try:
        home.joinpath(".profile").write_text("echo 'Welcome!  12345'; echo warning >&2; export FROM_PROFILE=yes")
        answer = with_channel(lambda: secure(server), lambda channel: channel.run(["sh", "-c", "echo $FROM_PROFILE"]))
    finally:
        home.joinpath(".profile").unlink() if before is None else home.joinpath(".profile").write_text(before)
    assert answer == (0, "yes\n", "")


def test_a_broken_connection_is_made_again(server: Sshd) -> None:
    async def work(channel: Secure) -> None:
        assert (await channel.run(["echo", "1"])).out == "1\n"
        under_way = asyncio.ensure_future(channel.run(["sleep", "30"]))
        await asyncio.sleep(0.5)
        (await channel.connect()).abort()
        with pytest.raises(SiteUnreachable):
            await under_way
        assert (await channel.run(["echo", "2"])).out == "2\n"
        assert channel.logins == 2

    with_channel(lambda: secure(server), work)


def test_a_host_that_is_not_known_is_refused(server: Sshd, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    with pytest.raises(TrustError, match="host key"):
        with_channel(lambda: secure(server, known_hosts=str(tmp_path / "known")), lambda channel: channel.run(["true"]))


def test_a_key_that_is_not_accepted(server: Sshd, tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    with pytest.raises(SiteRefused) as refused:
        with_channel(lambda: secure(server, client_keys=[key]), lambda channel: channel.run(["true"]))
    assert refused.value.kind == "login" and "ssh 127.0.0.1" in refused.value.hint


@pytest.mark.parametrize(("host", "why", "cure"), [
    ("127.0.0.1", "nothing listens there", "port"), ("nosuch.invalid", "no host of that name", "name")])
def test_unreachable_host_is_reported_with_a_cure(host: str, why: str, cure: str) -> None:
    with pytest.raises(SiteUnreachable, match=f"cannot be reached: {why}") as failed:
        with_channel(lambda: Secure(host, "nobody", 1, options={"config": None, "known_hosts": None}),
                     lambda channel: channel.run(["true"]))
    assert cure in failed.value.hint


def test_the_users_configuration_counts(server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of his own for the host, the key, the port; and a second host behind the first."""
    key = server.bed.root / "key"
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "config").write_text(
        f"Host mine\n  HostName 127.0.0.1\n  Port {server.port}\n  User {USER}\n  IdentityFile {key}\n"
        f"  UserKnownHostsFile {server.known}\n"
        f"Host behind\n  HostName 127.0.0.1\n  Port {server.port}\n  User {USER}\n  IdentityFile {key}\n"
        f"  UserKnownHostsFile {server.known}\n  ProxyJump mine\n")
    for name, hosts in (("mine", 0), ("behind", 1)):

        async def asks(channel: Any, hosts: int = hosts) -> None:
            assert (await channel.run(["id", "-un"])).out == f"{USER}\n"
            assert len(channel._jumps) == hosts, "each host on the way may ask us"

        with_channel(lambda name=name: Secure(name), asks)
    why, _ = keys.explain("mine", "somebody")
    assert "accepts none of your keys (key)" in why


def test_keys_of_an_agent(server: Sshd, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    server.bed.start(["ssh-agent", "-D", "-a", str(agent)])
    for _ in range(50):
        if agent.exists():
            break
        time.sleep(0.1)
    server.bed.run(["ssh-add", "-q", str(server.bed.root / "key")], {"SSH_AUTH_SOCK": str(agent)})
    answer = with_channel(lambda: secure(server, client_keys=(), agent_path=str(agent)),
                          lambda channel: channel.run(["echo", "in"]))
    assert answer.out == "in\n"


# --- a site that asks for a code: a server of asyncssh's, since OpenSSH would need PAM ---------------------------


class _Asking(asyncssh.SSHServer):
    asked = 0

    def begin_auth(self, username: str) -> bool:
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        type(self).asked += 1
        return "Login", "Have your token at hand", "", [("Password: ", False), ("One-time code: ", False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        return list(responses) == ["secret", "123456"]


async def _serve(process: Any) -> None:
    inner = await asyncio.create_subprocess_shell(process.command, stdout=asyncio.subprocess.PIPE,
                                                  stderr=asyncio.subprocess.PIPE)
    out, err = await inner.communicate()
    process.stdout.write(out.decode())
    process.stderr.write(err.decode())
    process.exit(inner.returncode or 0)


def test_a_code_is_asked_for_once() -> None:
    questions: list[Question] = []

    async def ask(question: Question) -> list[str]:
        questions.append(question)
        return ["secret", "123456"]

    async def work() -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        door = await asyncssh.create_server(_Asking, "127.0.0.1", 0, server_host_keys=[key], process_factory=_serve)
        options = {"config": None, "known_hosts": ([key.convert_to_public()], [], []), "client_keys": (),
                   "agent_path": None}
        channel = Secure("127.0.0.1", "me", door.get_port(), options=options)
        try:
            with pytest.raises(SiteRefused) as refused:
                await channel.run(["true"])
            assert refused.value.kind == "login" and questions == []
            await channel.connect(ask)
            answers = await asyncio.gather(*(channel.run(["echo", str(number)]) for number in range(20)))
            assert [answer.out for answer in answers] == [f"{number}\n" for number in range(20)]
        finally:
            await channel.close()
            door.close()

    go(work)
    assert len(questions) == 1
    assert questions[0].prompts == (("Password:", False), ("One-time code:", False))
    assert questions[0].text == "Login Have your token at hand"


def test_a_wrong_code_is_not_tried_again() -> None:
    asked = 0

    async def ask(question: Question) -> list[str]:
        nonlocal asked
        asked += 1
        return ["secret", "000000"]

    async def work() -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        door = await asyncssh.create_server(_Asking, "127.0.0.1", 0, server_host_keys=[key], process_factory=_serve)
        options = {"config": None, "known_hosts": ([key.convert_to_public()], [], []), "client_keys": (),
                   "agent_path": None}
        channel = Secure("127.0.0.1", "me", door.get_port(), ask=ask, options=options)
        try:
            with pytest.raises(SiteRefused):
                await channel.run(["true"])
        finally:
            await channel.close()
            door.close()

    go(work)
    assert asked == 1

