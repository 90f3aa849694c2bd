"""The dialects by name, and the functions of each.  Dialects are modules of pure functions, without state."""

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
        """Return the script that a job runs."""
    def submitted(self, answer: Answer) -> str:
        """Return the job's id.  Raise SiteRefused if the job was refused, SiteUnreachable if only a listing can
        tell."""
    def names(self, job: Job, id: str) -> list[str]:
        """Return the ids under which `listed` will report the pilots of a submission, one for each nonce."""
    def listing(self, user: str) -> Command:
        """Return the one command that lists all jobs of the user."""
    def listed(self, answer: Answer) -> list[Listed]: ...
    def cancel(self, ids: Iterable[str]) -> list[Command]:
        """Return the commands, as few as possible, that cancel jobs by the ids from `listed`."""
    def cancelled(self, answer: Answer) -> None:
        """Raise if a cancellation failed; jobs that have already ended are no failure."""
    def balance(self, user: str, account: str) -> Command | None:
        """Return the command that asks for the account's balance; None if the batch system keeps none."""
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
        raise BadInput(f"there is no dialect {name!r}",
                       f"did you mean {near[0]}?" if near else "choose one of " + ", ".join(DIALECTS))
    return DIALECTS[name]
