"""A workflow in Python: needs a server, `windfall serve --pilot`."""

from windfall import Client
from windfall.workflow.build.compose import Workflow, component, data, par, seq


@component
def half(x: float) -> float:
    return x / 2


@component
def total(parts: dict[int, float]) -> float:
    return sum(parts.values())


part, result = data("part"), data("result")
flow = Workflow("halves", seq(par(half(float(i)).to(part[i]) for i in range(8)), total(part).to(result)))
with Client() as client:
    bag = flow.submit(client)
    client.wait(bag)
    flow.fetch(client, bag, "halves.results")
