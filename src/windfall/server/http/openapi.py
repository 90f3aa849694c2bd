"""The OpenAPI document, made from the table of routes and the records."""

from __future__ import annotations

from typing import Any

import msgspec

from windfall.server.calls.admin import VERSION
from windfall.server.http.server import Route

ERROR = {
    "type": "object", "required": ["error"],
    "properties": {"error": {
        "type": "object", "required": ["code", "message", "hint", "retry"],
        "properties": {
            **{name: {"type": "string"} for name in ("code", "message", "hint", "where", "text")},
            "retry": {"type": "boolean"}, "retry_after": {"type": "number"},
        },
    }},
}
_NAMES = {
    "bags": ("bag", "task"), "blobs": ("sha256",), "attempts": ("attempt",), "tokens": ("id",), "pilots": ("pilot",),
    "sites": ("site",),
}


def document(routes: list[Route]) -> bytes:
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if isinstance(kind, type)]
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    components["Error"] = ERROR
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path, parameters = _path(route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, parameters)
    return msgspec.json.format(msgspec.json.encode({
        "openapi": "3.1.0",
        "info": {"title": "Windfall", "version": VERSION},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }))


def _path(template: str) -> tuple[str, list[str]]:
    parts = template.split("/")
    names = list(_NAMES.get(parts[2] if len(parts) > 2 else "", ()))[: template.count("{}")]
    for name in names:
        template = template.replace("{}", f"{{{name}}}", 1)
    return template, names


def _operation(route: Route, parameters: list[str]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('{}', 'N').replace('.', '_')}",
        "responses": {
            **{status: {"description": text, **_content(route.gives)} for status, text in _successes(route).items()},
            "default": {"description": "an error", **_content_of({"$ref": "#/components/schemas/Error"})},
        },
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _NUMBERS.get(name, {"type": "string"})}
            for name in parameters
        ] + [{"name": name, "in": "query", "schema": _option(route.path, name)}
             for name in _OPTIONS.get(route.path, ())],
    }
    if route.scope:
        operation["security"] = [{"token": []}]
        operation["x-scope"] = route.scope
    if route.takes is not None:
        operation["requestBody"] = {"required": True, **_content(route.takes)}
    return operation


def _option(path: str, name: str) -> dict[str, Any]:
    if name in ("limit", "from", "offset", "task") or (name == "after" and not path.endswith("/story")):
        return {"type": "integer", "minimum": -1, "maximum": 10**16 - 1}  # `Request.number` takes 16 characters
    return {"type": "string"}


_NUMBERS = {
    **{name: {"type": "integer", "minimum": 0, "maximum": 10**15 - 1} for name in ("bag", "task", "pilot")},
    "attempt": {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1},
}
_OPTIONS = {
    "/v1/bags/{}/results": ("after", "limit", "state"),
    "/v1/bags/{}/tasks/{}/log": ("stream", "follow"),
    "/v1/bags/{}/tasks/{}/story": ("after", "limit"),
    "/v1/bags/{}/explain": ("task",),
    "/v1/hosts": ("after", "limit"),
    "/v1/bags/{}/hosts": ("after", "limit"),
    "/v1/bags/{}/watch": ("from", "rows"),
    "/v1/events": ("from",),
    "/v1/attempts/{}/output": ("stream", "offset"),
}


def _successes(route: Route) -> dict[str, str]:
    return {"200": "done"} | _MORE.get((route.method, route.path), {})


_MORE = {("POST", path): {"201": "made"} for path in ("/v1/bags", "/v1/sites", "/v1/tokens", "/v1/trials")} | {
    ("PUT", "/v1/blobs/{}"): {"201": "complete"}, ("GET", "/v1/blobs/{}"): {"206": "the range asked for"}}


def _content(kind: Any) -> dict[str, Any]:
    if isinstance(kind, type):
        return _content_of({"$ref": f"#/components/schemas/{kind.__name__}"})
    if isinstance(kind, str):
        return {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}}
    return _content_of({"type": "object"})


def _content_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
