import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import harness  # noqa: E402


@pytest.fixture
def server(tmp_path):
    made = harness.Server(tmp_path)
    yield made
    made.close()
    assert not made.problems


@pytest.fixture
def gate(tmp_path):
    return harness.Gate(tmp_path)


@pytest.fixture
def launch(server):
    """launch(*args) starts a pilot that is gone when the test ends, and leaves no process behind."""
    pilots = []

    def start(*args, **kwargs):
        pilots.append(harness.Pilot(kwargs.pop("server", server), *args, **kwargs))
        return pilots[-1]

    yield start
    for pilot in pilots:
        pilot.end()
