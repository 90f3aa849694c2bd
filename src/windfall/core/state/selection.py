"""Selection: in which order classes, and the tasks within a class, are offered to whoever asks.

Bags come by priority, then in the order of their submission.  Within a bag `fcfs` takes targets and tasks in the
order they were given; `sjf` takes the class with the shortest expected duration, and within it the cheapest task.
`data-conscious` keeps the order of `fcfs` and chooses among what comes first by where data lies (`conscious.py`).
"""

from __future__ import annotations

from windfall.core.messages.facts import TargetShape


def class_key(select: str, bag: int, target: int, variant: int, shape: TargetShape) -> tuple[int, ...]:
    """Sort key among classes: lower is offered first."""
    if select == "sjf":
        expected = (shape.expect or shape.limit) * 3 ** (variant >> 4 & 7)
        return (-shape.priority, bag, expected, target, variant)
    return (-shape.priority, bag, target, variant, 0)
