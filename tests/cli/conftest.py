import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "windfall_stub_server"
SOURCE = Path(__file__).parents[2] / "src"


def load_stub():
    """The client tests' stub server."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, Path(__file__).parents[1] / "client" / "stub.py")
        sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[NAME]


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """A live server of this home, as the command line finds it."""
    module = load_stub()
    (tmp_path / "srv").mkdir()
    server = module.Stub(tmp_path / "srv")
    home = tmp_path / "home"
    module.write_profile(home, server.profile)
    monkeypatch.setenv("WINDFALL_HOME", str(home))
    monkeypatch.delenv("WINDFALL_SERVER_FILE", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    yield server
    server.stop()


@pytest.fixture
def windfall():
    """Run the command line as a process of its own."""

    def run(*arguments, **options):
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), **options.pop("env", {})}
        return subprocess.run(
            [sys.executable, "-m", "windfall", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            **options,
        )

    return run
