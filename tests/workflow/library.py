"""Components for the tests, and a short way from text to a program."""

from __future__ import annotations

from windfall.workflow.components.files import loads
from windfall.workflow.yvetteml.program import ComponentLibrary, Program, compile_application


def abstract(name: str, *params: str) -> str:
    """`abstract("f", "out Matrix m", "in integer* i")`; a star is a collection."""
    lines = []
    for param in params:
        mode, kind, named = param.split()
        collection = ' collection="yes"' if kind.endswith("*") else ""
        lines.append(f'<param name="{named}" type="{kind.rstrip("*")}" mode="{mode}"{collection}/>')
    return f'<component type="abstract" name="{name}">{"".join(lines)}</component>'


MATRICES = (
    abstract("MatrixLoad", "out Matrix m", "in string url", "in integer size", "in integer div", "in integer i",
             "in integer j")
    + abstract("MatrixProduct", "out Matrix result", "in Matrix mat1", "in Matrix mat2")
    + abstract("MatrixComp", "inout Matrix final", "in integer i", "in integer j", "in integer size", "in integer div",
               "in Matrix part")
)
SORT = (
    abstract("DSortGenerator", "out VectorInteger block", "in integer size", "in real max")
    + abstract("DSortSort", "out VectorInteger sorted", "in VectorInteger block")
    + abstract("DSortMerge", "out VectorInteger o", "in VectorInteger a", "in VectorInteger b")
)


def library(parts: str) -> ComponentLibrary:
    file = loads(f"<yml-query>{parts}</yml-query>".encode(), "parts.xml")
    return ComponentLibrary({each.name: each for each in file.components})


def program_of(text: str, parts: str, **given: str) -> Program:
    application = loads(text.encode(), "app.query").application
    assert application
    return compile_application(application, library(parts), given)
