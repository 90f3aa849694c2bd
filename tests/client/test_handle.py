"""`Client.submit` and the bag that it returns, against a real server and a real pilot."""

import json
import subprocess
import sys

import pandas
import pytest

from tests.live.real import environment
from windfall import errors
from windfall.client import Client
from windfall.client.handle import BagHandle, Explanation
from windfall.model import bagfile
from windfall.model.spec import Bag, Items, Target

FILE = """
[bag]
name = "sweep of a file"
command = "cat in.txt; echo LOD={x}.50 NAME=007 NONE=nan"
[sweep]
x = "1..3"
[task]
inputs = ["in.txt"]
[capture]
lod = 'LOD=([0-9.]+)'
name = 'NAME=(\\w+)'
none = 'NONE=(\\w+)'
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "in.txt").write_text("hello\n")
    path = tmp_path / "sweep.toml"
    path.write_text(FILE)
    return path


def test_submit_takes_a_path_a_bag_and_what_load_returns(client, file):
    loaded = bagfile.load(file)
    by_path, by_text, by_load = client.submit(file), client.submit(str(file)), client.submit(loaded)
    by_bag = client.submit(loaded.bag, loaded.uploads)
    for bag in (by_path, by_text, by_load, by_bag):
        assert isinstance(bag, BagHandle) and bag.name == "sweep of a file"
        assert bag.wait().state == "succeeded" and bag.logs(1) == "hello\nLOD=2.50 NAME=007 NONE=nan\n"


def test_submit_sends_the_python_environment_that_a_bag_file_names(client, tmp_path):
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=False)
    assert made.returncode == 0
    (packages,) = (tmp_path / "env").glob("lib/python3.*/site-packages")
    (packages / "only_here.py").write_text("answer = 42")
    path = tmp_path / "bag.toml"
    command = "python3 -c 'import only_here; print(only_here.answer)'"
    path.write_text(f'[bag]\ncommand = "{command}"\n[task]\npython = "env"\n')
    assert client.submit(path).wait().logs(0) == "42\n"


def test_handle_is_its_number_wherever_a_number_goes(client, file):
    bag = client.submit(file)
    assert bag == bag.number == int(str(bag)) and f"{bag:03d}" == f"{int(bag):03d}"
    assert json.loads(json.dumps({"bag": bag})) == {"bag": bag.number} and {bag: 1}[bag.number] == 1
    assert client.wait(bag)["bag"] == bag and bag.info()["tasks"] == 3


def test_bag_goes_by_its_name_in_every_method(client, file):
    first, second = client.submit(file), client.submit(file)
    name = "sweep of a file"
    assert client.wait(name)["bag"] == second and client.find(name) == second == client.number_of(name)
    assert client.find(str(first)) == first and client.find(first).name == name
    assert [row["task"] for row in client.results(name)] == [0, 1, 2]
    assert b"LOD=1.50" in b"".join(client.log(name, 0)) and client.task(name, 0)["state"] == "succeeded"
    with pytest.raises(errors.BadInput, match="there is no bag 'sweep of a fil'") as caught:
        client.results("sweep of a fil").__next__()
    assert name in caught.value.hint


def test_captured_numbers_are_numbers_and_other_texts_stay(client, file):
    bag = client.submit(file).wait()
    rows = list(bag.results())
    assert [row["values"]["lod"] for row in rows] == [1.5, 2.5, 3.5] and rows[0]["values"]["name"] == "007"
    assert next(iter(client.texts(bag)))["values"] == {"lod": "1.50", "name": "007", "none": "nan"}
    assert client.task(bag, 2)["attempts"][0]["values"]["lod"] == 3.5
    assert [row["values"]["lod"] for update in client.watch(bag, rows=True) for row in update.get("rows") or ()
            if row["task"] == 1] == [2.5]


def test_results_become_a_data_frame(client, file):
    bag = client.submit(file).wait()
    frame = bag.results().to_pandas()
    assert list(frame.index) == [0, 1, 2] and frame.index.name == "task"
    assert list(frame.x) == [1, 2, 3] and frame.lod.sum() == 7.5 and list(frame.name) == ["007"] * 3
    assert frame.none.isna().all() and (frame.state == "succeeded").all()
    assert str(frame.ended.dt.tz) == "UTC" and (frame.ended >= frame.started).all()
    assert (frame.started > pandas.Timestamp("2020-01-01", tz="UTC")).all()
    assert list(bag.results("failed").to_pandas().columns) == list(frame.columns)


def test_handle_acts_on_its_bag(client, tmp_path):
    source = Items(items=["echo made > o; echo out; echo err >&2", "exit 3"])
    bag = client.submit(Bag(name="acts", targets=[Target(source=source, outputs=["o"], retries=0)])).wait()
    assert bag.state == "failed" and bag.failures()[0]["count"] == 1 and bag.statistics()["tasks"] == 2
    assert bag.logs() == "==> task 0 <==\nout\n" and bag.logs(0, "err") == "err\n"
    assert bag.retry() == 1 and bag.wait().state == "failed"
    assert bag.fetch(tmp_path) == 1 and (tmp_path / "0" / "o").read_text() == "made\n"
    bag.remove()
    with pytest.raises(errors.NotFound):
        bag.info()


def test_handle_says_why_a_bag_waits_and_cancels_it(client):
    waiting = Target(source=Items(items=["sleep 600"] * 3), resources=Target().resources.__class__(cores=10_000))
    bag = client.submit(Bag(name="waits", targets=[waiting]))
    assert "cores" in str(bag.explain()) and repr(bag.explain(1)) == bag.explain(1)["summary"]
    bag.pause()
    bag.unpause()
    assert bag.cancel([0]) == 1 and bag.cancel() == 2 and bag.wait().state == "cancelled"


def test_handle_shows_itself_in_a_terminal_and_in_a_notebook(client, file):
    bag = client.submit(file).wait()
    assert repr(bag) == f"<bag {bag} sweep of a file, succeeded: 3 succeeded>"
    shown = bag._repr_html_()
    assert "<table>" in shown and "sweep of a file" in shown and "<td>2.5</td>" in shown
    assert repr(bag.results()) == f"<results of bag {bag}: 0 succeeded, 1 succeeded, 2 succeeded>"
    assert "<table>" in bag.results()._repr_html_()
    bag.remove()
    assert repr(bag).startswith(f"<bag {bag}: ") and bag._repr_html_() is None


def test_explanation_shows_no_control_characters():
    found = Explanation({"summary": "host \x1b[2Jaway\nwaits"})
    assert str(found) == repr(found) == "host ?[2Jaway\nwaits" and found["summary"].count("\x1b") == 1


def test_handle_shows_itself_while_its_client_reads_a_stream(client, file):
    bag = client.submit(file).wait()
    for row in client.results(bag, page=1):
        assert row["state"] == "succeeded" and f"<bag {bag}" in repr(bag)


def test_library_leaves_no_socket_open_in_development_mode(server, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import gc
from windfall import Client, Executor
client = Client({server.profile!r})
from windfall.model.spec import Bag, Items, Target
bag = client.submit(Bag(name="quiet", targets=[Target(source=Items(items=["echo hi"]))])).wait()
repr(bag), bag._repr_html_(), bag.logs(), list(bag.results()), next(client.watch(bag)), next(client.log(bag, 0))
assert client.call(pow, 2, 3) == 8
executor = Executor(client)
assert executor.submit(pow, 2, 3).result() == 8
del executor, bag, client
gc.collect()
""")
    done = subprocess.run([sys.executable, "-X", "dev", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_embedded_server_prints_nothing_in_development_mode(tmp_path):
    program = "from windfall import Executor\nwith Executor() as executor: print(executor.submit(pow, 2, 3).result())"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60,
                          env=environment(tmp_path / "home"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_client_without_close_or_with_closes_its_connections(server):
    client = Client(server.profile)
    client.health()
    socket = client._http._socket
    del client
    assert socket.fileno() == -1
