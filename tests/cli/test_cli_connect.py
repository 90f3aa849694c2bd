"""The server of a command: the named one, the live one of its home, or one that it embeds."""

import signal
import threading

import pytest

from tests.live.real import MARK, Server, processes_of, sweep_up, until
from windfall.cli.connect import Session
from windfall.client import session as sessions
from windfall.errors import NoServer, StoreCorrupt, StoreLocked
from windfall.store.journal import Journal


@pytest.fixture
def home(alone, monkeypatch):
    """Return an empty home for this process."""
    monkeypatch.setenv("WINDFALL_HOME", str(alone.home))
    monkeypatch.setenv(MARK, str(alone.home))
    monkeypatch.delenv("WINDFALL_SERVER_FILE", raising=False)
    monkeypatch.setattr(Session, "became_server", lambda self: None)
    return alone.home


@pytest.fixture
def gate(alone):
    """Return a command that ends when the file `go` appears beside the home."""
    return f"until test -e {alone.home.parent}/go; do sleep 0.05; done"


def test_session_that_needs_a_pilot_embeds_one_and_stops_it(home):
    with Session(needs_pilot=True) as session:
        assert session.embedded is not None
        until(session.client.pilots)
    assert processes_of(home) == []
    assert not (home / "socket").exists()


def test_session_without_work_starts_no_pilot(home):
    with Session() as session:
        assert session.client.bags() == []
        assert processes_of(home) == []


def test_session_uses_a_live_server(home):
    server = Server(home)
    with Session(needs_pilot=True) as session:
        assert session.embedded is None
    assert server.stop() == 0


def test_stale_profile_does_not_keep_a_session_from_embedding(home):
    Server(home).kill()
    assert (home / "server.json").exists()
    with Session() as session:
        assert session.embedded is not None


def test_session_gives_up_when_the_store_stays_locked(home, monkeypatch):
    monkeypatch.setattr(sessions, "LOCK_TIMEOUT", 0.3)
    home.mkdir()
    journal = Journal.open(home / "journal.db")
    with pytest.raises(StoreLocked):
        Session(needs_pilot=True)
    journal.close()
    until(lambda: not processes_of(home))  # a server that lost the race leaves no process behind


def test_corrupt_store_is_reported_at_once(home):
    home.mkdir()
    (home / "journal.db").write_bytes(b"no database" * 100)
    with pytest.raises(StoreCorrupt):
        Session(needs_pilot=True)
    until(lambda: not processes_of(home))


def test_session_takes_over_from_a_killed_command(alone, home, gate):
    other = alone.start("run", gate)
    until(lambda: (home / "server.json").exists() and alone.json("ls"))
    with Session(needs_pilot=True) as session:
        assert session.embedded is None and not session.separate
        other.kill()
        other.communicate()
        session.find_next_server()
        assert session.embedded is not None
        (home.parent / "go").touch()
        assert session.client.wait(1)["state"] == "succeeded"
        with pytest.raises(NoServer):
            session.find_next_server()  # an embedded server cannot come back
    sweep_up(home)  # the killed server's pilot would stay until its lease expires


def test_question_is_repeated_at_the_next_server(alone, home, gate):
    other = alone.start("run", gate, "--name", "kept")
    until(lambda: (home / "server.json").exists() and alone.json("ls"))
    with Session(needs_pilot=True) as session:
        other.kill()
        other.communicate()
        (home.parent / "go").touch()
        assert [bag["name"] for bag in session.ask(lambda client: client.bags())] == ["kept"]
        assert session.embedded is not None
    sweep_up(home)  # the killed server's pilot would stay until its lease expires


@pytest.mark.parametrize("named", [False, True])
def test_separate_server_is_waited_for_and_never_replaced(home, monkeypatch, named):
    server = Server(home)
    if named:
        monkeypatch.setenv("WINDFALL_SERVER_FILE", str(home / "server.json"))
    with Session(needs_pilot=True) as session:
        assert session.separate
        server.kill()
        back = threading.Timer(0.3, server.start)
        back.start()
        session.find_next_server()
        assert session.embedded is None and session.client.bags() == []
        back.join()
    assert server.stop() == 0


# --- several commands on one home -----------------------------------------------------------------------------


def test_runs_that_start_together_share_one_server(alone):
    runs = [alone.start("run", f"echo {name}", "--name", name, "-o", name) for name in ("one", "two", "three")]
    ends = [(run.communicate(timeout=60), run.returncode) for run in runs]
    assert [(out, code) for (out, _), code in ends] == [("one\n", 0), ("two\n", 0), ("three\n", 0)], ends
    assert sorted(bag["bag"] for bag in alone.json("ls")) == [1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_second_run_takes_over_when_the_first_ends(alone, gate, number):
    first = alone.start("run", gate + "; echo first", "--name", "first")
    until(lambda: (alone.home / "server.json").exists())
    second = alone.start("run", gate + "; echo {x}", "-s", "x=1..3", "--name", "second")
    until(lambda: len(alone.json("ls")) == 2)
    first.send_signal(number)
    first.communicate(timeout=60)
    (alone.home.parent / "go").touch()
    assert first.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert "3 succeeded" in err
    again = alone("wait", "first")
    assert again.returncode == 0, again.stderr


def test_interrupted_run_resumes_with_wait(alone, gate):
    run = alone.start("run", gate, "--name", "kept")
    until(lambda: (alone.home / "server.json").exists() and alone.json("ls"))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130, err
    assert "it goes on when any" in err and "windfall pause 1" in err and " -o " not in err
    (alone.home.parent / "go").touch()
    assert alone("wait", "kept").returncode == 0


def test_bag_submitted_without_a_server_runs_with_wait(alone):
    done = alone("submit", "echo later > f", "--output", "f", "--name", "n")
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert "no server is running here" in done.stderr
    assert alone("wait", "1", "-o", "here").returncode == 0
    assert (alone.folder / "here" / "f").read_text() == "later\n"


def test_named_server_file_of_another_home_is_used(alone, tmp_path):
    server = Server(tmp_path / "elsewhere", "--pilot")
    try:
        file = str(server.home / "server.json")
        done = alone("run", "echo there", WINDFALL_SERVER_FILE=file)
        assert (done.stdout, done.returncode) == ("there\n", 0)
        assert not alone.home.exists()
    finally:
        server.stop()
    assert alone("ls", WINDFALL_SERVER_FILE=str(tmp_path / "nix.json")).returncode == 3
