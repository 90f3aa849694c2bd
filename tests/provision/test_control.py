"""The socket by which commands talk to a provisioner: nobody else answers there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windfall.errors import NoServer, TrustError
from windfall.provision import control

OTHER = os.geteuid() + 1  # no user of this number need exist
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="what is somebody else's can only be made by root")


@pytest.fixture(params=["inside", "runtime", "tmp"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder whose path is short enough for the socket, or one of two whose path is too long."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if request.param == "runtime":
        (tmp_path / "r").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))
    made = tmp_path / ("h" if request.param == "inside" else "long" * 30)
    made.mkdir(mode=0o700)
    return made


def talk(home: Path, environment: Callable[[], None] = lambda: None) -> Any:
    async def name(talk: control.Talk, wanted: dict[str, Any]) -> None:
        await talk.say(name="mine")

    async def talked() -> list[Any]:
        serving = await control.serve(home, {"name": name})
        environment()
        said: list[Any] = []
        try:
            await asyncio.to_thread(control.call, home, {"do": "name"}, said.append)
        finally:
            serving.close()
        return said

    return asyncio.run(talked())


def test_control_socket_is_found_and_private_wherever_it_lies(home: Path) -> None:
    assert talk(home) == [{"name": "mine"}] == talk(home)[:1]
    where = control.path(home)
    assert where.stat().st_mode & 0o077 == 0 and where.parent.stat().st_mode & 0o777 == 0o700
    control.remove(home)
    with pytest.raises(NoServer):
        control.call(home, {"do": "name"}, lambda said: None)
    assert where.parent.exists() == (where.parent == home)


@pytest.mark.parametrize("home", ["inside", "tmp"], indirect=True)
def test_control_socket_is_found_from_another_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(home, lambda: monkeypatch.setenv("XDG_RUNTIME_DIR", str(home.parent))) == [{"name": "mine"}]
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    control.remove(home)


@needs_root
@pytest.mark.parametrize("squatted", ["owner", "mode", "link"])
def test_a_place_that_somebody_else_took_is_refused(home: Path, tmp_path: Path, squatted: str) -> None:
    where = control.path(home)
    if where.parent == home:
        return  # nobody else can get there
    target = tmp_path / "target"
    (target if squatted == "link" else where.parent).mkdir(mode=0o700)
    try:
        if squatted == "link":
            where.parent.symlink_to(target)
        elif squatted == "owner":
            os.chown(where.parent, OTHER, OTHER)
        else:
            where.parent.chmod(0o777)
        with pytest.raises(TrustError, match="not a private directory of yours"):
            talk(home)
        with pytest.raises(TrustError, match="not a private directory of yours"):
            control.call(home, {"do": "name"}, lambda said: None)
    finally:
        where.parent.unlink() if squatted == "link" else where.parent.rmdir()
