"""Commands of a DAG file about known nodes: order, scripts, variables, the meaning of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from windfall.errors import TooLarge
from windfall.model.checks.bag import MAX_RETRIES
from windfall.model.spec import MAX_NAME
from windfall.model.suggest import nearest
from windfall.workflow.dagman.lines import DagLine, DagWord, LineError, number, require_words
from windfall.workflow.dagman.nodes import DagContents, Node, NodeGroup, Pins, Script, Subdag
from windfall.workflow.text import Source

MAX_EDGES = 5_000_000
MAX_PINS = 100_000
MAX_PRIORITY = 1_000_000
MOST_TIMES = 1 << 30
MAX_VARS = 10_000  # variables per node
MAX_BY_ALL_NODES = 50_000_000  # nodes named through ALL_NODES, over all commands
MAX_GIVEN = 20_000_000  # variables of all nodes
EXIT = (-2_000, 255)  # below zero: signals, and codes that only DAGMan has
DAY = 86_400


class Commands(NamedTuple):
    names: dict[str, Node | NodeGroup]
    own: list[Node]  # the nodes that ALL_NODES names
    found: DagContents
    prefix: str
    outside: str  # prefix of the SUBDAG around the file

    # --- nodes by name -----------------------------------------------------------------------------------------------

    def _known(self, word: DagWord) -> Node | NodeGroup:
        known = self.names.get(word.text) or self.found.node(self.prefix + word.text)
        if known is None:
            raise LineError(word.at, f"there is no node '{word.text[:50]}'", nearest(word.text, self.names))
        return known

    def _nodes(self, word: DagWord, command: str, final: bool = False) -> list[Node]:
        if word.upper == "ALL_NODES":
            self.found.by_all_nodes += len(self.own)
            if self.found.by_all_nodes > MAX_BY_ALL_NODES:
                raise TooLarge(f"ALL_NODES stands for more than {MAX_BY_ALL_NODES:,} nodes, all in all")
            return self.own
        known = self._known(word)
        if isinstance(known, NodeGroup):
            raise LineError(
                word.at,
                f"{command} does not apply to a {known.kind}",
                "apply it to the nodes inside, which run as nodes of this DAG",
            )
        if known is self.found.final and not final:
            raise LineError(word.at, f"{command} does not apply to the FINAL node")
        return [known]

    def _units(self, word: DagWord) -> list[Subdag]:
        """Return the SUBDAG of that name, or nothing."""
        known = self.names.get(word.text)
        return [known.unit] if isinstance(known, NodeGroup) and known.unit else []

    def _numbers(self, word: DagWord, last: bool) -> list[int]:
        known = self._known(word)
        if isinstance(known, NodeGroup):
            if not known.first and not known.unread:
                raise LineError(word.at, f"the {known.kind} '{word.text[:50]}' has no nodes", "no node can wait for it")
            return known.last if last else known.first
        if known is self.found.final:
            raise LineError(word.at, "the FINAL node comes after all others by itself")
        return [self._places()[id(known)]]

    def _places(self) -> dict[int, int]:
        places = self.found.places
        for place in range(len(places), len(self.found.nodes)):
            places[id(self.found.nodes[place])] = place
        return places

    # --- order -------------------------------------------------------------------------------------------------------

    def parent(self, line: DagLine) -> None:
        before, after = _around_child(line.words)
        parents = [each for word in before for each in self._numbers(word, last=True)]
        children = [each for word in after for each in self._numbers(word, last=False)]
        if len(self.found.pairs) + len(parents) * len(children) > MAX_EDGES:
            raise TooLarge(f"more than {MAX_EDGES:,} edges", "a NOOP node between two splices joins them")
        self.found.pairs += [(a, b) for a in parents for b in children]

    def pin(self, line: DagLine) -> None:
        words = require_words(line, 3, 3, f"{line.command} NAME NUMBER")
        out = line.command == "PIN_OUT"
        pins = self.found.pins.setdefault(self.prefix, Pins({}, {}))
        nodes = (pins.out if out else pins.into).setdefault(number(words[2], 1, MAX_PINS), [])
        nodes += self._numbers(words[1], last=out)

    def connect(self, line: DagLine) -> None:
        """Let the nodes at each pin of one splice wait for those at the same pin of the other."""
        words = require_words(line, 3, 3, "CONNECT SPLICE SPLICE")
        before, after = (self._splice(word) for word in words[1:])
        if before is None or after is None:
            return
        none = Pins({}, {})
        outs = self.found.pins.get(f"{self.prefix}{words[1].text}+", none).out
        ins = self.found.pins.get(f"{self.prefix}{words[2].text}+", none).into
        _require_same_pins(outs, ins, words)
        if free := set(after.first).difference(*ins.values()):
            name = self.found.nodes[min(free)].name
            raise LineError(words[2].at, f"node '{name}' waits for no other node of its splice, and has no PIN_IN",
                            "CONNECT asks one of each such node")
        if len(self.found.pairs) + sum(len(outs[pin]) * len(ins[pin]) for pin in outs) > MAX_EDGES:
            raise TooLarge(f"more than {MAX_EDGES:,} edges")
        self.found.pairs += [(a, b) for pin in outs for a in outs[pin] for b in ins[pin]]

    def _splice(self, word: DagWord) -> NodeGroup | None:
        """Return the splice of that name; None if its file is missing, which is a mistake already."""
        known = self._known(word)
        if not isinstance(known, NodeGroup) or known.unit is not None:
            raise LineError(word.at, f"'{word.text[:50]}' is not a splice", "CONNECT joins two splices")
        return None if known.unread else known

    def priority(self, line: DagLine) -> None:
        words = require_words(line, 3, 3, "PRIORITY NAME NUMBER")
        value = number(words[2], -MAX_PRIORITY, MAX_PRIORITY)
        known = None if words[1].upper == "ALL_NODES" else self._known(words[1])
        if isinstance(known, NodeGroup) and known.kind == "SUBDAG":  # it adds to that of each node inside
            for unit in self._units(words[1]):
                for node in unit.inside(self.found.nodes):
                    node.priority += value
            return
        for node in self._nodes(words[1], "PRIORITY"):
            node.priority = value

    def category(self, line: DagLine) -> None:
        words = require_words(line, 3, 3, "CATEGORY NAME CATEGORY")
        name = self._category(words[2])
        for unit in self._units(words[1]):  # each node inside counts, unless it has a category of its own
            for node in unit.inside(self.found.nodes):
                node.category = node.category or name
        for node in self._nodes(words[1], "CATEGORY") if not self._units(words[1]) else ():
            node.category = name

    def maxjobs(self, line: DagLine) -> None:
        words = require_words(line, 3, 3, "MAXJOBS CATEGORY NUMBER")
        self.found.most[self._category(words[1])] = number(words[2], 1, 1 << 30)

    def _category(self, word: DagWord) -> str:
        """Return a category's full name: one with + in front belongs to all splices, another to its own splice."""
        name = word.text if word.text.startswith("+") else self.prefix + word.text
        if len(name) > MAX_NAME or not name.isprintable():
            raise LineError(
                word.at,
                f"'{word.text[:50]}' cannot be the name of a category",
                f"with the names of the splices around it, at most {MAX_NAME} letters",
            )
        return name

    # --- around the job ----------------------------------------------------------------------------------------------

    def script(self, line: DagLine) -> None:
        usage = "SCRIPT [DEFER STATUS SECONDS] PRE|POST NAME PROGRAM [ARGUMENTS]"
        words, at, defer = require_words(line, 4, 0, usage), 1, None
        if words[at].upper == "DEFER":
            require_words(line, 7, 0, usage)
            defer, at = (number(words[2], 1, 255), number(words[3], 0, DAY)), 4
        if words[at].upper == "DEBUG":
            require_words(line, at + 6, 0, usage)
            self.found.notes["SCRIPT DEBUG is ignored: 'windfall logs' has the output of scripts"] = None
            at += 3
        require_words(line, at + 3, 0, usage)
        when, whom, program = words[at : at + 3]
        if when.upper == "HOLD":
            self.found.notes["SCRIPT HOLD is ignored: Windfall holds no task"] = None
            return
        if when.upper not in ("PRE", "POST"):
            raise LineError(when.at, f"'{when.text[:50]}' is not understood here", usage)
        script = Script(line.source, program, [word.text for word in words[at + 3 :]], defer)
        for node in [self._guard(unit, whom, when, line.source) for unit in self._units(whom)] or self._nodes(
                whom, "SCRIPT", final=True):
            setattr(node, when.text.lower(), script)

    def _guard(self, unit: Subdag, word: DagWord, when: DagWord, source: Source) -> Node:
        """Return the node that runs a script of a SUBDAG: PRE before all nodes inside, POST after them."""
        before = when.upper == "PRE"
        place = "before" if before else "after"
        node: Node | None = getattr(unit, place)
        if node is None:
            group, found = self.names[word.text], self.found
            assert isinstance(group, NodeGroup)
            node = Node(name=f"{unit.prefix}+{when.text.lower()}", source=source, at=word.at, folder=unit.folder,
                        noop=True, done=unit.done, outside=self.outside, guards=unit.name)
            setattr(unit, place, node)
            number = len(found.nodes)
            found.nodes.append(node)
            if before:
                found.pairs += [(number, each) for each in group.first]
                group.first[:], group.last[:] = [number], group.last or [number]
            else:
                found.pairs += [(each, number) for each in group.last]
                group.first[:], group.last[:] = group.first or [number], [number]
        return node

    def pre_skip(self, line: DagLine) -> None:
        words = require_words(line, 3, 3, "PRE_SKIP NAME EXIT-CODE")
        code = number(words[2], 1, 255)
        for node in self._nodes(words[1], "PRE_SKIP", final=True):
            node.skip = code

    def vars(self, line: DagLine) -> None:
        words = require_words(line, 3, 0, 'VARS NAME [PREPEND|APPEND] MACRO="VALUE" …')
        later = words[2].upper == "APPEND"
        first = 3 if later or words[2].upper == "PREPEND" else 2
        require_words(line, first + 1, 0, 'VARS NAME [PREPEND|APPEND] MACRO="VALUE" …')
        pairs, wrong = line.pairs(first)
        if wrong >= 0:
            raise LineError(wrong, 'this is not MACRO="VALUE"', 'a value stands in double quotes; \\" is one inside')
        for pair in pairs:
            if pair.name.lower().startswith("queue"):
                raise LineError(pair.at, "the name of a macro cannot begin with 'queue'")
        if self._units(words[1]):
            self.found.notes["VARS of a SUBDAG are ignored: as with DAGMan, they do not reach its nodes"] = None
            return
        given = [(pair.name, pair.value, later) for pair in pairs]
        nodes = self._nodes(words[1], "VARS", final=True)
        self.found.given += len(nodes) * len(given)
        if self.found.given > MAX_GIVEN:
            raise TooLarge(f"more than {MAX_GIVEN:,} variables of nodes")
        for node in nodes:
            node.vars += given
            if len(node.vars) > MAX_VARS:
                raise LineError(words[1].at, f"a node has at most {MAX_VARS:,} variables")

    # --- what a failure means ----------------------------------------------------------------------------------------

    def retry(self, line: DagLine) -> None:
        words = require_words(line, 3, 5, "RETRY NAME TIMES [UNLESS-EXIT CODE]")
        times, unless = number(words[2], 0, MOST_TIMES), None
        if times > MAX_RETRIES:
            self.found.notes[f"RETRY of more than {MAX_RETRIES:,} times is one of {MAX_RETRIES:,} here"] = None
            times = MAX_RETRIES
        if len(words) > 3:
            if words[3].upper != "UNLESS-EXIT" or len(words) < 5:
                raise LineError(words[3].at, f"'{words[3].text[:50]}' is not understood here", "UNLESS-EXIT CODE")
            unless = _ended(number(words[4], *EXIT))
        for each in self._units(words[1]) or self._nodes(words[1], "RETRY"):
            each.retries, each.unless = times, unless

    def abort(self, line: DagLine) -> None:
        words = require_words(line, 3, 5, "ABORT-DAG-ON NAME EXIT-CODE [RETURN CODE]")
        code, own = _ended(number(words[2], *EXIT)), None
        if len(words) > 3:
            if words[3].upper != "RETURN" or len(words) < 5:
                raise LineError(words[3].at, f"'{words[3].text[:50]}' is not understood here", "RETURN CODE")
            own = number(words[4], 0, 255)
        units = self._units(words[1])
        if units and code > 1:
            self.found.notes["ABORT-DAG-ON of a SUBDAG acts on 0 and 1 only: it ends with no other code"] = None
        for each in units or self._nodes(words[1], "ABORT-DAG-ON"):
            each.abort = (code, own)

    def done(self, line: DagLine) -> None:
        words = require_words(line, 2, 2, "DONE NAME")
        units = self._units(words[1])
        inside = [node for unit in units for node in unit.inside(self.found.nodes)]
        for node in inside if units else self._nodes(words[1], "DONE"):
            node.done = True


def _require_same_pins(outs: dict[int, list[int]], ins: dict[int, list[int]], words: list[DagWord]) -> None:
    """Refuse pins that are not 1, 2, … on both sides of `CONNECT before after`."""
    for pins, word, command in ((outs, words[1], "PIN_OUT"), (ins, words[2], "PIN_IN")):
        if sorted(pins) != list(range(1, len(outs) + 1)) or not pins:
            raise LineError(
                word.at, f"the pins of {command} in '{word.text[:50]}' do not match: {len(outs)} go out of "
                f"'{words[1].text[:50]}', {len(ins)} into '{words[2].text[:50]}'",
                "number both from 1 on without gaps")


def _around_child(words: list[DagWord]) -> tuple[list[DagWord], list[DagWord]]:
    """Return the names before and after CHILD."""
    at = next((place for place, word in enumerate(words) if word.upper == "CHILD" and place), 0)
    if at < 2 or at == len(words) - 1:
        end = words[-1].at + len(words[-1].text)
        raise LineError(end, "PARENT is incomplete", "PARENT NAME … CHILD NAME …")
    return words[1:at], words[at + 1 :]


def _ended(code: int) -> int:
    """Turn DAGMan's −9, an end by signal 9, into the shell's 137."""
    return code if code >= 0 else 128 - code


LATER: dict[str, Callable[[Commands, DagLine], None]] = {
    "PARENT": Commands.parent, "PRIORITY": Commands.priority, "CATEGORY": Commands.category,
    "MAXJOBS": Commands.maxjobs, "SCRIPT": Commands.script, "PRE_SKIP": Commands.pre_skip, "VARS": Commands.vars,
    "PIN_IN": Commands.pin, "PIN_OUT": Commands.pin, "CONNECT": Commands.connect,
    "RETRY": Commands.retry, "ABORT-DAG-ON": Commands.abort, "DONE": Commands.done,
}  # fmt: skip
