"""The client against a real server and a real pilot; faults that only a broken server shows, against a stub."""

import base64
import functools
import hashlib
import os
import pickle
import sys

import pytest
from msgspec.structs import replace

import windfall
from tests.live.real import until
from windfall import errors
from windfall.client import Client
from windfall.client.client import new_key
from windfall.client.functions.calls import value_of
from windfall.client.functions.payload import CallFailed, Packer
from windfall.model.bagfile import reader
from windfall.model.spec import Bag, Items, Policy, Range, Resources, Sweep, Target


def sweep(n, command="printf {x} > o-{x}", outputs=("o-{x}",)):
    return Bag(
        name="b",
        targets=[Target(command=command, outputs=list(outputs), source=Sweep(axes=[Range(name="x", first=1, last=n)]))],
    )


def test_public_surface_is_pinned():
    public = ["AsyncClient", "Client", "Executor", "WindfallError", "__version__", "as_completed"]
    assert sorted(windfall.__all__) == public
    assert windfall.client.__all__ == ["Client"] and windfall.client.Client is Client
    assert windfall.Client is Client
    assert {name: getattr(windfall, name).__module__ for name in ("AsyncClient", "Executor", "as_completed")} == {
        "AsyncClient": "windfall.client.aio", "Executor": "windfall.client.functions.executor",
        "as_completed": "windfall.client.functions.futures"}
    assert windfall.WindfallError is errors.WindfallError
    assert windfall.__version__ == "0.1.0"
    with pytest.raises(AttributeError):
        windfall.Nothing  # noqa: B018


# --- there and back -----------------------------------------------------------------------------------------


def test_submitted_bag_runs_and_its_files_come_home(client, tmp_path):
    bag = client.submit(sweep(5))
    seen = []
    final = client.wait(bag, seen.append)
    assert (final["state"], final["tasks"], final["counts"]["succeeded"]) == ("succeeded", 5, 5)
    assert seen[-1]["succeeded"] == 5
    assert [row["params"]["x"] for row in client.results(bag, page=2)] == [1, 2, 3, 4, 5]
    assert client.fetch(bag, tmp_path / "out") == 5
    assert (tmp_path / "out" / "o-3").read_text() == "3"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [f"o-{i}" for i in range(1, 6)]


def test_files_of_one_name_get_a_directory_per_task(client, tmp_path):
    bag = client.submit(sweep(3, "printf {x} > o", ["o"]))
    client.wait(bag)
    client.fetch(bag, tmp_path / "out")
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("o")) == ["0/o", "1/o", "2/o"]


def test_fetch_keeps_intact_files_and_replaces_broken_ones(client, tmp_path):
    bag = client.submit(sweep(2))
    client.wait(bag)
    client.fetch(bag, tmp_path / "out")
    (tmp_path / "out" / "o-1").write_text("broken")
    untouched = (tmp_path / "out" / "o-2").stat()
    client.fetch(bag, tmp_path / "out")
    assert (tmp_path / "out" / "o-1").read_text() == "1"
    assert (tmp_path / "out" / "o-2").stat().st_ino == untouched.st_ino


def test_upload_sends_an_input_only_once(client, tmp_path):
    data = os.urandom(1000)
    (tmp_path / "in.dat").write_bytes(data)
    bag, uploads, *_ = reader.parse("[bag]\ncommand='cat in.dat'\n[task]\ninputs=['in.dat']", "b.toml", tmp_path)
    first = client.submit(bag, uploads)
    client.wait(first)
    assert b"".join(client.log(first, 0)) == data
    ((sha, file),) = uploads.items()
    assert client._http.upload(sha, file) == 0


def test_same_idempotency_key_gives_the_same_bag(client):
    key = new_key()
    assert client.submit(sweep(1), key=key) == client.submit(sweep(1), key=key)
    assert client.submit(sweep(1)) != client.submit(sweep(1))


def test_server_errors_are_raised_as_their_own_class(client):
    with pytest.raises(errors.NotFound):
        client.bag(10**9)
    with pytest.raises(errors.BadInput, match="no command"):
        client.submit(Bag(name="x", targets=[Target()]))


def test_policies_can_be_submitted_and_changed(client):
    policy = Policy(rank=2, per_host=1, attempt_deadline="30 min", replicate="Tail-Fast", replicas_per_task=2)
    bag = client.submit(Bag(name="b", targets=[Target(source=Items(items=["true"]))], policy=policy))
    assert client.policy(bag)["policy"] == {
        "rank": "2", "per-host": "1", "attempt-deadline": "1800", "replicate": "tail-fast", "replicas-per-task": "2"}
    changed = client.set_policy(bag, {"Rank": 3.5, "per_host": None, "attempt_deadline": "2min", "Concurrency": ""})
    assert changed["policy"] == {"rank": "3.5", "attempt-deadline": "120", "replicate": "tail-fast",
                                 "replicas-per-task": "2"}
    for wrong, hint in (("budget", "set_budget"), ("priority", "rank"), ("rnak", "'rank'"), ("deadline", "attempt-")):
        with pytest.raises(errors.BadInput) as caught:
            client.set_policy(bag, {wrong: "3"})
        assert hint in caught.value.hint
    with pytest.raises(errors.BadInput, match="named by its number or its name, not by 1.5"):
        client.policy(1.5)
    client.wait(bag)


def test_wrong_token_raises_unauthorised(server):
    with Client({**server.profile, "token": "nope"}) as client, pytest.raises(errors.Unauthorised):
        client.bags()


def test_pause_cancel_and_retry_change_a_bag(client):
    cores = sum(pilot["cores"] for pilot in client.pilots())
    bag = client.submit(sweep(cores + 3, "sleep 60", ()))
    assert client.pause(bag)["state"] == "paused"
    until(lambda: "paused" in client.explain(bag, cores + 2)["summary"])  # where it had been handed out, it came back
    assert client.cancel(bag, [0]) == 1
    assert client.cancel(bag) == cores + 2
    assert client.wait(bag)["counts"]["cancelled"] == cores + 3
    assert client.retry(bag, [1, 2]) == 2
    assert client.unpause(bag)["state"] in ("waiting", "running")
    assert client.cancel(bag) == 2
    assert client.task(bag, 1)["params"] == {"x": 2}
    assert client.spec(bag) == sweep(cores + 3, "sleep 60", ())


def test_open_bag_takes_tasks_until_closed(client):
    bag = client.submit(Bag(name="open", open=True, targets=[Target(source=Items(items=[]))]))
    key = new_key()
    first = client.append(bag, Items(items=["echo a", "echo b"]), key=key)
    assert first == client.append(bag, Items(items=["echo a", "echo b"]), key=key)
    assert (first["first"], first["count"]) == (0, 2)
    client.close_bag(bag)
    assert client.wait(bag)["tasks"] == 2
    with pytest.raises(errors.Conflict):
        client.append(bag, Items(items=["echo c"]))


def test_tokens_are_made_used_and_revoked(server, client):
    made = client.add_token("user", days=1)
    assert made["id"] in [token["id"] for token in client.tokens()]
    with Client({**server.profile, "token": made["token"]}) as other:
        other.bags()
        client.remove_token(made["id"])
        with pytest.raises(errors.Unauthorised):
            other.bags()


# --- Python calls -------------------------------------------------------------------------------------------


def test_call_runs_on_a_pilot(client):
    assert client.call(os.getpid) != os.getpid()
    assert client.call(os.path.join, "a", "b") == "a/b"
    assert client.call(divmod, 17, 5) == (3, 2)
    assert client.call(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    assert len(client.call(bytes, 100_000)) == 100_000


def test_call_after_its_bag_was_closed_opens_another(client):
    assert client.call(abs, -1) == 1
    calls = [bag["bag"] for bag in client.bags() if bag["name"] == "calls"]
    for bag in calls:
        client.close_bag(bag)
    assert client.call(abs, -2) == 2
    assert max(bag["bag"] for bag in client.bags() if bag["name"] == "calls") > max(calls)


def test_call_raises_the_remote_exception(client):
    with pytest.raises(ZeroDivisionError) as caught:
        client.call(divmod, 1, 0)
    assert "Traceback" in str(caught.value.__cause__)
    assert client.call(abs, -1) == 1  # the next one is not touched by it


def test_call_whose_process_dies_raises_call_failed(client):
    with pytest.raises(CallFailed):
        client.call(os.kill, 0, 9)  # its whole process group
    with pytest.raises(CallFailed):
        client.call(os._exit, 3)
    assert client.call(abs, -1) == 1


def test_large_function_travels_as_a_blob(client):
    assert client.call(functools.partial(len, "x" * (1 << 21))) == 1 << 21


def test_large_arguments_travel_as_a_blob(client):
    assert client.call(len, "x" * (1 << 21)) == 1 << 21


def test_packed_call_and_its_result_can_be_decoded():
    packer = Packer()
    version, *parts = packer.call(packer.function(os.path.join), ("a", "b"), {}).split()
    function, (args, kwargs) = (pickle.loads(base64.b64decode(part)) for part in parts)
    assert function(*args, **kwargs) == "a/b" and version == "{}.{}".format(*sys.version_info)
    value = lambda *parts: {"value": base64.b64encode(pickle.dumps(parts)).decode()}  # noqa: E731
    assert value_of(value("ok", [1, 2]), None) == [1, 2]
    with pytest.raises(KeyError) as caught:
        value_of(value("error", KeyError("k"), "Traceback, there"), None)
    assert "Traceback, there" in str(caught.value.__cause__)
    with pytest.raises(errors.WindfallError, match="Traceback, there"):
        value_of(value("error", None, "Traceback, there"), None)
    with pytest.raises(errors.WindfallError, match="memory"):
        value_of({"value": None, "why": "memory"}, None)


# --- a line that breaks -------------------------------------------------------------------------------------


def test_lost_answer_makes_no_second_bag(client, relay, cut_client):
    before = len(client.bags())
    relay.cuts = [0]
    number = cut_client.submit(sweep(2))
    assert [bag["bag"] for bag in client.bags()][before:] == [number]


def test_upload_in_blocks_continues_after_a_break(client, relay, cut_client, tmp_path, monkeypatch):
    monkeypatch.setattr("windfall.client.http.UPLOAD_BLOCK", 1000)
    data = os.urandom(4500)
    sha = hashlib.sha256(data).hexdigest()
    (tmp_path / "big").write_bytes(data)
    relay.cuts = [1000, 0, 10]  # the first question is answered, two pieces are not
    cut_client._http.upload(sha, tmp_path / "big")
    with open(tmp_path / "back", "w+b") as stream:
        client._http.download(sha, stream, len(data))
    assert (tmp_path / "back").read_bytes() == data


def test_download_continues_where_it_broke(client, relay, cut_client, tmp_path):
    data = os.urandom(3_000_000)
    sha = hashlib.sha256(data).hexdigest()
    (tmp_path / "big").write_bytes(data)
    client._http.upload(sha, tmp_path / "big")
    relay.cuts = [5_000, 40_000]
    with open(tmp_path / "f", "w+b") as stream:
        cut_client._http.download(sha, stream, len(data))
    assert (tmp_path / "f").read_bytes() == data


def test_wait_survives_broken_connections(relay, cut_client):
    bag = cut_client.submit(sweep(4, "sleep 0.2", ()))
    relay.cuts = [0, 100, 0]
    assert cut_client.wait(bag)["counts"]["succeeded"] == 4
    assert relay.connections > 1


def test_log_over_a_broken_connection_raises_no_server(client, relay, cut_client):
    bag = client.submit(sweep(1, "head -c 3000000 /dev/zero", ()))
    client.wait(bag)
    relay.cuts = [5_000]
    with pytest.raises(errors.NoServer, match="broke"):
        list(cut_client.log(bag, 0))


def test_followed_log_waits_longer_than_a_request_may_take(client):
    bag = client.submit(sweep(1, "echo a; sleep 3; echo b", ()))
    with client._http.sibling() as http:
        path = f"/v1/bags/{bag}/tasks/0/log?stream=out&follow=1"
        assert b"".join(http.chunks(path, follow=True, timeout=1.5)) == b"a\nb\n"


def test_tasks_are_named_by_ranges_in_requests_of_bounded_size(client):
    wide = sweep(200_000, "true", ())
    targets = [replace(wide.targets[0], resources=Resources(cores=1_000))]  # no pilot starts them
    bag = client.submit(replace(wide, targets=targets))
    odd = range(1, 200_000, 2)
    assert client.cancel(bag, odd) == len(odd)  # two requests
    assert client.cancel(bag, []) == 0
    assert client.cancel(bag, [*range(100_000), 5, 5]) == 50_000
    assert client.retry(bag, odd) == len(odd)
    client.cancel(bag)


def test_absent_server_raises_no_server_at_once(tmp_path):
    with (
        Client({"server": f"unix:{tmp_path}/none", "token": "x"}, patience=0) as client,
        pytest.raises(errors.NoServer) as caught,
    ):
        client.bags()
    assert caught.value.exit_code == 3


# --- a server that misbehaves -------------------------------------------------------------------------------


def hostile(stub, path, data=b"data"):
    """Let the stub answer with a bag of one task whose only file is called `path`."""
    sha = hashlib.sha256(b"data").hexdigest()
    spec = {"name": "b", "targets": [{"command": "p", "outputs": ["o"]}]}
    row = {"task": 0, "state": "succeeded", "files": [[path, sha, 4, 0o644]]}
    stub.answers.update({"/v1/bags/1/spec": spec, "/v1/bags/1/appended": {"appended": [], "next": None},
                         "/v1/bags/1/results": {"rows": [row]}, f"/v1/blobs/{sha}": data})  # fmt: skip


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil", "a/../../evil", "", "link/evil"])
def test_path_that_leaves_the_directory_is_refused(stub, tmp_path, path):
    hostile(stub, path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with Client(stub.profile) as client, pytest.raises(errors.BadInput):
        client.fetch(1, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_fetch_brings_the_other_files_when_one_cannot_come(stub, tmp_path):
    out = tmp_path / "out" / "0"  # "c" and "c/d" are in each other's way, so there is a directory per task
    out.mkdir(parents=True)
    sha = hashlib.sha256(b"data").hexdigest()
    names = ["a", "b", "c", "c/d", "bag.toml", "../evil", "e\x1b[2J\x9b"]
    spec = {"name": "b", "targets": [{"source": {"type": "items", "items": ["p", "p"]},
                                      "outputs": ["a", "b", "c", "c/d", "../evil", "e\x1b[2J\x9b"]}]}
    files = [[name, "0" * 64 if name == "a" else sha, 4, 0o6777] for name in names]
    row = {"task": 0, "state": "succeeded", "files": files}
    stub.answers.update({"/v1/bags/1/spec": spec, "/v1/bags/1/results": {"rows": [row]}, f"/v1/blobs/{sha}": b"data"})
    stub.answers["/v1/bags/1/appended"] = {"appended": [], "next": None}
    (out / "bag.toml").write_text("mine")
    told = []
    with Client(stub.profile) as client:
        assert client.fetch(1, out.parent, on_problem=lambda task, path, error: told.append(path)) == 3
        assert sorted(told) == ["../evil", "a", "bag.toml", "c/d"]
        with pytest.raises(errors.WindfallError):
            client.fetch(1, out.parent)
    assert (out / "bag.toml").read_text() == "mine"
    assert sorted(os.listdir(out)) == ["b", "bag.toml", "c", "e\\x1b[2J\\x9b"]
    assert (out / "b").stat().st_mode & 0o7022 == 0 and (out / "b").stat().st_mode & 0o100


def test_file_that_does_not_fit_its_hash_is_not_kept(stub, tmp_path):
    hostile(stub, "o", b"evil")
    with Client(stub.profile) as client, pytest.raises(errors.WindfallError, match="do not fit its hash"):
        client.fetch(1, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_client_repeats_only_repeatable_requests(stub):
    with Client(stub.profile, patience=5) as client:
        stub.plan = [503, 429]
        assert client.bags() == []
        stub.plan = [409]
        with pytest.raises(errors.Conflict):
            client.bags()
        stub.plan = [503]
        with pytest.raises(errors.Unavailable):
            client.add_token("user")  # made twice would be two
    with Client(stub.profile, patience=0) as client:
        stub.plan = [503]
        with pytest.raises(errors.Unavailable):
            client.bags()


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
def test_response_that_is_not_http_raises_no_server(stub, said):
    with Client(stub.profile, patience=0) as client:
        client.bags()
        stub.plan = [said]
        client._http.close()
        with pytest.raises(errors.NoServer):
            client.bags()


@pytest.mark.parametrize("said", [b"[]", b"{", b"\xff"])
def test_malformed_answer_raises_windfall_error(stub, said):
    stub.answers["/health"] = said
    with Client(stub.profile, patience=0) as client, pytest.raises(errors.WindfallError):
        client.health()
