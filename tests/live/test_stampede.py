"""A server that has little room is killed while a crowd of pilots works for it, and comes back: those who are turned
away stay away for as long as they are told, all return, and nothing is lost.  Five thousand of them: tests/sim."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.crowd import Crowd
from tests.live.real import CommandLine, Server, free_port, until
from windfall import Client
from windfall.model.spec import Bag, Lines, Target

pytestmark = pytest.mark.slow

MEMBERS, TASKS = 120, 360
ROOM = 4  # requests that may wait for one turn; 50,000 usually
PROGRAM = f"from windfall.server import writer; writer.MAX_INBOX = {ROOM}; from windfall.cli.main import main; main()"


class Narrow(Server):
    """The server, but for the room it has."""

    program = ("-c", PROGRAM)


@pytest.fixture
def server(windfall: CommandLine) -> Iterator[Server]:
    running = Narrow(windfall.home, "--listen", f"127.0.0.1:{free_port()}")
    yield running
    running.stop()


def test_a_crowd_comes_back_after_the_server_was_killed(server: Server) -> None:
    with Client(server.profile) as client:
        client.add_site("crowd", "batch")
        token = client.add_token("enrol", site="crowd", days=1)["token"]
    with Crowd(server.profile, token, "crowd", MEMBERS, (0.2, 0.6)) as crowd:
        with Client(server.profile) as client:
            bag = submit(client)
            until(lambda: client.bag(bag)["counts"]["succeeded"] > TASKS // 4)
        server.kill()
        until(lambda: all(member.lost_at for member in crowd.members))
        tried, returns = crowd.lost, crowd.returns[:]
        server.start()
        with Client(server.profile) as client:
            until(lambda: all(member.back_at for member in crowd.members))
            done = client.wait(bag)["counts"]
            there = [pilot for pilot in client.pilots() if pilot["state"] == "live"]
    print(f"{MEMBERS} pilots, {crowd.requests} requests: {tried} lost while the server was down, {crowd.lost - tried} "
          f"later, turned away {dict(crowd.shed)}, came before their time {crowd.hasty}")
    assert done["succeeded"] == TASKS and len(there) == MEMBERS, (done, len(there))
    assert sum(crowd.ran.values()) == len(crowd.ran) == TASKS, "no task runs twice, none is lost"
    assert crowd.shed[429] > 0 and crowd.hasty == 0, "turned away, and nobody comes before it is told to"
    assert len({*returns}) > MEMBERS // 3, "not all at once"


def submit(client: Client) -> int:
    lines = Lines(text="\n".join(["true"] * TASKS), count=TASKS)
    return client.submit(Bag(name="crowd", targets=[Target(source=lines)]))
