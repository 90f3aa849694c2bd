"""XML read as hostile input: no document type, no entities, bounded in size, depth and number of elements.

The reader uses expat itself rather than a tree of the standard library: expat tells line and column of every piece, so
a complaint about an embedded graph names the place in the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from windfall.errors import BadInput, TooLarge
from windfall.workflow.text import FilePlace, Piece, Source, complaint

MAX_FILE = 4 << 20
MAX_DEPTH = 32
MAX_ELEMENTS = 20_000
NEAR = 2_000  # letters of a line searched for an attribute


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    document: Document
    line: int
    column: int
    children: list[Element] = field(default_factory=list)
    pieces: list[tuple[str, int, int]] = field(default_factory=list)  # text outside its children, line, column

    def text(self) -> str:
        return "".join(text for text, _, _ in self.pieces)

    def source(self) -> Source:
        """Return the element's text as a source whose pieces know their place in the file."""
        at, pieces = 0, []
        for text, line, column in self.pieces or [("", self.line, self.column)]:
            pieces.append(Piece(at, line, column))
            at += len(text)
        return Source(self.document.file, self.text(), self.document.lines, pieces)

    def mistake(self, message: str, hint: str = "", attribute: str = "") -> BadInput:
        """Make an error placed at the element, or at one of its attributes."""
        line, column = self._place(attribute) if attribute else (self.line, self.column)
        return complaint(FilePlace(self.document.file, self.document.lines, line, column), message, hint)

    def _place(self, attribute: str) -> tuple[int, int]:
        word, start = re.compile(rf"(?<![\w.:-]){re.escape(attribute)}\s*="), self.column - 1
        for number in range(self.line - 1, min(self.line + 20, len(self.document.lines))):
            if match := word.search(self.document.lines[number], start, start + NEAR):
                return number + 1, match.start() + 1
            start = 0
        return self.line, self.column


@dataclass(frozen=True)
class Document:
    file: str
    lines: list[str] = field(repr=False)


def read(data: bytes, file: str) -> Element:
    if len(data) > MAX_FILE:
        raise TooLarge(f"{file} is larger than {MAX_FILE >> 20} MiB", "large data belongs into files of its own")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    reader = _XmlReader(Document(file, text.replace("\r\n", "\n").split("\n")))
    return reader.read(data)


class _XmlReader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.open: list[Element] = []
        self.root: Element | None = None
        self.count = 0
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = False  # so that each piece has its own place
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.UnparsedEntityDeclHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse

    def read(self, data: bytes) -> Element:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise self._wrong(error.lineno, error.offset + 1, f"this is not XML: {reason}", _advice(reason)) from None
        except (LookupError, ValueError) as error:
            raise self._wrong(1, 1, f"this XML cannot be read: {error}", "write it in UTF-8") from None
        assert self.root is not None  # expat refuses a document without a root
        return self.root

    def _wrong(self, line: int, column: int, message: str, hint: str) -> BadInput:
        return complaint(FilePlace(self.document.file, self.document.lines, line, column), message, hint)

    def _here(self) -> tuple[int, int]:
        return self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.open) >= MAX_DEPTH or self.count > MAX_ELEMENTS:
            raise self._wrong(*self._here(), "too many elements, or nested too deep", f"at most {MAX_ELEMENTS:,}, "
                              f"{MAX_DEPTH} deep")
        element = Element(tag, attributes, self.document, *self._here())
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def _end(self, _tag: str) -> None:
        self.open.pop()

    def _text(self, text: str) -> None:
        if self.open:
            self.open[-1].pieces.append((text, *self._here()))

    def _refuse(self, *_what: object) -> NoReturn:
        raise self._wrong(*self._here(), "document types and entities are refused", "write the text itself in place")


def _advice(reason: str) -> str:
    if "invalid token" in reason:
        return "'<' and '&' of a program are written inside <![CDATA[ … ]]>"
    if "junk after" in reason:
        return "several components stand inside one <yml-query> … </yml-query>"
    return "every <name> needs its </name>" if "mismatched" in reason or "unclosed" in reason else ""
