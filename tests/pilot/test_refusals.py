"""Reports that the server will never take: they block no others, and the pilot says when it drops one."""

import json
import os

import pytest

from windfall.client import Client
from windfall.model.spec import Bag, Items, Target
from windfall.pilot.agenda.agenda import Agenda
from windfall.pilot.net import enrol
from windfall.pilot.net.link import HttpLink, HttpRequest
from windfall.pilot.net.routes import Routes
from windfall.pilot.notes import short
from windfall.server.embedded import Embedded

HUGE = 1 << 40  # no exit code


def agenda():
    made = Agenda(1)
    made.enrolled(0, {"v": 1, "pilot": 1, "epoch": 1, "token": "", "lease": 60000, "idle": 120000})
    return made


def talk(made, refuse, steps=500):
    """Let the agenda talk to a server that accepts what `refuse` does not; return the requests taken and complaints."""
    took, said = [], []
    for _ in range(steps):
        made.idle_since = 0
        request = made.next_request(0)
        if request is None:
            made.in_flight.clear()  # the parked poll
            if not (made.reports or made.unreported_starts or made.census):
                return took, said
            made.not_before = 0
        elif refuse(request):
            said.append(made.refused(0, request["seq"], "no"))
        else:
            took.append(request)
            made.answer_received(0, {"v": 1, "epoch": 1, "seq": request["seq"]})
    raise AssertionError("it goes round in circles")


def reports_of(took):
    return {report["a"]: report for request in took for report in request.get("reports", ())}


def test_bad_report_among_many_is_found_and_shortened():
    made = agenda()
    for attempt in range(100):
        made._queue_report(0, {"a": attempt, "exit": HUGE if attempt in (3, 70) else 0})
    took, said = talk(made, lambda r: any(x.get("exit") == HUGE for x in r.get("reports", ())))
    had = reports_of(took)
    assert sorted(had) == list(range(100))
    assert {a for a, r in had.items() if r.get("o") == "failed"} == {3, 70}
    assert had[3]["why"] == "refused" and "no" in had[3]["note"] and len([s for s in said if s]) == 2
    assert not made.shortened


def test_report_refused_twice_is_dropped_and_not_held():
    made = agenda()
    for attempt in range(5):
        made._queue_report(0, {"a": attempt})
    took, said = talk(made, lambda r: any(x["a"] == 2 for x in r.get("reports", ())))
    assert sorted(reports_of(took)) == [0, 1, 3, 4] and any("drops it" in text for text in said)
    assert any(r.get("held") == [] for r in took)  # the server is told that it is not here any more
    assert not made.shortened


def test_shortened_report_stays_returned_or_cancelled():
    made = agenda()
    made._queue_report(0, {"a": 1, "o": "returned", "exit": HUGE})
    took, _ = talk(made, lambda r: any("exit" in x for x in r.get("reports", ())))
    assert reports_of(took)[1]["o"] == "returned"


@pytest.mark.parametrize("kind", ["started", "held"])
def test_refused_lists_are_sent_only_once(kind):
    made = agenda()
    request = made.next_request(0)
    made.answer_received(0, {"v": 1, "epoch": 1, "seq": request["seq"], "grants": [
        {"n": 1, "groups": [{"spec": {"bag": 1}, "tasks": [[7, ["true"]]]}]}]})
    made.orders(0)
    made.running(-1000, [7])
    made._queue_report(0, {"a": 1})
    made.census = True
    took, said = talk(made, lambda r: kind in r)
    assert 1 in reports_of(took) and any("refused the list" in text for text in said)


def test_requests_grow_again_after_a_refusal():
    made = agenda()
    made._queue_report(0, {"a": 0, "exit": HUGE})
    made._queue_report(0, {"a": 1})
    talk(made, lambda r: any(x.get("exit") == HUGE for x in r.get("reports", ())))
    for attempt in range(2, 40):
        made._queue_report(0, {"a": attempt})
        talk(made, lambda r: False)
    assert made.reports_at_once is None


def test_notes_are_cut_to_short_text():
    made = agenda()
    made._queue_report(0, {"a": 1, "note": "x" * 9000 + "\udcff end"})
    note = made.reports[1]["note"]
    assert len(note) <= 500 and note.endswith("? end") and json.dumps(note).encode()
    assert short("fine") == "fine"


def test_refusal_by_a_proxy_is_not_final():
    class Reply:
        status, body = 400, b"<html>a proxy</html>"
    assert enrol.refusal(Reply) == ""
    Reply.status = 413
    assert enrol.refusal(Reply)


# --- the real server -------------------------------------------------------------------------------------------------

@pytest.fixture
def real(tmp_path):
    server = Embedded(tmp_path / "home")
    yield server
    server.stop()


class Exchanger:
    """An agenda and a link without tasks: what the agent does, step by step."""

    def __init__(self, profile, token):
        class ticket:
            site, nonce = "local", "n1"
        ticket.token = token
        self.link = HttpLink(Routes(profile["server"]))
        body = enrol.message(ticket, {"id": "h" * 32, "name": "h", "cores": 1, "memory": 1 << 30},
                             {"cores": 1, "memory": 1 << 30})
        enrolled = enrol.enrol_once(self.link, ticket, body)
        self.token = enrolled["token"]
        self.agenda = Agenda(1, 1 << 30)
        self.agenda.enrolled(0, enrolled)
        self.now, self.refusals, self.said = 0, 0, []

    def step(self):
        self.now += 100
        request = self.agenda.next_request(self.now)
        if request is None:
            return
        request.pop("wait", None)
        reply = self.link.call(HttpRequest("POST", "/v1/exchange", [("Authorization", "Bearer " + self.token)],
                                       json.dumps(request).encode()))
        if reply.status == 200:
            assert self.agenda.answer_received(self.now, enrol.parse(reply.body))
        else:
            assert enrol.refusal(reply)
            self.refusals += 1
            self.said.append(self.agenda.refused(self.now, request["seq"], enrol.refusal(reply)))


def test_real_server_refuses_only_the_bad_reports(real):
    profile = real.start()
    with Client(profile) as client:
        bag = client.submit(Bag(name="b", targets=[Target(source=Items(items=["true"] * 8))]))
        one = Exchanger(profile, _enrol_token(profile))
        begun, odd = [], {2: {"o": "strange"}, 5: {"value": "x" * (65 << 20)}}  # 400, 413
        for _ in range(200):
            for order in one.agenda.orders(one.now):
                if order[0] == "run":
                    attempt = order[1].attempt
                    begun.append(attempt)
                    report = {"a": attempt, "exit": 0, "wall": 1}
                    report.update(odd.get(len(begun), {}))
                    one.agenda.task_ended(one.now, attempt, report)
            one.step()
            if client.bag(bag)["counts"]["succeeded"] == 8:
                break
        counts = client.bag(bag)["counts"]
        assert counts["succeeded"] >= 6 and counts["active"] == 0 and one.refusals
        assert len([text for text in one.said if text]) == 2 and not one.agenda.undelivered()


def _enrol_token(profile):
    link = HttpLink(Routes(profile["server"]))
    reply = link.call(HttpRequest("POST", "/v1/tokens", [("Authorization", "Bearer " + profile["token"])],
                              json.dumps({"scope": "enrol", "site": "local"}).encode()))
    assert reply.status in (200, 201), reply.body
    return json.loads(reply.body.decode())["token"]


def test_missing_command_on_a_very_long_path_is_reported(real, monkeypatch):
    """A note with the whole PATH was once so long that its report blocked the pilot for ever."""
    path = ":".join(f"/opt/modules/{i:04d}/some/software/package/bin" for i in range(400))
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":" + path + ":/odd\udcff")
    real.ensure_pilot(1)
    with Client(real.start()) as client:
        bag = client.submit(Bag(name="b", targets=[Target(source=Items(items=["nosuchcommand", "true"]))]))
        wait_ended(client, bag)
        counts = client.bag(bag)["counts"]
        assert (counts["succeeded"], counts["failed"]) == (1, 1)


def wait_ended(client, bag):
    from harness import wait_until
    wait_until(lambda: client.bag(bag)["ended"] is not None, 30)


# --- the whole pilot, against a server that refuses -----------------------------------------------------------------

def test_pilot_goes_on_after_refusals(server, launch):
    refused = []

    def fussy(handler, method, path):
        if path != "/v1/exchange":
            return False
        message = handler.body()
        if any(r["a"] == 3 or r.get("out") == "bad\n" for r in message.get("reports", ())):
            refused.append(message)
            handler.refuse(400, "bad-input")
        else:
            handler.answer(200, server.exchange(message))
        return True

    server.intercept = fussy
    pilot = launch("--cores", "1", "--quiet")
    server.submit(*[[i, "echo bad" if i == 5 else f"echo {i}"] for i in range(1, 11)])
    for i in (1, 2, 4, 6, 7, 8, 9, 10):
        assert server.result(i)["out"] == f"{i}\n"
    report = server.result(5)
    assert (report["o"], report["why"]) == ("failed", "refused") and "bad-input" in report["note"]
    server.wait_for(lambda: "attempt 3; the pilot drops it" in pilot.text())
    assert pilot.stop() == 0 and 3 not in server.reports and refused
