"""Which server a command ends up with: the one that is named, the live one of its home, or its own."""

import signal
import threading

import pytest

from tests.live.real import MARK, Server, processes_of, sweep_up, until
from windfall import session as sessions
from windfall.cli.connect import Session
from windfall.errors import NoServer, StoreCorrupt, StoreLocked
from windfall.store.journal import Journal


@pytest.fixture
def home(alone, monkeypatch):
    """A home of this process, where nothing runs yet."""
    monkeypatch.setenv("WINDFALL_HOME", str(alone.home))
    monkeypatch.setenv(MARK, str(alone.home))
    monkeypatch.delenv("WINDFALL_SERVER_FILE", raising=False)
    monkeypatch.setattr(Session, "became_server", lambda self: None)
    return alone.home


@pytest.fixture
def gate(alone):
    """A command that ends when there is a file `go` beside the home."""
    return f"until test -e {alone.home.parent}/go; do sleep 0.05; done"


def test_work_brings_a_server_and_a_pilot_and_both_leave(home):
    with Session(work=True) as session:
        assert session.embedded is not None
        until(session.client.pilots)
    assert processes_of(home) == []
    assert not (home / "socket").exists()


def test_no_pilot_for_those_who_only_look(home):
    with Session() as session:
        assert session.client.bags() == []
        assert processes_of(home) == []


def test_a_live_server_is_used_as_it_is(home):
    server = Server(home)
    with Session(work=True) as session:
        assert session.embedded is None
    assert server.stop() == 0


def test_a_profile_that_was_left_behind_does_not_matter(home):
    Server(home).kill()
    assert (home / "server.json").exists()
    with Session() as session:
        assert session.embedded is not None


def test_a_lock_that_stays(home, monkeypatch):
    monkeypatch.setattr(sessions, "CONTENDING", 0.3)
    home.mkdir()
    journal = Journal.open(home / "journal.db")
    with pytest.raises(StoreLocked):
        Session(work=True)
    journal.close()
    until(lambda: not processes_of(home))  # what lost the race leaves nothing behind


def test_other_failures_are_told_at_once(home):
    home.mkdir()
    (home / "journal.db").write_bytes(b"no database" * 100)
    with pytest.raises(StoreCorrupt):
        Session(work=True)
    until(lambda: not processes_of(home))


def test_taking_over_from_another_commands_server(alone, home, gate):
    other = alone.start("run", gate)
    until(lambda: (home / "server.json").exists() and alone.json("ls"))
    with Session(work=True) as session:
        assert session.embedded is None and not session.separate
        other.kill()
        other.communicate()
        session.again()
        assert session.embedded is not None
        (home.parent / "go").touch()
        assert session.client.wait(1)["state"] == "succeeded"
        with pytest.raises(NoServer):
            session.again()  # our own cannot go away and come back
    sweep_up(home)  # the killed one's pilot would stay until its lease is out


def test_a_question_is_asked_of_the_next_server(alone, home, gate):
    other = alone.start("run", gate, "--name", "kept")
    until(lambda: (home / "server.json").exists() and alone.json("ls"))
    with Session(work=True) as session:
        other.kill()
        other.communicate()
        (home.parent / "go").touch()
        assert [bag["name"] for bag in session.ask(lambda client: client.bags())] == ["kept"]
        assert session.embedded is not None
    sweep_up(home)  # the killed one's pilot would stay until its lease is out


@pytest.mark.parametrize("named", [False, True])
def test_a_server_of_its_own_is_waited_for_and_never_replaced(home, monkeypatch, named):
    server = Server(home)
    if named:
        monkeypatch.setenv("WINDFALL_SERVER_FILE", str(home / "server.json"))
    with Session(work=True) as session:
        assert session.separate
        server.kill()
        back = threading.Timer(0.3, server.start)
        back.start()
        session.again()
        assert session.embedded is None and session.client.bags() == []
        back.join()
    assert server.stop() == 0


# --- several commands on one home -----------------------------------------------------------------------------


def test_runs_that_start_at_once_share_one_server(alone):
    runs = [alone.start("run", f"echo {name}", "--name", name, "-o", name) for name in ("one", "two", "three")]
    ends = [(run.communicate(timeout=60), run.returncode) for run in runs]
    assert [(out, code) for (out, _), code in ends] == [("one\n", 0), ("two\n", 0), ("three\n", 0)], ends
    assert sorted(bag["bag"] for bag in alone.json("ls")) == [1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_second_takes_over_when_the_first_goes(alone, gate, number):
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


def test_interrupted_alone_nothing_runs_until_it_is_waited_for(alone, gate):
    run = alone.start("run", gate, "--name", "kept")
    until(lambda: (alone.home / "server.json").exists() and alone.json("ls"))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130, err
    assert "it goes on when any" in err and "windfall pause 1" in err and " -o " not in err
    (alone.home.parent / "go").touch()
    assert alone("wait", "kept").returncode == 0


def test_submitted_where_nothing_runs_then_waited_for(alone):
    done = alone("submit", "echo later > f", "--output", "f", "--name", "n")
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert "nothing runs before" in done.stderr
    assert alone("wait", "1", "-o", "here").returncode == 0
    assert (alone.folder / "here" / "f").read_text() == "later\n"


def test_a_server_file_of_another_home(alone, tmp_path):
    server = Server(tmp_path / "elsewhere", "--pilot")
    try:
        file = str(server.home / "server.json")
        done = alone("run", "echo there", WINDFALL_SERVER_FILE=file)
        assert (done.stdout, done.returncode) == ("there\n", 0)
        assert not alone.home.exists()
    finally:
        server.stop()
    assert alone("ls", WINDFALL_SERVER_FILE=str(tmp_path / "nix.json")).returncode == 3
