"""Packed Python environments: unpacked once, used by commands and calls, refused for another Python."""

import io
import os
import subprocess
import sys
import tarfile

import pytest
from harness import alive, call, value, wait_until

from windfall.errors import BadInput
from windfall.pilot.files import packed

HERE = subprocess.run(["python3", "-c", packed._ASK], stdout=subprocess.PIPE, check=True).stdout.decode().strip()


def archive(**files):
    return bundle(*[(name.replace("__", "/"), tarfile.REGTYPE, text) for name, text in files.items()])


def bundle(*entries):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, kind, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                entry.size = len(text)
            else:
                entry.linkname = text
            tar.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def entry(server, data, version):
    return [server.blob(data), len(data), version]


def test_commands_and_calls_use_the_packed_environment(server, launch):
    pilot = launch("--cores", "2")
    gets = []
    server.intercept = lambda handler, method, path: gets.append(path) if method == "GET" else None
    data = archive(**{"site-packages__mine.py": "def word(): return 'mine'\n", "bin__tool": "#!/bin/sh\necho tool\n"})
    python = ["python3", "-c", "import mine; print(mine.word())"]
    server.submit([1, python], [2, python], [3, "tool"], packed=entry(server, data, HERE))
    assert [server.result(i).get("out") for i in (1, 2, 3)] == ["mine\n", "mine\n", "tool\n"]
    own = entry(server, data, "{}.{}".format(*sys.version_info[:2]))
    server.submit([4, call(eval, "__import__('mine').word()")], kind="call", packed=own)
    assert value(server.result(4)) == ("ok", "mine") and len(gets) == 1
    server.submit([5, ["python3", "-c", "import mine"]])
    assert server.result(5)["exit"] == 1
    assert pilot.stop() == 0
    assert sorted(os.listdir(pilot.dir)) == ["cache", "environments"]


def test_environment_for_another_python_is_refused(server, launch):
    launch("--cores", "1")
    data = archive(**{"site-packages__mine.py": ""})
    server.submit([1, "echo never"], packed=entry(server, data, "3.1"))
    server.submit([2, call(int)], kind="call", packed=entry(server, data, "2.7"))
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "start")
    assert report["note"] == f"the environment was made for Python 3.1, this host has {HERE}"
    assert server.result(2)["why"] == "start" and "made for Python 2.7" in server.result(2)["note"]


def test_invalid_archive_fails_its_task_alone(server, launch):
    launch("--cores", "1")
    server.submit([1, "true"], packed=entry(server, b"no archive", HERE))
    server.submit([2, "true"], packed=entry(server, bundle(("../x", tarfile.REGTYPE, "x")), HERE))
    server.submit([3, "echo on"])
    damaged = bytearray(bundle(("f", tarfile.REGTYPE, "".join(map(str, range(90000))))))
    damaged[len(damaged) // 2:len(damaged) // 2 + 3000] = b"\xff" * 3000
    server.submit([4, "true"], packed=entry(server, bytes(damaged), HERE))
    assert server.result(1)["why"] == server.result(2)["why"] == "input" and server.result(3)["out"] == "on\n"
    assert server.result(4)["why"] == "input" and "damaged" in server.result(4)["note"]


@pytest.mark.parametrize("entries", [
    [("/abs", tarfile.REGTYPE, "x")], [("a/../../x", tarfile.REGTYPE, "x")],
    [("link", tarfile.SYMTYPE, "/etc/passwd")], [("link", tarfile.SYMTYPE, "../x")],
    [("here", tarfile.SYMTYPE, "."), ("out", tarfile.SYMTYPE, "here/../..")],
    [("link", tarfile.LNKTYPE, "../outside")], [("pipe", tarfile.FIFOTYPE, "")],
    [("twice", tarfile.REGTYPE, "x"), ("twice", tarfile.REGTYPE, "y")],
    [("folder", tarfile.SYMTYPE, "/tmp"), ("folder/windfall-test-x", tarfile.REGTYPE, "x")],
    [("a", tarfile.SYMTYPE, "../victim"), ("a/sub/evil", tarfile.SYMTYPE, "x")],
    [("a", tarfile.SYMTYPE, "../victim"), ("a/sub", tarfile.DIRTYPE, "")],
    [("a", tarfile.SYMTYPE, "../victim/old"), ("b", tarfile.LNKTYPE, "a")],
    [("loop", tarfile.SYMTYPE, "loop")],
])
def test_archive_entries_cannot_lead_out(tmp_path, entries):
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "in").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "old").write_text("old")
    (tmp_path / "a.tar.gz").write_bytes(bundle(*entries))
    with pytest.raises((BadInput, OSError)):
        packed.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "in"))
    assert sorted(os.listdir(str(tmp_path))) == ["a.tar.gz", "in", "outside", "victim"]
    assert os.listdir(str(tmp_path / "victim")) == ["old"]
    assert not [name for name in os.listdir(str(tmp_path / "in")) if os.path.islink(str(tmp_path / "in" / name))
                and not (os.path.realpath(str(tmp_path / "in" / name)) + "/").startswith(str(tmp_path / "in") + "/")]
    assert not os.path.exists("/tmp/windfall-test-x")


def test_links_inside_the_archive_are_made(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "a.tar.gz").write_bytes(bundle(("lib/link", tarfile.SYMTYPE, "../f"), ("f", tarfile.REGTYPE, "text")))
    packed.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "in"))
    assert (tmp_path / "in" / "lib" / "link").read_text() == "text"

def test_hard_links_are_made_wherever_they_lead(tmp_path):
    """Hard links may name symbolic links, and lie in directories that no entry has made."""
    unpacked = tmp_path / "in"
    unpacked.mkdir()
    (tmp_path / "a.tar.gz").write_bytes(bundle(
        ("lib/f", tarfile.REGTYPE, "text"), ("lib/link", tarfile.SYMTYPE, "f"),
        ("lib/same", tarfile.LNKTYPE, "lib/link"), ("new/deep/f", tarfile.LNKTYPE, "lib/f"),
        ("new/again", tarfile.LNKTYPE, "new/deep/f")))
    packed.unpack(str(tmp_path / "a.tar.gz"), str(unpacked))
    assert os.readlink(str(unpacked / "lib" / "same")) == "f"
    for path in ("lib/same", "new/deep/f", "new/again"):
        assert (unpacked / path).read_text() == "text"


@pytest.mark.parametrize("entries", [
    [("link", tarfile.LNKTYPE, "nowhere")], [("twice", tarfile.REGTYPE, "x"), ("twice", tarfile.REGTYPE, "y")],
    [("f", tarfile.REGTYPE, "x"), ("f/g", tarfile.REGTYPE, "y")],
    [("d/f", tarfile.REGTYPE, "x"), ("l", tarfile.LNKTYPE, "d")],
    [("a", tarfile.SYMTYPE, "b"), ("a", tarfile.REGTYPE, "x")],
])
def test_archive_with_colliding_entries_is_refused(tmp_path, entries):
    (tmp_path / "in").mkdir()
    (tmp_path / "a.tar.gz").write_bytes(bundle(*entries))
    with pytest.raises(BadInput, match="cannot be unpacked: [a-z/]+: "):
        packed.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "in"))


def test_python_that_does_not_answer_is_ended(tmp_path, monkeypatch):
    said = tmp_path / "pids"
    fake = tmp_path / "python3"
    fake.write_text(f"#!/bin/sh\n/bin/sleep 60 &\necho $$ $! > {said}\nwait\n")
    fake.chmod(0o755)
    monkeypatch.setattr(packed, "ASK_SECONDS", 1.0)
    assert packed.on_path(str(tmp_path)) == ""
    wait_until(lambda: not any(map(alive, said.read_text().split())))


class ComponentLibrary:
    """A cache that has all its blobs, which are archives."""

    def __init__(self, folder):
        self.folder = folder

    def get(self, blobs, blob, attempt, target):
        return os.path.join(self.folder, blob.digest)

    def copied(self, target):
        pass


def test_least_recently_used_environment_is_evicted_unless_in_use(tmp_path):
    shelf = ComponentLibrary(str(tmp_path / "archives"))
    os.mkdir(shelf.folder)
    for name in "abcd":
        with open(os.path.join(shelf.folder, name * 64), "wb") as file:
            file.write(archive(**{"mine.py": "x" * 100000}))
    folder = str(tmp_path / "environments")
    os.makedirs(os.path.join(folder, "f" * 64 + ".1.new", "lib"))
    os.utime(os.path.join(folder, "f" * 64 + ".1.new"), (0, 0))
    ours, other = (packed.Environments(folder, 250000) for _ in range(2))

    def use(who, name, attempt, ago=0):
        who.prepare([name * 64, 1, HERE], shelf, None, attempt)
        os.utime(os.path.join(folder, name * 64), (ago, ago))

    def there():
        return "".join(sorted(name[0] for name in os.listdir(folder)))

    use(other, "a", 1, 100)
    use(ours, "b", 2, 200)
    use(ours, "b", 3, 200)
    ours.leave(2)
    use(ours, "c", 4, 300)
    assert there() == "abc"                                 # too much, but all in use
    ours.leave(4)
    use(ours, "d", 5, 400)
    assert there() == "abd"                                 # "a" by another pilot, "b" by another attempt
    ours.leave(3)
    other.leave(1)
    use(ours, "c", 6, 500)
    assert there() == "cd" and not ours.held.keys() - {os.path.join(folder, n * 64) for n in "cd"}


def test_archive_with_too_many_files_is_refused(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "a.tar.gz").write_bytes(bundle(("a", tarfile.REGTYPE, "text"), ("f", tarfile.REGTYPE, "text")))
    monkeypatch.setattr(packed, "MAX_FILES", 1)
    with pytest.raises(BadInput, match="too large"):
        packed.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "in"))
