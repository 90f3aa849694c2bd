"""Which server a command ends up with."""

import sys
import types

import pytest

from windfall.cli import connect
from windfall.cli.connect import Session
from windfall.errors import NoServer, StoreCorrupt, StoreLocked


@pytest.fixture
def embedded(stub, tmp_path, monkeypatch):
    """No live server in this home; embedding one gives the stub."""
    (tmp_path / "home" / "server.json").unlink()

    class Embedded:
        said: list = []
        failures: list = []

        def __init__(self, home):
            self.said.append(("home", str(home)))

        def ensure_pilot(self, cores=None):
            self.said.append("pilot")

        def start(self):
            self.said.append("start")
            if self.failures:
                raise self.failures.pop(0)
            return stub.profile

        def stop(self):
            self.said.append("stop")

    module = types.ModuleType("windfall.server.embedded")
    module.Embedded = Embedded
    monkeypatch.setitem(sys.modules, "windfall.server.embedded", module)
    monkeypatch.setattr(connect, "_stop_cleanly", lambda: None)
    monkeypatch.setattr(connect, "PATIENCE", 0.1)
    return Embedded


def revive(stub, tmp_path):
    sys.modules["windfall_stub_server"].write_profile(tmp_path / "home", stub.profile)


def test_the_pilot_starts_before_the_server_and_both_are_stopped(embedded, tmp_path):
    with Session(work=True) as session:
        assert session.client.bags() == []
    assert embedded.said == [("home", str(tmp_path / "home")), "pilot", "start", "stop"]


def test_no_pilot_for_those_who_only_look(embedded):
    with Session():
        pass
    assert "pilot" not in embedded.said


def test_a_live_server_is_used_as_it_is(embedded, stub, tmp_path):
    revive(stub, tmp_path)
    with Session(work=True) as session:
        assert session.embedded is None
    assert embedded.said == []


def test_a_profile_that_was_left_behind_does_not_matter(embedded, stub, tmp_path):
    sys.modules["windfall_stub_server"].write_profile(
        tmp_path / "home", {**stub.profile, "server": f"unix:{tmp_path}/gone"}
    )
    with Session() as session:
        assert session.embedded is not None


def test_two_that_start_at_once_share_the_first_ones_server(embedded, stub, tmp_path, monkeypatch):
    embedded.failures = [StoreLocked("x"), StoreLocked("x")]
    monkeypatch.setattr(
        connect.time, "sleep", lambda _: revive(stub, tmp_path) if embedded.said.count("start") == 2 else None
    )
    with Session(work=True) as session:
        assert session.embedded is None
    assert embedded.said.count("stop") == 2  # what lost the race leaves nothing behind


def test_a_lock_that_stays(embedded, monkeypatch):
    monkeypatch.setattr(connect, "CONTENDING", 0.1)
    embedded.failures = [StoreLocked("held")] * 100
    with pytest.raises(StoreLocked):
        Session()


def test_other_failures_are_told_at_once(embedded):
    embedded.failures = [StoreCorrupt("bad")]
    with pytest.raises(StoreCorrupt):
        Session()
    assert embedded.said[-1] == "stop"


def test_taking_over_from_a_server_that_went_away(embedded, stub, tmp_path):
    revive(stub, tmp_path)
    with Session(work=True) as session:
        (tmp_path / "home" / "server.json").unlink()
        session.again()
        assert session.embedded is not None
        with pytest.raises(NoServer):
            session.again()  # our own cannot go away and come back
    assert embedded.said[-4:] == [("home", str(tmp_path / "home")), "pilot", "start", "stop"]


def test_a_named_server_is_never_replaced(embedded, stub, tmp_path, monkeypatch):
    revive(stub, tmp_path)
    monkeypatch.setenv("WINDFALL_SERVER_FILE", str(tmp_path / "home" / "server.json"))
    with Session(work=True) as session, pytest.raises(NoServer):
        session.again()
    assert embedded.said == []
