"""Outputs in one archive; a failed task's directory fetched, and run again here."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from types import SimpleNamespace

import pytest

from tests.live.real import environment
from windfall.client.files import archive
from windfall.errors import BadInput, WindfallError


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_results_are_written_into_one_archive(windfall, name):
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


def test_unwritable_directory_does_not_hide_the_summary(windfall):
    """The run prints its summary although no file can be written."""
    windfall.write("file", "")
    run = ("run", "echo {x} > out", "-s", "x=1..2", "--output", "out", "--name", "w", "-o", "file/below")
    done = windfall(*run)
    assert "2 tasks" in done.stderr and "inside" not in done.stderr, done.stderr
    assert done.returncode in (1, 3) and ("windfall results" in done.stderr or "could not be fetched" in done.stderr)
    done = windfall("results", "w", "--archive", "absent/a.tar")
    assert (done.returncode, "inside" in done.stderr) == (3, False), done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_a_plain_error(windfall):
    assert windfall("run", "true", "-s", "x=1..2", "--name", "f").returncode == 0
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "windfall", "results", "f", "--csv"]
        done = subprocess.run(command, cwd=windfall.folder, check=False, stdout=full, stderr=subprocess.PIPE, text=True,
                              env=environment(windfall.home))
    assert done.returncode == 3 and done.stderr.startswith("windfall: cannot write: No space"), done.stderr


BAG = """[bag]
name = "kept"
command = "cat in.txt > half; exit 3"
[task]
retries = 0
inputs = ["in.txt"]
scratch = "failed"
environment = { WHO = "me" }
"""


def test_kept_directory_of_a_failed_task_is_fetched_and_run_again(windfall):
    windfall.write("in.txt", "hello\n")
    assert windfall("run", windfall.write("kept.toml", BAG)).returncode == 1
    if windfall.json("show", "kept", "0")["attempts"][-1]["scratch"] is None:
        pytest.fail("the pilot kept nothing")
    done = windfall("logs", "kept", "0", "--scratch", "s")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 file in s/, and 1 input\n"
    assert (windfall.folder / "s" / "half").read_text() == "hello\n"
    assert (windfall.folder / "s" / "in.txt").read_text() == "hello\n"
    done = windfall("retry", "kept", "0", "--here", "-o", "again")
    assert (done.returncode, "exit 3" in done.stderr) == (1, True), done.stderr
    assert (windfall.folder / "again" / "half").read_text() == "hello\n"
    assert windfall("retry", "kept", "0", "--here", "-o", "again").returncode == 2
    assert windfall("retry", "kept", "--here").returncode == 2


def test_retry_here_works_without_a_kept_directory(windfall):
    windfall.write("x.txt", "1\n")
    run = ("run", "cat x.txt; exit {x}", "-s", "x=4,0", "--input", "x.txt", "--retries", "0", "--name", "plain")
    assert windfall(*run).returncode == 1
    done = windfall("retry", "plain", "1", "--here")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert windfall("logs", "plain", "0", "--scratch", "s").returncode == 2


def packed(*entries):
    """An archive of (name, kind, contents or target, pax headers)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as made:
        for name, kind, text, pax in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.pax_headers = kind, 0o6777, pax
            info.size, info.linkname = (len(text), "") if kind == tarfile.REGTYPE else (0, text)
            made.addfile(info, io.BytesIO(text.encode()))
    data.seek(0)
    return data


def file(name, text="x", **pax):
    return name, tarfile.REGTYPE, text, pax


def through_long_names(target):
    """Links whose real path is longer than the system allows, so that a check by real paths stops halfway."""
    part, path, made = "d" * 247, "", []
    for letter in "abcdefghijklmnop":
        made.append((os.path.join(path, part), tarfile.DIRTYPE, "", {}))
        made.append((os.path.join(path, letter), tarfile.SYMTYPE, part, {}))
        path = os.path.join(path, part)
    link = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    made.append((link, tarfile.SYMTYPE, "../" * 16, {}))
    made.append(("escape", tarfile.SYMTYPE, link + "/../" + target, {}))
    return made


@pytest.mark.parametrize("entries", [
    [file("../evil")], [file("/tmp/evil-windfall")], [file("a/../../evil")],
    [("link", tarfile.SYMTYPE, "..", {}), file("link/evil")],
    [*through_long_names("outside"), file("escape/evil"), ("flag", tarfile.LNKTYPE, "escape/old", {}),
     file("flag", "y")],
    [("flag", tarfile.LNKTYPE, "../outside/old", {}), file("flag", "y")],
], ids=range(6))
def test_an_archive_never_writes_outside(tmp_path, entries):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "old").write_text("old")
    inside = tmp_path / "inside"
    inside.mkdir()
    try:
        archive.extract(packed(*entries), inside)
    except (WindfallError, OSError):
        pass
    assert not (tmp_path / "evil").exists() and not os.path.exists("/tmp/evil-windfall")
    assert os.listdir(tmp_path / "outside") == ["old"] and (tmp_path / "outside" / "old").read_text() == "old"
    assert not [name for top, *names in os.walk(inside) for name in names[0] + names[1]
                if os.path.islink(os.path.join(top, name))]


def test_links_are_counted_and_modes_made_harmless(tmp_path):
    entries = [file("d/f", mtime="1e300"), ("l", tarfile.SYMTYPE, "d/f", {}), ("p", tarfile.FIFOTYPE, "", {}),
               file("d/" + "long" * 60), (("deep/" * 300), tarfile.DIRTYPE, "", {})]
    assert archive.extract(packed(*entries), tmp_path) == (2, 2)
    assert (tmp_path / "d" / "f").stat().st_mode & 0o7022 == 0
    assert (tmp_path / "d" / ("long" * 60)).read_text() == "x"


def raw(kind, size, body=b""):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT) + body


def damaged():
    data = bytearray(packed(file("f", "".join(map(str, range(90000))))).getvalue())
    data[len(data) // 2 : len(data) // 2 + 3000] = b"\xff" * 3000
    return bytes(data)


@pytest.mark.parametrize("data", [
    b"no archive", damaged(), packed(file("f", "x" * 9000)).getvalue()[:40],
    gzip.compress(raw(b"L", 1 << 31) + bytes(1 << 20)), gzip.compress(raw(b"x", 1 << 17) + bytes(1 << 18)),
    gzip.compress(raw(b"x", 14, b"14 size=-1024\n".ljust(512, b"\0")) + raw(b"0", 0)),
    gzip.compress(raw(b"0", 2 << 30)), gzip.compress(raw(b"S", 512) + bytes(2048)), gzip.compress(b"y" * 512),
    packed(file("f"), file("f")).getvalue(), packed(file("f"), file("f/g")).getvalue(),
], ids=range(11))
def test_an_archive_that_is_broken_is_a_plain_error(tmp_path, data):
    import resource

    client = SimpleNamespace(_http=SimpleNamespace(download=lambda sha, stream, size: stream.write(data)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WindfallError):
        archive.unpack(client, hashlib.sha256(data).hexdigest(), len(data), tmp_path / "new")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert sys.platform == "darwin" or grown < 200_000


def test_a_kept_directory_does_not_mix_with_what_is_there(tmp_path):
    (tmp_path / "bag.toml").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        archive.unpack(None, "", 0, tmp_path)


def test_archive_with_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILES", 2)
    with pytest.raises(WindfallError, match="too large"):
        archive.extract(packed(file("a"), file("b"), file("c")), tmp_path)


def test_template_decides_where_files_land(windfall):
    run = ("run", "echo {x}{y} > o.txt", "-s", "x=1..2", "-s", "y=a,b", "--output", "o.txt", "--name", "placed")
    done = windfall(*run, "--files", "{nobody}/{path}")
    assert (done.returncode, "no parameter 'nobody'" in done.stderr) == (2, True)
    assert windfall(*run, "-o", "h", "--files", "{y}/{x}-{path}").returncode == 0
    assert (windfall.folder / "h/b/2-o.txt").read_text() == "2b\n"
    done = windfall("results", "placed", "-o", "clash", "--files", "{x}/{path}")
    clash = "task 1 and an earlier task would both write 1/o.txt"
    assert (done.returncode, clash in done.stderr) == (2, True), done.stderr
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
