"""Blobs arrive whole or not at all, and belong to their owner."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from windfall.data.blobs import Blobs, Span, escape, unescape
from windfall.errors import BadInput, Conflict, DiskFull, NotFound, TooLarge

BODY = os.urandom(3_000_000)
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "data")


def pieces(body: bytes, size: int = 64 << 10) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_blob_sent_in_one_piece_is_stored_privately(blobs: Blobs, tmp_path: Path) -> None:
    assert blobs.append("ann", SHA, Span(0, len(BODY)), pieces(BODY))
    assert blobs.size("ann", SHA) == len(BODY)
    with blobs.open("ann", SHA) as file:
        file.seek(1_000_000)
        assert file.read(10) == BODY[1_000_000:1_000_010]
    (path,) = files(tmp_path)
    assert path == tmp_path / "data" / "blobs" / "ann" / SHA[:2] / SHA[2:]
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(d.stat().st_mode & 0o777 == 0o700 for d in (tmp_path / "data").rglob("*") if d.is_dir())


def test_empty_blob_is_stored(blobs: Blobs) -> None:
    sha = hashlib.sha256(b"").hexdigest()
    assert blobs.append("ann", sha, Span(0, 0), [])
    assert blobs.size("ann", sha) == 0


@pytest.mark.parametrize("restart", [False, True])
def test_upload_resumes_after_it_broke_off(tmp_path: Path, restart: bool) -> None:
    blobs = Blobs(tmp_path)

    def broken() -> Iterator[bytes]:
        yield BODY[:100_000]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        blobs.append("ann", SHA, Span(0, len(BODY)), broken())
    with pytest.raises(NotFound):
        blobs.size("ann", SHA)
    if restart:
        blobs = Blobs(tmp_path)
    assert blobs.received("ann", SHA) == 100_000
    with pytest.raises(Conflict, match="100000"):
        blobs.append("ann", SHA, Span(0, len(BODY)), pieces(BODY))
    assert not blobs.append("ann", SHA, Span(100_000, len(BODY)), [BODY[100_000:2_000_000]])
    assert blobs.append("ann", SHA, Span(2_000_000, len(BODY)), [BODY[2_000_000:]])
    assert blobs.received("ann", SHA) == 0
    with blobs.open("ann", SHA) as file:
        assert file.read() == BODY


def test_second_upload_of_the_same_blob_reads_no_bytes(blobs: Blobs) -> None:
    blobs.put("ann", BODY)

    def unread() -> Iterator[bytes]:
        raise AssertionError("read")
        yield b""

    assert blobs.append("ann", SHA, Span(0, len(BODY)), unread())


def test_upload_with_wrong_bytes_is_dropped(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="do not have"):
        blobs.append("ann", SHA, Span(0, 5), [b"wrong"])
    with pytest.raises(BadInput, match="more than"):
        blobs.append("ann", SHA, Span(0, 5), [b"wrong", b"er"])
    assert files(tmp_path) == [] and blobs.received("ann", SHA) == 0


def test_upload_outside_its_bounds_is_refused(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, limit=10)
    with pytest.raises(TooLarge):
        blobs.append("ann", SHA, Span(0, 11), [])
    with pytest.raises(BadInput):
        blobs.append("ann", SHA, Span(-1, 5), [])
    with pytest.raises(BadInput):
        blobs.append("ann", SHA, Span(6, 5), [])


@pytest.mark.parametrize("sha", ["", "ab", "../" + "a" * 61, "A" * 64, "a" * 63 + "/", "a" * 64 + "\n", "a" * 65])
def test_name_that_is_not_a_hash_is_refused(blobs: Blobs, sha: str) -> None:
    for call in (
        lambda: blobs.size("ann", sha),
        lambda: blobs.received("ann", sha),
        lambda: blobs.append("ann", sha, Span(0, 0), []),
    ):
        with pytest.raises(BadInput):
            call()


def test_owners_do_not_see_the_blobs_of_each_other(blobs: Blobs, tmp_path: Path) -> None:
    blobs.put("ann", BODY)
    with pytest.raises(NotFound):
        blobs.size("bob", SHA)
    with pytest.raises(NotFound):
        blobs.open("../ann", SHA)
    blobs.put("bob", BODY)
    assert len(files(tmp_path)) == 2


@given(st.text(min_size=1, max_size=16))
def test_owner_names_are_escaped_reversibly(owner: str) -> None:
    name = escape(owner)
    assert unescape(name) == owner
    assert "/" not in name and "." not in name and name == name.lower() and name.isascii()


def test_symbolic_link_in_place_of_a_blob_is_not_followed(blobs: Blobs, tmp_path: Path) -> None:
    blobs.put("ann", BODY)
    (path,) = files(tmp_path)
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(NotFound):
        blobs.open("ann", SHA)


def test_second_request_for_a_blob_under_way_is_a_conflict(blobs: Blobs) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        inside.set()
        go.wait()
        yield BODY

    thread = threading.Thread(target=blobs.append, args=("ann", SHA, Span(0, len(BODY)), slow()))
    thread.start()
    inside.wait()
    with pytest.raises(Conflict, match="another request"):
        blobs.append("ann", SHA, Span(0, len(BODY)), [BODY])
    assert blobs.append("bob", SHA, Span(0, len(BODY)), [BODY])
    go.set()
    thread.join()
    assert blobs.size("ann", SHA) == len(BODY)


def test_unreferenced_blob_is_deleted_when_it_is_old(blobs: Blobs, tmp_path: Path) -> None:
    kept, other = blobs.put("ann", b"kept"), blobs.put("Bob é", b"other")
    assert blobs.delete_unreferenced(lambda owner, sha: False) == {}  # too young
    for path in files(tmp_path):
        os.utime(path, (0, 0))
    assert blobs.delete_unreferenced(lambda owner, sha: (owner, sha) == ("ann", kept)) == {"Bob é": len(b"other")}
    with pytest.raises(NotFound):
        blobs.size("Bob é", other)
    assert blobs.size("ann", kept) == 4
    assert blobs.delete_unreferenced(lambda owner, sha: False) == {}  # asking renewed it


def test_settled_blob_is_deleted_at_once_unless_it_was_touched_since_the_mark(blobs: Blobs) -> None:
    sha = blobs.put("ann", b"input")
    before = blobs.mark()
    blobs.settle("ann", [sha, SHA])
    assert blobs.delete_unreferenced(lambda owner, sha: False, mark=before) == {}
    time.sleep(0.02)  # a file system's clock ticks every few milliseconds
    assert blobs.delete_unreferenced(lambda owner, sha: False, owner="bob", mark=blobs.mark()) == {}
    assert blobs.delete_unreferenced(lambda owner, sha: False, owner="ann", mark=blobs.mark()) == {"ann": 5}


def test_unfinished_upload_is_deleted_when_it_is_old(blobs: Blobs, tmp_path: Path) -> None:
    blobs.append("ann", SHA, Span(0, 10), [b"123"])
    assert blobs.delete_stale_uploads() == 0
    os.utime(files(tmp_path)[0], (0, 0))
    assert blobs.delete_stale_uploads() == 3
    assert blobs.received("ann", SHA) == 0


def test_blob_is_flushed_before_it_gets_its_name(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = {"fsync": os.fsync, "rename": os.rename}
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), real["fsync"](fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append("rename"), real["rename"](a, b)))
    blobs.put("ann", b"first")
    calls.clear()
    body = next(
        b
        for n in range(10_000)
        if hashlib.sha256(b := b"%d" % n).hexdigest()[:2] == hashlib.sha256(b"first").hexdigest()[:2]
    )
    blobs.put("ann", body)  # every directory is there already
    assert calls == ["fsync", "rename", "fsync"]


def test_upload_that_fills_the_disk_frees_its_bytes(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=False).returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        blobs = Blobs(disk)
        with pytest.raises(DiskFull) as caught:
            blobs.append("ann", SHA, Span(0, len(BODY)), pieces(BODY))
        assert caught.value.retry and files(disk) == []
        blobs.put("ann", b"small")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_count_of_an_owner_includes_changes_made_meanwhile(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {blobs.put("ann", bytes([n]) * 100) for n in range(5)}
    blobs.put("bob", b"b" * 7)
    lstat, done = Path.lstat, []

    def meanwhile(path: Path) -> os.stat_result:
        if not done:
            done.append(path)
            blobs.put("ann", b"n" * 1_000)
            blobs.delete_unreferenced(lambda owner, sha: sha not in first, older_than=-1)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", meanwhile)
    assert blobs.used("ann") == 1_000
    blobs.put("ann", b"m" * 10)
    assert blobs.used("ann") == 1_010 and blobs.used("bob") == 7


def test_zeros_of_an_upload_take_no_room(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    piece = 1 << 20
    body = bytes(8 * piece) + b"the end"
    sha = hashlib.sha256(body).hexdigest()
    for at in range(0, 8 * piece, piece):
        assert not blobs.append("ann", sha, Span(at, len(body)), [body[at:at + piece]])
        assert blobs.received("ann", sha) == at + piece
    assert blobs.append("ann", sha, Span(8 * piece, len(body)), [b"the end"])
    with blobs.open("ann", sha) as file:
        assert file.read() == body
    (path,) = files(tmp_path)
    assert path.stat().st_blocks * 512 < piece
    zeros = hashlib.sha256(bytes(piece)).hexdigest()
    assert blobs.append("ann", zeros, Span(0, piece), [bytes(piece)])
    assert blobs.size("ann", zeros) == blobs.used("ann") - len(body) == piece
