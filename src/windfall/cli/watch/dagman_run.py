"""What a DAG wants beside its graph: to be given up when a node says so, a last node whatever happened, a rescue file.

Whoever runs it sees to that; the graph itself is the server's, and goes on without us.  What no task can try again by
itself (a SUBDAG as a whole; a node that wants to know which try it is) is tried again when all else has ended: what is
left to do is a new bag then, as after a rescue.
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

OK, FAILED, ABORTED, REMOVED = 0, 2, 3, 4  # as DAGMan counts: $DAG_STATUS


class After(NamedTuple):
    code: int
    fields: dict[str, Any]  # for --json
    lines: list[str]


class Attendant:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        codes = {node.abort[0] for node in graph.nodes if node.abort}
        self._ends = [state for state, any_ in (("failed", codes - {0}), ("succeeded", codes & {0})) if any_]
        self._seen = 0
        self.aborted: tuple[Node, int] | None = None
        self.rounds = 1
        self._failed: dict[str, None] = {}  # and are not to be tried again
        self._after: dict[str, list[str]] = {}

    def look(self, session: Session, bag: int, counts: dict[str, int]) -> None:
        """Has a node ended with the code that ends all of it?"""
        seen = sum(counts.get(state, 0) for state in self._ends)
        if self.aborted or seen <= self._seen:
            return
        self._seen = seen
        for state in self._ends:
            for row in session.ask(lambda client, state=state: list(client.results(bag, state=state))):
                node = self._nodes.get(row["params"].get("name", ""))
                if node is not None and node.abort and node.abort[0] == row["exit"]:
                    self.aborted = (node, node.abort[0])
                    session.ask(lambda client: client.cancel(bag))
                    return

    def after(self, session: Session, bag: dict[str, Any], home: Path) -> After:
        """The last node, the rescue file, and how it all ended.  What is left of a DAG is to be run by the rescue file
        also where the last node calls it a success."""
        self._take_in(session, bag["bag"])
        done, failed = [node.name for node in self.graph.nodes if node.done], list(self._failed)
        whole = len(done) == len(self.graph.nodes)
        status = ABORTED if self.aborted else FAILED if failed else OK if whole else REMOVED
        code = spoilt = self._code(whole)
        lines, fields = self._said(), dict[str, Any]()
        if self.graph.final is not None:
            alone = int(bag["state"] != "succeeded") if self.graph.last else None
            code = self._final(session, status, len(failed), home) if alone is None else alone
            lines.append(f"  final node {self.graph.final.name}: {'succeeded' if not code else 'failed'}")
            fields["final"] = "failed" if code else "succeeded"
        if (code or spoilt) and (file := self._rescue(done, failed)):
            fields["rescue"] = str(file)
            lines.append(f"  done nodes are in {file}: the same command runs the rest")
        if self.aborted:
            fields["aborted"] = self.aborted[0].name
        if self.rounds > 1:
            fields["rounds"] = self.rounds
        return After(code, fields, lines)

    # --- once more ---------------------------------------------------------------------------------------------------

    def again(self, session: Session, bag: int, parsed: Parsed, directory: Path) -> Parsed | None:
        """What is to be tried again, with all that waits for it; None: nothing is."""
        if not self.graph.attended or self.aborted:
            return None
        failed, cancelled = self._take_in(session, bag)
        self._after = self._after or _after(parsed)  # of the first, which has all nodes
        if cancelled - self._behind(self._failed) or not (chosen := self._chosen(failed)):
            return None  # somebody has cancelled it, or that is all
        left = self._behind(self._failed)
        for node in self.graph.nodes:
            node.left = node.name in left
        from windfall.cli.present.fetch_outputs import Problems, bring
        from windfall.workflow.dagman import bag as dagbag

        problems = Problems()
        session.ask(lambda client: bring(client, bag, directory, "", problems))
        problems.tell()
        self.rounds, self._seen = self.rounds + 1, 0
        say(f"  once more: {', '.join(chosen[:10])}" + (f" and {len(chosen) - 10:,} others" if chosen[10:] else ""))
        return dagbag.parsed(self.graph)

    def _take_in(self, session: Session, bag: int) -> tuple[dict[str, int], set[str]]:
        """How nodes have ended: exit codes of those that failed, and who was cancelled."""
        failed, cancelled = dict[str, int](), set[str]()
        for row in session.ask(lambda client: list(client.results(bag))):
            name = row["params"].get("name", "")
            if name not in self._nodes:
                continue
            if row["state"] == "succeeded":
                self._nodes[name].done = True
            elif row["state"] == "cancelled":
                cancelled.add(name)
            elif row["state"] in ("failed", "quarantined"):
                failed[name] = row["exit"]
        self._failed.update(dict.fromkeys(failed))
        return failed, cancelled

    def _behind(self, names: Iterable[str]) -> set[str]:
        """These, and all that waits for them."""
        walk = list(names)
        seen = set(walk)
        for name in walk:  # grows while it is walked
            fresh = [each for each in self._after.get(name, ()) if each not in seen]
            seen.update(fresh)
            walk += fresh
        return seen

    def _chosen(self, failed: dict[str, int]) -> list[str]:
        """Nodes first; a SUBDAG is tried again when those inside can do no more."""
        chosen = [name for name, code in failed.items() if self._one_more(self._nodes[name], code)]
        waiting = set(chosen)
        for unit in reversed(self.graph.subdags):  # inner ones first
            inside = {node.name for node in self.graph.inside(unit)}
            if not waiting & inside and inside & self._failed.keys() and unit.unless != 1 and unit.tries < unit.retries:
                chosen.append(unit.name)
                waiting |= inside
                self._retry(unit)
        for name in waiting:
            self._failed.pop(name, None)
        return chosen

    def _one_more(self, node: Node, code: int | None) -> bool:
        if not node.asks or node.tries >= node.retries or (node.unless is not None and code == node.unless):
            return False
        node.tries += 1
        return True

    def _retry(self, unit: Subdag) -> None:
        """As DAGMan does: with a rescue file, by which what is done in it is not done again."""
        from windfall.workflow.dagman import rescue

        unit.tries += 1
        done = {node.name for node in self.graph.nodes if node.done}
        rescue.write_unit(self.graph, unit, done, set(self._failed))
        for node in self.graph.inside(unit):
            node.tries = 0

    def interrupted(self, session: Session, bag: int, directory: Path | None) -> None:
        """Somebody has gone; what is done so far is kept for whoever cancels the bag and runs the rest."""
        from windfall.cli.present.fetch_outputs import Problems, bring

        self._take_in(session, bag)
        problems = Problems()
        if directory:
            session.ask(lambda client: bring(client, bag, directory, "", problems))
        problems.tell()
        file = self._rescue([node.name for node in self.graph.nodes if node.done], list(self._failed))
        if file:
            say(f"  nodes done by now are in {file}; to run the rest by it, cancel the bag first")

    def _code(self, whole: bool) -> int:
        if self.aborted is None:
            return 0 if whole else 1
        node, code = self.aborted
        own = node.abort[1] if node.abort else None
        return (code if own is None else own) & 0xFF

    def _said(self) -> list[str]:
        return [f"  given up: node {self.aborted[0].name} ended with {self.aborted[1]}"] if self.aborted else []

    def _final(self, session: Session, status: int, failed: int, home: Path) -> int:
        from windfall.cli.present.fetch_outputs import Problems, bring
        from windfall.client.client import new_key
        from windfall.workflow.dagman import bag as dagbag

        node = self.graph.final
        assert node is not None
        parsed, key, problems = dagbag.final(self.graph, node, status, failed), new_key(), Problems()
        bag = session.ask(lambda client: client.submit(parsed.bag, parsed.uploads, key))
        ended = session.ask(lambda client: client.wait(bag))
        if any(target.outputs for target in parsed.bag.targets):
            session.ask(lambda client: bring(client, bag, home, "", problems))
        problems.tell()
        return 0 if ended["state"] == "succeeded" and not problems.count else 1

    def _rescue(self, done: list[str], failed: list[str]) -> Path | None:
        """What became of the nodes is told also where it cannot be written down."""
        from windfall.workflow.dagman import rescue

        try:
            return rescue.write(self.graph, done, failed)
        except OSError as error:
            say(f"windfall: no rescue file could be written beside {self.graph.file}: {error.strerror}")
            return None


def attendant(graph: Graph) -> Attendant:
    for note in graph.notes:
        say(f"  {note}")
    return Attendant(graph)


def _after(parsed: Parsed) -> dict[str, list[str]]:
    """Of each node, those that wait for it, be it for a file."""
    from windfall.model.templates.render import Renderer

    bag = parsed.bag
    renderers = [Renderer(target) for target in bag.targets]
    names = [str(each.params(task)["name"]) for each in renderers for task in range(each.count)]
    flows = zip(bag.flows.before, bag.flows.after, strict=True) if bag.flows else ()
    found: dict[str, list[str]] = {}
    for before, after in (*bag.edges, *flows):
        if before >= 0:
            found.setdefault(names[before], []).append(names[after])
    return found


def rescued(graph: Graph, fresh: bool) -> None:
    """Take up what an earlier run has done."""
    from windfall.workflow.dagman import rescue

    if not fresh and (files := rescue.take_up(graph)):
        done = sum(node.done for node in graph.nodes)
        said = ", ".join(map(str, files[:3])) + (f" and {len(files) - 3:,} others" if files[3:] else "")
        say(f"  {plural(done, 'node')} done before, by {said}; --fresh runs them again")
