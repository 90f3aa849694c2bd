"""The agenda, which is pure: leases, grants, reports, seats.  No process, no clock."""

import json

from hypothesis import given, settings, strategies as st

from windfall.pilot.agenda.agenda import COALESCE_MOST, COALESCE_MS, HELD_PER_CORE, Agenda
from windfall.pilot.agenda.seats import Seats
from windfall.wire.messages import EXCHANGE, MAX_HELD, MAX_REPORTS, check

LEASE, IDLE = 60000, 120000


def agenda(cores=1, **kwargs):
    made = Agenda(cores, **kwargs)
    made.enrolled(0, {"v": 1, "pilot": 1, "epoch": 1, "token": "", "lease": LEASE, "idle": IDLE})
    return made


def grant(number, *attempts, **spec):
    return {"n": number, "groups": [{"spec": dict(spec, bag=1), "tasks": [[a, ["true"]] for a in attempts]}]}


def answer(request, **fields):
    return dict(fields, v=1, epoch=request["epoch"], seq=request["seq"])


def give(made, now, *grants, **fields):
    request = made.next_request(now)
    assert made.answer_received(now, answer(request, grants=list(grants), **fields))
    return request


def runs(made, now):
    return [order[1].attempt for order in made.orders(now) if order[0] == "run"]


def test_first_request_asks_and_parks():
    request = agenda(2).next_request(0)
    assert not check(EXCHANGE, request)
    assert request["want"] == 2 * HELD_PER_CORE and request["wait"] > 0 and request["ack"] == 0


def test_agenda_parks_only_one_request():
    made = agenda()
    assert made.next_request(0) and made.next_request(1) is None


def test_report_leaves_at_once_when_nothing_is_queued():
    made = agenda()
    give(made, 0, grant(1, 7))
    assert runs(made, 0) == [7]
    made.next_request(1)                                    # parked
    made.task_ended(50, 7, {"a": 7, "exit": 0})
    request = made.next_request(50)
    assert request["reports"] == [{"a": 7, "exit": 0}] and "wait" not in request


def test_report_waits_for_others_while_tasks_are_queued():
    made = agenda()
    give(made, 0, grant(1, *range(300)))
    assert runs(made, 0) == [0]
    made.task_ended(10, 0, {"a": 0, "wall": 1})
    made.orders(10)
    assert made.next_request(10) is None and made.due(10) == 10 + COALESCE_MS
    assert len(made.next_request(10 + COALESCE_MS)["reports"]) == 1


def test_many_reports_leave_together_without_delay():
    made = agenda()
    give(made, 0, grant(1, *range(250)))
    for attempt in range(COALESCE_MOST):
        runs(made, 1)
        made.task_ended(1, attempt, {"a": attempt, "wall": 1})
    assert len(made.next_request(1)["reports"]) == COALESCE_MOST


def test_reports_are_kept_until_answered():
    made = agenda()
    give(made, 0, grant(1, 7))
    runs(made, 0)
    made.task_ended(5, 7, {"a": 7})
    request = made.next_request(5)
    assert made.undelivered() == {7: {"a": 7}}
    made.request_failed(6, request["seq"])
    assert made.next_request(6 + 60)["reports"] == [{"a": 7}]
    made.answer_received(70, answer({"epoch": 1, "seq": made.seq}))
    assert made.undelivered() == {}


def test_grants_are_taken_once_and_acknowledged():
    made = agenda()
    give(made, 0, grant(1, 1, 2))
    give(made, 0, grant(1, 1, 2), grant(2, 3))
    assert list(made.queue) == [1, 2, 3] and made.ack == 2


def test_missing_grant_is_not_acknowledged():
    made = agenda()
    give(made, 0, grant(1, 1))
    give(made, 0, grant(3, 3))
    assert made.ack == 1 and list(made.queue) == [1, 3]
    give(made, 0, grant(2, 2), grant(3, 3))
    assert made.ack == 3 and sorted(made.queue) == [1, 2, 3]


def test_late_answer_is_ignored():
    made = agenda()
    request = made.next_request(0)
    made.request_failed(1, request["seq"])
    assert not made.answer_received(2, answer(request, grants=[grant(1, 1)]))
    assert not made.queue


def test_lease_counts_from_when_the_request_was_sent():
    made = agenda()
    request = made.next_request(1000)
    made.answer_received(31000, answer(request, grants=[grant(1, 1, 2)]))
    assert made.lease_end == 1000 + LEASE
    assert runs(made, 31000) == [1]
    made.task_ended(61500, 1, {"a": 1})
    assert runs(made, 61500) == [] and made.lease_out(61500)
    request = made.next_request(61500)
    made.answer_received(61600, answer(request))
    assert runs(made, 61600) == [2]


def test_held_after_failure_lists_everything():
    made = agenda()
    give(made, 0, grant(1, 1, 2, 3))
    runs(made, 0)
    request = made.next_request(1)
    made.request_failed(2, request["seq"])
    made.task_ended(3, 1, {"a": 1})
    assert made.next_request(100)["held"] == [2, 3]


def test_backoff_grows_and_honours_retry_after():
    made = agenda()
    now, gaps = 0, []
    for _ in range(12):
        request = made.next_request(now)
        assert request
        made.request_failed(now, request["seq"])
        gaps.append(made.due(now) - now)
        now = made.due(now)
    assert gaps[0] <= 50 and sorted(gaps) == gaps and gaps[-1] <= 30000
    request = made.next_request(now)
    made.request_failed(now, request["seq"], retry_after=100)
    assert made.due(now) >= now + 100000


def test_pilot_waits_when_the_answer_says_again():
    made = agenda()
    give(made, 0, again=700)
    assert made.next_request(699) is None and made.due(0) == 700 and made.next_request(700)


def test_pilots_spread_their_return_after_losing_the_server():
    made = agenda(jitter=lambda: 0.25)
    give(made, 0, spread=10000)
    made.request_failed(1000, made.next_request(1000)["seq"])
    assert made.due(1000) == 3500
    made.request_failed(3500, made.next_request(3500)["seq"])
    assert made.due(3500) < 3500 + 1000                      # from here on the back-off, which grows
    give(made, 9000)
    made.request_failed(20000, made.next_request(20000)["seq"], lost=False)
    assert made.due(20000) <= 20050                          # it answered: it is not lost


def test_specs_are_forgotten_but_their_tasks_are_not():
    made = agenda(4)
    give(made, 0, {"n": 1, "groups": [{"spec": {"bag": n}, "tasks": [[n, ["true"]]]} for n in range(1, 1001)]})
    assert len(made.specs) == 256 and len(made.queue) == 1000
    assert len({task.spec.key for task in made.queue.values()}) == 1000
    assert made.queue[1].spec.fields == {"bag": 1}


def test_polls_slow_down_when_answers_bring_no_task():
    made = agenda()
    now = 0
    for count in range(100):
        request = made.next_request(now)
        if request:
            made.answer_received(now, answer(request))
        now = max(now + 1, made.due(now))
        if now > 10000:
            break
    assert count < 20


def test_tasks_start_in_strict_order_with_mixed_needs():
    made = agenda(2)
    give(made, 0, grant(1, 1), grant(2, 2, cores=2), grant(3, 3))
    assert runs(made, 0) == [1]                              # 2 does not fit yet, 3 may not pass it
    made.task_ended(1, 1, {"a": 1})
    assert runs(made, 1) == [2]
    made.task_ended(2, 2, {"a": 2})
    assert runs(made, 2) == [3]


def test_short_tasks_are_staged_and_long_ones_are_not():
    made = agenda(1)
    give(made, 0, grant(1, *range(200)))
    assert len(runs(made, 0)) == 1
    made.task_ended(1, 0, {"a": 0, "wall": 1})
    assert len(runs(made, 1)) > 20
    slow = agenda(1)
    give(slow, 0, grant(1, *range(200)))
    runs(slow, 0)
    slow.task_ended(5000, 0, {"a": 0, "wall": 5000})
    assert len(runs(slow, 5000)) == 1


def test_task_longer_than_the_wall_time_left_is_returned():
    made = agenda(1, end=10000)
    give(made, 0, grant(1, 1, time=20000), grant(2, 2, time=5000))
    assert runs(made, 0) == [2]
    assert made.reports[1]["why"] == "stop" and made.placed[2].start_before == 5000


def test_checkpointing_task_starts_when_its_least_time_is_left():
    made = agenda(2, end=10000)
    give(made, 0, grant(1, 1, time=20000, need=4000, checkpoint=["state"]),
         grant(2, 2, time=20000, need=6000, checkpoint=["s"]),
         grant(3, 3, time=20000, need=12000, checkpoint=["state"]))
    assert [order[0] for order in made.orders(0)] == ["fetch"] * 3
    for attempt in (1, 2, 3):
        made.fetched(0, attempt)
    assert runs(made, 0) == [1, 2]
    assert made.placed[1].start_before == 6000 and made.placed[2].start_before == 4000
    made.task_ended(1, 1, {"a": 1})
    runs(made, 1)
    assert made.reports[3]["why"] == "stop"


def test_checkpointing_task_is_ended_before_the_wall_time():
    made = agenda(3, end=10000)
    tasks = [[1, ["true"]], [2, ["true"], {"checkpoint": ["state"]}], [3, ["true"], {"checkpoint": ["state"]}]]
    give(made, 0, {"n": 1, "groups": [{"spec": {"bag": 1, "grace": 3000}, "tasks": tasks}]})
    made.orders(0)
    made.fetched(0, 2)
    made.fetched(0, 3)
    assert runs(made, 0) == [2, 3] and 1 in made.placed
    made.task_ended(1, 3, {"a": 3})
    made.next_request(1)
    assert made.orders(6999) == [] and made.due(6999) <= 7000
    assert made.orders(7000) == [("kill", 2, "stop")] and made.orders(7001) == []
    assert 2 in made.placed and made.checkpoint_at is None


def test_agenda_tracks_only_tasks_with_checkpoints():
    made = agenda(3, end=10000)
    give(made, 0, grant(1, 1), grant(2, 2, grace=3000, checkpoint=["s"]), grant(3, 3, grace=1000, checkpoint=["s"]))
    made.orders(0)
    made.fetched(0, 2)
    made.fetched(0, 3)
    runs(made, 0)
    assert list(made.placed) == [1, 2, 3] and list(made.checkpointing) == [2, 3] and made.checkpoint_at == 7000
    made.task_ended(1, 2, {"a": 2})
    assert made.orders(7000) == [] and made.checkpoint_at == 9000
    assert made.orders(9000) == [("kill", 3, "stop")]
    made.task_ended(9001, 3, {"a": 3})
    made.task_ended(9002, 1, {"a": 1})
    assert made.checkpoint_at is None and not made.checkpointing


def test_whole_node_task_takes_the_whole_pilot():
    made = agenda(4, memory=1000, gpus=("0", "1"))
    give(made, 0, grant(1, 1, cores=1), grant(2, 2, 3, whole=True), grant(3, 4, whole=True, cores=5))
    assert runs(made, 0) == [1]
    made.task_ended(1, 1, {"a": 1})
    assert runs(made, 1) == [2] and made.placed[2].gpus == ["0", "1"]
    assert made.seats.free_cores == made.seats.free_memory == 0 and not made.seats.problem()
    made.task_ended(2, 2, {"a": 2})
    assert runs(made, 2) == [3]
    made.task_ended(3, 3, {"a": 3})
    assert runs(made, 3) == [] and made.reports[4]["why"] == "refused"


def test_recall_cancel_and_stop_return_or_kill_tasks():
    made = agenda(1)
    give(made, 0, grant(1, 1, 2, 3, 4))
    runs(made, 0)
    give(made, 1, recall=[1, 2], cancel=[1, 3])
    assert made.reports[2]["why"] == "recall" and made.reports[3]["o"] == "cancelled"
    assert ("kill", 1, "cancel") in made.orders(1)
    made.stop(2)
    assert made.reports[4] == {"a": 4, "o": "returned", "why": "stop"} and ("kill", 1, "stop") in made.orders(2)
    made.task_ended(3, 1, {"a": 1, "o": "cancelled"})
    request = made.next_request(3)
    assert request["bye"] == "stopped" and len(request["reports"]) == 4
    made.answer_received(4, answer(request))
    assert made.departed and made.next_request(5) is None


def test_idle_pilot_says_goodbye():
    made = agenda(1)
    request = made.next_request(0)
    made.answer_received(30000, answer(request))
    assert made.next_request(IDLE - 1)["wait"] == 1
    assert made.due(IDLE) == IDLE and made.next_request(IDLE)["bye"] == "idle"


def test_new_epoch_keeps_what_is_held():
    made = agenda(1)
    give(made, 0, grant(1, 1, 2))
    runs(made, 0)
    made.enrolled(10, {"v": 1, "pilot": 1, "epoch": 2, "token": "", "lease": LEASE, "idle": IDLE})
    request = made.next_request(10)
    assert request["epoch"] == 2 and request["held"] == [1, 2] and request["ack"] == 0


def test_pilot_of_many_cores_holds_no_more_than_it_can_list():
    made = agenda(4_000)
    assert made.next_request(0)["want"] == MAX_HELD


def test_message_is_bounded():
    made = agenda(1)
    for attempt in range(5000):
        made._queue_report(0, {"a": attempt})
    assert len(made.next_request(0)["reports"]) == MAX_REPORTS
    made = agenda(1)
    for attempt in range(100):
        made._queue_report(0, {"a": attempt, "out": "x" * (1 << 20)})
    request = made.next_request(0)
    assert len(json.dumps(request)) < 16 << 20 and len(made.reports) + len(request["reports"]) == 100


class World:
    """A server, a network that loses and repeats messages, and spawners that run their tasks in order."""

    def __init__(self, cores, stations, needs):
        self.agenda = agenda(cores, stations=stations, memory=100, gpus=["0", "1"])
        self.now, self.number = 0, 0
        self.needs = needs
        self.ungranted = list(range(1, len(needs) + 1))
        self.grants, self.line, self.results = {}, [], {}
        self.waiting = [[] for _ in range(stations)]
        self.width = [0] * stations
        self.runs = [[] for _ in range(stations)]
        self.begun = []
        self.ended_at_server = {}

    def server(self, request):
        for report in request.get("reports", ()):
            self.ended_at_server.setdefault(report["a"], report)
        for number in [n for n in self.grants if n <= request["ack"]]:
            del self.grants[number]
        if request.get("want") and self.ungranted:
            some, self.ungranted = self.ungranted[:request["want"]][:7], self.ungranted[7:]
            self.number += 1
            groups = [{"spec": dict(self.needs[a - 1], bag=1), "tasks": [[a, ["true"]]]} for a in some]
            self.grants[self.number] = {"n": self.number, "groups": groups}
        return answer(request, grants=[self.grants[n] for n in sorted(self.grants)])

    def act(self, choice):
        self.now += choice % 40
        made = self.agenda
        request = made.next_request(self.now)
        if request:
            assert not check(EXCHANGE, request)
            self.line.append(request)
        if self.line and choice % 3:
            request = self.line.pop(choice % len(self.line))
            reply = json.loads(json.dumps(self.server(request)))
            if choice % 5 == 0:
                made.request_failed(self.now, request["seq"])
            made.answer_received(self.now, reply)
            made.answer_received(self.now, reply)
        self.obey()
        self.spawn(choice)
        assert made.seats.problem() == ""

    def obey(self):
        for order in self.agenda.orders(self.now):
            if order[0] == "run":
                task = order[1]
                self.width[task.station.index] = task.seats
                self.waiting[task.station.index].append(task)
            elif order[0] == "give_back":
                back = [t.attempt for t in self.waiting[order[1]] if t.attempt in order[2]]
                self.waiting[order[1]] = [t for t in self.waiting[order[1]] if t.attempt not in back]
                self.agenda.given_back(self.now, back)

    def spawn(self, choice):
        for index, runs_here in enumerate(self.runs):
            if runs_here and (choice + index) % 2:
                task = runs_here.pop(choice % len(runs_here))
                self.agenda.task_ended(self.now, task.attempt, {"a": task.attempt, "wall": choice % 7})
            while self.waiting[index] and len(runs_here) < self.width[index]:
                task = self.waiting[index].pop(0)
                assert task.attempt not in self.begun
                self.begun.append(task.attempt)
                runs_here.append(task)
        needs = [t.need for here in self.runs for t in here]
        seats = self.agenda.seats
        assert sum(n[0] for n in needs) <= seats.cores and sum(n[1] for n in needs) <= seats.memory
        assert sum(n[2] for n in needs) <= len(seats.gpus)


NEED = st.fixed_dictionaries({"cores": st.sampled_from([1, 1, 1, 2]), "memory": st.sampled_from([0, 0, 10, 60]),
                              "gpus": st.sampled_from([0, 0, 0, 1])})


@settings(max_examples=150, deadline=None)
@given(cores=st.integers(2, 5), stations=st.integers(1, 3), needs=st.lists(NEED, min_size=8, max_size=40),
       choices=st.lists(st.integers(0, 1000), min_size=30, max_size=120))
def test_random_runs_keep_limits_and_report_each_task_once(cores, stations, needs, choices):
    """Limits hold at every moment (P5), each attempt begins once, and all are reported once the network works."""
    world = World(cores, stations, needs)
    for choice in choices:
        world.act(choice)
    for choice in range(400):
        world.act(20 * choice + (1 if choice % 2 else 4))
        if len(world.ended_at_server) == len(needs):
            break
    assert sorted(world.ended_at_server) == sorted(world.begun) == list(range(1, len(needs) + 1))


def test_seats_prefer_the_emptier_station():
    seats = Seats(4, stations=2)
    assert [seats.open((1, 0, 0), 0)[0].index for _ in range(4)] == [0, 1, 0, 1]
    assert seats.open((1, 0, 0), 0) is None and seats.problem() == ""
