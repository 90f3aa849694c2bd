"""A site that asks for a one-time code, after the key: OpenSSH and PAM, as real as they come.

A code is asked for once, and then everything goes over that one connection; without a code nothing is tried twice,
since sites lock accounts after a few failures; a host on the way may ask, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.base import USER, require
from tests.testbed.codes import Codes
from tests.testbed.sshd import Sshd
from windfall.errors import SiteRefused, SiteUnreachable
from windfall.sites.channels.ssh import Question, Secure

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


@pytest.fixture
def site() -> Iterator[Codes]:
    require()
    made = Codes("111111", "222222")
    try:
        yield made
    finally:
        made.stop()


class Person:
    def __init__(self, *codes: str) -> None:
        self.codes, self.questions = list(codes), list[Question]()

    async def __call__(self, question: Question) -> list[str]:
        self.questions.append(question)
        return [self.codes.pop(0)]


def with_channel(channel: Callable[[], Secure], work: Callable[[Secure], Awaitable[None]]) -> None:
    async def run() -> None:
        made = channel()
        try:
            async with asyncio.timeout(100):
                await work(made)
        finally:
            await made.close()

    asyncio.run(run())


def secure(site: Codes) -> Secure:
    return Secure("127.0.0.1", USER, site.sshd.port, options=site.sshd.options)


def test_connection_asks_for_one_code_for_all_commands(site: Codes) -> None:
    person = Person("111111")

    async def work(channel: Secure) -> None:
        await channel.connect(person)
        for _ in range(5):
            answers = await asyncio.gather(*(channel.run(["echo", str(number)]) for number in range(20)))
            assert [answer.out for answer in answers] == [f"{number}\n" for number in range(20)]
        await channel.put(f".wf-login-{site.sshd.port}", b"x" * 100_000)
        assert len(await channel.get(f".wf-login-{site.sshd.port}")) == 100_000
        await channel.run(["rm", f".wf-login-{site.sshd.port}"])
        stream = await channel.stream(["cat"])
        stream.write(b"still here")
        assert await stream.read(100) == b"still here"
        await stream.close()
        assert channel.logins == 1 and site.tried == ["111111"] and site.calls == 1

    with_channel(lambda: secure(site), work)
    assert len(person.questions) == 1 and person.questions[0].prompts == (("Password:", False),)

    async def again(channel: Secure) -> None:
        with pytest.raises(SiteRefused) as refused:
            await channel.connect(Person("111111"))
        assert refused.value.kind == "login"

    with_channel(lambda: secure(site), again)  # the code of before is worth nothing any more


def test_refused_login_is_not_tried_again_without_a_code(site: Codes) -> None:
    async def work(channel: Secure) -> None:
        for _ in range(20):
            with pytest.raises(SiteRefused, match="asks for a code") as refused:
                await channel.run(["true"])
            assert refused.value.kind == "login" and "site login" in refused.value.hint
        assert site.calls == 1 and site.tried == [] and channel.needs_login
        waiting = asyncio.ensure_future(channel.logged_in())
        await channel.connect(Person("222222"))
        await asyncio.wait_for(waiting, 10)
        assert (await channel.run(["echo", "in"])).out == "in\n" and not channel.needs_login

    with_channel(lambda: secure(site), work)


def test_a_wrong_code_is_said_once(site: Codes) -> None:
    async def work(channel: Secure) -> None:
        person = Person("999999", "888888", "777777")
        with pytest.raises(SiteRefused):
            await channel.connect(person)
        assert site.tried == ["999999"] and len(person.questions) == 1
        with pytest.raises(SiteRefused):
            await channel.run(["true"])
        assert site.tried == ["999999"]

    with_channel(lambda: secure(site), work)


def test_a_lost_connection_needs_another_code(site: Codes) -> None:
    async def work(channel: Secure) -> None:
        (await channel.connect(Person("111111"))).abort()
        before = site.calls
        for _ in range(5):
            with pytest.raises((SiteRefused, SiteUnreachable)):
                await channel.run(["true"])
        assert site.calls <= before + 1 and channel.needs_login
        await channel.connect(Person("222222"))
        assert (await channel.run(["echo", "back"])).out == "back\n"

    with_channel(lambda: secure(site), work)


def test_a_host_on_the_way_asks(site: Codes, tmp_path: Path) -> None:
    """ProxyJump of `~/.ssh/config`: the first host wants a code, the one behind it a key of its own."""
    behind = Sshd()
    try:
        (tmp_path / "config").write_text(
            f"Host door\n  HostName 127.0.0.1\n  Port {site.sshd.port}\n  IdentityFile {site.sshd.bed.root / 'key'}\n"
            f"  UserKnownHostsFile {site.sshd.known}\n"
            f"Host inside\n  HostName 127.0.0.1\n  Port {behind.port}\n  IdentityFile {behind.bed.root / 'key'}\n"
            f"  UserKnownHostsFile {behind.known}\n  ProxyJump door\n"
            f"Host *\n  User {USER}\n")
        person = Person("111111")
        options: dict[str, Any] = {"config": str(tmp_path / "config")}

        async def work(channel: Secure) -> None:
            with pytest.raises(SiteRefused, match="door asks"):
                await channel.run(["true"])
            await channel.connect(person)
            said = await channel.run(["sh", "-c", "echo $SSH_CONNECTION"])
            assert said.out.split()[3] == str(behind.port)
            assert (await channel.run(["echo", "again"])).out == "again\n" and channel.logins == 1

        with_channel(lambda: Secure("inside", options=options), work)
        assert [question.site for question in person.questions] == ["door"] and site.tried == ["111111"]
    finally:
        behind.stop()
