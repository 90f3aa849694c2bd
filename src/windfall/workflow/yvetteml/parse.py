"""Parse the text of a graph into its tree.

The grammar is data (`yvette.lark`).  The parser bounds size and depth while it takes tokens, so no text takes it
longer than a few seconds, and no tree is deeper than the interpreter can recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.exceptions import UnexpectedInput, VisitError

from windfall.workflow.text import Source
from windfall.workflow.yvetteml import ast

MAX_TEXT = 1 << 20
MAX_TOKENS = 200_000
MAX_DEPTH = 64  # of blocks and parentheses together
MAX_INTEGER = 1 << 62
MAX_STRING = 100_000  # bytes; operating systems take no longer word in a command

CLOSES = {"ENDPAR": "par", "ENDDO": "loop", "ENDIF": "if", "RPAR": "(", "RSQB": "["}
OPENS = {"PAR": "par", "SEQ": "loop", "IF": "if", "LPAR": "(", "LSQB": "["}
CLOSER = {"par": "endpar", "loop": "enddo", "if": "endif", "(": ")", "[": "]"}
ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


def parse(source: Source) -> ast.Block:
    if len(source.text) > MAX_TEXT:
        raise source.mistake(0, f"the graph is longer than {MAX_TEXT:,} letters", "make loops of it, or components")
    watch = _TokenWatch(source)
    try:
        return tuple(_feed(source, watch))
    except UnexpectedInput as error:
        _complain(error, source, watch)
    except VisitError as error:
        if isinstance(error.orig_exc, _ParseError):
            raise source.mistake(error.orig_exc.at, *error.orig_exc.report) from None
        raise
    except _ParseError as error:
        raise source.mistake(error.at, *error.report) from None


class _ParseError(Exception):
    def __init__(self, at: int, *report: str) -> None:
        super().__init__(report[0])
        self.at, self.report = at, report


class _TokenWatch:
    """Sees every token before the parser does: counts tokens, and keeps the stack of open blocks and parentheses."""

    always_accept = ()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.open: list[tuple[str, int]] = []

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        prefixes = 0
        for number, token in enumerate(stream):
            at = token.start_pos or 0
            prefixes = prefixes + 1 if token.type in ("MINUS", "NOT") else 0
            if number >= MAX_TOKENS:
                raise _ParseError(
                    at, f"the graph has more than {MAX_TOKENS:,} words", "make loops of it, or components"
                )
            if len(self.open) + prefixes >= MAX_DEPTH:
                raise _ParseError(at, f"nested more than {MAX_DEPTH} deep", "make a component of the inner part")
            yield token
            self._note(token.type, at)

    def _note(self, kind: str, at: int) -> None:
        """Update the stack of open blocks after the parser took a token."""
        if kind in OPENS:
            self.open.append((OPENS[kind], at))
        elif kind == "DO" and self.open:
            self.open[-1] = ("loop", self.open[-1][1])
        elif kind in CLOSES and self.open:
            self.open.pop()


@cache
def _grammar() -> str:
    return (Path(__file__).parent / "yvette.lark").read_text()


@cache
def _tables() -> Lark:
    return Lark(_grammar(), parser="lalr", lexer="basic", transformer=_TreeBuilder())


def _feed(source: Source, watch: _TokenWatch) -> Any:
    """Feed the tokens of a text to the parser; all texts share its tables, each has its own watch."""
    running = _tables().parse_interactive(source.text)
    try:
        for token in watch.process(running.lexer_thread.lex(running.parser_state)):
            running.feed_token(token)
        return running.feed_token(Token("$END", "", len(source.text)))
    except UnexpectedToken as error:
        error.expected = running.accepts()
        raise


# --- the tree ------------------------------------------------------------------------------------------------------


def _at(token: Token) -> int:
    return token.start_pos or 0


@v_args(inline=True)
class _TreeBuilder(Transformer[Token, Any]):
    def start(self, block: ast.Block) -> ast.Block:
        return block

    def block(self, *statements: ast.Statement) -> ast.Block:
        return statements

    def assign(self, target: ast.Name, value: ast.Value) -> ast.Assign:
        return ast.Assign(target, value, target.at)

    def wait(self, word: Token, condition: ast.Value) -> ast.Wait:
        return ast.Wait(condition, _at(word))

    def notify(self, word: Token, *events: ast.Name) -> ast.Notify:
        return ast.Notify(events, _at(word))

    def compute(self, word: Token, name: Token, *arguments: ast.Value | None) -> ast.Compute:
        return ast.Compute(str(name), tuple(each for each in arguments if each is not None), _at(name))

    def par(self, word: Token, *branches: ast.Block) -> ast.Par:
        return ast.Par(branches, _at(word))

    def loop(self, word: Token, *parts: Any) -> ast.Loop:
        iterators = tuple(each for each in parts[:-1] if isinstance(each, ast.Iterator))
        excludes = tuple(each for each in parts[:-1] if not isinstance(each, ast.Iterator))
        return ast.Loop(word.type == "PAR", iterators, excludes, parts[-1], _at(word))

    def iterator(self, name: Token, low: ast.Value, high: ast.Value) -> ast.Iterator:
        return ast.Iterator(str(name), low, high, _at(name))

    def exclude(self, *values: ast.Value) -> tuple[ast.Value, ...]:
        return values

    def if_(self, word: Token, condition: ast.Value, then: ast.Block, otherwise: ast.Block | None) -> ast.If:
        return ast.If(condition, then, otherwise or (), _at(word))

    def unary(self, op: Token, operand: ast.Value) -> ast.Unary:
        return ast.Unary(str(op), operand, _at(op))

    def compare(self, left: ast.Value, op: Token | None = None, right: ast.Value | None = None) -> ast.Value:
        return left if op is None or right is None else ast.Compare(str(op), left, right, left.at)

    def _chain(self, first: ast.Value, *rest: Any) -> ast.Value:
        pairs = tuple((str(op), value) for op, value in zip(rest[::2], rest[1::2], strict=True))
        return ast.Chain(first, pairs, first.at)

    or_ = and_ = sum = product = _chain

    def integer(self, token: Token) -> ast.Integer:
        if len(token) > 19 or int(token) >= MAX_INTEGER:
            raise _ParseError(_at(token), "the number is too large", f"integers go to {MAX_INTEGER - 1:,}")
        return ast.Integer(int(token), _at(token))

    def real(self, token: Token) -> ast.Real:
        value = float(token)
        if value == float("inf"):
            raise _ParseError(_at(token), "the number is too large")
        return ast.Real(value, _at(token))

    def string(self, token: Token) -> ast.String:
        text = _unquoted(token[1:-1])
        if len(text.encode()) > MAX_STRING:
            raise _ParseError(
                _at(token), f"the text is longer than {MAX_STRING:,} bytes", "hand it over as data, in a file"
            )
        return ast.String(text, _at(token))

    def name(self, token: Token, *indices: ast.Value) -> ast.Name:
        return ast.Name(str(token), indices, _at(token))


for _word in ("if", "or", "and"):
    setattr(_TreeBuilder, _word, getattr(_TreeBuilder, _word + "_"))


def _unquoted(text: str) -> str:
    out, letters = [], iter(text)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters)
            out.append(ESCAPES.get(escaped, "\\" + escaped))
        else:
            out.append(letter)
    return "".join(out)


# --- complaints ----------------------------------------------------------------------------------------------------

SPELT = {
    "SEMICOLON": "';'", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COMMA": "','",
    "__ANON_0": "':='", "_BRANCH": "'//'", "NAME": "a name",
    "INTEGER": "a number", "REAL": "a number", "STRING": "a text", "$END": "the end",
}  # fmt: skip
STATEMENT = {"COMPUTE", "PAR", "SEQ", "IF", "WAIT", "NOTIFY", "NAME"}
VALUE = {"INTEGER", "REAL", "STRING", "NAME", "LPAR", "MINUS"}
OPERATOR = {"PLUS", "MINUS", "TIMES", "DIVIDE", "MODULO", "EQ", "NEQ", "LT", "LE", "GT", "GE", "AND", "OR"}
KEYWORDS = ("compute", "wait", "notify", "par", "endpar", "seq", "do", "enddo", "exclude", "if", "then", "else",
            "endif", "and", "or", "not", "eq", "neq", "lt", "le", "gt", "ge")


def _complain(error: UnexpectedInput, source: Source, watch: _TokenWatch) -> NoReturn:
    if isinstance(error, UnexpectedCharacters):
        raise source.mistake(error.pos_in_stream or 0, *_strange(source.text[error.pos_in_stream or 0])) from None
    assert isinstance(error, UnexpectedToken)
    expected = set(error.expected or ())
    hint = _advice(error.token, expected, source, watch)
    if error.token.type == "$END":
        at = len(source.text.rstrip())
        raise source.mistake(at, f"the graph ends too early: {_asked(expected)} is missing", hint) from None
    word = str(error.token)[:40]
    raise source.mistake(_at(error.token), f"'{word}' does not belong here, but {_asked(expected)}", hint) from None


def _strange(letter: str) -> tuple[str, str]:
    if letter == '"':
        return "this text is not closed", 'a text ends with " on the same line'
    if letter in "\u201c\u201d\u201e'\u2018\u2019":
        return f"{letter!r} does not belong here", 'a text stands in plain quotes: "…"'
    if letter.isspace() or not letter.isprintable():
        return f"{letter!r} does not belong here", "it looks like a space, or like nothing: write a plain space"
    return f"{letter!r} does not belong here", {"=": "':=' assigns, 'eq' compares", "<": "'lt' and 'le' compare",
                                              ">": "'gt' and 'ge' compare", "!": "'neq' compares"}.get(letter, "")


def _asked(expected: set[str]) -> str:
    words = []
    if expected >= VALUE:
        words, expected = ["a value"], expected - VALUE - {"NOT"}
    elif expected >= STATEMENT:
        words, expected = ["a statement"], expected - STATEMENT - {"SEMICOLON"}
    if len(expected - OPERATOR - {"LSQB"}):
        expected = expected - OPERATOR - {"LSQB"}
    words += sorted({SPELT.get(each, f"'{each.strip('_').lower()}'") for each in expected})
    return " or ".join(words)


def _unclosed(source: Source, watch: _TokenWatch) -> str:
    if not watch.open:
        return ""
    what, at = watch.open[-1]
    line, column = source.place(at)
    shown = what if what == "loop" else f"'{what}'"
    return f"the {shown} that begins at line {line}, column {column} has no '{CLOSER[what]}'"


def _advice(token: Token, expected: set[str], source: Source, watch: _TokenWatch) -> str:
    if token.type in ("THEN", "ELSE"):
        return f"'{token}' belongs to an 'if', and none is open here"
    if _leaves_open(token, watch):
        return _unclosed(source, watch) or ("statements end with ';'" if "SEMICOLON" in expected else "")
    if token.type in CLOSES and not watch.open:
        return f"nothing is open here that '{token}' could close"
    near = _nearest(source, token)
    if not near and "SEMICOLON" in expected and not expected >= STATEMENT:
        return "as in (i := 1; n)" if token.type == "COMMA" else "statements end with ';'"
    return near


def _leaves_open(token: Token, watch: _TokenWatch) -> bool:
    """Does the token end the text, or close something else, while a construct is open?"""
    return token.type == "$END" or bool(
        token.type in CLOSES and watch.open and CLOSER[watch.open[-1][0]] != token)


def _nearest(source: Source, token: Token) -> str:
    """Suggest a keyword: the parser takes a misspelt one for a name, and stumbles over it or over the next word."""
    from difflib import get_close_matches

    for word in ([str(token)] if token.type == "NAME" else []) + source.text[: _at(token)].split()[-1:]:
        near = get_close_matches(word.lower(), KEYWORDS, 1, 0.75)
        if near and near[0] != word:
            return f"did you mean '{near[0]}' instead of '{word}'?"
    return ""
