"""Provisioners reach the server over HTTP or within its process, and both links behave the same."""

import asyncio
import queue
import threading

import msgspec
import pytest

from windfall import Client
from windfall.client.http import Http, Request
from windfall.client.profile import from_fields
from windfall.core.messages.facts import Limits, Shape
from windfall.errors import BadInput, NotFound
from windfall.model.bagfile.reader import parse
from windfall.provision.remote_link import RemoteLink
from windfall.provision.server_link import ListedJob, SiteFigures, TendReply, TendRequest
from windfall.server.calls.provisioners import MAX_WORD, InProcessLink

SHAPE = Shape(1, 1 << 40, 0, 1 << 40, 3_600_000)
LIMITS = Limits([SHAPE], pilots=3, flight=2)


@pytest.fixture
def lines(server):
    """Return the two links, over HTTP and within the process, as blocking functions."""
    remote, inside = RemoteLink(from_fields(server.start())), InProcessLink(server._runtime)

    def over_http(name, *args):
        return asyncio.run(getattr(remote, name)(*args))

    def within(name, *args):
        return asyncio.run_coroutine_threadsafe(getattr(inside, name)(*args), server._loop).result(30)

    yield {"http": over_http, "process": within}
    remote.close()


def test_both_ways_get_the_same_orders(server, lines):
    said = {}
    for site, line in lines.items():
        line("add_site", site, "slurm", LIMITS)
        said[site] = [line("tend", TendRequest(0, site, "t", hello=True))]
    with Client(server.start()) as client:
        client.submit(parse('[bag]\nname = "b"\ncommand = "true {n}"\n[sweep]\nn = "1..5"\n').bag)
    for site, line in lines.items():
        orders = line("tend", TendRequest(0, site, "t", seen=1, wait=20_000))
        names = [nonce for nonce, _ in orders.start]
        said[site].append(orders)
        said[site].append(line("tend", TendRequest(
            0, site, "t", seen=orders.number, accepted=[(names[0], "77_1")], refused=[(names[1], "full ü")],
            listed=[ListedJob(names[0], "77_1", True), ListedJob("other-1", "5", False)], began=orders.now,
            info=SiteFigures(3, 4, 5))))
    first, second = (list(map(_plain, said[site])) for site in lines)
    assert first == second
    assert [len(orders["start"]) for orders in first] == [0, 2, 1], "within flight; a refusal holds the rest back"


def _plain(orders):
    """Return the reply's fields without those that differ from site to site."""
    assert isinstance(orders, TendReply)
    fields = msgspec.to_builtins(orders)
    for name in ("key", "site", "now"):
        fields.pop(name)
    fields["start"] = [(nonce.split("-")[1].isdigit(), shape) for nonce, shape in orders.start]
    return fields


REQUEST = (
    '{"key":0,"site":"c","tender":"t","hello":true,"seen":3,"accepted":[["m-1","7_1"]],"refused":[["m-2","no"]],'
    '"stopped":[["m-3",""]],"listed":[["m-1","7_1",true]],"began":17,"info":[1,2,3,-1,-1],"wait":400,'
    '"unstopped":[["m-4","8"]],"salvages":true,"salvaged":[["m-5",2]]}')
REPLY = (
    '{"key":0,"site":"c","number":4,"now":17,"start":[["m-5",[1,1099511627776,0,1099511627776,3600000,1,false,0,0]]],'
    '"stop":[["m-1","7_1"]],"look":true,"over":true,"salvage":["m-6"]}')


def test_json_of_the_tend_call_stays_when_the_core_renames_fields():
    request = TendRequest(
        0, "c", "t", True, 3, [("m-1", "7_1")], [("m-2", "no")], [("m-3", "")], [ListedJob("m-1", "7_1", True)], 17,
        SiteFigures(1, 2, 3), 400, [("m-4", "8")], True, [("m-5", 2)])
    reply = TendReply(0, "c", 4, 17, [("m-5", SHAPE)], [("m-1", "7_1")], True, True, ["m-6"])
    for body, record in ((REQUEST, request), (REPLY, reply)):
        assert msgspec.json.encode(record).decode() == body
        assert msgspec.json.decode(body, type=type(record)) == record


def test_a_site_is_tended_by_its_owner_only(server, lines):
    lines["process"]("add_site", "mine", "slurm", LIMITS)
    with Client(server.start()) as client:
        other = client.add_token("user", user="eve")["token"]
    eve = RemoteLink(from_fields({**server.start(), "token": other}))
    with pytest.raises(NotFound):
        asyncio.run(eve.tend(TendRequest(0, "mine", "t", hello=True)))
    with pytest.raises(NotFound):
        asyncio.run(eve.enrolment("mine", 1))
    eve.close()
    with pytest.raises(NotFound):
        lines["http"]("tend", TendRequest(0, "nowhere", "t", hello=True))


@pytest.mark.parametrize("field", ["accepted", "refused", "stopped", "unstopped"])
def test_names_too_long_for_the_journal_are_refused(lines, field):
    lines["http"]("add_site", "c", "slurm", LIMITS)
    for line in lines.values():
        with pytest.raises(BadInput):
            line("tend", TendRequest(0, "c", "t", hello=True, **{field: [("m-1", "x" * (MAX_WORD + 1))]}))


@pytest.mark.parametrize("said", [("m" * (MAX_WORD + 1), 1), ("m-1", -2), ("m-1", 10**400)])
def test_impossible_salvage_counts_are_refused(lines, said):
    lines["http"]("add_site", "c", "slurm", LIMITS)
    for line in lines.values():
        with pytest.raises(BadInput):
            line("tend", TendRequest(0, "c", "t", hello=True, salvaged=[said]))


def test_limits_stay_when_a_site_is_added_again_without_them(server, lines):
    lines["http"]("add_site", "c", "slurm", LIMITS)
    with Client(server.start()) as client:
        client.add_site("c", "slurm")
    assert server._runtime.writer.state.sites["c"].limits == LIMITS


def test_both_ways_know_the_door_and_the_pilot(lines):
    assert lines["http"]("pilots_address") == lines["process"]("pilots_address")
    assert lines["http"]("pilot") == lines["process"]("pilot")


def test_a_token_that_is_gone_is_not_known(server, lines):
    lines["http"]("add_site", "c", "slurm", LIMITS)
    name, token = lines["http"]("enrolment", "c", 1)
    assert token and all(line("knows", name) for line in lines.values())
    with Client(server.start()) as client:
        client.remove_token(name)
    assert not any(line("knows", name) for line in lines.values())


def test_a_stop_answers_those_who_wait(server, lines):
    lines["http"]("add_site", "c", "slurm", LIMITS)
    first = lines["http"]("tend", TendRequest(0, "c", "t", hello=True))
    heard = queue.Queue()
    http = Http(from_fields(server.start()), patience=0.0)
    body = msgspec.json.encode(TendRequest(0, "c", "t", seen=first.number, wait=20_000))
    waiting = threading.Thread(target=lambda: heard.put(http.send(Request("POST", "/v1/tend", body))))
    waiting.start()
    while not server._runtime.provisioners._waiting.open:
        pass
    server.stop()
    assert heard.get(timeout=30).status == 503
    waiting.join()
    http.close()


def test_a_connection_whose_poll_was_given_up_is_not_used_before_its_answer_has_come(server, lines):
    lines["process"]("add_site", "c", "slurm", LIMITS)
    number = lines["process"]("tend", TendRequest(0, "c", "t", hello=True)).number
    remote = RemoteLink(from_fields(server.start()))

    async def give_up():
        poll = asyncio.ensure_future(remote.tend(TendRequest(0, "c", "t", seen=number, wait=20_000)))
        while not server._runtime.provisioners._waiting.open:
            await asyncio.sleep(0.01)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        return await asyncio.wait_for(remote.tend(TendRequest(0, "c", "another")), 10)

    assert asyncio.run(give_up()).over, "the answer to this question, and not to the one before"
    server.stop()  # answers the poll
    remote.close()
