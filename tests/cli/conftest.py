"""The command line as processes of its own, on a home with a live server and pilot, or on one where nothing runs."""

import pytest

from tests.live.real import CommandLine, processes_of, serving, sweep_up, until
from windfall import Client


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("cli") / "home", "--pilot") as running:
        with Client(running.profile) as client:
            until(client.pilots)  # a busy machine takes its time
        yield running


@pytest.fixture
def windfall(server, tmp_path):
    """On the home of a live server."""
    (tmp_path / "work").mkdir()
    return CommandLine(server.home, tmp_path / "work")


@pytest.fixture
def alone(tmp_path):
    """On a home where nothing runs: a command brings its own server.  Nobody may be left at the end."""
    (tmp_path / "work").mkdir()
    line = CommandLine(tmp_path / "home", tmp_path / "work")
    yield line
    try:
        until(lambda: not processes_of(line.home), 120)  # an orphaned pilot waits for its lease
    finally:
        sweep_up(line.home)
