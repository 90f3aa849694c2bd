"""A command line with a home of its own, under which nothing may run when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.real import CommandLine, Pilots, Server, free_port, processes_of, sweep_up, until


@pytest.fixture
def windfall(tmp_path: Path) -> Iterator[CommandLine]:
    (tmp_path / "work").mkdir()
    line = CommandLine(tmp_path / "home", tmp_path / "work")
    yield line
    try:
        until(lambda: not processes_of(line.home), 20)
    finally:
        sweep_up(line.home)


@pytest.fixture
def server(windfall: CommandLine) -> Iterator[Server]:
    running = Server(windfall.home, "--listen", f"127.0.0.1:{free_port()}")
    yield running
    running.stop()


@pytest.fixture
def pilots(windfall: CommandLine, server: Server) -> Iterator[Pilots]:
    started = Pilots(windfall)
    yield started
    started.stop()
