"""Rules: a bag's expressions that say where its tasks go, ready to be evaluated.

An expression is a function of the attributes that it refers to, and these are of three kinds: *published* ones, which
stand in the host's ad for a minute; those of the *moment*, which are the same for all bags when one host asks; and a
bag's *own*, which change with its tasks.  Who knows which of them a bag refers to need not evaluate it again before one
of these has changed (`orders.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windfall.core.expressions import attributes
from windfall.core.expressions.attributes import Subject
from windfall.core.expressions.classads import Result, Value, matches, program
from windfall.core.state.world import AGED_FIRST, MATCHING_POLICIES

DECIDE = ("sites", "requirements")  # those that must match


class Rule:
    """An expression, and where its values come from: the host's ad, or a function that reads the state."""

    __slots__ = ("known", "program", "reads")

    def __init__(self, text: str) -> None:
        self.program = program(text)
        self.known = self.program.known
        self.reads = [(path, attributes.reader(path)) for path in self.program.uses]

    def result(self, subject: Subject, published: Mapping[str, Value]) -> Result:
        values = tuple([read(subject) if read is not None else published[path] for path, read in self.reads])
        found = self.known.get(values)
        return self.program.result(values) if found is None else found


@dataclass(slots=True)
class Rules:
    """The compiled expressions of a bag."""

    policy: dict[str, str]  # that they were made of
    decide: list[Rule]
    rank: Rule | None
    published: list[str]  # attributes of hosts and sites that they speak of
    moment: list[str]
    own: list[attributes.Read]  # how those are read that are the bag's own
    timed: bool  # they speak of what changes with time alone
    by_task: bool  # and of tasks, so that one class is not like another
    steady: bool  # nothing that they speak of changes by itself

    def admit(self, subject: Subject, published: Mapping[str, Value]) -> bool:
        for rule in self.decide:  # noqa: SIM110  (a generator costs more than what it would loop over)
            if not matches(rule.result(subject, published)):
                return False
        return True

    def place(self, key: tuple[Any, ...], subject: Subject, published: Mapping[str, Value]) -> tuple[Any, ...]:
        """Return the order key with the bag's rank in place of its priority.  The key of an aged bag stays as it is."""
        if self.rank is None or key[0] == AGED_FIRST:
            return key
        rank = self.rank.result(subject, published)
        return (0.0 if isinstance(rank, str) else -rank, *key[1:])


def _uses(policy: dict[str, str]) -> list[str]:
    """List the attributes that the expressions of a policy name, each once."""
    programs = [program(policy[key]) for key in MATCHING_POLICIES if key in policy]
    return list(dict.fromkeys(path for each in programs for path in each.uses))


def rules_of(policy: dict[str, str]) -> Rules:
    uses = _uses(policy)
    decide = [Rule(policy[key]) for key in DECIDE if key in policy]
    moving = [path for path in uses if path not in attributes.LASTING and path not in attributes.LEARNT]
    return Rules(
        policy, decide, Rule(policy["rank"]) if "rank" in policy else None,
        published=[path for path in uses if attributes.reader(path) is None],
        moment=[path for path in moving if path in attributes.MOMENT],
        own=[read for path in moving
             if path not in attributes.MOMENT and (read := attributes.reader(path)) is not None],
        timed=any(path in (*attributes.TIMED, *attributes.PASSING) for path in uses),
        by_task=any(path.startswith("Task.") for path in uses),
        steady=not moving,
    )
