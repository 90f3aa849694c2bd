"""Parser of policies that are ClassAd expressions; it bounds them and checks the attributes they use.

HTCondor's implementation evaluates the expressions (`core/expressions/classads.py`).  This parser lets only these reach
it:

  * at most 4 kB, 32 levels of nesting, 200 operators: beyond that HTCondor's parser and evaluator give up, or crash;
    24 calls, 4 of them with patterns: an evaluation takes about a millisecond at worst;
  * the functions of a short list, none of which reads a clock, draws random numbers, reads the machine's state, or
    makes a long value of a short one; the parser refuses any other by name;
  * attributes of the vocabulary (`attributes.py`) and nothing else: an expression defines none, so none can grow
    through another;
  * patterns that are literal and short, repeat single characters only, search one attribute, and limit the steps of a
    match;
  * no records, no subscripts, no comments, no numbers that HTCondor would read differently (it reads 017 as 15).

Operators and precedence are ClassAd's.  The parser refuses a text where a number is needed, and the like: evaluating
it would be an error every time, and an error never matches.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.patterns import refusal, search
from windfall.model.policies import attributes
from windfall.model.policies.attributes import ANY, LIST, NUMBER, TEXT, TRUTH, Known
from windfall.model.policies.language import (
    BY_NAME,
    FUNCTIONS,
    INSTEAD,
    LEVELS,
    NAMES,
    WORDS,
    Token,
    no_function,
    tokens,
    wrong,
)
from windfall.model.policies.replica_caps import CAPS
from windfall.model.suggest import nearest

MAX_LENGTH = 4_096  # bytes
MAX_NESTING = 32
MAX_CHAIN = 200  # terms joined by operators
MAX_INTEGER = 1 << 53
MAX_CALLS = 24
MAX_LISTED = 512  # members of all lists
MAX_PATTERNS = 4
STEPS = 1_000  # of one match of a pattern


class Expression(NamedTuple):
    text: str  # as it was given
    program: str  # the same for the evaluator: flat names, patterns with a limit
    type: str
    uses: tuple[str, ...]  # attributes, in the order of their first use
    parts: tuple[tuple[str, str], ...]  # the operands of && at the top: text, program


def flat(path: str) -> str:
    """Return the evaluator's name of an attribute; no ad is nested, since `classad2` never frees a nested one."""
    return path.replace(".", "_")


# --- reading ----------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A part of an expression that has been read: the type of its value, and where it began."""

    type: str
    at: int


@lru_cache(64)
def parse(text: str) -> Expression:
    """Read an expression; BadInput says what is wrong, where, and what to do.

    Results are cached: the server, the core and the evaluator each parse a policy that is set."""
    _bounded(text)
    return ExpressionParser(text).read()


def _bounded(text: str) -> None:
    size = len(text.encode(errors="replace"))
    if size > MAX_LENGTH:
        raise TooLarge(f"an expression of {size:,} bytes; at most {MAX_LENGTH:,}", "shorten it")
    if not text.strip():
        raise BadInput("an empty expression", "as in Host.Memory >= 4000; leave the key out for none")
    for at, char in enumerate(text):
        if not char.isprintable() and char not in " \t\r\n":
            raise wrong(text, at, f"an invisible character (U+{ord(char):04X})", "remove it")


class ExpressionParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.place = 0
        self.nesting = 0
        self.chain = 0
        self.calls = self.patterns = self.listed_so_far = 0
        self.uses: dict[str, None] = {}
        self.program = [token.text for token in self.tokens]  # later with the evaluator's names and patterns
        self.ands: list[int] = []  # indices of && outside parentheses
        self.plain = True  # no operator weaker than && is outside parentheses

    def read(self) -> Expression:
        term = self.expression()
        if self.token.kind != "end":
            raise self.unexpected()
        return Expression(self.text.strip(), self.joined(0, len(self.tokens) - 1), term.type, tuple(self.uses),
                          self.parts())

    def joined(self, first: int, stop: int) -> str:
        return " ".join(self.program[first:stop])

    def parts(self) -> tuple[tuple[str, str], ...]:
        if not self.plain:
            return ()
        bounds = [-1, *self.ands, len(self.tokens) - 1]
        spans = [(a + 1, b) for a, b in pairwise(bounds)]
        return tuple((self.text[self.tokens[a].at : self.tokens[b].at].strip(), self.joined(a, b)) for a, b in spans)

    # --- moving along

    @property
    def token(self) -> Token:
        return self.tokens[self.place]

    def take(self, text: str) -> bool:
        found = self.token.kind == "operator" and self.token.text == text
        self.place += found
        return found

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.unexpected(f"'{text}' is missing")

    def wrong(self, at: int, message: str, hint: str = "") -> BadInput:
        return wrong(self.text, at, message, hint)

    def unexpected(self, message: str = "") -> BadInput:
        token = self.token
        if token.kind == "end":
            return self.wrong(token.at, message or "the expression ends too early", "something is missing here")
        hint = INSTEAD.get(token.text.lower(), "")
        if token.kind in ("name", "number", "text") and not message and not hint:
            hint = hint or "an operator is missing before it, such as && or =="
        return self.wrong(token.at, message or f"'{token.text[:40]}' is not expected here", hint)

    # --- grammar

    def expression(self) -> Term:
        """Read a condition with its two cases, a value with its substitute (`x ?: y`), or an expression without `?`."""
        term = self.binary(1)
        substitute = self.take("?:")
        if not substitute and not self.take("?"):
            return term
        self.plain = self.plain and self.nesting > 0
        if substitute:  # of an undefined value
            self.deeper()
            other = self.expression()
            self.nesting -= 1
            return Term(self.same(term, other), term.at)
        self.need(term, TRUTH, "the operand before ?")
        self.deeper()
        first = self.expression()
        self.expect(":")
        second = self.expression()
        self.nesting -= 1
        return Term(self.same(first, second), term.at)

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.wrong(self.token.at, f"more than {MAX_NESTING} levels of nesting", "make it simpler")

    def binary(self, level: int) -> Term:
        left = self.unary()
        while (mine := self.operator_level()) >= level:
            operator, place = self.token, self.place
            self.place += 1
            self.chain += 1
            if self.chain > MAX_CHAIN:
                raise self.wrong(operator.at, f"more than {MAX_CHAIN} operators", "member(x, {…}) looks in a list")
            if not self.nesting and operator.text == "&&":
                self.ands.append(place)
            elif not self.nesting and operator.text == "||":
                self.plain = False
            left = self.combined(operator, left, self.binary(mine + 1))
        return left

    def operator_level(self) -> int:
        token = self.token
        if token.kind == "operator" or (token.kind == "name" and token.text.lower() in ("is", "isnt")):
            return LEVELS.get(token.text.lower(), 0)
        return 0

    def unary(self) -> Term:
        token = self.token
        if token.kind != "operator" or token.text not in ("!", "-", "+"):
            return self.primary()
        self.place += 1
        self.deeper()
        term = self.unary()
        self.nesting -= 1
        wanted = TRUTH if token.text == "!" else NUMBER
        if wanted == NUMBER and term.type == TRUTH:
            raise self.wrong(term.at, f"'{token.text}' needs a number, and this is true or false",
                             "x ? 1 : 0 makes a number of it")
        self.need(term, wanted, f"the operand after {token.text}")
        return Term(wanted, token.at)

    def primary(self) -> Term:
        token = self.token
        if self.take("("):
            self.deeper()
            term = self.expression()
            self.nesting -= 1
            self.expect(")")
            return Term(term.type, token.at)
        if self.take("{"):
            return self.listed(token.at)
        if token.kind not in ("number", "text", "name"):
            raise self.unexpected()
        self.place += 1
        if token.kind == "number":
            self.number(token)
            return Term(NUMBER, token.at)
        if token.kind == "text":
            self.literal(token)
            return Term(TEXT, token.at)
        if self.take("("):
            return self.call(token)
        word = WORDS.get(token.text.lower())
        return Term(word, token.at) if word else self.attribute(token)

    def listed(self, at: int) -> Term:
        self.deeper()
        while not self.take("}"):
            term = self.expression()
            self.listed_so_far += 1
            if self.listed_so_far > MAX_LISTED:
                raise self.wrong(term.at, f"more than {MAX_LISTED} members of lists", "a pattern may be shorter")
            if term.type == LIST:
                raise self.wrong(term.at, "a list in a list", "write all members in one list")
            if not self.take(","):
                self.expect("}")
                break
            if self.token.text == "}":
                raise self.wrong(self.token.at, "the list ends with a comma", "remove the comma")
        self.nesting -= 1
        return Term(LIST, at)

    def number(self, token: Token) -> None:
        if re.match("0[0-9]", token.text):
            raise self.wrong(token.at, f"{token.text[:40]} begins with a 0", "remove the 0")
        if not math.isfinite(float(token.text)) or (token.text.isdigit() and int(token.text) > MAX_INTEGER):
            raise self.wrong(token.at, "the number is too large", f"whole numbers go up to {MAX_INTEGER:,}")

    def literal(self, token: Token) -> str:
        """Return a text without its quotes and escapes."""
        inside = token.text[1:-1]
        for match in re.finditer(r"\\(.)", inside, re.DOTALL):
            if match[1] not in '"\\':
                raise self.wrong(token.at + 1 + match.start(), f"unknown escape '{match[0]}'",
                                 r'only \" and \\ exist; write a \ in a pattern as \\')
        return re.sub(r"\\(.)", r"\1", inside)

    def attribute(self, token: Token) -> Term:
        known: Known | None = attributes.find(token.text)
        if known is None:
            hint = INSTEAD.get(token.text.lower()) or attributes.nearest(token.text)
            raise self.wrong(token.at, f"there is no attribute '{token.text[:80]}'", hint)
        self.uses.setdefault(known.path)
        self.program[self.place - 1] = flat(known.path)
        return Term(known.type, token.at)

    # --- calls

    def call(self, token: Token) -> Term:
        name = BY_NAME.get(token.text.lower())
        if name is None:
            raise self.wrong(token.at, f"there is no function '{token.text[:80]}'", no_function(token.text))
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise self.wrong(token.at, f"more than {MAX_CALLS} calls of functions", "member(x, {…}) looks in a list")
        function, first = FUNCTIONS[name], self.place
        self.deeper()
        given: list[Term] = []
        while not self.take(")"):
            if given:
                self.expect(",")
            given.append(self.expression())
        self.nesting -= 1
        if not function.least <= len(given) <= len(function.takes):
            most = f" to {len(function.takes)}" if len(function.takes) > function.least else ""
            raise self.wrong(token.at, f"{name} takes {function.least}{most} arguments, not {len(given)}",
                             f"{name}: {function.says}")
        for number, (term, wanted) in enumerate(zip(given, function.takes, strict=False), 1):
            self.need(term, wanted, f"argument {number} of {name}")
        if name == "regexp":
            self.pattern(token, first, len(given))
        return Term(self.same(*given[1:]) if name == "ifThenElse" else function.gives, token.at)

    def pattern(self, token: Token, first: int, given: int) -> None:
        """Check a call of regexp: its first argument is a literal text, its third, if any, is "i"."""
        if self.tokens[first].kind != "text" or self.tokens[first + 1].text != ",":
            raise self.wrong(self.tokens[first].at, "a pattern must be a text in quotes",
                             'the pattern comes first, as in regexp("myhost", Host.Name)')
        self.patterns += 1
        if self.patterns > MAX_PATTERNS:
            raise self.wrong(token.at, f"more than {MAX_PATTERNS} patterns", "join two of them by |, as in a|b")
        if given == 3 and [each.text for each in self.tokens[self.place - 3 : self.place - 1]] != [",", '"i"']:
            raise self.wrong(token.at, 'the third argument of regexp can only be "i"', "leave it out")
        self.searched(first + 2)
        pattern = self.literal(self.tokens[first])
        if why := refusal(pattern):
            raise self.wrong(self.tokens[first].at, *why)
        self.program[first] = '"' + _limited(pattern).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def searched(self, place: int) -> None:
        """Check that a pattern searches one attribute, whose length is bounded."""
        token, behind = self.tokens[place], self.tokens[place + 1]
        if token.kind != "name" or behind.text not in (",", ")"):
            raise self.wrong(token.at, "a pattern can search only one attribute",
                             'as in regexp("myhost", Host.Name)')

    # --- types

    def need(self, term: Term, wanted: str, what: str) -> None:
        fits = {TRUTH: (TRUTH, NUMBER, ANY), NUMBER: (NUMBER, TRUTH, ANY), TEXT: (TEXT, ANY), LIST: (LIST,)}
        if term.type not in fits.get(wanted, (NUMBER, TEXT, TRUTH, ANY)):
            raise self.wrong(term.at, f"{what} must be {NAMES[wanted]}, and this is {NAMES[term.type]}",
                             _convert(term.type, wanted))

    def combined(self, operator: Token, left: Term, right: Term) -> Term:
        sign = operator.text.lower()
        if LIST in (left.type, right.type):
            raise self.wrong(operator.at, f"'{sign}' cannot be used with a list", "member(x, {…}) searches a list")
        if sign in ("&&", "||"):
            self.need(left, TRUTH, f"the operand before {sign}")
            self.need(right, TRUTH, f"the operand after {sign}")
            return Term(TRUTH, left.at)
        if sign in ("+", "-", "*", "/", "%"):
            self.need(left, NUMBER, f"the operand before {sign}")
            self.need(right, NUMBER, f"the operand after {sign}")
            return Term(NUMBER, left.at)
        if sign not in ("is", "isnt", "=?=", "=!=") and _alike(left.type) != _alike(right.type) and \
                ANY not in (left.type, right.type):
            raise self.wrong(operator.at, f"'{sign}' compares {NAMES[left.type]} with {NAMES[right.type]}",
                             "write texts in quotes, and numbers without")
        return Term(TRUTH, left.at)

    def same(self, *terms: Term) -> str:
        """Return the common type of the two cases; refuse cases of different types."""
        types = dict.fromkeys(term.type for term in terms if term.type != ANY)
        if len({_alike(each) for each in types}) > 1:
            raise self.wrong(terms[-1].at, f"{' in one case, '.join(NAMES[each] for each in types)} in the other",
                             "both cases must have the same type")
        return TRUTH if list(types) == [TRUTH] else next((each for each in types if each != TRUTH), ANY)


def _limited(pattern: str) -> str:
    """Return a pattern with limits, which hold for a match from one place, so this one matches at the first."""
    return f"(*LIMIT_MATCH={STEPS})(*LIMIT_DEPTH={STEPS}){search(pattern)}"


def _alike(kind: str) -> str:
    """Return a type for comparisons, in which true counts as 1 and false as 0."""
    return NUMBER if kind == TRUTH else kind


def _convert(has: str, wanted: str) -> str:
    if has == TEXT and wanted == TRUTH:
        return 'compare it, as in Host.Name == "a"'
    if has == LIST:
        return "member(x, {…}) searches a list"
    return "write a list in braces, as in {1, 2}" if wanted == LIST else ""


# --- policies ---------------------------------------------------------------------------------------------------


class PolicyKind(NamedTuple):
    """A policy that is an expression: the type of its value, and the ads that it may use."""

    type: str
    scopes: tuple[str, ...]
    says: str
    alias: str  # what GridBot calls it


KINDS = {
    "requirements": PolicyKind(TRUTH, ("Host", "Site", "Task", "Bag", "Queue", "Now"),
                         "which hosts may run the bag's tasks", "JobRequirements"),
    "rank": PolicyKind(NUMBER, ("Host", "Site", "Task", "Bag", "Queue", "Now"),
                 "which bag goes first at a host: the one with the highest", "Rank"),
    "sites": PolicyKind(TRUTH, ("Site", "Bag", "Queue", "Now"),
                  "at which sites its tasks may run, and pilots be started for it", "GridPolicy"),
    "replicate": PolicyKind(TRUTH, ("Task", "Replica", "Bag", "Queue", "Now"),
                      "is a task that runs to be given to one more host?", "ReplicationRequirements"),
    "per-host": PolicyKind(NUMBER, ("Host", "Site", "Task", "Bag", "Queue", "Now"),
                     "how many tasks of the bag a host may hold at once", "Concurrency"),
    "attempt-deadline": PolicyKind(NUMBER, ("Host", "Site", "Task", "Bag", "Queue", "Now", "PerHost"),
                             "s after which an attempt's task is given to another host, too", "Deadline"),
}
ALIASES = {kind.alias: key for key, kind in KINDS.items()}


INSTEAD_OF = {
    "deadline": "attempt-deadline gives a task that takes longer to another host, too",
    "budget": "Client.set_budget changes it",
    "priority": "rank says which of your bags goes first at a host",
    **dict.fromkeys(("select", "batch", "batch-timeout", "provision", "fail-over"),
                    "this policy is set when the bag is submitted, and cannot be changed"),
}


def named(name: str, *others: str) -> str:
    """Return the policy with this name, Windfall's or GridBot's; `others` are further names allowed."""
    name, known = name.replace("_", "-"), (*KINDS, *CAPS, *others)
    if name in INSTEAD_OF and name not in others:  # before GridBot's Deadline
        raise BadInput(f"there is no policy '{name}' to set", INSTEAD_OF[name])
    key = next((key for key in (*known, *ALIASES) if key.lower() == name.lower()), "")
    if not key:
        raise BadInput(f"there is no policy '{name[:40]}'", nearest(name, known))
    return ALIASES.get(key, key)


def serves(found: Expression) -> list[str]:
    """Return the policies that an expression can serve as."""
    return [key for key in KINDS if not _misfit(found, key)]


def check(text: str, key: str) -> Expression:
    """Read an expression for the policy `key`."""
    found = parse(text)
    misfit = _misfit(found, key)
    if misfit:
        at, message, hint = misfit
        raise wrong(text, at, message, hint)
    return found


def _misfit(found: Expression, key: str) -> tuple[int, str, str] | None:
    """Return why an expression cannot serve as a policy, as (place, message, hint); None if it can."""
    kind, text = KINDS[key], found.text
    if text.lower() in ("undefined", "error"):
        return 0, f"{key} would always be {text.lower()}", f"leave {key} out instead"
    for path in found.uses:
        known = attributes.find(path)
        if known is not None and known.scope not in kind.scopes:
            name = path.split(".")[-1].lower()
            at = next((token.at for token in tokens(text) if token.text.lower().endswith(name)), 0)
            return at, f"{key} cannot use {path}", f"it can use {', '.join(kind.scopes)}"
    if found.type in (kind.type, ANY) or (key == "rank" and found.type == TRUTH):  # true is 1, so it comes first
        return None
    hint = "compare it with a value" if kind.type == TRUTH else "give a number"
    return 0, f"{key} must be {NAMES[kind.type]}, and this is {NAMES[found.type]}", hint
