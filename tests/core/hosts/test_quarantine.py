"""Hosts: statistics under a lasting id, and the quarantine of black holes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, Bench, granted, shape
from windfall.core.messages import events as e
from windfall.core.messages.lifecycle import FINE, HELD_BACK, PROBATION
from windfall.core.read.explain import explain
from windfall.core.state import host_table

QUARANTINE = 600_000


def pilot_on(bench: Bench, host: str, cores: int = 1) -> int:
    """Enrol a pilot on a host of that name."""
    event = e.Enrol(0, "here", f"n{bench.core.state.next_pilot}", host, f"{host}.example", cores, 4 << 30, 0, 1 << 40,
                    None, b"token %d" % bench.core.state.next_pilot)
    return int(bench.do(event).pilot)


def run_task(bench: Bench, pilot: int, outcome: str = "succeeded", wall: int = 60_000, **more: Any) -> bool:
    """Let the pilot run one task; return whether it was granted one."""
    answer = bench.exchange(pilot, want=1)
    held = granted(answer) if answer is not None else []
    for attempt, _ in held:
        bench.report(pilot, attempt, outcome, **({"why": "exit"} if outcome == "failed" else {}), wall=wall, **more)
    return bool(held)


def column(bench: Bench, name: str, host: str) -> Any:
    return getattr(bench.core.state.hosts, name)[bench.core.state.host_rows["here", host]]


def quarantined_pilot(bench: Bench, others: int = 8) -> int:
    """Fail tasks on host `bad` until it is quarantined; return its pilot."""
    bench.submit(shape(1_000, expect=60_000, retries=100))
    for number in range(others):
        run_task(bench, pilot_on(bench, f"good{number}"))
    bad = pilot_on(bench, "bad")
    while column(bench, "standing", "bad") == FINE:
        if not run_task(bench, bad, "failed", wall=10):
            bench.wait(10_000)
    return bad


def test_statistics_are_kept_under_the_lasting_id_of_a_host(bench: Bench) -> None:
    bench.submit(shape(9, retries=9, expect=60_000))
    first = pilot_on(bench, "h1")
    run_task(bench, first, wall=400)
    run_task(bench, first, "failed")
    bench.exchange(first, bye="stopped")
    second = pilot_on(bench, "h1")  # the host comes again, after preemption
    run_task(bench, second, "failed")
    bench.take(second, want=1)
    bench.step(e.Gone(0, second))
    assert [column(bench, name, "h1") for name in ("attempts", "failures", "losses", "streak")] == [4, 2, 1, 2]
    assert column(bench, "mean", "h1") == 400 and column(bench, "success", "h1") == bench.now
    bench.restart(bench.snapshot())
    assert column(bench, "attempts", "h1") == 4


def test_exceeded_limits_are_no_failures_of_a_host(bench: Bench) -> None:
    bench.submit(shape(3, limit=1_000, retries=9))
    pilot = pilot_on(bench, "h1")
    run_task(bench, pilot, "failed")
    for why in ("time", "memory"):
        held = granted(bench.exchange(pilot, want=1))
        bench.exchange(pilot, reports=[e.Report(attempt, "failed", why) for attempt, _ in held])
    assert column(bench, "failures", "h1") == 1


def test_last_host_of_an_owner_is_not_quarantined_beside_hosts_of_another(bench: Bench) -> None:
    """Tasks of the owner could not go to the other owner's hosts."""
    bench.step(e.AddSite(0, "there", "bob", "local"))
    bench.pilot(site="there")
    bench.submit(shape(40, retries=99, expect=60_000))
    only = pilot_on(bench, "only")
    assert all(run_task(bench, only, "failed", wall=10) for _ in range(20))
    pilot_on(bench, "other")
    while run_task(bench, only, "failed", wall=10):
        assert column(bench, "failures", "only") < 99, "with another host of its owner it is in doubt"


def test_a_black_hole_is_quarantined_and_explain_names_it(bench: Bench) -> None:
    bad = quarantined_pilot(bench)
    assert column(bench, "failures", "bad") <= 8
    bench.exchange(bad, want=1, wait=10_000)
    for pilot in [p for p in bench.core.state.pilots if p != bad]:
        bench.exchange(pilot, bye="stopped")
    says = bench.explain(1)
    assert "host bad.example is quarantined: its last" in says and "it is given nothing for 10 min" in says
    assert bench.core.state.sites["here"].history[-1][2].startswith("bad.example: quarantined")


def test_quarantined_host_is_released_on_probation_and_cleared_by_one_success(bench: Bench) -> None:
    bad = quarantined_pilot(bench)
    bench.exchange(bad, want=9, wait=20_000)
    bench.wait(QUARANTINE)
    assert column(bench, "standing", "bad") == PROBATION
    bench.exchange(bad, held=[])
    held = granted(bench.exchange(bad, want=9))
    assert len(held) == 1 and granted(bench.exchange(bad, want=9)) == []  # one task at a time
    bench.report(bad, held[0][0], wall=60_000)
    assert column(bench, "standing", "bad") == FINE and not bench.core.state.quarantined
    assert bench.core.state.sites["here"].history[-1][2] == "bad.example: it works again"


def test_failure_on_probation_doubles_the_quarantine(bench: Bench) -> None:
    bad = quarantined_pilot(bench)
    bench.wait(QUARANTINE)
    for pilot in bench.core.state.pilots:
        bench.exchange(pilot, held=[])
    assert run_task(bench, bad, "failed", wall=10)
    assert column(bench, "standing", "bad") == HELD_BACK and column(bench, "times", "bad") == 2
    assert column(bench, "until", "bad") == bench.now + 2 * QUARANTINE


def test_unstarted_tasks_of_a_quarantined_host_are_recalled(bench: Bench) -> None:
    bench.submit(shape(1_000, retries=100))
    for number in range(60):
        run_task(bench, pilot_on(bench, f"good{number}"))
    bad = pilot_on(bench, "bad", cores=4)
    for _ in range(9):
        held = [attempt for attempt, _ in granted(bench.exchange(bad, want=8))]
        bench.exchange(bad, reports=[e.Report(held[0], "failed", "exit", wall=10)])
        if recalled := bench.exchange(bad).recall:
            assert set(held[1:]) <= set(recalled)
            return
        bench.exchange(bad, reports=[e.Report(attempt, "returned", "stop") for attempt in held[1:]])
    pytest.fail("nothing was recalled")


def test_quarantine_survives_a_restart(bench: Bench) -> None:
    bad = quarantined_pilot(bench)
    for snapshot in (None, bench.snapshot()):
        bench.restart(snapshot)
        bench.exchange(bad, held=[])
        assert granted(bench.exchange(bad, want=1)) == []
    bench.wait(QUARANTINE)
    assert column(bench, "standing", "bad") == PROBATION


def test_sole_host_is_never_quarantined(bench: Bench) -> None:
    bench.submit(shape(100, retries=1))
    pilot = pilot_on(bench, "only")
    for _ in range(60):
        assert run_task(bench, pilot, "failed", wall=10)


def test_hosts_seen_last_are_remembered_up_to_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_table, "MOST_HOSTS", 32)
    bench.submit(shape(1_000, expect=60_000))
    for number in range(100):
        pilot = pilot_on(bench, f"h{number}")
        run_task(bench, pilot)
        bench.exchange(pilot, bye="stopped")
        bench.wait(2 * 86_400_000 if number % 10 == 9 else 1_000)  # forgets hosts that left
    assert len(bench.core.state.host_rows) <= 40 and ("here", "h99") in bench.core.state.host_rows
    assert ("here", "h0") not in bench.core.state.host_rows
    bench.restart(bench.snapshot())


# --- guests ---------------------------------------------------------------------------------------------------------


def lend_host(bench: Bench) -> tuple[int, int]:
    """Lend the site to bob, whose tasks fail on host `lent` and succeed elsewhere; return its pilot and his bag."""
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    his = bench.submit(shape(1_000, expect=60_000, retries=100), owner="bob")
    for number in range(8):
        run_task(bench, pilot_on(bench, f"good{number}"))
    host = pilot_on(bench, "lent")
    for _ in range(20):
        if not run_task(bench, host, "failed", wall=10):
            break
    return host, his


def test_failures_of_a_guests_tasks_quarantine_no_host_for_its_owner(bench: Bench) -> None:
    host, his = lend_host(bench)
    assert bench.exchange(host, want=1, wait=20_000) is None, "none of his, for a while"
    assert not bench.core.state.quarantined and column(bench, "standing", "lent") == FINE
    bench.submit(shape(1))
    assert bench.core.state.pilots[host].attempts_held == 1, "the owner's own go there as before"
    for number in [number for number in bench.core.state.pilots if number != host]:
        bench.exchange(number, bye="stopped")
    assert "your last tasks on host lent.example failed" in str(explain(bench.core.state, bench.now, his))


def test_guest_is_granted_tasks_there_again_after_the_quarantine(bench: Bench) -> None:
    lend_host(bench)
    bench.wait(QUARANTINE - 1)
    assert not run_task(bench, pilot_on(bench, "lent")) and bench.core.state.guests_refused
    bench.wait(1)
    assert run_task(bench, pilot_on(bench, "lent")) and not bench.core.state.guests_refused


def test_host_that_fails_tasks_of_its_owner_too_is_quarantined(bench: Bench) -> None:
    """A host that fails the tasks of its owner, too, is a black hole."""
    host, _ = lend_host(bench)
    bench.submit(shape(1_000, expect=60_000, retries=100, priority=9))
    for number in range(8):
        run_task(bench, pilot_on(bench, f"more{number}"))
    for _ in range(40):
        if column(bench, "standing", "lent") != FINE:
            break
        run_task(bench, host, "failed", wall=10)
        bench.wait(10_000)
    assert column(bench, "standing", "lent") == HELD_BACK


def test_pilots_are_indexed_by_host(bench: Bench) -> None:
    one, two, other = pilot_on(bench, "h1"), pilot_on(bench, "h1"), pilot_on(bench, "h2")
    state = bench.core.state
    rows = [state.pilots[number].row for number in (one, other)]
    assert [list(state.on_host[row]) for row in rows] == [[one, two], [other]]
    bench.exchange(two, bye="stopped")
    bench.wait(86_400_001)
    bench.restart(bench.snapshot())
    state = bench.core.state
    assert two not in state.pilots and {row: list(of) for row, of in state.on_host.items()} == {
        row: [p.number for p in state.pilots.values() if p.row == row] for row in state.on_host}


# --- hosts that are forgotten ---------------------------------------------------------------------------------------


def test_same_hosts_are_forgotten_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_table, "MOST_HOSTS", 16)
    b = Bench(lease=HOUR, silence=10 * HOUR, forget=1_000)
    b.submit(shape(400, retries=0))
    others = b.pilot(host="others")
    b.report(others, b.take(others, 1)[0][0], wall=HOUR)
    doubted = b.pilot(host="doubted")
    for _ in range(6):
        b.wait(700_000)
        if got := b.take(doubted, 1):
            b.report(doubted, got[0][0], "failed", "exit", wall=1)
    b.exchange(doubted, bye="idle")
    b.wait(10_000)
    for n in range(20):
        pilot = b.pilot(host=f"h{n}")
        b.report(pilot, b.take(pilot, 1)[0][0], wall=1_000)
        b.exchange(pilot, bye="idle")
        b.wait(10_000)
    b.restart()  # compares fingerprints


def test_forgotten_host_leaves_no_strikes_to_the_next_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_table, "MOST_HOSTS", 16)
    b = Bench(lease=HOUR, silence=10 * HOUR, forget=1_000)
    b.submit(shape(400, retries=0))
    others, bad = b.pilot(host="others"), b.pilot(host="bad")
    b.report(others, b.take(others, 1)[0][0], wall=HOUR)
    for _ in range(4):
        b.report(bad, b.take(bad, 1)[0][0], "failed", "exit", wall=1)
    row = b.core.state.pilots[bad].row
    b.exchange(bad, bye="idle")
    b.wait(10_000)
    for n in range(30):
        pilot = b.pilot(host=f"h{n}")
        if b.core.state.pilots[pilot].row == row:
            b.report(pilot, b.take(pilot, 1)[0][0], "failed", "exit", wall=1)
            assert row not in b.core.state.quarantined, "at its first failure"
            return
        b.report(pilot, b.take(pilot, 1)[0][0], wall=1_000)
        b.exchange(pilot, bye="idle")
        b.wait(10_000)
    pytest.fail("the row was never used again")


def test_strikes_are_forgotten_with_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_table, "MOST_HOSTS", 16)
    b = Bench(lease=HOUR, silence=10 * HOUR, forget=1_000)
    b.submit(shape(400, retries=0))
    for n in range(100):
        pilot = b.pilot(host=f"h{n}")
        b.report(pilot, b.take(pilot, 1)[0][0], "failed", "exit", wall=1)
        b.exchange(pilot, bye="idle")
        b.wait(10_000)
    assert len(b.core.turn.hosts.strikes) <= 33


def test_doubt_about_a_quarantined_host_leaves_its_verdict_as_it_is(bench: Bench) -> None:
    bench.submit(shape(1_000, expect=60_000, retries=100))
    for number in range(8):
        run_task(bench, pilot_on(bench, f"good{number}"))
    bad = bench.pilot(nonce="bad", host="bad", host_name="bad.example", cores=40)
    held = [attempt for _ in range(40) for attempt, _ in bench.take(bad, want=1)]
    reasons: list[str] = []
    doubts = 0
    for attempt in held:
        bench.report(bad, attempt, "failed", "exit", wall=10)
        reasons += bench.core.state.host_reasons.values()
        doubts += bool(reasons and bench.core.state.host_doubts)
    assert doubts and all(reason.startswith("quarantined") for reason in reasons)
