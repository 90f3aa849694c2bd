import hashlib
import os

import pytest

import windfall
from windfall import errors
from windfall.client import Client
from windfall.client.calls import packed, unpacked
from windfall.client.client import new_key
from windfall.model import bagfile
from windfall.model.spec import Bag, Range, Sweep, Target


def sweep(n, command="printf {x} > o-{x}", outputs=("o-{x}",)):
    return Bag(
        name="b",
        targets=[Target(command=command, outputs=list(outputs), source=Sweep(axes=[Range(name="x", first=1, last=n)]))],
    )


def test_the_public_surface_is_pinned():
    assert sorted(windfall.__all__) == ["Client", "WindfallError", "__version__"]
    assert windfall.Client is Client
    assert windfall.WindfallError is errors.WindfallError
    assert windfall.__version__ == "0.1.0"
    with pytest.raises(AttributeError):
        windfall.Nothing  # noqa: B018


def test_from_submission_to_files(client, tmp_path):
    bag = client.submit(sweep(5))
    seen = []
    final = client.wait(bag, seen.append)
    assert (final["state"], final["tasks"], seen[-1]) == ("succeeded", 5, {"succeeded": 5})
    assert [row["params"]["x"] for row in client.results(bag, page=2)] == [1, 2, 3, 4, 5]
    assert client.fetch(bag, tmp_path / "out") == 5
    assert (tmp_path / "out" / "o-3").read_text() == "3"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [f"o-{i}" for i in range(1, 6)]


def test_files_of_the_same_name_get_a_directory_per_task(client, tmp_path):
    bag = client.submit(sweep(3, "printf {x} > o", ["o"]))
    client.fetch(bag, tmp_path / "out")
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("o")) == ["0/o", "1/o", "2/o"]


def test_fetching_again_leaves_what_is_there_and_mends_what_is_not(client, stub, tmp_path):
    bag = client.submit(sweep(2))
    client.fetch(bag, tmp_path / "out")
    (tmp_path / "out" / "o-1").write_text("broken")
    stub.requests.clear()
    client.fetch(bag, tmp_path / "out")
    assert (tmp_path / "out" / "o-1").read_text() == "1"
    assert len([path for _, path in stub.requests if "blobs" in path]) == 1


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil", "a/../../evil", "", "link/evil"])
def test_a_path_that_leaves_the_directory_is_refused(client, stub, tmp_path, path):
    bag = client.submit(sweep(1))
    stub.bags[0]["rows"][0]["files"][0][0] = path
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(errors.BadInput):
        client.fetch(bag, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_what_does_not_fit_its_hash_is_not_kept(client, stub, tmp_path):
    bag = client.submit(sweep(1))
    sha = stub.bags[0]["rows"][0]["files"][0][1]
    stub.blobs[sha] = b"x"
    with pytest.raises(errors.WindfallError, match="not what the task made"):
        client.fetch(bag, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_inputs_are_sent_once(client, stub, tmp_path):
    (tmp_path / "in.dat").write_bytes(b"data")
    text = "[bag]\ncommand='cat in.dat'\n[task]\ninputs=['in.dat']"
    parsed = bagfile.parse(text, "b.toml", tmp_path)
    first = client.submit(*parsed)
    assert b"".join(client.log(first, 0)) == b"data"
    stub.requests.clear()
    client.submit(*parsed)
    assert "PUT" not in [method for method, _ in stub.requests]


def test_large_files_go_in_pieces_and_go_on_after_a_break(client, stub, tmp_path, monkeypatch):
    monkeypatch.setattr("windfall.client.http.UPLOAD_BLOCK", 1000)
    data = os.urandom(4500)
    sha = hashlib.sha256(data).hexdigest()
    (tmp_path / "big").write_bytes(data)
    stub.partial[sha] = data[:700]
    stub.plan = [("status", 503), ("cut", b"HTTP/1.1 2")]
    client._http.upload(sha, tmp_path / "big")
    assert stub.blobs[sha] == data


def test_a_download_goes_on_where_it_broke(client, stub, tmp_path):
    data = os.urandom(100_000)
    sha = hashlib.sha256(data).hexdigest()
    stub.blobs[sha] = data
    stub.plan = [("cut", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + data[:40_000])]
    with open(tmp_path / "f", "w+b") as stream:
        client._http.download(sha, stream, len(data))
    assert (tmp_path / "f").read_bytes() == data


def test_a_lost_answer_does_not_make_a_second_bag(client, stub):
    stub.plan = [("after", None)]
    assert client.submit(sweep(2)) == 1
    assert len(stub.bags) == 1


def test_the_same_key_is_the_same_bag(client):
    key = new_key()
    assert client.submit(sweep(1), key=key) == client.submit(sweep(1), key=key)
    assert client.submit(sweep(1)) != client.submit(sweep(1))


def test_errors_come_as_they_were_raised(client):
    with pytest.raises(errors.NotFound):
        client.bag(99)
    with pytest.raises(errors.BadInput, match="no command"):
        client.submit(Bag(name="x", targets=[Target()]))


def test_a_wrong_token(stub):
    with Client({**stub.profile, "token": "nope"}) as client, pytest.raises(errors.Unauthorised):
        client.bags()


def test_trying_again_where_that_helps_and_not_where_it_does_not(stub):
    with Client(stub.profile, patience=5) as client:
        stub.plan = [("status", 503), ("status", 429)]
        assert client.bags() == []
        stub.plan = [("status", 409)]
        with pytest.raises(errors.Conflict):
            client.bags()
        stub.plan = [("status", 503)]
        with pytest.raises(errors.Unavailable):
            client.add_token("user")  # made twice would be two
    with Client(stub.profile, patience=0) as client:
        stub.plan = [("status", 503)]
        with pytest.raises(errors.Unavailable):
            client.bags()


def test_nobody_there(tmp_path):
    with (
        Client({"server": f"unix:{tmp_path}/none", "token": "x"}, patience=0) as client,
        pytest.raises(errors.NoServer) as caught,
    ):
        client.bags()
    assert caught.value.exit_code == 3


def test_what_answers_is_no_server(stub):
    with Client(stub.profile, patience=0) as client:
        client.bags()
        stub.plan = [("cut", b"SSH-2.0-OpenSSH\r\n")]
        client._http.close()
        with pytest.raises(errors.NoServer):
            client.bags()


def test_acting_and_asking(client):
    bag = client.submit(sweep(3))
    assert client.cancel(bag) == 3
    assert client.retry(bag, [1, 2]) == 2
    assert client.pause(bag)["state"] == "paused"
    assert client.unpause(bag)["state"] == "succeeded"
    assert client.explain(bag)["summary"]
    assert client.task(bag, 1)["params"] == {"x": 2}
    assert client.spec(bag) == sweep(3)
    assert client.tokens()[0]["id"] == "t1"
    assert client.add_token("enrol", site="s")["token"] == "wf_new"
    client.remove_token("t1")


def test_calls_are_packed_and_unpacked():
    import base64
    import pickle

    function, args, kwargs = pickle.loads(base64.b64decode(packed(os.path.join, ("a", "b"), {})))
    assert function(*args, **kwargs) == "a/b"
    value = lambda *parts: {"value": base64.b64encode(pickle.dumps(parts)).decode()}  # noqa: E731
    assert unpacked(value("ok", [1, 2])) == [1, 2]
    with pytest.raises(KeyError) as caught:
        unpacked(value("error", KeyError("k"), "Traceback, there"))
    assert "Traceback, there" in caught.value.__notes__[0]
    with pytest.raises(errors.WindfallError, match="Traceback, there"):
        unpacked(value("error", None, "Traceback, there"))
    with pytest.raises(errors.WindfallError, match="memory"):
        unpacked({"value": None, "why": "memory"})
