"""Files of applications and components, in both generations of their format.

The later generation has `<application name=…>` with `<params>` and `<graph>`, and
`<component type="abstract|impl|graph">` with `<params>` and `<impl lang=…>`.  The earlier one, from the YML paper,
wraps everything in `<yml-query>` and writes `<source>` and `<globals>`.  Its login and password are refused: files are
shared, tokens are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from windfall.errors import BadInput
from windfall.model.units import parse_size
from windfall.workflow.components.xmlfile import MAX_FILE, Element, read
from windfall.workflow.mistakes import MistakeLog, nearest
from windfall.workflow.text import Source, plain, read_file
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.parse import parse

MODES = ("in", "out", "inout")
KINDS = ("abstract", "impl", "graph")
LANGUAGES = ("CXX", "C", "PYTHON", "SHELL", "EXECUTABLE")
BUILT_IN = ("integer", "real", "string")
SECRETS = ("login", "password", "user", "passwd", "pass", "token")
MAX_NOTES = 20  # per file
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

ATTRIBUTES = {
    "yml-query": (),
    "application": ("name", "description"),
    "component": ("name", "type", "abstract", "description"),
    "param": ("name", "type", "mode", "collection", "description", "size", "value"),
    "impl": ("lang", "libs", "platform", "rank"), "source": ("lang", "libs", "platform", "rank"), "globals": ("lang",),
}  # fmt: skip
CHILDREN = {
    "yml-query": ("application", "component"),
    "application": ("description", "params", "param", "graph", "source"),
    "component": ("description", "params", "param", "graph", "impl", "globals", "source"),
    "params": ("param",),
    "impl": ("header", "source", "footer"),
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str
    mode: str = "in"
    collection: bool = False
    size: int | None = None  # bytes; None: unknown
    value: str | None = None  # default of an application's parameter


@dataclass(frozen=True)
class Implementation:
    lang: str
    source: str
    header: str = ""
    footer: str = ""
    libs: str = ""
    platform: str = ""  # a pattern, such as linux-x86_64 or darwin-*; empty: any
    rank: int = 0  # a host runs the highest-ranked implementation that it can


@dataclass(frozen=True)
class Component:
    name: str
    kind: str
    params: tuple[Parameter, ...] = ()
    description: str = ""
    abstract: str = ""  # the component that an implementation implements
    implementation: Implementation | None = None
    source: Source | None = None  # text of a graph component
    body: ast.Block = ()
    where: str = ""


@dataclass(frozen=True)
class Application:
    name: str
    params: tuple[Parameter, ...]
    source: Source
    body: ast.Block
    description: str = ""


@dataclass
class ComponentFile:
    application: Application | None = None
    components: list[Component] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # oddities that are no mistakes


def load(path: Path) -> ComponentFile:
    return loads(read_file(path, MAX_FILE), str(path))


def loads(data: bytes, file: str) -> ComponentFile:
    """Read a file's application and components, or raise all its mistakes."""
    if not _is_xml(data):
        return _bare(data, file)
    root = read(data, file)
    refuse_secrets(root)
    found = MistakeLog()
    reader = _FileReader(found)
    reader.top(root)
    found.tell()
    return reader.file


def _is_xml(data: bytes) -> bool:
    return data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def looks_like_xml(path: Path) -> bool:
    return _is_xml(read_file(path, 1 << 12))


def _bare(data: bytes, file: str) -> ComponentFile:
    """Read a graph without XML around it: an application without parameters."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise BadInput(f"{file} is neither XML nor a graph", "it is not text") from None
    source = plain(file, text)
    return ComponentFile(Application(Path(file).stem, (), source, parse(source)))


def refuse_secrets(root: Element) -> None:
    """Refuse credentials before any other check, so that no other complaint stands beside this one."""
    for name in root.attributes:
        if root.tag == "yml-query" and name.lower() in SECRETS:
            raise root.mistake(
                "a file must not hold credentials", "remove login and password: Windfall knows you by a token, which "
                "'windfall login' keeps in a file of your own", name)


class _FileReader:
    def __init__(self, found: MistakeLog) -> None:
        self.found = found
        self.file = ComponentFile()
        self._names: set[str] = set()  # names of the components read so far

    def top(self, root: Element) -> None:
        if root.tag == "yml-query":
            self._known(root)
            if not root.children:
                self.found.keep(root.mistake("<yml-query> is empty", "put an application or components into it"))
            for child in root.children:
                self._unit(child)
        elif root.tag in ("application", "component"):
            self._unit(root)
        else:
            hint = "a file holds an <application>, a <component>, or several of them inside one <yml-query>"
            self.found.keep(root.mistake(f"<{root.tag}> is not known", hint))

    def _unit(self, element: Element) -> None:
        if element.tag not in CHILDREN["yml-query"]:
            return
        self._known(element)
        if element.tag == "component":
            self._component(element)
        elif self.file.application is not None:
            self.found.keep(element.mistake("the file has a second application", "a file holds one"))
        else:
            self.file.application = self._application(element)

    def _known(self, element: Element) -> None:
        """Refuse unknown elements; note unknown attributes."""
        allowed = CHILDREN.get(element.tag, ())
        for child in element.children:
            if child.tag in allowed:
                self._known(child)
            else:
                near = nearest(child.tag, allowed)
                hint = f"did you mean <{near}>?" if near else f"there can be: {', '.join(allowed) or 'none'}"
                self.found.keep(child.mistake(f"<{child.tag}> is not known in <{element.tag}>", hint))
        for name in element.attributes:
            if name not in ATTRIBUTES.get(element.tag, ()) and len(self.file.notes) < MAX_NOTES:
                note = element.mistake(f"attribute '{name}' of <{element.tag}> is unknown and ignored", attribute=name)
                self.file.notes.append(f"{note.where}: {note.message}")

    # --- applications and components --------------------------------------------------------------------------------

    def _application(self, element: Element) -> Application | None:
        graph = self._graph(element)
        name = element.attributes.get("name") or Path(element.document.file).stem
        params, description = self._params(element), _description(element)
        return Application(name, params, graph[0], graph[1], description) if graph else None

    def _component(self, element: Element) -> None:
        kind, name = element.attributes.get("type", ""), element.attributes.get("name", "")
        if kind not in KINDS:
            self.found.keep(element.mistake(f"a component's type is one of {', '.join(KINDS)}, not '{kind}'", "",
                                            "type" if "type" in element.attributes else ""))
            return
        self._name(element, name)
        where = f"{element.document.file}:{element.line}"
        params, description = self._params(element), _description(element)
        if kind == "abstract":
            self._add(element, Component(name, kind, params, description, where=where))
        elif kind == "impl":
            self._implementation(element, name, description, where)
        elif graph := self._graph(element):
            self._add(element, Component(name, kind, params, description, source=graph[0], body=graph[1], where=where))

    def _add(self, element: Element, component: Component) -> None:
        if component.name in self._names:
            self.found.keep(element.mistake(f"component '{component.name}' is here twice", "give one another name"))
        self._names.add(component.name)
        self.file.components.append(component)

    def _implementation(self, element: Element, name: str, description: str, where: str) -> None:
        abstract = element.attributes.get("abstract", "")
        if not abstract:
            self.found.keep(element.mistake("which component does this implement?", 'name it: abstract="Name"'))
        program = self._program(element)
        if program is not None:
            self._add(element, Component(name, "impl", description=description, abstract=abstract,
                                         implementation=program, where=where))

    def _program(self, element: Element) -> Implementation | None:
        holder = next((each for each in element.children if each.tag == "impl"), element)
        sources = [each for each in holder.children if each.tag == "source"]
        if not sources:
            self.found.keep(element.mistake("the implementation has no <source>", "put its program there"))
            return None
        lang, libs, platform = (holder.attributes.get(name) or sources[0].attributes.get(name, "")
                                for name in ("lang", "libs", "platform"))
        if lang.upper() not in LANGUAGES:
            self.found.keep(sources[0].mistake(f"language '{lang}' is not known", "known: " + ", ".join(LANGUAGES)))
        return Implementation(
            lang=lang.upper(), source=_joined(holder, "source"),
            header=_joined(holder, "header") or _joined(holder, "globals"), footer=_joined(holder, "footer"),
            libs=libs, platform=platform, rank=self._rank(holder if "rank" in holder.attributes else sources[0]),
        )  # fmt: skip

    def _rank(self, element: Element) -> int:
        text = element.attributes.get("rank", "0")
        if not re.fullmatch(r"[+-]?[0-9]{1,6}", text):
            self.found.keep(element.mistake(f"'{text[:50]}' is not a rank", "a whole number of at most six digits",
                                            "rank"))
            return 0
        return int(text)

    def _graph(self, element: Element) -> tuple[Source, ast.Block] | None:
        graphs = [each for each in element.children if each.tag in ("graph", "source")]
        if len(graphs) != 1:
            self.found.keep(element.mistake(f"<{element.tag}> needs one <graph>, and has {len(graphs)}", ""))
            return None
        source = graphs[0].source()
        try:
            return source, parse(source)
        except BadInput as error:
            self.found.keep(error)
            return None

    # --- parameters -------------------------------------------------------------------------------------------------

    def _params(self, element: Element) -> tuple[Parameter, ...]:
        bare = [each for each in element.children if each.tag == "param"]
        inside = [child for each in element.children if each.tag == "params" for child in each.children]
        made: dict[str, Parameter] = {}
        for each in [*bare, *(child for child in inside if child.tag == "param")]:
            parameter = self._param(each)
            if parameter.name in made:
                self.found.keep(each.mistake(f"parameter '{parameter.name}' is here twice", "", "name"))
            made[parameter.name] = parameter
        return tuple(made.values())

    def _param(self, element: Element) -> Parameter:
        given = element.attributes
        name, kind, mode = given.get("name", ""), given.get("type", ""), given.get("mode", "in")
        self._name(element, name)
        if not NAME.fullmatch(kind):
            self.found.keep(element.mistake(f"'{kind}' cannot be the type of a parameter",
                                            "integer, real, string, or the name of a type of your own"))
        if mode not in MODES:
            self.found.keep(element.mistake(f"mode is one of {', '.join(MODES)}, not '{mode}'", "", "mode"))
        collection = given.get("collection", "no").lower()
        if collection not in ("yes", "no", "true", "false"):
            self.found.keep(element.mistake(f"collection is yes or no, not '{collection}'", "", "collection"))
        return Parameter(name, kind, mode, collection=collection in ("yes", "true"), size=self._size(element),
                         value=given.get("value"))

    def _size(self, element: Element) -> int | None:
        if "size" not in element.attributes:
            return 8 if element.attributes.get("type") in ("integer", "real") else None
        try:
            return parse_size(element.attributes["size"])
        except BadInput as error:
            self.found.keep(element.mistake(error.message, error.hint, "size"))
            return None

    def _name(self, element: Element, name: str) -> None:
        if not NAME.fullmatch(name):
            hint = "letters, digits and _, and no digit first"
            message = f"'{name}' cannot be a name" if name else f"a <{element.tag}> needs a name"
            self.found.keep(element.mistake(message, hint, "name" if name else ""))


def _joined(element: Element, tag: str) -> str:
    return "".join(each.text() for each in element.children if each.tag == tag)


def _description(element: Element) -> str:
    return element.attributes.get("description") or _joined(element, "description").strip()
