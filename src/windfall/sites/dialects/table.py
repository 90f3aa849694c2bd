"""The dialects by name, and what each of them can say.  They are modules: pure functions, no state."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Protocol

from windfall.errors import BadInput
from windfall.sites.dialects import bare, gridengine, htcondor, lsf, pbs, slurm, text, torque
from windfall.sites.dialects.job import Answer, Balance, Command, Job, Listed, Room


class Dialect(Protocol):
    REFUSALS: text.Table

    def submit(self, job: Job) -> Command: ...
    def render(self, job: Job) -> str:
        """The script that a job runs."""
    def submitted(self, answer: Answer) -> str:
        """The job's id; SiteRefused says why there is none, SiteUnreachable that only a listing can tell."""
    def names(self, job: Job, id: str) -> list[str]:
        """Of the pilots of a submission, as `listed` will call them: one for each of its nonces."""
    def listing(self, user: str) -> Command:
        """All jobs of the user in one command, however many."""
    def listed(self, answer: Answer) -> list[Listed]: ...
    def cancel(self, ids: Iterable[str]) -> list[Command]:
        """As few commands as possible; ids as `listed` gave them."""
    def cancelled(self, answer: Answer) -> None:
        """Jobs that are gone already are no error."""
    def balance(self, user: str, account: str) -> Command | None:
        """Nothing where the batch system keeps no balance."""
    def balanced(self, answer: Answer) -> list[Balance]: ...
    def room(self, queue: str) -> Command | None: ...
    def roomed(self, answer: Answer) -> Room: ...


DIALECTS: dict[str, Dialect] = {
    "slurm": slurm, "gridengine": gridengine, "htcondor": htcondor, "pbs": pbs, "torque": torque, "lsf": lsf,
    "ssh": bare, "local": bare,
}


def dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        near = get_close_matches(name, DIALECTS, 1)
        raise BadInput(f"no batch system is called {name!r}",
                       f"did you mean {near[0]}?" if near else "one of " + ", ".join(DIALECTS))
    return DIALECTS[name]
