"""The folders of a pilot: whose they are."""

import os

import pytest

from windfall.errors import BadInput
from windfall.pilot.files.folders import Folders

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("name", ["cache", "environments", "outbox"])
def test_directory_that_another_user_made_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    os.chown(tmp_path / name, NOBODY, NOBODY)
    with pytest.raises(BadInput, match=f"another user made the directory {tmp_path}/{name}"):
        Folders(str(tmp_path))
    assert [each.name for each in tmp_path.glob("run-*")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_link_that_another_user_made_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    os.symlink(tmp_path / "mine", tmp_path / "cache")
    os.lchown(tmp_path / "cache", NOBODY, NOBODY)
    with pytest.raises(BadInput, match="another user"):
        Folders(str(tmp_path))


def test_own_link_to_a_larger_disk_is_taken(tmp_path):
    (tmp_path / "large").mkdir()
    os.symlink(tmp_path / "large", tmp_path / "cache")
    assert Folders(str(tmp_path)).cache == str(tmp_path / "cache")


def test_cache_is_there_from_the_start_so_that_nobody_else_makes_it(tmp_path):
    assert os.stat(Folders(str(tmp_path)).cache).st_mode & 0o777 == 0o700


def test_link_that_looks_like_an_abandoned_run_leaves_its_target_alone(tmp_path):
    (tmp_path / "home").mkdir(mode=0o755)
    os.symlink(tmp_path / "home", tmp_path / "run-1")
    Folders(str(tmp_path)).clear_others()
    assert os.stat(tmp_path / "home").st_mode & 0o777 == 0o755 and not os.listdir(tmp_path / "home")
