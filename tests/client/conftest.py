import importlib.util
import sys
from pathlib import Path

import pytest

NAME = "windfall_stub_server"


def load_stub():
    """The stub as a module of its own, whichever folder's tests ask for it."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name("stub.py"))
        sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[NAME]


@pytest.fixture
def stub(tmp_path):
    server = load_stub().Stub(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def client(stub):
    from windfall.client import Client

    with Client(stub.profile, patience=5) as client:
        yield client
