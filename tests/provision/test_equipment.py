"""The files at a site lie in a folder that no other user can write to, since the user's jobs run them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from windfall.errors import SiteError
from windfall.provision.routes import Reach
from windfall.provision.server_link import ServerAddress
from windfall.provision.site_files import Equipped, equip
from windfall.provision.trial_pilot import Attempt, TrialSetting
from windfall.sites.channels.here import Here
from windfall.sites.dialects.job import Shape
from windfall.sites.site_file import Site

PILOT = b"a pilot" * 1000
OTHER = os.geteuid() + 1  # no user of this number need exist


class Line:
    """A server's, as far as it is asked."""

    async def pilot(self) -> bytes:
        return PILOT

    async def knows(self, token: str) -> bool:
        return False

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        return "id", "secret"

    async def pilots_address(self) -> ServerAddress:
        return ServerAddress("https://localhost:1", "certificate")


class Issuer(Line):
    """A server's that notes the tokens it makes."""

    def __init__(self) -> None:
        self.days: list[int] = []

    async def knows(self, token: str) -> bool:
        return True

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        self.days.append(days)
        return f"id-{len(self.days)}", f"secret-{len(self.days)}"


def equipped(folder: Path, kept: Path, line: Line | None = None, walltime: int = 600) -> Equipped:
    line, channel = line or Line(), Here()
    site = Site("s", "ssh", (Shape(600), Shape(walltime)), host="h", folder=str(folder))
    return asyncio.run(equip(site, channel, line, kept / "s.json", Reach(site, channel, line)))  # type: ignore


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder in which everybody may make others, as /tmp."""
    found = tmp_path / "all"
    found.mkdir()
    found.chmod(0o1777)
    return found


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a folder of somebody else can only be made by root")


@needs_root
def test_a_folder_of_somebody_else_is_refused(open_to_all: Path, tmp_path: Path) -> None:
    """The folder's owner could put another pilot's file there, under the same name."""
    folder = open_to_all / "windfall"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    os.chown(folder, OTHER, OTHER)
    with pytest.raises(SiteError, match="belongs to another user"):
        equipped(folder, tmp_path)
    assert not list(folder.iterdir())


@needs_root
def test_trial_refuses_a_folder_of_another_user(open_to_all: Path) -> None:
    folder = open_to_all / "windfall"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    os.chown(folder, OTHER, OTHER)
    site = Site("s", "ssh", (Shape(600),), host="h", folder=str(folder))
    nothing: Any = None
    trial = Attempt(site, TrialSetting("me", Here(), nothing, {}, nothing, nothing, 0.0))
    with pytest.raises(SiteError, match="another user"):
        asyncio.run(trial.equip())


def test_a_folder_that_others_may_write_to_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "windfall"
    folder.mkdir()
    folder.chmod(0o777)
    found = equipped(folder, tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / found.ticket).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_can_be_replaced_as_a_whole_is_refused(open_to_all: Path, tmp_path: Path) -> None:
    equipped(open_to_all / "windfall", tmp_path)
    open_to_all.chmod(0o777)  # without the bit that keeps others from renaming what is ours
    with pytest.raises(SiteError, match="any user may replace"):
        equipped(open_to_all / "windfall", tmp_path)


@needs_root
def test_a_file_that_somebody_else_left_is_not_taken_for_the_pilot(tmp_path: Path) -> None:
    folder = tmp_path / "windfall"
    file = folder / equipped(folder, tmp_path).pilot
    file.write_bytes(b"x" * len(PILOT))
    os.chown(file, OTHER, OTHER)
    equipped(folder, tmp_path)
    assert file.read_bytes() == PILOT and file.stat().st_uid == os.geteuid()


def test_ticket_lasts_for_the_longest_pilot_and_a_wait_in_the_queue(tmp_path: Path) -> None:
    for walltime, days in ((600, 29), (3 * 86_400, 31), (3 * 86_400 + 1, 32), (1_000 * 86_400, 365)):
        line = Issuer()
        equipped(tmp_path / "windfall", tmp_path / str(walltime), line, walltime)
        assert line.days == [days]


def test_ticket_is_renewed_after_a_week_in_the_file_that_queued_jobs_read(tmp_path: Path) -> None:
    line, folder = Issuer(), tmp_path / "windfall"

    def token(age: float) -> str:
        kept = tmp_path / "s.json"
        if kept.exists():
            known = json.loads(kept.read_text())
            kept.write_text(json.dumps({**known, "made": time.time() - age * 86_400}))
        names.add(equipped(folder, tmp_path, line).ticket)
        return str(json.loads((folder / min(names)).read_text())["token"])
    names: set[str] = set()
    assert [token(age) for age in (0, 6.9, 7.1, 6.9)] == ["secret-1", "secret-1", "secret-2", "secret-2"]
    assert len(names) == 1
