"""A component without Python: a few lines of shell sent along with its tasks.

Starting a Python interpreter costs more than most short tasks.  The shell does the simple part of `worker.py`: it turns
values into files or variables, runs the implementation and checks that the outputs exist.  The rest it leaves to
`worker.py`: a binary or program that does not run here, a member of a collection sent as an archive, a host of another
platform.
"""

from __future__ import annotations

import re
import shlex

from windfall.workflow.components.files import BUILT_IN, Component, Implementation, Parameter

COMPILED = ("C", "CXX")
SOURCE = ".component/source.sh"
CHECK = "--windfall-check"
SAME = 20  # bytes of a binary that name its machine; some shells read a binary for another machine as a script
PLATFORM = re.compile(r"[\w.*?\[\]! -]*")  # patterns that mean the same to `fnmatch` and to a shell
WORD = "word() { word=$*; }"  # sets `word` to its arguments, without space around them


def fits(component: Component, implementations: list[Component]) -> bool:
    """Is the first implementation not in Python, and is no parameter a collection to pack or unpack?"""
    first = implementations[0].implementation
    if first is None or any(each.collection for each in component.params) or not PLATFORM.fullmatch(first.platform):
        return False
    return first.lang in (*COMPILED, "SHELL") or (first.lang == "EXECUTABLE" and _is_name(_words(first)[0]))


def _is_name(program: str) -> bool:
    """Is the program a fixed name that `env` takes for a program, not for an option or an assignment?"""
    return not re.search(r"^-|[={}]", program)


def _words(implementation: Implementation) -> list[str]:
    return shlex.split(implementation.source)


def source(implementation: Implementation) -> str:
    """Return the script of an implementation in the shell's own language."""
    return "\n".join([implementation.header, implementation.source, implementation.footer])


def script(component: Component, made: Component, otherwise: str) -> str:
    """Return the shell script of a task; `otherwise` is the command it runs instead where the script cannot."""
    assert made.implementation is not None
    prepare = {"SHELL": _shell, "EXECUTABLE": _executable}.get(made.implementation.lang, _binary)
    can, lines = prepare(component, made, made.implementation)
    if patterns := made.implementation.platform.lower().split():
        here = "$(uname -sm | tr 'A-Z ' a-z-)"
        can = f"{{ case {here} in ({' | '.join(patterns)}) true ;; *) false ;; esac && {can}; }}"
    archives = "".join(f" || [ -e in/{each.name}.tar ]" for each in component.params)
    written = [each.name for each in component.params if each.mode != "in"]
    return "\n".join([
        f'if ! {can}{archives}; then exec {otherwise} "$@"; fi',
        "for each in in out; do [ -d $each ] || mkdir $each || exit; done", *lines,
        *(f'[ -e out/{name} ] || {{ {_say(component, name)} >&2; exit 1; }}' for name in written), ""])


def _say(component: Component, name: str) -> str:
    return "echo " + shlex.quote(f"{component.name} has not written '{name}'")


# --- C and C++ -------------------------------------------------------------------------------------------------------


def _binary(component: Component, made: Component, _: Implementation) -> tuple[str, list[str]]:
    binary = shlex.quote(f"./.component/{made.name}.bin")
    can = (f"{{ chmod +x {binary} && cmp -s -n {SAME} /bin/sh {binary} && {binary} {CHECK}; }} > /dev/null 2>&1")
    values = [_file(at, each) for at, each in enumerate(component.params, 1)]
    return can, [*values, f"{binary} || exit"]


def _file(at: int, each: Parameter) -> str:
    """Return the line that writes a value to a file, for a text that is read even if it is empty."""
    there = f"[ -e in/{each.name} ]" + ("" if _is_text(each) else f' || [ -z "${{{at}}}" ]')
    return f'{there} || printf %s "${{{at}}}" > in/{each.name} || exit'


def _is_text(each: Parameter) -> bool:
    return each.mode == "in" and each.type == "string"


# --- scripts and programs --------------------------------------------------------------------------------------------


def _shell(component: Component, _made: Component, _: Implementation) -> tuple[str, list[str]]:
    given = "".join(f' {each.name}="$v{at}"' for at, each in enumerate(component.params, 1))
    return "true", [*_variables(component), f"env{given} /bin/sh -e {SOURCE} || exit"]


def _executable(component: Component, _: Component, implementation: Implementation) -> tuple[str, list[str]]:
    names = {each.name: at for at, each in enumerate(component.params, 1)}
    words, out = _words(implementation), ""
    if len(words) > 2 and words[-2] == ">":
        words, out = words[:-2], f" > {_filled(words[-1], names)}"
    shown = " ".join(_filled(word, names) for word in words)
    return f"command -v {shlex.quote(words[0])} > /dev/null 2>&1", [*_variables(component), f"env {shown}{out} || exit"]


def _filled(word: str, names: dict[str, int]) -> str:
    parts = re.split(r"\{(\w+)\}", word)  # every second part is the name between two braces
    return "".join(f'"$v{names[part]}"' if at % 2 else shlex.quote(part) for at, part in enumerate(parts) if part)


def _variables(component: Component) -> list[str]:
    """Return lines that set a shell variable for each parameter: to a value, or else to the path of its file."""
    found = [WORD]
    for at, each in enumerate(component.params, 1):
        if each.mode != "in":
            found.append(f"v{at}=out/{each.name}")
            if each.mode == "inout":
                found.append(f"[ ! -e in/{each.name} ] || cp in/{each.name} $v{at} || exit")
        elif each.type not in BUILT_IN:
            found.append(f"v{at}=in/{each.name}")
        else:
            found += [f"v{at}=${{{at}}}", f"if [ -e in/{each.name} ]; then {_read(at, each)}; fi"]
    return found


def _read(at: int, each: Parameter) -> str:
    """Return the line that reads a value from its file; a text keeps its last newlines, which `$( )` removes."""
    if each.type == "string":
        return f"v{at}=$(cat in/{each.name} && echo .) || exit; v{at}=${{v{at}%.}}"
    return f"v{at}=$(cat in/{each.name}) || exit; set -f; word $v{at}; set +f; v{at}=$word"
