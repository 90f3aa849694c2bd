import pytest
from server_tools import Client, Process

from windfall.server.embedded import Embedded


@pytest.fixture
def server(tmp_path):
    """In a thread, on a Unix socket."""
    running = Embedded(tmp_path / "home")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def client(server):
    return Client(server.start())


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A process, over TLS and a Unix socket."""
    running = Process(tmp_path_factory.mktemp("tls") / "home", "127.0.0.1:0")
    assert running.profile, running.said()
    yield running
    running.kill()


@pytest.fixture
def start(tmp_path):
    """Processes on one data folder."""
    running = []

    def begin(*arguments, home=None):
        process = Process(home or tmp_path / "data", *arguments)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
