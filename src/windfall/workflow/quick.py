"""A component in C or C++ without Python: a few lines of shell that go along with its tasks.

Short tasks are many, and an interpreter that starts costs more than most of them.  The shell does what `worker.py`
would, as long as it is simple: values become files, the binary runs, what it was to write is there.  Whatever is not,
it leaves to `worker.py`: a binary that does not run here, a part of a collection that came as an archive.
"""

from __future__ import annotations

import shlex

from .files import Component

COMPILED = ("C", "CXX")
CHECK = "--windfall-check"
SAME = 20  # bytes that say for which machine a binary is; some shells would read one for another as a script


def fits(component: Component, implementations: list[Component]) -> bool:
    """Is the first choice a binary for any platform, and no collection to pack or unpack?"""
    first = implementations[0].implementation
    return (first is not None and first.lang in COMPILED and not first.platform
            and not any(each.collection for each in component.params))


def script(component: Component, implementation: Component, otherwise: str) -> str:
    """`otherwise`: what is run with the same words where this cannot."""
    binary = shlex.quote(f"./.component/{implementation.name}.bin")
    names = [each.name for each in component.params]
    made = [each.name for each in component.params if each.mode != "in"]
    archives = "".join(f" || [ -e in/{name}.tar ]" for name in names)
    lines = [f"chmod +x {binary} 2> /dev/null",
             f"if ! {{ cmp -s -n {SAME} /bin/sh {binary} && {binary} {CHECK}; }} > /dev/null 2>&1{archives}",
             f'then exec {otherwise} "$@"; fi',
             "for each in in out; do [ -d $each ] || mkdir $each || exit; done"]
    lines += [f'[ -z "${{{at}}}" ] || [ -e in/{name} ] || printf %s "${{{at}}}" > in/{name} || exit'
              for at, name in enumerate(names, 1)]
    lines.append(f"{binary} || exit")
    lines += [f'[ -e out/{name} ] || {{ {_say(component, name)} >&2; exit 1; }}' for name in made]
    return "\n".join([*lines, ""])


def _say(component: Component, name: str) -> str:
    return "echo " + shlex.quote(f"{component.name} has not written '{name}'")
