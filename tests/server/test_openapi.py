"""The interface described by itself, against what the documentation promises."""

import re
from pathlib import Path

import pytest
from server_tools import Client

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md").read_text()


@pytest.fixture(scope="module")
def document(tls):
    return Client(tls.profile).call("GET", "/v1/openapi.json").body


def walk(value):
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from walk(each)
    elif isinstance(value, list):
        for each in value:
            yield from walk(each)


def test_every_reference_leads_somewhere(document):
    known = document["components"]["schemas"]
    for each in walk(document):
        if "$ref" in each:
            assert each["$ref"].removeprefix("#/components/schemas/") in known


def test_every_operation_is_complete(document):
    assert document["openapi"].startswith("3.1")
    seen = set()
    for path, item in document["paths"].items():
        for operation in item.values():
            assert operation["responses"] and operation["summary"]
            assert operation["operationId"] not in seen
            seen.add(operation["operationId"])
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))


def test_openapi_lists_every_documented_call(document):
    listed = [(method, path) for path, item in document["paths"].items() for method in item]
    calls = {(method.upper(), re.sub(r"{\w+}", "N", path)) for method, path in listed}
    text = DOCUMENT.replace("SHA256", "1").replace("/ID", "/1")
    for method, path in re.findall(r"`(GET|POST|PUT|HEAD|DELETE) (/[^`?\[ ]*)", text):
        assert (method, re.sub(r"/\d+", "/N", path)) in calls, (method, path)


def test_numbers_in_paths_and_queries_have_bounds(document):
    call = document["paths"]["/v1/bags/{bag}/results"]["get"]
    bag, after, limit, state = (parameter["schema"] for parameter in call["parameters"])
    assert all(each["type"] == "integer" and each["maximum"] for each in (bag, after, limit))
    assert state == {"type": "string"}


def test_successes_other_than_200_are_described(document):
    assert "201" in document["paths"]["/v1/bags"]["post"]["responses"]
    assert "206" in document["paths"]["/v1/blobs/{sha256}"]["get"]["responses"]


def test_valid_by_the_standard(document):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document)


def test_metrics_have_the_format_of_prometheus(tls):
    text = Client(tls.profile).call("GET", "/metrics").raw.decode()
    names = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    assert {"windfall_tasks", "windfall_pilots", "windfall_exchanges_total", "windfall_flush_seconds"} <= names
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) .*|\w+({[^}]*})? [-+0-9.e]+|\w+', line), line
    counts = [int(n) for n in re.findall(r"windfall_flush_seconds_bucket{[^}]*} (\d+)", text)]
    assert counts == sorted(counts)


def test_pilots_file_is_served_with_its_hash(tls):
    import hashlib
    reply = Client(tls.profile).call("GET", "/v1/pilot.pyz")
    assert reply.status == 200 and reply.headers["ETag"] == f'"{hashlib.sha256(reply.raw).hexdigest()}"'
