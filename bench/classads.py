"""How much do policies that are expressions cost?

`bench/classads.py` measures reading an expression, evaluating it with and without its cache of results, and whole
requests for one task (a report in, a grant out, in the core, without network and disk) while 0 to 1,000 bags of one
owner have expressions: steady ones, of hosts only, and moving ones, of attributes that change with every request.  The
core publishes the record of a host once a minute; "first" is a host's first request after that.
"""

from __future__ import annotations

import statistics
import time

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.core.decide.grant.host_orders import MINUTE
from windfall.core.expressions.classads import Program, program
from windfall.core.messages import events as e
from windfall.core.step import Core
from windfall.model.policies.expressions import parse
from windfall.sim.world import target_shape

STEADY = {"requirements": 'Host.Memory >= 1000 && (Host.ErrorRate is undefined || Host.ErrorRate < 0.1) && '
                          'regexp("^node", Host.Name)', "rank": "{n} - Host.Attempts / 1000.0"}
MOVING = {"requirements": '!Tail ? true : regexp("^node", Host.Name) && Host.ErrorRate < 0.1',
          "rank": "{n} + Bag.JobsLeft"}


def each(what: str, repeat: int, function: object) -> None:
    began = time.process_time()
    for _ in range(repeat):
        function()  # type: ignore[operator]
    print(f"{what:<58} {(time.process_time() - began) / repeat * 1e6:8.2f} µs")


class World:
    def __init__(self, bags: int, policy: dict[str, str], tasks: int, hosts: int) -> None:
        self.core, self.now, self.seq = Core(), 1_000_000, 0
        self.do(e.AddSite(1, "here", "ann", "local"))
        for n in range(bags):
            shape = target_shape("main", tasks, expect=60_000, grace=1_000)
            own = {key: text.format(n=n) for key, text in policy.items()}
            self.do(e.Submit(1, owner="ann", name=f"bag {n}", idempotency="", spec=b"", targets=[shape], external=False,
                             select="fcfs", open=False, policy=own))
        self.pilots = []
        for n in range(hosts):
            enrol = e.Enrol(1, site="here", nonce=f"n{n}", host=f"h{n}", host_name=f"node{n}", cores=1, memory=4 << 30,
                            gpus=0, disk=1 << 40, left=None, token=b"t%d" % n)
            self.pilots.append(self.do(enrol)[0].pilot)  # type: ignore[attr-defined]
        self.held = {pilot: self.ask(pilot, 0) for pilot in self.pilots}

    def do(self, event: e.Event) -> list[object]:
        return list(self.core.step(self.now, [event]).effects)

    def ask(self, pilot: int, attempt: int) -> int:
        self.seq += 1
        reports = [e.Report(attempt, wall=60_000)] if attempt else []
        granted = self.core.state.pilots[pilot].granted
        answer = self.do(e.Exchange(1, pilot, 1, self.seq, granted, want=1, reports=reports))[0]
        return answer.grants[-1][1][0].attempts[0]  # type: ignore[attr-defined,no-any-return]

    def round(self) -> list[float]:
        """Make one request for every host; return the µs that each took."""
        taken = []
        for pilot in self.pilots:
            began = time.process_time()
            self.held[pilot] = self.ask(pilot, self.held[pilot])
            taken.append((time.process_time() - began) * 1e6)
        return taken


def requests(
    what: str, bags: int, policy: dict[str, str], tasks: int = 20_000, hosts: int = 50, rounds: int = 20
) -> None:
    world = World(bags, policy, tasks, hosts)
    first, later = [], []
    for _ in range(3):
        world.now += MINUTE
        first += world.round()
        for _ in range(rounds):
            world.now += 10
            later += world.round()
    print(f"{what:<42} {bags:>5} bags: {statistics.median(later):8.1f} µs, first {statistics.median(first):8.1f} µs; "
          f"{1e6 / statistics.fmean(later):7,.0f}/s")


def main() -> None:
    text = STEADY["requirements"]
    values = (4294, None, "node1")
    known, slow = program(text), Program(parse(text))
    each("reading and checking an expression", 2_000, lambda: parse.__wrapped__(text))
    each("compiling it", 2_000, lambda: Program(known.expression))
    each("evaluating it", 20_000, lambda: slow._evaluate(values))
    each("evaluating it again with the same values", 200_000, lambda: known.result(values))
    requests("no expressions", 1, {})
    requests("no expressions", 50, {})
    requests("no expressions, 2 million tasks queued", 1, {}, 2_000_000)
    for bags in (1, 50, 1_000):
        requests("steady expressions", bags, STEADY, rounds=20 if bags < 1_000 else 4)
        requests("moving expressions", bags, MOVING, rounds=20 if bags < 1_000 else 4)
    requests("steady expressions, 2,000 tasks queued", 1, STEADY, 4_000)
    requests("steady expressions, 2 million tasks queued", 1, STEADY, 2_000_000)


if __name__ == "__main__":
    main()
