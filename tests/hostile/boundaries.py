"""Boundary values in every field and parameter of every call that the OpenAPI document describes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from tests.hostile.ground import SWEEP, Ground

NUMBERS = [0, -1, 1, *(sign * (1 << bits) + more for bits in (15, 31, 32, 53, 59, 63, 64, 200) for sign in (1, -1)
                       for more in (-1, 0, 1))]
OTHERS = [None, True, 1.5, 1e308, "", "1", "x" * 5_000, "\ud800", "../..", "\0", [], [[]], {}, {"": None}, [0] * 300]
VALUES = [*NUMBERS, *OTHERS]
ENDLESS = ("/watch", "/events", "/log", "/story")  # answers that may not end, or whose parameters are texts
HOST = {"id": "h", "name": "h", "cores": 1, "memory": 1, "gpus": [{"id": "0", "name": "g", "memory": 1}]}
BODIES: dict[str, list[Any]] = {
    "Bag": [{**SWEEP, "policy": {"batch": 2, "batch_timeout": 5, "budget": 0}, "edges": [[0, 1]],
             "flows": {"before": [], "after": [], "name": [], "place": [], "names": [], "blobs": []}},
            {"name": "l", "targets": [{"source": {"type": "lines", "text": "a\nb", "count": 2}, "retries": 1, "time": 9,
                                       "expect": 1, "grace": 1, "priority": 1, "at_once": 1,
                                       "resources": {"cores": 1, "memory": 1, "gpus": 0, "disk": 0, "nodes": 1}}]}],
    "Append": [{"source": {"type": "items", "items": ["a"]}, "target": "main"}],
    "Part": [{"first": 20, "pieces": [{"target": "main", "source": {"type": "items", "items": ["a"]}}],
              "edges": [[0, 20]]}],
    "Extend": [{"source": SWEEP["targets"][0]["source"], "files": [], "key": "k", "seen": 0}],
    "Selection": [{"tasks": [1]}, {"ranges": [[1, 2]]}, {"exit": 1, "signal": 2, "why": "exit", "note": "n"}],
    "NewBudget": [{"budget": 5}], "NewPolicy": [{"policy": {"rank": "1", "replicas-per-task": "2"}}],
    "NewToken": [{"scope": "user", "user": "u", "days": 3}], "NewAllowance": [{"user": "*", "allowance": 5}],
    "NewWeight": [{"user": "u", "weight": 2}], "Draining": [{"now": True}], "Sharing": [{"add": ["u"], "remove": []}],
    "NewSite": [{"name": "s", "kind": "local", "limits": {}}], "NewTrial": [{"site": "t"}],
    "Enrol": [{"v": 1, "site": "local", "nonce": "n", "versions": [1], "host": HOST,
               "shape": {"cores": 1, "memory": 1, "gpus": 0, "disk": 0, "left": 5, "nodes": 1}}],
    "Exchange": [{"v": 1, "epoch": 1, "seq": 1, "ack": 0, "want": 1, "wait": 0, "left": 5, "started": [1], "held": [1],
                  "reports": [{"a": 1, "exit": 0, "wall": 1, "cpu": 1, "rss": 1, "t0": 1, "t1": 2, "out_size": 1,
                               "files": [["p", "0" * 64, 1, 1]], "left": [1, 1], "values": {"v": "1"}}]}],
    "TendRequest": [{"site": "local", "tender": "t", "key": 1, "hello": True, "seen": 0, "accepted": [["n", "1"]],
                     "listed": [["n", "1", True]], "began": 0, "info": [1, 1, 1, 1, 1], "wait": 0,
                     "salvaged": [["n", 1]]}],
}


def variants(body: Any) -> Iterator[Any]:
    """Yield the body with one value at a time replaced, removed or repeated."""
    for path in list(paths(body)):
        for value in VALUES:
            yield replaced(body, path, value)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from paths(each, (*path, name))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = deepcopy(body)
    place = made
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return made


def requests(ground: Ground) -> Iterator[tuple[str, str, Any, str]]:
    """Yield method, path, body and scope of one request after the other, those of all calls in turn."""
    document = ground.caller.call("GET", "/v1/openapi.json").body
    calls = [_calls(ground, method, path, call) for path, methods in document["paths"].items()
             for method, call in methods.items() if path != "/v1/blobs/{sha256}"]
    while calls:
        for each in list(calls):
            if (request := next(each, None)) is None:
                calls.remove(each)
            else:
                yield request


def _calls(ground: Ground, method: str, path: str, call: dict[str, Any]) -> Iterator[tuple[str, str, Any, str]]:
    filled = path.replace("{bag}", "1").replace("{task}", "0").replace("{site}", "local")
    filled = filled.replace("{attempt}", "0").replace("{pilot}", "1").replace("{id}", "x")
    scope = call.get("x-scope", "")
    for parameter in call["parameters"]:
        marked = path.replace("{" + parameter["name"] + "}", "%s")
        for value in ground.draw.sample(VALUES, len(VALUES)):
            text = str(value).encode("utf-8", "replace").hex()
            coded = "".join(f"%{text[at:at + 2]}" for at in range(0, min(len(text), 600), 2))
            if parameter["in"] == "path":
                yield method.upper(), (marked % coded).replace("{bag}", "1").replace("{task}", "0"), None, scope
            elif not path.endswith(ENDLESS):
                yield method.upper(), f"{filled}?{parameter['name']}={coded}", None, scope
    schema = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    bodies = BODIES.get(schema.get("$ref", "").rpartition("/")[2], [])
    for body in bodies:
        made = list(variants(body))
        ground.draw.shuffle(made)
        yield from ((method.upper(), filled, each, scope) for each in made)


def run(ground: Ground, most: int) -> int:
    """Send so many requests; return how many were sent."""
    bag = ground.caller.call("POST", "/v1/bags", {**SWEEP, "open": True}).body["bag"]
    assert bag == 1
    callers = {"pilot": ground.caller.enrolled("boundaries")[0]}
    ticket = ground.caller.call("POST", "/v1/tokens", {"scope": "enrol", "site": "local"}).body["token"]
    callers["enrol"] = type(ground.caller)(ground.caller.profile, ticket)
    count = 0
    for method, path, body, scope in requests(ground):
        if count >= most:
            break
        if path.endswith(ENDLESS) and method == "GET":
            continue
        callers.get(scope, ground.caller).call(method, path, body)
        count += 1
    return count
