"""Cases drawn from the OpenAPI document: each call with valid and invalid parameters, headers and body by its schema.

Everything follows from the ground's seed.  Each reply must have a documented status and kind, and must fit its schema.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote

import jsonschema

from tests.hostile.boundaries import BODIES, VALUES, paths, replaced
from tests.hostile.ground import SWEEP, Caller, Ground, Reply

WORDS = ("main", "x", "local", "{x}", "out-{x}", "1", "0", "a,b", "failed", "uniform", "s-1", "err", "é", "", " ",
         "../x", "ab" * 32, "true", "*", "bytes 0-4/5", "bytes=0-3", "tail-safe", "target.Memory > 1")
ENDLESS = ("/watch", "/events", "/log")  # replies that may not end
DEEP = 6  # levels below which only required fields are drawn
RENEWAL = 100  # cases after which callers get new tokens, and the owner a new bag: some cases remove them
LARGE = 200_000  # bytes of a reply that is not compared with its schema
BODY = "application/json"


class Drawing:
    """Values of a schema; of `wild` ones, some part may be wrong."""

    def __init__(self, draw: random.Random, schemas: dict[str, Any]) -> None:
        self.draw, self.schemas, self.wild = draw, schemas, False
        self.bag = 1  # one that exists

    def value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        if self.wild and self.draw.random() < 0.1:
            return self.draw.choice((*VALUES, *self.edges(schema)))
        if "enum" in schema:
            return self.draw.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(self.draw.choice(schema["anyOf"]), depth)
        kind = schema.get("type", "any")
        return getattr(self, f"_{kind}")(schema, depth)

    def edges(self, schema: dict[str, Any]) -> list[Any]:
        """Return values at, and just beyond, the schema's bounds."""
        found: list[Any] = [schema[name] + more for name in ("minimum", "maximum") if name in schema
                            for more in (-1, 0, 1)]
        if "maxLength" in schema:
            found += ["x" * min(schema["maxLength"] + more, 1 << 17) for more in (0, 1)]
        return found

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        wanted = set(schema.get("required", ()))
        chance = 0.3 if depth < DEEP else 0
        wanted |= {name for name in schema.get("properties", {}) if self.draw.random() < chance}
        made = {name: self.value(schema["properties"][name], depth + 1) for name in sorted(wanted)}
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            made |= {self.draw.choice(WORDS): self.value(more, depth + 1) for _ in range(self.draw.choice((0, 1, 2)))}
        return made

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(each, depth + 1) for each in schema["prefixItems"]]
        count = self.draw.choice((0, 1, 1, 2, 3)) if depth < DEEP else 0
        return [self.value(schema.get("items") or {}, depth + 1) for _ in range(max(count, schema.get("minItems", 0)))]

    def _string(self, schema: dict[str, Any], depth: int) -> str:
        words = [word for word in WORDS if re.search(schema.get("pattern", ""), word)
                 and schema.get("minLength", 0) <= len(word) <= schema.get("maxLength", 1 << 20)]
        return self.draw.choice(words)

    def _integer(self, schema: dict[str, Any], depth: int) -> int:
        least, most = schema.get("minimum", -(1 << 31)), schema.get("maximum", 1 << 31)
        drawn = self.draw.choice((least, most, 0, 1, 2, self.draw.randint(0, 100), self.draw.randint(least, most)))
        return min(max(drawn, least), most)

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        return self.draw.choice((0, -1.5, 1e-300, 1e300, 7))

    def _boolean(self, schema: dict[str, Any], depth: int) -> bool:
        return self.draw.random() < 0.5

    def _null(self, schema: dict[str, Any], depth: int) -> None:
        return None

    def _any(self, schema: dict[str, Any], depth: int) -> Any:
        return self.draw.choice(VALUES)


class Case:
    """One request to one call of the document."""

    def __init__(self, drawing: Drawing, method: str, path: str, call: dict[str, Any]) -> None:
        draw = drawing.draw
        drawing.wild = draw.random() < 0.5
        self.method, self.call, self.headers = method.upper(), call, {}
        self.endless = path.endswith(ENDLESS)
        query = []
        for parameter in call["parameters"]:
            name, where = parameter["name"], parameter["in"]
            text = _text(_known(drawing, name) or drawing.value(parameter["schema"]))
            if where == "path":
                path = path.replace("{" + name + "}", quote(text, safe="") or "1")
            elif draw.random() < 0.5:
                if where == "query":
                    query.append(f"{name}={quote(text, safe='')}")
                else:
                    self.headers[name] = re.sub("[^ -~]", "", text)
        self.path = path + ("?" + "&".join(query) if query else "")
        self.body = _body(drawing, call.get("requestBody", {}).get("content", {}))
        if isinstance(self.body, dict) and isinstance(self.body.get("wait"), int):
            self.body["wait"] = min(self.body["wait"], 1)  # ms: the server would park the request


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()[:3_000]


def _known(drawing: Drawing, name: str) -> str:
    """Return a parameter's value that means something to the server; "" one time in three."""
    draw = drawing.draw
    known = {"bag": (str(drawing.bag),), "task": ("0", "1", "19"), "site": ("local", "s-1"), "pilot": ("1", "2"),
             "attempt": ("0", "1")}
    return draw.choice(known[name]) if name in known and draw.random() < 0.7 else ""


def _body(drawing: Drawing, content: dict[str, Any]) -> Any:
    draw = drawing.draw
    if BODY not in content:
        return draw.choice((b"", b"x" * 5, b"\0" * 5_000)) if content else None
    if drawing.wild and draw.random() < 0.1:
        return draw.choice((b"", b"{", b"\xff", b"[" * 5_000, b'{"a":1,"a":2}', b"1e999", b"null", None))
    schema = content[BODY]["schema"]
    samples = BODIES.get(schema.get("$ref", "").rpartition("/")[2])
    if samples is None or draw.random() < 0.5:
        return drawing.value(schema)
    sample = deepcopy(draw.choice(samples))  # a body drawn blindly seldom has a meaning; one part of this one changes
    return replaced(sample, draw.choice(list(paths(sample))), drawing.value({})) if drawing.wild else sample


class Judge:
    """The comparison of replies with the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.components, self.made = document["components"], {}

    def check(self, case: Case, reply: Reply) -> None:
        said = case.method, case.path, str(case.body)[:2_000], reply.status, reply.raw[:500]
        answers = case.call["responses"]
        stated = answers.get(str(reply.status))
        assert stated is not None or reply.status >= 300, ("an undocumented success", *said)
        content = (stated or answers["default"]).get("content", {})
        assert reply.kind in content or not content or not reply.raw, ("another kind of answer", reply.kind, *said)
        if reply.kind == BODY and reply.raw and content and len(reply.raw) < LARGE:
            misses = self._validator(content[BODY]["schema"]).iter_errors(reply.body)
            assert (miss := next(misses, None)) is None, (miss.message[:300], miss.json_path, *said)
        assert reply.status not in (429, 503, 507) or reply.retry_after, ("no Retry-After", *said)

    def _validator(self, schema: dict[str, Any]) -> jsonschema.protocols.Validator:
        name = json.dumps(schema)
        if name not in self.made:
            self.made[name] = jsonschema.Draft202012Validator({**schema, "components": self.components})
        return self.made[name]


def callers(ground: Ground) -> dict[str, Caller]:
    """Return who calls, by scope."""
    owner = ground.caller
    ticket = owner.call("POST", "/v1/tokens", {"scope": "enrol", "site": "local"}).body["token"]
    return {"user": owner, "admin": owner, "any": owner, "user pilot": owner, "": Caller(owner.profile, ""),
            "enrol": Caller(owner.profile, ticket), "pilot": owner.enrolled(f"n{ground.draw.random()}")[0],
            "other": owner.as_user("other")}


def cases(drawing: Drawing, document: dict[str, Any]) -> Iterator[Case]:
    """Yield cases without end, those of all calls in turn."""
    calls = [(method, path, call) for path, methods in document["paths"].items() for method, call in methods.items()]
    while True:
        for method, path, call in calls:
            yield Case(drawing, method, path, call)


def prepare(ground: Ground) -> int:
    """Give the owner a site and a bag, so that most calls concern something; return the bag's number."""
    ground.caller.call("POST", "/v1/sites", {"name": "local", "kind": "local"})
    return ground.caller.call("POST", "/v1/bags", {**SWEEP, "open": True}).body["bag"]


def run(ground: Ground, most: int) -> int:
    """Send so many requests; return how many were sent."""
    document = ground.caller.call("GET", "/v1/openapi.json").body
    judge, drawing = Judge(document), Drawing(ground.draw, document["components"]["schemas"])
    for count, case in zip(range(most), cases(drawing, document)):
        if count % RENEWAL == 0:
            ground.check_health()
            drawing.bag = prepare(ground)
            known = callers(ground)
        scope = case.call.get("x-scope", "")
        right = known[scope]
        caller = right if ground.draw.random() < 0.7 else ground.draw.choice(list(known.values()))
        judge.check(case, caller.call(case.method, case.path, case.body, endless=case.endless, **case.headers))
    return most
