"""`AsyncClient` against a real server."""

import asyncio
import operator

import pytest

from windfall import AsyncClient, Client
from windfall.errors import NotFound
from windfall.model.spec import Bag, Range, Sweep, Target


def sweep(n, command="echo {x}"):
    return Bag(name="b", targets=[Target(command=command, source=Sweep(axes=[Range(name="x", first=1, last=n)]))])


def run(server, story):
    async def inside():
        async with AsyncClient(server.profile, patience=5) as client:
            return await story(client)

    return asyncio.run(inside())


def test_async_client_has_every_method_of_the_client():
    names = [name for name in dir(Client) if not name.startswith("_")]
    assert [name for name in names if not hasattr(AsyncClient, name)] == []


def test_submitted_bag_runs_and_its_results_stream(server):
    async def story(client):
        bag = await client.submit(sweep(5))
        seen = [update async for update in client.watch(bag, rows=True)]
        assert sum(len(update.get("rows") or ()) for update in seen) == 5 and seen[-1]["done"]
        assert (await client.wait(bag))["state"] == "succeeded"
        rows = [row async for row in client.results(bag, page=2)]
        log = b"".join([piece async for piece in client.log(bag, 4)])
        return [row["params"]["x"] for row in rows], log

    assert run(server, story) == ([1, 2, 3, 4, 5], b"5\n")


def test_large_results_of_calls_come_while_others_run(server):
    async def story(client):
        return await asyncio.gather(client.call(bytes, 3 << 20), client.call(abs, -1), client.call(bytes, 2 << 20))

    assert run(server, story) == [bytes(3 << 20), 1, bytes(2 << 20)]


def test_calls_and_waits_run_at_the_same_time(server):
    async def story(client):
        bag = await client.submit(sweep(1, "sleep 1"))
        waiting = asyncio.ensure_future(client.wait(bag))
        values = await asyncio.gather(*(client.call(abs, -i) for i in range(100)))
        assert not waiting.done() or waiting.result()["state"] == "succeeded"
        assert (await client.bag(bag))["bag"] == bag
        return values, (await waiting)["state"]

    assert run(server, story) == (list(range(100)), "succeeded")


def test_errors_are_raised_where_they_are_awaited(server):
    async def story(client):
        with pytest.raises(NotFound):
            await client.bag(10**9)
        with pytest.raises(NotFound):
            async for _ in client.watch(10**9):
                pass
        with pytest.raises(ZeroDivisionError):
            await client.call(operator.truediv, 1, 0)

    run(server, story)


def test_stream_can_be_left_early(server):
    async def story(client):
        bag = await client.submit(sweep(2000, "true"))
        async for _ in client.results(bag, page=1):
            break
        async for _ in client.watch(bag):
            break
        return (await client.wait(bag))["counts"]["succeeded"]

    assert run(server, story) == 2000
