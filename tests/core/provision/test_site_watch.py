"""The watchdog over sites: suspects, blackouts, history, and how long pilots wait."""

from __future__ import annotations

from typing import Any

from tests.core.conftest import HOUR, Bench, shape
from tests.core.provision.tender import LANDING, ONE, Tender, bag, site, states
from windfall.core.messages import events as e, facts as f
from windfall.core.read.views import site_detail, site_view

SUSPECT, BLACKOUT = 180_000, 900_000
TWO = f.Shape(2, 4 << 30, 0, 1 << 40, HOUR)


def history(bench: Bench, name: str = "c1") -> list[str]:
    return [kind for _, kind, _ in bench.core.state.sites[name].history]


def settled_tender(bench: Bench, name: str = "c1") -> Tender:
    """Return a tender whose listing the core has seen and which has carried out its orders."""
    tender = Tender(bench, name, f"t-{name}")
    bench.wait(LANDING)
    tender.tell()
    tender.list()
    tender.work()
    return tender


def test_silent_site_is_suspect_and_keeps_its_pilots(bench: Bench) -> None:
    site(bench, pilots=9)
    number = bag(bench, shape(3, expect=HOUR))
    tender = settled_tender(bench)
    pilot = tender.begin("intent-1")
    bench.take(pilot, left=HOUR)
    for _ in range(8):
        bench.wait(30_000)
        bench.exchange(pilot)  # pilots live by their own leases
    assert history(bench) == ["suspect"] and states(bench) == "rqq"
    assert site_view(bench.core.state, bench.core.state.sites["c1"])["suspect"]
    bench.append(number, 0)
    bench.submit(shape(5))
    bench.wait(2_000)
    assert states(bench) == "rqq"  # no more pilots are sent there


def test_explain_says_how_long_a_site_has_not_answered(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2))
    settled_tender(bench)
    bench.wait(4 * SUSPECT)
    assert "c1: answers (no message from its provisioner for 12 min" in bench.explain(number)


def test_new_listing_clears_a_suspect_site(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = settled_tender(bench)
    before = tender.now
    bench.wait(2 * SUSPECT)
    assert history(bench) == ["suspect"]
    bench.submit(shape(3))
    orders = tender.tell()
    assert orders.look and not orders.start
    tender.tell(listed=[], began=before - 1)
    assert history(bench) == ["suspect"]
    bench.wait(1_000)
    tender.list()
    assert history(bench) == ["suspect", "answers"]
    bench.wait(1_000)
    assert "i" in states(bench)


def test_site_whose_tender_never_lists_is_suspect(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = settled_tender(bench)
    for _ in range(12):
        bench.wait(30_000)
        tender.tell()  # the core asks for a listing, which never comes
    assert history(bench) == ["suspect"]
    assert "no listing from the batch system of c1" in bench.core.state.sites["c1"].history[0][2]


def test_demand_of_a_suspect_site_goes_to_another(bench: Bench) -> None:
    """Policy `demand` sends a slot per task to one site only; the pilots at the suspect site are kept."""
    site(bench, pilots=4)
    bag(bench, shape(4), provision="demand")
    settled_tender(bench)
    site(bench, "c2")
    tender = Tender(bench, "c2", "t2")
    assert (states(bench), states(bench, "c2")) == ("qqqq", "")
    for _ in range(8):
        bench.wait(30_000)
        tender.work()
        tender.list()
    assert history(bench) == ["suspect"] and (states(bench), states(bench, "c2")) == ("qqqq", "qqqq")


def test_broker_sends_no_pilot_to_a_suspect_site(bench: Bench) -> None:
    site(bench)
    settled_tender(bench)
    site(bench, "c2")
    tender = settled_tender(bench, "c2")
    bag(bench, shape(1))
    for _ in range(8):
        bench.wait(30_000)
        tender.work()
        tender.list()
    assert history(bench) == ["suspect"]
    bag(bench, shape(1), provision="broker")
    assert [i.site for i in bench.core.state.intents.values() if i.task >= 0] == ["c2"]


def test_site_without_demand_is_never_suspect(bench: Bench) -> None:
    site(bench)
    settled_tender(bench)
    bench.wait(3 * SUSPECT)
    assert history(bench) == []


def test_after_a_blackout_sites_that_answer_are_tried_again_with_one_pilot_each(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(5))
    tender = Tender(bench)
    bench.wait(LANDING)
    while bench.core.state.sites["c1"].session.backoff < 600_000:  # the site refuses every pilot
        orders = tender.tell(refused=[(nonce, "no") for nonce, _ in (tender.orders.start if tender.orders else ())])
        if orders.look:
            tender.list()
        bench.wait(20_000)
    bench.core.turn.provision.last_active = bench.now  # as if a pilot had been there
    poll(bench, tender, BLACKOUT + SUSPECT)
    assert "blackout" in history(bench)
    assert len(bench.core.state.intents) == 1
    pilot = bench.pilot(nonce=next(iter(bench.core.state.intents.values())).nonce, site="c1", left=HOUR)
    bench.take(pilot, left=HOUR)
    bench.exchange(pilot, want=1, wait=0)
    bench.wait(2_000)
    assert len(bench.core.state.intents) > 1


def poll(bench: Bench, tender: Tender, ms: int) -> None:
    """Let the tender carry out its orders and list its jobs for so long; no pilot enrols."""
    for _ in range(ms // 20_000):
        more: dict[str, Any] = {"listed": [e.ListedJob(n, i, r) for n, (i, r) in tender.jobs.items()],
                                "began": tender.now} if tender.orders and tender.orders.look else {}
        tender.work(**more)
        bench.wait(20_000)


def test_history_of_a_site_is_bounded_and_survives_a_restart(bench: Bench) -> None:
    site(bench)
    for number in range(130):
        bench.core.turn.emit(f.SiteNoted(bench.now, "c1", "test", f"line {number}"))
    bench.step()
    kept = bench.core.state.sites["c1"].history
    assert len(kept) == 100 and kept[-1] == (bench.now, "test", "line 129")
    bench.core.turn.emit(f.SiteJudged(bench.now, "c1", bench.now - 5, "gone"))
    position, meta, chunks = bench.snapshot()
    core = type(bench.core)(bench.config)
    core.restore(meta, chunks)
    assert core.state.sites["c1"].history == bench.core.state.sites["c1"].history
    assert core.state.sites["c1"].suspect_since == bench.now - 5


def test_waits_and_start_up_costs_are_measured_by_shape(bench: Bench) -> None:
    site(bench, shapes=[ONE, TWO])
    bag(bench, shape(1), shape(1, cores=2))
    tender = settled_tender(bench)
    one, two = (next(i for i in bench.core.state.intents.values() if i.shape.cores == n) for n in (1, 2))
    bench.wait(90_000)
    tender.jobs[one.nonce] = (one.batch_id, True)
    tender.tell()
    tender.list()
    bench.wait(7_000)
    tender.begin(one.nonce)  # 7 s after its batch system said that it runs
    bench.wait(60_000)
    tender.begin(two.nonce)
    waits = site_detail(bench.core.state, bench.core.state.sites["c1"])["waits"]
    said = {each["shape"]["cores"]: each for each in waits}
    assert said[1]["wait"] == 90_000 + LANDING and said[1]["start"] == said[1]["start_recent"] == 7_000
    assert said[2]["wait"] == 157_000 + LANDING and said[2]["start"] is None
    bench.restart(bench.snapshot())
    assert bench.core.state.sites["c1"].waits[ONE].count == 1


# --- what pilots leave behind ---------------------------------------------------------------------------------------


def test_the_wall_time_of_a_pilot_that_has_left_is_known_after_a_restart(bench: Bench) -> None:
    site(bench, budget=5 * HOUR)
    bag(bench, shape(1, expect=HOUR))
    tender = settled_tender(bench)
    pilot = tender.begin("intent-1")
    (attempt, _), = bench.take(pilot, left=HOUR)
    bench.report(pilot, attempt)
    bench.exchange(pilot, bye="idle")
    assert states(bench) == "l"
    bench.restart()
    bench.wait(HOUR + 66_000)
    assert states(bench) == "", "nobody tends the site, and no batch system lets it run on"
