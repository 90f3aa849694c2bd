"""The pilot and the server: enrolment, grants, lease, recall, stop, outage, trust.  Real processes."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from harness import Pilot, Server, alive, wait_until


def test_enrolment_describes_host_and_shape(server, launch):
    launch("--cores", "3", "--memory", "123456789", "--walltime", "1000")
    server.wait_for(lambda: server.requests)
    message = server.enrols[0]
    assert message["shape"]["cores"] == 3 and message["shape"]["memory"] == 123456789
    assert 0 < message["shape"]["left"] <= 1000000 and message["nonce"] == "n1" and message["site"] == "local"
    assert len(message["host"]["id"]) == 32 and message["host"]["boot"]
    assert 0 < server.requests[0]["left"] <= 1000000


def test_pilot_works_over_tls_with_the_pinned_certificate(tmp_path):
    server = Server(tmp_path, tls=True)
    pilot = Pilot(server, "--idle", "0.2")
    server.submit([1, "echo over tls"])
    assert server.result(1)["out"] == "over tls\n"
    assert pilot.wait() == 0 and server.bye == "idle"
    assert os.listdir(pilot.dir) == []
    pilot.end()
    server.close()


def test_pilot_refuses_another_certificate(tmp_path):
    os.mkdir(str(tmp_path / "other"))
    server, other = Server(tmp_path, tls=True), Server(tmp_path / "other", tls=True)
    other.url = server.url
    pilot = Pilot(server, ticket=other.ticket())
    assert pilot.wait() == 3 and "certificate" in pilot.text() and not server.enrols
    pilot.end()
    server.close()
    other.close()


@pytest.mark.parametrize("damage, code, words", [
    (lambda path: os.chmod(path, 0o644), 3, "read by others"),
    (lambda path: os.unlink(path), 2, "cannot read"),
    (lambda path: open(path, "w").write("{"), 2, "not JSON"),
    (lambda path: open(path, "w").write("[]"), 2, "not a JSON object"),
    (lambda path: open(path, "w").write('{"server": "unix:/x"}'), 2, "lacks 'token'"),
])
def test_bad_ticket_is_refused_with_a_message(server, launch, damage, code, words):
    path = server.ticket()
    damage(path)
    pilot = launch(ticket=path)
    assert pilot.wait() == code and words in pilot.text()


def test_plain_http_is_refused(server, launch):
    server.url = "http://127.0.0.1:1"
    pilot = launch()
    assert pilot.wait() == 2 and "https" in pilot.text()


def test_token_is_not_visible_to_tasks_or_in_logs(server, launch):
    pilot = launch()
    server.submit([1, "cat /proc/$PPID/environ /proc/$PPID/cmdline"])
    seen = server.result(1)["out"] + pilot.text()
    assert "ticket-token" not in seen and "pilot-" + list(server.tokens)[0][6:] not in seen


def test_revoked_ticket_ends_the_pilot(server, launch):
    pilot = launch(ticket=server.ticket(token="stale"))
    assert pilot.wait() == 3 and "unauthorised" in pilot.text()


def test_version_mismatch_ends_the_pilot(server, launch):
    server.intercept = lambda handler, method, path: handler.refuse(426, "version-mismatch") or True
    pilot = launch()
    assert pilot.wait() == 3 and "version" in pilot.text()


def test_idle_pilot_leaves_and_clears_up(server, launch):
    pilot = launch("--idle", "0.3")
    server.submit([1, "touch left-over"])
    server.result(1)
    assert pilot.wait() == 0 and server.bye == "idle"
    assert os.listdir(pilot.dir) == []


def test_server_sets_the_idle_time(server, launch):
    server.idle = 300
    assert launch().wait() == 0 and server.bye == "idle"


def test_duplicate_grants_run_once(server, launch, tmp_path):
    launch("--cores", "1")
    task = [1, "echo ran >> {}".format(tmp_path / "log")]
    grant = {"n": 1, "groups": [{"spec": {"bag": 1}, "tasks": [task]}]}
    for _ in range(3):
        server.say(grants=[grant])
        server.wait_for(lambda: not server.extra)
        server.result(1)
    assert any(request["ack"] == 1 for request in server.requests)
    server.granted = 1
    server.submit([2, "true"])  # behind whatever waits
    server.result(2)
    assert (tmp_path / "log").read_text() == "ran\n"


def parked(server):
    """Return the polls that wait for their answer."""
    return [r["seq"] for r in server.requests if r.get("wait") and ("out", r["seq"]) not in server.story]


def test_reports_do_not_wait_behind_a_parked_poll(server, launch, gate):
    launch()
    server.submit([1, gate.shell])
    server.wait_started(1)
    server.wait_for(lambda: parked(server))
    gate.open()
    server.result(1)
    telling = [r["seq"] for r in server.requests if r.get("reports")][0]
    poll = [r["seq"] for r in server.requests if r.get("wait") and r["seq"] < telling][-1]
    story = server.story[:server.story.index(("in", telling))]
    assert ("in", poll) in story and ("out", poll) not in story


def test_start_of_a_task_is_reported(server, launch, gate):
    launch()
    server.submit([1, gate.shell], [2, "true"])
    server.wait_started(1)
    assert 2 not in server.started


def test_recall_gives_back_only_the_unstarted(server, launch, gate):
    launch("--cores", "1")
    server.submit([1, gate.shell], [2, "echo 2"], [3, "echo 3"])
    server.wait_started(1)
    server.say(recall=[1, 2])
    assert (server.result(2)["o"], server.result(2)["why"]) == ("returned", "recall")
    gate.open()
    assert server.result(1)["exit"] == 0 and server.result(3)["out"] == "3\n"


def test_recall_reaches_tasks_staged_at_a_spawner(server, launch, gate):
    launch("--cores", "1")
    server.submit(*[[i, "true"] for i in range(1, 50)])
    server.result(49)
    server.submit([100, gate.shell], *[[i, "true"] for i in range(101, 120)])
    server.wait_started(100)
    server.say(recall=list(range(101, 120)))
    server.wait_for(lambda: 119 in server.reports)
    gate.open()
    for i in range(101, 120):
        assert server.result(i)["why"] == "recall"
    assert server.result(100)["exit"] == 0
    order = list(server.reports)
    assert all(order.index(i) < order.index(100) for i in range(101, 120))


def test_cancel_kills_the_running_and_drops_the_waiting(server, launch):
    launch("--cores", "1")
    server.submit([1, "echo $$; sleep 600"], [2, "true"], [3, "true"])
    server.wait_started(1)
    server.say(cancel=[1, 2])
    for i in (1, 2):
        assert (server.result(i)["o"], server.result(i)["why"]) == ("cancelled", "cancel")
    assert server.result(3)["exit"] == 0
    assert not alive(int(server.result(1)["out"]))


def test_census_lists_all_attempts_held(server, launch, gate):
    launch("--cores", "1")
    server.submit([1, gate.shell], [2, "true"])
    server.wait_started(1)
    server.say(census=True)
    server.wait_for(lambda: any(r.get("held") == [1, 2] for r in server.requests))


def test_drain_finishes_the_running_and_returns_the_rest(server, launch, gate):
    pilot = launch("--cores", "1")
    server.submit([1, gate.shell + "; echo whole"], [2, "true"])
    server.wait_started(1)
    server.say(stop="drain")
    assert (server.result(2)["o"], server.result(2)["why"]) == ("returned", "stop")
    gate.open()
    assert server.result(1)["out"] == "whole\n"
    assert pilot.wait() == 0 and server.bye == "stopped"


def test_superseded_pilot_reports_and_leaves(server, launch, gate):
    pilot = launch("--cores", "1")
    server.submit([1, gate.shell + "; echo whole"], [2, "true"])
    server.wait_started(1)
    server.say(stop="superseded")
    assert server.result(2)["o"] == "returned"
    gate.open()
    assert server.result(1)["out"] == "whole\n"
    assert pilot.wait() == 0


def test_sigterm_returns_waiting_tasks_and_ends_running_ones(server, launch, tmp_path):
    pilot = launch("--cores", "1")
    trap = f"trap 'echo saving; exit 0' TERM; touch {tmp_path}/begun; while :; do sleep 0.1; done"
    server.submit([1, trap], [2, "true"], grace=30000)
    wait_until((tmp_path / "begun").exists)
    assert pilot.stop() == 0
    assert (server.result(2)["o"], server.result(2)["why"]) == ("returned", "stop")
    report = server.result(1)
    assert (report["o"], report["why"]) == ("returned", "stop") and report["out"].endswith("saving\n")
    assert server.bye == "stopped" and os.listdir(pilot.dir) == []


def test_second_sigterm_ends_the_grace(server, launch, tmp_path):
    pilot = launch("--cores", "1")
    server.submit([1, f"trap '' TERM; touch {tmp_path}/begun; while :; do sleep 1; done"], [2, "true"], grace=600000)
    wait_until((tmp_path / "begun").exists)
    pilot.process.send_signal(signal.SIGTERM)
    assert server.result(2)["why"] == "stop"
    pilot.process.send_signal(signal.SIGTERM)
    assert pilot.wait() == 0 and server.result(1)["signal"] == signal.SIGKILL


def test_tasks_killed_by_the_signal_to_the_job_are_returned(server, launch, tmp_path):
    """Slurm, LSF and Grid Engine signal all processes: tasks die before the pilot ends them, and are still returned."""
    pilot = launch("--cores", "2")
    trap = f"trap 'echo saving; sleep 1; echo saved; exit 0' TERM; touch {tmp_path}/two; while :; do sleep 0.1; done"
    server.submit([1, f"echo $$ >{tmp_path}/one; exec sleep 60"], [2, trap], grace=30000)
    wait_until(lambda: (tmp_path / "one").exists() and (tmp_path / "two").exists() and (tmp_path / "one").read_text())
    agent = psutil.Process(pilot.process.pid).children()[0]
    first = int((tmp_path / "one").read_text())
    agent.suspend()  # however slow it is
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: not alive(first))
    time.sleep(0.2)  # its end has been reported, and lies there
    pilot.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)  # passed on
    agent.resume()
    assert server.result(1)["o"] == "returned"
    agent.send_signal(signal.SIGTERM)
    for attempt in (1, 2):
        assert (server.result(attempt)["o"], server.result(attempt)["why"]) == ("returned", "stop")
    assert "saved" in server.result(2)["out"], "told once, so its grace is its own"
    assert pilot.wait() == 0 and server.bye == "stopped"


def test_warning_signal_during_start_ends_the_pilot(server, launch):
    """A pilot that ignored the warning would take tasks and be killed while they run."""
    for pause in range(0, 240, 30):
        pilot = launch("--cores", "1", env={**os.environ, "WINDFALL_WARNING": "USR2"})
        time.sleep(pause / 1000)
        pilot.process.send_signal(signal.SIGUSR2)
        pilot.wait()


def test_warning_signal_is_ignored_by_tasks_and_spawners(server, launch, tmp_path):
    """Grid Engine sends its warning to all processes of a job; tasks must not die of it."""
    pilot = launch("--cores", "1", env={**os.environ, "WINDFALL_WARNING": "USR2"})
    trap = f"trap 'echo saving; exit 0' TERM; touch {tmp_path}/begun; while :; do sleep 0.1; done"
    server.submit([1, trap], grace=30000)
    wait_until((tmp_path / "begun").exists)
    agent = psutil.Process(pilot.process.pid).children()
    others = agent + agent[0].children() + agent[0].children()[0].children()  # its spawner, and the task
    for each in others[::-1]:
        each.send_signal(signal.SIGUSR2)
    time.sleep(0.3)
    assert len(others) == 3 and [each.pid for each in others if not alive(each.pid)] == []
    pilot.process.send_signal(signal.SIGUSR2)
    assert pilot.wait() == 0
    report = server.result(1)
    assert (report["o"], report["why"]) == ("returned", "stop") and report["out"].endswith("saving\n")


def test_pilot_leaves_at_the_end_of_its_wall_time(server, launch):
    pilot = launch("--cores", "1", "--walltime", "2")
    server.submit([1, "true"], time=5000)
    server.submit([2, "sleep 30"], time=0)
    report = server.result(1)
    assert (report["o"], report["why"]) == ("returned", "stop")
    assert (server.result(2)["o"], server.result(2)["why"]) == ("returned", "stop")
    assert pilot.wait() == 0 and server.bye == "walltime"


def drop(handler, method, path):
    handler.close_connection = True
    handler.connection.close()
    return True


def test_pilot_cut_off_beyond_its_lease_starts_no_task(tmp_path, gate):
    server = Server(tmp_path, lease=1500)
    pilot = Pilot(server, "--cores", "1", "--idle", "30")
    server.submit([1, gate.shell + "; echo late"], [2, "echo two"])
    server.wait_started(1)
    server.intercept = drop
    server.say(census=True)                     # wake the parked poll into a dead line
    time.sleep(2)                               # the lease has passed, whatever else the machine does
    gate.open()
    box = os.path.join(pilot.dir, "outbox")
    wait_until(lambda: any(name == "1.json" for _, _, names in os.walk(box) for name in names))
    assert 1 not in server.reports
    server.intercept = None
    assert server.result(1)["out"] == "late\n"  # the good work counts
    assert server.result(2)["out"] == "two\n"   # started only after a new lease
    assert server.result(2)["t0"] > server.result(1)["t1"] + 100
    assert any(2 in r.get("held", ()) for r in server.requests)
    assert pilot.stop() == 0 and not os.path.exists(box)
    pilot.end()
    server.close()


def test_lost_answers_cost_no_task_and_run_none_twice(server, launch, tmp_path):
    """The network loses every third answer after the server has taken the request."""
    count = [0]

    def lossy(handler, method, path):
        count[0] += path == "/v1/exchange"
        if count[0] % 3 or path != "/v1/exchange":
            return False
        server.exchange(dict(handler.body(), wait=0))
        return drop(handler, method, path)

    server.intercept = lossy
    launch("--cores", "2")
    server.grant_size = 10
    log = tmp_path / "log"
    server.submit(*[[i, f"echo {i} >> {log}"] for i in range(1, 101)])
    server.wait_for(lambda: len(server.reports) == 100, 30)
    server.intercept = None
    assert sorted(map(int, log.read_text().split())) == list(range(1, 101))
    for reports in server.reports.values():
        assert all(r == reports[0] for r in reports)


def test_pilot_waits_when_the_server_is_overloaded(server, launch):
    """`test_agenda.py` tests how long the pilot waits."""
    told = []

    def busy(handler, method, path):
        if path != "/v1/exchange" or len(told) >= 3:
            return False
        told.append(handler.body()["seq"])
        handler.refuse(503, "unavailable", [("Retry-After", "0.2")])
        return True

    server.intercept = busy
    launch()
    server.submit([1, "true"])
    assert server.result(1)["exit"] == 0 and len(told) == 3


def test_pilot_comes_back_after_the_time_the_server_names(server, launch):
    server.extra = {"again": 300}
    launch()
    server.wait_for(lambda: server.requests)
    server.submit([1, "true"])
    assert server.result(1)["exit"] == 0


def test_stale_connection_is_replaced_without_waiting(server, launch):
    """The spread is an hour, so a pilot that waited for a part of it would exceed the test's time."""
    server.spread = 3600000
    dropped = []

    def stale(handler, method, path):
        if path != "/v1/exchange" or dropped:
            return False
        dropped.append(handler)  # it has carried the enrolment
        return drop(handler, method, path)

    server.intercept = stale
    launch()
    server.submit([1, "true"])
    assert server.result(1)["exit"] == 0 and dropped


def test_pilot_enrols_again_when_its_token_is_invalid(server, launch, gate):
    launch("--cores", "1")
    server.submit([1, gate.shell + "; echo kept"], [2, "echo two"])
    server.wait_started(1)
    server.tokens.clear()
    server.say(census=True)
    server.wait_for(lambda: server.epoch == 2)
    gate.open()
    assert server.result(1)["out"] == "kept\n" and server.epoch == 2 and server.result(2)["out"] == "two\n"
    assert any(r["epoch"] == 2 and r.get("held") for r in server.requests)


def test_pilot_enrols_once_the_server_is_up(tmp_path):
    server = Server(tmp_path)
    refused = [0]

    def down(handler, method, path):
        refused[0] += 1
        return refused[0] <= 2 and drop(handler, method, path)

    server.intercept = down
    pilot = Pilot(server)
    server.submit([1, "true"])
    assert server.result(1)["exit"] == 0
    pilot.end()
    server.close()


def test_outbox_is_delivered_by_the_next_pilot(server, launch, gate):
    sent = []

    def away(handler, method, path):
        if path.startswith("/v1/blobs/"):
            sent.append(path)
        return drop(handler, method, path)

    pilot = launch("--cores", "2")
    server.submit([1, f"echo made > result; {gate.shell}"], outputs=["result"])
    server.submit([2, "sleep 600"], grace=100)
    server.wait_started(1)
    server.wait_started(2)
    server.intercept = away
    server.say(census=True)
    gate.open()
    wait_until(lambda: sent)  # 1 has ended
    assert pilot.stop(60) == 3
    box = os.path.join(pilot.dir, "outbox")
    assert "not delivered" in pilot.text()
    for folder, _, names in os.walk(box):
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert all(os.stat(os.path.join(folder, n)).st_mode & 0o077 == 0 for n in names if folder.count(".d") == 0)
    server.intercept = None
    launch("--idle", "1")
    assert server.result(1).get("o", "succeeded") == "succeeded"
    assert server.blobs[server.result(1)["files"][0][1]] == b"made\n"
    assert (server.result(2)["o"], server.result(2)["why"]) == ("returned", "stop")
    assert {r["epoch"] for r in server.requests if r.get("reports")} == {1}
    wait_until(lambda: not os.path.exists(box))


def test_live_output_is_sent_while_a_task_runs(server, launch):
    launch()
    server.submit([1, "echo one; sleep 0.6; echo two; sleep 0.6; echo three >&2; sleep 600"])
    server.wait_started(1)
    server.say(stream=[1])
    server.wait_for(lambda: bytes(server.outputs.get((1, "out"), b"")) == b"one\ntwo\n")
    server.wait_for(lambda: bytes(server.outputs.get((1, "err"), b"")) == b"three\n")


def test_malformed_answers_do_not_end_the_pilot(server, launch):
    answers = [b"nonsense", json.dumps({"v": 1, "epoch": 99, "seq": 1}).encode(),
               json.dumps({"v": 1, "epoch": 1, "seq": 1, "grants": [{"n": 1, "groups": [{"tasks": [[5]]}]}]}).encode()]

    def odd(handler, method, path):
        if path != "/v1/exchange" or not answers:
            return False
        handler.raw()
        handler.answer(200, answers.pop())
        return True

    server.intercept = odd
    launch()
    server.submit([1, "true"])
    assert server.result(1)["exit"] == 0


def test_unknown_arguments_are_refused(server, launch):
    assert launch("--nonsense", "1").wait() == 2


def test_host_id_survives_a_restart(server, launch):
    launch("--idle", "0.1").wait()
    launch("--idle", "0.1", nonce="n2").wait()
    assert server.enrols[0]["host"]["id"] == server.enrols[1]["host"]["id"]


def test_kill_spares_the_same_attempt_of_another_pilot(server, launch, tmp_path):
    """Two servers number their attempts alike, and may have pilots on one host."""
    launch("--cores", "1")
    env = {**os.environ, "WINDFALL_ATTEMPT": "1", "WINDFALL_PILOT": "another"}
    other = subprocess.Popen(["sleep", "60"], env=env)
    try:
        server.submit([1, "trap '' TERM; sleep 60; sleep 60"], grace=100)
        server.wait_started(1)
        server.say(cancel=[1])
        assert server.result(1)["o"] == "cancelled"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
