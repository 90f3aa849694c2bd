"""What a DAG wants beside its graph: to be given up when a node says so, a last node whatever happened, a rescue file.

Whoever runs it sees to that; the graph itself is the server's, and goes on without us.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .output import plural, say

if TYPE_CHECKING:
    from ..workflow.dagnodes import Graph, Node
    from .connect import Session

OK, FAILED, ABORTED, REMOVED = 0, 2, 3, 4  # as DAGMan counts: $DAG_STATUS


class After(NamedTuple):
    code: int
    fields: dict[str, Any]  # for --json
    lines: list[str]


class Attendant:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        self._watched = any(node.abort for node in graph.nodes)
        self._seen = 0
        self.aborted: tuple[Node, int] | None = None

    def look(self, session: Session, bag: int, counts: dict[str, int]) -> None:
        """Has a node failed that ends all of it?"""
        failed = counts.get("failed", 0)
        if not self._watched or self.aborted or failed <= self._seen:
            return
        self._seen = failed
        for row in session.ask(lambda client: list(client.results(bag, state="failed"))):
            node = self._nodes.get(row["params"].get("name", ""))
            if node is not None and node.abort and node.abort[0] == row["exit"]:
                self.aborted = (node, node.abort[0])
                session.ask(lambda client: client.cancel(bag))
                return

    def after(self, session: Session, bag: dict[str, Any], home: Path) -> After:
        """The last node, the rescue file, and how it all ended."""
        done = [node.name for node in self.graph.nodes if node.done]
        failed, ended = [], 0
        for row in session.ask(lambda client: list(client.results(bag["bag"]))):
            name = row["params"].get("name", "")
            ended += row["state"] == "succeeded"
            if row["state"] == "succeeded":
                done.append(name)
            elif row["state"] != "cancelled":
                failed.append(name)
        whole = len(done) == len(self.graph.nodes)
        status = ABORTED if self.aborted else FAILED if failed else OK if whole else REMOVED
        code, lines, fields = self._code(whole), self._said(), dict[str, Any]()
        if self.graph.final is not None:
            code = self._final(session, status, len(failed), home)
            lines.append(f"  final node {self.graph.final.name}: {'succeeded' if not code else 'failed'}")
            fields["final"] = "failed" if code else "succeeded"
        if code:
            fields["rescue"] = str(self._rescue(done, failed))
            lines.append(f"  done nodes are in {fields['rescue']}: the same command runs the rest")
        if self.aborted:
            fields["aborted"] = self.aborted[0].name
        return After(code, fields, lines)

    def _code(self, whole: bool) -> int:
        if self.aborted is None:
            return 0 if whole else 1
        node, code = self.aborted
        own = node.abort[1] if node.abort else None
        return (code if own is None else own) & 0xFF

    def _said(self) -> list[str]:
        return [f"  given up: node {self.aborted[0].name} ended with {self.aborted[1]}"] if self.aborted else []

    def _final(self, session: Session, status: int, failed: int, home: Path) -> int:
        from ..client.client import new_key
        from ..workflow import dagbag
        from .fetching import Problems, bring

        node = self.graph.final
        assert node is not None
        parsed, key, problems = dagbag.final(self.graph, node, status, failed), new_key(), Problems()
        bag = session.ask(lambda client: client.submit(parsed.bag, parsed.uploads, key))
        ended = session.ask(lambda client: client.wait(bag))
        if any(target.outputs for target in parsed.bag.targets):
            session.ask(lambda client: bring(client, bag, home, "", problems))
        problems.tell()
        return 0 if ended["state"] == "succeeded" and not problems.count else 1

    def _rescue(self, done: list[str], failed: list[str]) -> Path:
        from ..workflow import rescue

        return rescue.write(self.graph, done, failed)


def attendant(graph: Graph) -> Attendant:
    for note in graph.notes:
        say(f"  {note}")
    return Attendant(graph)


def rescued(graph: Graph, fresh: bool) -> None:
    """Take up what an earlier run has done."""
    from ..workflow import rescue

    file = None if fresh else rescue.newest(graph.file)
    if file is not None:
        done = rescue.apply(graph, file)
        say(f"  {plural(done, 'node')} done before, by {file}; --fresh runs them again")
