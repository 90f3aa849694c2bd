"""Outputs in one archive; a failed task's directory fetched, and run again here."""

import io
import os
import tarfile
import zipfile

import pytest

from windfall.client import archive
from windfall.errors import WindfallError


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_outputs_in_one_archive(windfall, name):
    run = ("run", "echo {x} > out; chmod 755 out", "-s", "x=1..3", "--output", "out", "--name", "arc", "-o", "h")
    assert windfall(*run).returncode == 0
    assert windfall("results", "arc", "--archive", name).stdout == f"3 files in {name}\n"
    path = windfall.folder / name
    if name.endswith("zip"):
        with zipfile.ZipFile(path) as found:
            assert {n: found.read(n) for n in found.namelist()} == {f"{n}/out": b"%d\n" % (n + 1) for n in range(3)}
    else:
        with tarfile.open(path) as found:
            assert [(m.name, m.mode) for m in found] == [(f"{n}/out", 0o755) for n in range(3)]
            assert found.extractfile("2/out").read() == b"3\n"
    assert windfall("results", "arc", "--archive", "a.what").returncode == 2
    assert not [each for each in os.listdir(windfall.folder) if each.endswith(".part")]


BAG = """[bag]
name = "kept"
command = "cat in.txt > half; exit 3"
[task]
retries = 0
inputs = ["in.txt"]
scratch = "failed"
environment = { WHO = "me" }
"""


def test_a_failed_tasks_directory_comes_here_and_is_run_again(windfall):
    windfall.write("in.txt", "hello\n")
    assert windfall("run", windfall.write("kept.toml", BAG)).returncode == 1
    if windfall.json("show", "kept", "0")["attempts"][-1]["scratch"] is None:
        pytest.fail("the pilot kept nothing")
    done = windfall("logs", "kept", "0", "--scratch", "s")
    assert done.returncode == 0, done.stderr
    assert (windfall.folder / "s" / "half").read_text() == "hello\n"
    done = windfall("retry", "kept", "0", "--here", "-o", "again")
    assert (done.returncode, "exit 3" in done.stderr) == (1, True), done.stderr
    assert (windfall.folder / "again" / "half").read_text() == "hello\n"
    assert windfall("retry", "kept", "0", "--here", "-o", "again").returncode == 2
    assert windfall("retry", "kept", "--here").returncode == 2


def test_here_without_anything_kept(windfall):
    windfall.write("x.txt", "1\n")
    run = ("run", "cat x.txt; exit {x}", "-s", "x=4,0", "--input", "x.txt", "--retries", "0", "--name", "plain")
    assert windfall(*run).returncode == 1
    done = windfall("retry", "plain", "1", "--here")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert windfall("logs", "plain", "0", "--scratch", "s").returncode == 2


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil-windfall", "link/evil"])
def test_an_archive_that_leads_out_is_refused(tmp_path, name):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as made:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, ".."
        made.addfile(link)
        info = tarfile.TarInfo(name)
        info.size = 1
        made.addfile(info, io.BytesIO(b"x"))
    data.seek(0)
    inside = tmp_path / "inside"
    inside.mkdir()
    with tarfile.open(fileobj=data) as found, pytest.raises((WindfallError, tarfile.TarError)):
        archive._extract(found, inside)
    assert not (tmp_path / "evil").exists() and not os.path.exists("/tmp/evil-windfall")


def test_a_template_says_where_files_land(windfall):
    run = ("run", "echo {x}{y} > o.txt", "-s", "x=1..2", "-s", "y=a,b", "--output", "o.txt", "--name", "placed")
    done = windfall(*run, "--files", "{nobody}/{path}")
    assert (done.returncode, "no parameter 'nobody'" in done.stderr) == (2, True)
    assert windfall(*run, "-o", "h", "--files", "{y}/{x}-{path}").returncode == 0
    assert (windfall.folder / "h/b/2-o.txt").read_text() == "2b\n"
    done = windfall("results", "placed", "-o", "clash", "--files", "{x}/{path}")
    assert (done.returncode, "task 1 would write to 1/o.txt" in done.stderr) == (2, True), done.stderr
    assert not (windfall.folder / "clash").exists()
    assert windfall("wait", "placed", "-o", "w", "--files", "{task}/{path}").returncode == 0
    assert (windfall.folder / "w/3/o.txt").read_text() == "2b\n"
    assert windfall("results", "placed", "--archive", "p.tar", "--files", "{x}{y}").returncode == 0
    with tarfile.open(windfall.folder / "p.tar") as found:
        assert found.getnames() == ["1a", "1b", "2a", "2b"]
    assert windfall("results", "placed", "--files", "{task}").returncode == 2
    assert windfall("wait", "placed", "--files", "{task}").returncode == 2


def test_an_extension_whose_files_clash_gets_directories(windfall):
    run = ("run", "echo {x}{y} > o-{x}", "-s", "x=1,2", "--output", "o-{x}", "--name", "clashing", "-o", "c")
    assert windfall(*run, "-s", "y=a").returncode == 0
    assert (windfall.folder / "c/o-2").read_text() == "2a\n"
    assert windfall(*run, "-s", "y=a,b", "--extend", "clashing").returncode == 0
    texts = [(windfall.folder / f"c/{n}/o-{n % 2 + 1}").read_text() for n in range(4)]
    assert texts == ["1a\n", "2a\n", "1b\n", "2b\n"]
