"""A real server with a real pilot for all tests of this folder; `stub` for what it cannot be made to do."""

import pytest

from tests.client.stub import Stub
from tests.live.real import serving
from tests.live.relay import Relay
from windfall.client import Client


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("client") / "home", "--pilot") as running:
        yield running


@pytest.fixture
def client(server):
    with Client(server.profile, patience=5) as client:
        yield client


@pytest.fixture
def relay(server, tmp_path):
    """Return a line to the server that a test can cut, and that `cut_client` uses."""
    relay = Relay(server.profile["server"].removeprefix("unix:"), tmp_path / "line")
    yield relay
    relay.close()


@pytest.fixture
def cut_client(server, relay):
    with Client({**server.profile, "server": f"unix:{relay.address}"}, patience=5) as client:
        yield client


@pytest.fixture
def stub(tmp_path):
    server = Stub(tmp_path)
    yield server
    server.stop()
