"""The types of `Client`'s answers agree with the answers of the server."""

import typing

import msgspec
import pytest

from tests.live.real import until
from windfall.client import types
from windfall.model.spec import Bag, Range, Sweep, Target
from windfall.server.http import schema


def test_the_public_names_are_pinned():
    assert sorted(types.__all__) == [
        "Appended", "BagInfo", "BagSummary", "Cause", "Change", "File", "Health", "PilotInfo", "Place", "RerunDone",
        "Row", "SiteInfo", "Slow", "Statistics", "Submitted", "TargetInfo", "TaskInfo", "TokenMade", "TrialMade",
        "Update",
    ]
    assert all(hasattr(types, name) for name in types.__all__)


@pytest.mark.parametrize("ours, theirs", [
    (types.Submitted, schema.Submitted), (types.Appended, schema.AppendedTasks), (types.TargetInfo, schema.TargetView),
    (types.BagInfo, schema.BagView), (types.Row, schema.ResultRow), (types.TaskInfo, schema.TaskView),
    (types.Place, schema.PlaceUsage), (types.Slow, schema.SlowAttempt), (types.Statistics, schema.Statistics),
    (types.Cause, schema.FailureCause), (types.TokenMade, schema.TokenMade),
    (types.TrialMade, schema.TrialMade), (types.Health, schema.Health)])
def test_types_have_the_fields_of_the_servers_records(ours, theirs):
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(theirs)}
    hints = typing.get_type_hints(ours)
    assert hints.keys() == fields.keys()
    plain = (int, str, float, bool, int | None, list[str], list[int], dict[str, int], dict[str, typing.Any])
    assert {name: hints[name] for name in hints if fields[name] in plain} == {
        name: fields[name] for name in fields if fields[name] in plain}


def test_answers_of_a_real_server_fit_these_types(client):
    command = 'test {x} = 1 && printf made > o || exit 3'
    target = Target(command=command, outputs=["o"], retries=0, source=Sweep(axes=[Range(name="x", first=1, last=2)]))
    submitted = client.submitted(Bag(name="typed", targets=[target]))
    bag = submitted["bag"]
    until(lambda: client.wait(bag))
    client.add_site("typed", "local")
    answers = [
        (types.Submitted, [submitted]), (types.BagInfo, [client.bag(bag)]), (types.BagSummary, client.bags()),
        (types.Row, list(client.results(bag))), (types.TaskInfo, [client.task(bag, 0), client.task(bag, 1)]),
        (types.PilotInfo, client.pilots()), (types.SiteInfo, client.sites()), (types.Health, [client.health()]),
        (types.Statistics, [client.statistics(bag)]), (types.Cause, client.failures(bag)),
        (types.TokenMade, [client.add_token("user")])]
    for kind, rows in answers:
        assert rows, kind
        for row in rows:
            msgspec.convert(row, kind, strict=True)
            assert row.keys() == kind.__annotations__.keys() | typing.get_type_hints(kind).keys(), kind
    for update in client.watch(bag, rows=True):
        msgspec.convert(update, types.Update, strict=True)
