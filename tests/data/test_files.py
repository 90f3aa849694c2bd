from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from windfall.data.files import hash_file, safe_join
from windfall.errors import BadInput


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1])
def test_hash_file_returns_hash_and_size(tmp_path: Path, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    (tmp_path / "f").write_bytes(body)
    assert hash_file(tmp_path / "f") == (hashlib.sha256(body).hexdigest(), size)


def test_safe_join_accepts_paths_below_the_root(tmp_path: Path) -> None:
    assert safe_join(tmp_path, "a/b..c/.d") == tmp_path / "a" / "b..c" / ".d"
    (tmp_path / "file").touch()
    assert safe_join(tmp_path, "file/not-a-directory") == tmp_path / "file" / "not-a-directory"


@pytest.mark.parametrize(
    "path", ["", "/", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b", ".", "a/" + "x" * 300]
)
def test_safe_join_refuses_paths_that_lead_out_or_are_invalid(tmp_path: Path, path: str) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(BadInput):
        safe_join(tmp_path, path)


def test_safe_join_refuses_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "dangling").symlink_to("nowhere")
    for path in ("link", "link/passwd", "dangling"):
        with pytest.raises(BadInput, match="symbolic link"):
            safe_join(tmp_path, path)


@given(st.text(alphabet="./ab\0\\", max_size=12))
def test_joined_path_never_leaves_the_root(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.getbasetemp().resolve()
    try:
        joined = safe_join(root, path)
    except BadInput:
        return
    assert joined.resolve().is_relative_to(root) and joined.resolve() != root
