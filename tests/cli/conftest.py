"""Fixtures that run the command line in processes, on a home with a live server and pilot or on an empty one."""

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
    """Return the command line on the home of a live server."""
    (tmp_path / "work").mkdir()
    return CommandLine(server.home, tmp_path / "work")


@pytest.fixture
def alone(tmp_path):
    """Return the command line on an empty home, where a command embeds its server and leaves no process."""
    (tmp_path / "work").mkdir()
    line = CommandLine(tmp_path / "home", tmp_path / "work")
    yield line
    try:
        until(lambda: not processes_of(line.home), 120)  # an orphaned pilot waits for its lease
    finally:
        sweep_up(line.home)
