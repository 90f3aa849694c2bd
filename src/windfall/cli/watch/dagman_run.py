"""Attend to a running DAG: abort it when a node says so, run its FINAL node, write its rescue file, retry SUBDAGs.

`windfall run` does this; the server runs the graph, and goes on without `windfall run`.  The server cannot retry a
SUBDAG as a whole, nor a node that uses $RETRY.  The attendant retries these when the bag has ended: it submits a new
bag of all nodes that are left, as after a rescue.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windfall.cli.present.output import say
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.cli.connect import Session
    from windfall.model.bagfile.reader import Parsed
    from windfall.workflow.dagman.nodes import Graph, Node, Subdag

OK, FAILED, ABORTED, REMOVED = 0, 2, 3, 4  # DAGMan's $DAG_STATUS


class After(NamedTuple):
    """How a DAG ended."""

    code: int  # the exit code of `windfall run`
    fields: dict[str, Any]  # for --json
    lines: list[str]  # for people


class Attendant:
    """The part of `windfall run` that attends to one DAG, whose nodes may run in several bags, one after the other."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        codes = {each.abort[0] for each in graph.aborts if each.abort}
        self._units = [unit for unit in graph.subdags if unit.abort]
        self._ends = [state for state, any_ in (("failed", codes - {0}), ("succeeded", codes & {0})) if any_]
        self._counted = ("succeeded", "failed", "quarantined", "cancelled") if self._units else tuple(self._ends)
        self._seen = 0
        self.aborted: tuple[Node | Subdag, int] | None = None
        self.rounds = 1
        self._failed: dict[str, None] = {}  # nodes without a retry left
        self._dependents: dict[str, list[str]] = {}

    def look(self, session: Session, bag: int, counts: dict[str, int]) -> None:
        """Cancel the bag if a node, or a SUBDAG, has ended with the exit code of its ABORT-DAG-ON."""
        seen = sum(counts.get(state, 0) for state in self._counted)
        if self.aborted or seen <= self._seen:
            return
        self._seen = seen
        self.aborted = self._abort_by_node(session, bag) or self._abort_by_subdag(session, bag)
        if self.aborted:
            session.ask(lambda client: client.cancel(bag))

    def _abort_by_node(self, session: Session, bag: int) -> tuple[Node, int] | None:
        for state in self._ends:
            for row in session.ask(lambda client, state=state: list(client.results(bag, state=state))):
                node = self._nodes.get(self._node_of(row))
                if node is not None and node.abort and node.abort[0] == row["exit"]:
                    return node, node.abort[0]
        return None

    def _abort_by_subdag(self, session: Session, bag: int) -> tuple[Subdag, int] | None:
        """Return a SUBDAG that has ended with the code of its ABORT-DAG-ON."""
        if not self._units:
            return None
        rows = session.ask(lambda client: list(client.results(bag)))
        states: dict[str, set[str]] = {}
        for row in rows:
            states.setdefault(self._node_of(row), set()).add(row["state"])
        for unit in self._units:
            code = self._end_of(unit, states)
            if code is not None and unit.abort and unit.abort[0] == code:
                return unit, code
        return None

    def _end_of(self, unit: Subdag, states: dict[str, set[str]]) -> int | None:
        """Return 0 if all nodes of a SUBDAG have succeeded, 1 if it has failed for good, None if it has not ended."""
        inside = set[str]().union(*({"succeeded"} if node.done else states.get(node.name, {""})
                                    for node in self.graph.inside(unit)))
        if inside == {"succeeded"}:
            return 0
        over = inside <= {"succeeded", "failed", "quarantined", "cancelled"}
        return 1 if over and unit.tries >= unit.retries else None

    def after(self, session: Session, bag: dict[str, Any], home: Path) -> After:
        """Run the FINAL node, write the rescue file, return how the DAG ended.

        The rescue file is written even if the FINAL node's success makes the DAG a success: nodes are left to run.
        """
        self._take_in(session, bag["bag"])
        done, failed = [node.name for node in self.graph.nodes if node.done], list(self._failed)
        whole = len(done) == len(self.graph.nodes)
        code = before_final = self._code(whole)
        lines, fields = self._abort_lines(), dict[str, Any]()
        if self.graph.final is not None:
            if self.graph.last:  # the bag was the FINAL node alone
                code = int(bag["state"] != "succeeded")
            else:
                code = self._final(session, self._status(whole), len(failed), home)
            fields["final"] = "failed" if code else "succeeded"
            lines.append(f"  final node {self.graph.final.name}: {fields['final']}")
        if (code or before_final) and (file := self._rescue(done, failed)):
            fields["rescue"] = str(file)
            lines.append(f"  {file} lists the done nodes: the same command runs the rest")
        if self.aborted:
            fields["aborted"] = self.aborted[0].name
        if self.rounds > 1:
            fields["rounds"] = self.rounds
        return After(code, fields, lines)

    # --- retries ----------------------------------------------------------------------------------------------------

    def again(self, session: Session, bag: int, parsed: Parsed, directory: Path) -> Parsed | None:
        """Return a bag of the nodes to retry and all that depend on them; None if there is nothing to retry."""
        if not self.graph.attended or self.aborted:
            return None
        failed, cancelled = self._take_in(session, bag)
        if not self._dependents:  # taken from the first bag, which has all nodes
            self._dependents = _dependents(parsed, self.graph.parts)
        if cancelled - self._with_dependents(self._failed) or not (chosen := self._choose(failed)):
            return None  # the user has cancelled nodes, or no node has a retry left
        left = self._with_dependents(self._failed)
        for node in self.graph.nodes:
            node.left = node.name in left
        from windfall.workflow.dagman import bag as dagbag

        _fetch(session, bag, directory)
        self.rounds, self._seen = self.rounds + 1, 0
        say(f"  retrying: {', '.join(chosen[:10])}" + (f" and {len(chosen) - 10:,} others" if chosen[10:] else ""))
        return dagbag.parsed(self.graph)

    def _take_in(self, session: Session, bag: int) -> tuple[dict[str, int], set[str]]:
        """Take in how the bag's nodes ended.  Return the exit codes of failed nodes, and the cancelled nodes."""
        failed, cancelled = dict[str, int](), set[str]()
        self.graph.bag = self.graph.bag or bag
        undone, done = set[str](), set[str]()
        for row in session.ask(lambda client: list(client.results(bag))):
            name = self._node_of(row)
            if name not in self._nodes:
                continue
            (done if row["state"] == "succeeded" else undone).add(name)
            if row["state"] == "cancelled":
                cancelled.add(name)
            elif row["state"] in ("failed", "quarantined"):
                failed[name] = row["exit"]
        for name in done - undone:
            self._nodes[name].done = True
        self._failed.update(dict.fromkeys(failed))
        return failed, cancelled - failed.keys()

    def _node_of(self, row: dict[str, Any]) -> str:
        """Return the name of the node that a task belongs to."""
        name: str = row["params"].get("name", "")
        return self.graph.parts.get(name, name)

    def _with_dependents(self, names: Iterable[str]) -> set[str]:
        """Return the nodes, and all that depend on them."""
        walk = list(names)
        seen = set(walk)
        for name in walk:  # the list grows meanwhile
            fresh = [each for each in self._dependents.get(name, ()) if each not in seen]
            seen.update(fresh)
            walk += fresh
        return seen

    def _choose(self, failed: dict[str, int]) -> list[str]:
        """Choose what to retry: nodes first; a SUBDAG only when no node inside it is retried."""
        chosen = [name for name, code in failed.items() if self._use_retry(self._nodes[name], code)]
        waiting = set(chosen)
        for unit in reversed(self.graph.subdags):  # inner ones first
            inside = {node.name for node in self.graph.inside(unit)}
            if not waiting & inside and inside & self._failed.keys() and unit.unless != 1 and unit.tries < unit.retries:
                chosen.append(unit.name)
                waiting |= inside
                self._prepare_subdag(unit)
        for name in waiting:
            self._failed.pop(name, None)
        return chosen

    def _use_retry(self, node: Node, code: int | None) -> bool:
        """Use one of the node's retries; return False if it has none left."""
        if not node.asks or node.tries >= node.retries or (node.unless is not None and code == node.unless):
            return False
        node.tries += 1
        return True

    def _prepare_subdag(self, unit: Subdag) -> None:
        """Prepare a retry of a SUBDAG as DAGMan does: with a rescue file, so that its done nodes do not run again."""
        from windfall.workflow.dagman import rescue

        unit.tries += 1
        done = {node.name for node in self.graph.nodes if node.done}
        rescue.write_unit(self.graph, unit, done, set(self._failed))
        for node in self.graph.inside(unit):
            node.tries = 0

    def interrupted(self, session: Session, bag: int, directory: Path | None) -> None:
        """Fetch the files and write a rescue file for a user who leaves, and may run the rest of the DAG later."""
        self._take_in(session, bag)
        if directory:
            _fetch(session, bag, directory)
        file = self._rescue([node.name for node in self.graph.nodes if node.done], list(self._failed))
        if file:
            say(f"  {file} lists the nodes done so far; to run the rest from it, cancel the bag first")

    def _status(self, whole: bool) -> int:
        if self.aborted:
            return ABORTED
        return FAILED if self._failed else OK if whole else REMOVED

    def _code(self, whole: bool) -> int:
        if self.aborted is None:
            return 0 if whole else 1
        node, code = self.aborted
        own = node.abort[1] if node.abort else None
        return (code if own is None else own) & 0xFF

    def _abort_lines(self) -> list[str]:
        if self.aborted is None:
            return []
        node, code = self.aborted
        return [f"  aborted: {'node' if hasattr(node, 'submit') else 'SUBDAG'} {node.name} ended with exit code {code}"]

    def _final(self, session: Session, status: int, failed: int, home: Path) -> int:
        from windfall.client.client import new_key
        from windfall.workflow.dagman import bag as dagbag
        from windfall.workflow.dagman.jobs import DagEnd

        node = self.graph.final
        assert node is not None
        parsed, key, missing = dagbag.final(self.graph, node, DagEnd(status, failed)), new_key(), 0
        bag = session.ask(lambda client: client.submitted(parsed.bag, parsed.uploads, key)["bag"])
        ended = session.ask(lambda client: client.wait(bag))
        if any(target.outputs for target in parsed.bag.targets):
            missing = _fetch(session, bag, home)
        return 0 if ended["state"] == "succeeded" and not missing else 1

    def _rescue(self, done: list[str], failed: list[str]) -> Path | None:
        """Write the rescue file.  If that fails, say so and go on: the summary is still to come."""
        from windfall.workflow.dagman import rescue

        try:
            return rescue.write(self.graph, done, failed)
        except OSError as error:
            say(f"windfall: cannot write a rescue file beside {self.graph.file}: {error.strerror}")
            return None


def _fetch(session: Session, bag: int, directory: Path) -> int:
    """Fetch the bag's files, and tell which could not be fetched; return how many."""
    from windfall.cli.present.fetch_outputs import OutputPlace, Problems, bring

    problems = Problems()
    session.ask(lambda client: bring(client, bag, OutputPlace(directory), problems))
    problems.tell()
    return problems.count


def attendant(graph: Graph) -> Attendant:
    for note in graph.notes:
        say(f"  {note}")
    return Attendant(graph)


def _dependents(parsed: Parsed, parts: dict[str, str]) -> dict[str, list[str]]:
    """Return for each node the nodes that wait for it, or for its files."""
    from windfall.model.templates.render import Renderer

    bag = parsed.bag
    renderers = [Renderer(target) for target in bag.targets]
    tasks = [str(each.params(task)["name"]) for each in renderers for task in range(each.count)]
    names = [parts.get(name, name) for name in tasks]
    flows = zip(bag.flows.before, bag.flows.after, strict=True) if bag.flows else ()
    found: dict[str, list[str]] = {}
    for before, after in (*bag.edges, *flows):
        if before >= 0 and names[before] != names[after]:
            found.setdefault(names[before], []).append(names[after])
    return found


def rescued(graph: Graph, fresh: bool) -> None:
    """Mark as done what earlier runs have done, by their rescue files; `fresh` ignores these."""
    from windfall.workflow.dagman import rescue

    if not fresh and (files := rescue.take_up(graph)):
        done = sum(node.done for node in graph.nodes)
        names = ", ".join(map(str, files[:3])) + (f" and {len(files) - 3:,} others" if files[3:] else "")
        say(f"  {plural(done, 'node')} already done, according to {names}; --fresh runs them again")
