"""Build a bag from a compiled application: a target for each component, a row for each task, flows for all data.

The rows hold values.  Data are files; the server keeps them as blobs between the task that writes them and the tasks
that read them.  A task of the bag compiles each C or C++ implementation once, and all tasks that may run it get the
binary.  The host of a task chooses among several implementations (`worker.py`, which is sent along).
"""

from __future__ import annotations

import hashlib
import json
import keyword
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from windfall.data.files import hash_file
from windfall.errors import BadInput, TooLarge
from windfall.model.spec import INSTANCE, Bag, Derived, Family, Input, Range, Sweep, Table, Target
from windfall.model.templates.table import format_row, format_rows
from windfall.workflow.build.assemble import FlowColumns
from windfall.workflow.components import quick
from windfall.workflow.components.compiled import C_WORDS, CXX_WORDS, program as program_of
from windfall.workflow.components.files import NAME, Component, Parameter
from windfall.workflow.graphs.dataflow import DataHistory, Flow, data_histories, indices
from windfall.workflow.graphs.gates import GATES, without_gates
from windfall.workflow.graphs.plan import Plan, plan
from windfall.workflow.yvetteml.calls import value_of
from windfall.workflow.yvetteml.frame import Column, spread
from windfall.workflow.yvetteml.names import Use
from windfall.workflow.yvetteml.program import ComponentLibrary, Program
from windfall.workflow.yvetteml.unrolled import Call

WORKER = ".component/run.py"
ABOUT = ".component/about.json"
QUICK = ".component/run.sh"
COMPILE = "compile-sources"  # a name that no component can have
PYTHON = "python3"
THING = re.compile(rf"{NAME.pattern}(\[-?[0-9]{{1,18}}\])*")
MAX_LETTERS = 500_000_000  # letters of the values of all tasks of one component


@dataclass(frozen=True)
class Result:
    """A result to fetch: its name, and the task and output path that hold it."""

    name: str
    task: int
    path: str


@dataclass
class Built:
    bag: Bag
    uploads: dict[str, bytes | Path]
    made: Callable[[], list[Result]] = list

    @cached_property
    def results(self) -> list[Result]:
        """Work out the results on first use: for a million tasks this takes longer than the rest of the build."""
        return self.made()


class Landing(Mapping[tuple[int, str], str]):
    """A mapping from (task, output path) to local path, made on first use."""

    def __init__(self, made: Callable[[], dict[tuple[int, str], str]]) -> None:
        self._made = made

    @cached_property
    def _found(self) -> dict[tuple[int, str], str]:
        return self._made()

    def __getitem__(self, key: tuple[int, str]) -> str:
        return self._found[key]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def build(program: Program, shelf: ComponentLibrary, given: Mapping[str, Path] | None = None) -> Built:
    """Build the bag; `given` names files for the application's data parameters, `mat` or `mat[1][2]`."""
    for name in given or ():
        if not THING.fullmatch(name):
            raise BadInput(f"'{name:.60}' is not the name of data", "as in mat, or mat[1][2]")
    return _BagBuilder(program, shelf, given or {}).built()


class _BagBuilder:
    def __init__(self, program: Program, shelf: ComponentLibrary, given: Mapping[str, Path]) -> None:
        self.program, self.given = program, dict(given)
        self.plan: Plan = plan(program)
        self.components = _with_implementations(program, shelf)
        order = np.argsort(self.plan.component, kind="stable")
        self.numbers = np.empty(program.tasks, np.int64)  # task of the program → its number in the bag
        self.numbers[order] = np.arange(program.tasks)
        self.flows = FlowColumns()
        self.uploads: dict[str, bytes | Path] = {}
        self.chosen: dict[tuple[int, str], str] = {}  # task and parameter → the member it picks out of a collection
        self.lasting: list[DataHistory] = []  # things whose final writes are results
        self.used: set[str] = set()  # given files that some task reads

    def built(self) -> Built:
        edges, gates = without_gates(self.plan.dag, self.program.tasks)
        for thing in data_histories(self.program):
            self._thing(thing)
        if unused := sorted(set(self.given) - self.used):
            raise BadInput(f"the application takes no data for '{unused[0]}'",
                           "it takes data for parameters in its <params> that have no value")
        targets = [self._target(component, implementations) for component, implementations in self.components]
        targets += self._compile()
        if gates:
            targets.append(Target(name=GATES, command=["true"], source=_points(gates)))
        name = self.program.application.name
        bag = Bag(name=name, targets=targets, edges=self._edges(edges), flows=self.flows.flows())
        return Built(bag, self.uploads, self._results)

    def _edges(self, edges: np.ndarray) -> list[tuple[int, int]]:
        """Renumber edges for the bag, where the gates come after the tasks that compile."""
        tasks, shift = self.program.tasks, len(self._compiled)
        before, after = (np.where(each < tasks, self.numbers[np.minimum(each, tasks - 1)], each + shift)
                         for each in (edges[:, 0], edges[:, 1]))
        return list(zip(before.tolist(), after.tolist(), strict=True))

    def _blob(self, data: bytes | Path) -> tuple[str, int]:
        sha, size = hash_file(data) if isinstance(data, Path) else (hashlib.sha256(data).hexdigest(), len(data))
        self.uploads[sha] = data
        return sha, size

    # --- data -------------------------------------------------------------------------------------------------------

    def _thing(self, thing: DataHistory) -> None:
        for flow in thing.flows:
            self._flow(flow)
        scope, name = thing.key
        declared = next((each for each in self.program.application.params if each.name == name and not scope), None)
        for use, row, task in thing.unwritten_reads:
            if declared is not None and declared.mode != "out":
                self._from_outside(use, row, task)
            elif use.mode == "in":
                raise use.frame.source.mistake(use.at, f"'{use.shown(row)}' is read before anything has written it"
                                               f"{use.frame.where(row)}", "wait for what writes it")
        if not scope and (declared.mode != "in" if declared else not self._declares_results):
            self.lasting.append(thing)

    def _results(self) -> list[Result]:
        names = {each.name for each in self.program.application.params}
        return [Result(use.shown(row), int(self.numbers[task]), f"out/{use.parameter}") for thing in self.lasting
                for use, row, task in thing.final_writes(unread=thing.key[1] not in names)]

    @cached_property
    def _declares_results(self) -> bool:
        return any(each.mode != "in" for each in self.program.application.params)

    def _flow(self, flow: Flow) -> None:
        writes, reads = flow.writes, flow.reads
        whole, members = writes.uses[0].collection, reads.uses[0].collection
        rank = len(writes.uses[0].ref.indices)
        if whole and members and rank > len(reads.uses[0].ref.indices):
            use = reads.uses[0]
            raise use.frame.source.mistake(use.at, f"'{use.ref.key[1]}' is several collections", "read one of them")
        if not whole and not members:
            self._plain_flow(flow)
            return
        for write, read in zip(flow.write.tolist(), flow.read.tolist(), strict=True):
            wrote, use = writes.uses[writes.use[write]], reads.uses[reads.use[read]]
            task, place = int(reads.task[read]), f"in/{use.parameter}"
            if whole:
                place += ".tar"
                self.chosen[task, use.parameter] = _dotted(indices(use, int(reads.row[read]), rank))
            elif members:
                index = indices(wrote, int(writes.row[write]), len(use.ref.indices))
                place += "/" + _dotted(index)
            before, after = int(self.numbers[writes.task[write]]), int(self.numbers[task])
            self.flows.take(before, f"out/{wrote.parameter}", after, place)

    def _plain_flow(self, flow: Flow) -> None:
        """Add flows of single things from one task to another, the common case, in columns."""
        writes, reads = flow.writes, flow.reads
        outputs = np.array([self.flows.number(f"out/{use.parameter}") for use in writes.uses])
        places = np.array([self.flows.number(f"in/{use.parameter}") for use in reads.uses])
        self.flows.take_all(
            self.numbers[writes.task[flow.write]].tolist(), outputs[writes.use[flow.write]].tolist(),
            self.numbers[reads.task[flow.read]].tolist(), places[reads.use[flow.read]].tolist())

    def _from_outside(self, use: Use, row: int, task: int) -> None:
        name, place = use.shown(row), f"in/{use.parameter}"
        if use.collection:
            found = [each for each in self.given if each.startswith(name + "[")]
            for each in found:
                self._bring(each, task, f"{place}/{_inside(each[len(name) :])}")
        else:
            found = [name] if name in self.given else []
            for each in found:
                self._bring(each, task, place)
        if not found and use.mode == "in":
            shown = name + ("[1]" if use.collection else "")
            raise BadInput(f"the data for '{name}' is missing", f"give it with --data '{shown}=FILE'")

    def _bring(self, name: str, task: int, place: str) -> None:
        self.used.add(name)
        file = self.given[name]
        try:
            sha, size = self._blob(file)
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}") from None
        self.flows.bring((sha, size, 0o644), int(self.numbers[task]), place)

    # --- targets ----------------------------------------------------------------------------------------------------

    @cached_property
    def _compiled(self) -> list[tuple[Component, Component]]:
        return [(component, each) for component, every in self.components for each in every
                if _lang(each) in quick.COMPILED]

    def _about(self, component: Component, implementations: list[Component]) -> bytes:
        """Describe a component to the worker; equal components give equal bytes in every application."""
        params = [{"name": each.name, "type": each.type, "mode": each.mode, "collection": each.collection}
                  for each in component.params]
        made = [{"name": each.name, **_described(component, each)} for each in implementations]
        about = {"component": component.name, "params": params, "implementations": made}
        return json.dumps(about, sort_keys=True).encode()

    def _worker(self) -> Input:
        sha, size = self._blob(Path(quick.__file__).with_name("worker.py").read_bytes())
        return Input(path=WORKER, blob=sha, size=size)

    def _target(self, component: Component, implementations: list[Component]) -> Target:
        sha, size = self._blob(self._about(component, implementations))
        inputs, words = [self._worker(), Input(path=ABOUT, blob=sha, size=size)], [PYTHON, WORKER, "--run"]
        if quick.fits(component, implementations):
            inputs, words = [*inputs, *self._quick(component, implementations[0], " ".join(words))], ["/bin/sh", QUICK]
        return Target(
            name=component.name, command=[*words, *(f"{{{each.name}}}" for each in component.params)],
            source=self._rows(component), inputs=inputs,
            outputs=[f"out/{each.name}" for each in component.params if each.mode != "in"])

    def _quick(self, component: Component, made: Component, otherwise: str) -> list[Input]:
        files = {QUICK: quick.script(component, made, otherwise)}
        if made.implementation is not None and made.implementation.lang == "SHELL":
            files[quick.SOURCE] = quick.source(made.implementation)
        blobs = [(path, *self._blob(text.encode())) for path, text in files.items()]
        return [Input(path=path, blob=sha, size=size) for path, sha, size in blobs]

    def _compile(self) -> list[Target]:
        """Add a task that compiles each C or C++ source; its binary goes to every task that might run it."""
        if not self._compiled:
            return []
        files: dict[str, tuple[str, int, int]] = {}
        rows = []
        for number, (component, each) in enumerate(self._compiled, self.program.tasks):
            every = next(found for other, found in self.components if other is component)
            files[component.name] = (*self._blob(self._about(component, every)), 0o644)
            rows.append(format_row([component.name, each.name]))
            place = self.plan.components.index(component.name)
            for task in self.numbers[self.plan.component == place].tolist():
                self.flows.take(number, "binary", task, f".component/{each.name}.bin")
        table = Table(columns=["component", "implementation"], text="\n".join(rows), count=len(rows))
        about = Family(path=ABOUT, source="{component}", files=files)
        return [Target(name=COMPILE, command=[PYTHON, WORKER, "--compile", "{implementation}"], retries=1,
                       source=Sweep(axes=[table]), inputs=[self._worker()], families=[about], outputs=["binary"])]

    def _rows(self, component: Component) -> Sweep:
        """Make a component's rows; a value that all tasks share becomes a derived parameter, the others columns."""
        calls = [call for call in self.program.calls if call.component is component]
        count, columns = sum(call.n for call in calls), self._columns(component, calls)
        shared = {name: texts[0] for name, texts in columns.items() if texts.count(texts[0]) == len(texts)}
        derived = [Derived(name=name, template=_literal(text)) for name, text in shared.items()]
        varied = {name: texts for name, texts in columns.items() if name not in shared}
        if not varied:
            return Sweep(axes=_points(count).axes, derived=derived)
        if sum(sum(map(len, texts)) for texts in varied.values()) > MAX_LETTERS:
            raise TooLarge(f"the values for '{component.name}' have more than {MAX_LETTERS:,} letters",
                           "hand long texts over as data")
        table = Table(columns=list(varied), text=format_rows(list(varied.values())), count=count)
        return Sweep(axes=[table], derived=derived)

    def _columns(self, component: Component, calls: list[Call]) -> dict[str, list[str]]:
        """Return, by parameter, the arguments of all tasks that run the component."""
        return {each.name: [text for call in calls for text in self._texts(call, at, each)]
                for at, each in enumerate(component.params)}

    def _texts(self, call: Call, at: int, parameter: Parameter) -> list[str]:
        """Return an argument's text for each instance: a value, "" for data, or the member of a collection."""
        bound = value_of(call.component.name, parameter, call.arguments[at], call.frame)
        if isinstance(bound, Column):
            return [_text(each, parameter.type) for each in spread(bound.data, call.n).tolist()]
        name = parameter.name
        if not self.chosen:
            return [""] * call.n
        return [self.chosen.get((task, name), "") for task in range(call.first, call.first + call.n)]


def _text(value: object, kind: str) -> str:
    return repr(float(value)) if kind == "real" and isinstance(value, (int, float)) else str(value)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _points(count: int) -> Sweep:
    return Sweep(axes=[Range(name=INSTANCE, first=1, last=count)])


def _dotted(index: tuple[int, ...]) -> str:
    return ".".join(map(str, index))


def _inside(text: str) -> str:
    """Turn `[1][2]` into `1.2`."""
    return text.strip("[]").replace("][", ".")


def _described(component: Component, made: Component) -> dict[str, str]:
    """Describe an implementation to the worker: the parts of a script, or a whole program to compile."""
    implementation = made.implementation
    assert implementation is not None
    _check_names(component, made)
    if implementation.lang == "EXECUTABLE":
        _check_command(component, made, implementation.source)
    shared = {name: str(getattr(implementation, name)) for name in ("lang", "libs", "platform")}
    if implementation.lang in quick.COMPILED:
        return {**shared, "program": program_of(component, implementation)}
    return {**shared, **{name: str(getattr(implementation, name)) for name in ("source", "header", "footer")}}


def _check_names(component: Component, made: Component) -> None:
    """Refuse parameter names that cannot be variables in the implementation's language."""
    words = {"C": C_WORDS.split(), "CXX": CXX_WORDS.split(), "PYTHON": keyword.kwlist}.get(_lang(made), [])
    for each in component.params:
        if each.name in words or (_lang(made) in quick.COMPILED and each.name.startswith("windfall_")):
            raise BadInput(f"'{each.name}' cannot be a variable in {_lang(made)}, so '{made.name}' cannot implement "
                           f"'{component.name}'", "give the parameter another name", made.where)


def _check_command(component: Component, made: Component, command: str) -> None:
    params = {each.name: each for each in component.params}
    words = _words_of(made, command)
    for name in re.findall(r"\{(\w+)\}", command):
        if name not in params:
            raise BadInput(f"the command of '{made.name}' uses {{{name}}}, which is not a parameter of "
                           f"'{component.name}'", f"it has: {', '.join(params) or 'none'}", made.where)
    if not _redirects_to_output(words, params):
        raise BadInput(f"the command of '{made.name}' writes to something other than an out parameter",
                       "end it with a space, '>', a space and the parameter that gets the standard output: "
                       "> {result}", made.where)


def _words_of(made: Component, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"the command of '{made.name}' cannot be split into words: {error}", "", made.where) from None
    if not words:
        raise BadInput(f"the command of '{made.name}' has no program", "as in prog {size} > {result}", made.where)
    return words


def _redirects_to_output(words: list[str], params: dict[str, Parameter]) -> bool:
    """Is the only redirection of a command, if it has one, a `> {result}` at its end, to a parameter that it writes?"""
    target = words[-1].strip("{}") if len(words) > 2 and words[-2] == ">" else None
    if any(word.startswith(">") for word in (words if target is None else words[:-2])):
        return False
    return target is None or (target in params and params[target].mode != "in")


def _lang(component: Component) -> str:
    return component.implementation.lang if component.implementation else ""


def _with_implementations(program: Program, shelf: ComponentLibrary) -> list[tuple[Component, list[Component]]]:
    """Pair each used component with its implementations, in the plan's order; refuse components that have none."""
    used = {call.component.name: call.component for call in program.calls}
    found = [(component, shelf.implementations(name)) for name, component in used.items()]
    if missing := [component.name for component, implementations in found if not implementations]:
        raise BadInput(f"no component implements {', '.join(missing)}",
                       "add a component of type impl that names it: windfall component add FILE, or --components FILE")
    return found
