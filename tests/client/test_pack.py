"""A virtual environment as one file: the same bytes for the same packages, and it works elsewhere."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

from windfall.client.files.pack import pack
from windfall.errors import BadInput

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def environment(folder):
    venv.create(folder, with_pip=False)
    packages = folder / "lib" / f"python{VERSION}" / "site-packages"
    (packages / "tool").mkdir()
    (packages / "tool" / "__init__.py").write_text("ANSWER = 42\n")
    (packages / "tool" / "__pycache__").mkdir()
    (packages / "tool" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    (packages / "pip").mkdir()
    (packages / "pip" / "__init__.py").write_text("")
    return packages


def answer(folder):
    env = {**os.environ, "PYTHONPATH": str(folder / "site-packages")}
    command = [sys.executable, "-c", "import tool; print(tool.ANSWER)"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.stdout.strip()


def test_packed_environment_works_elsewhere(tmp_path):
    environment(tmp_path / "env")
    packed, file = pack(tmp_path / "env", tmp_path / "cache")
    assert (packed.python, packed.size) == (VERSION, file.stat().st_size)
    with tarfile.open(file) as archive:
        assert archive.getnames() == ["site-packages/tool/__init__.py"]
        archive.extractall(tmp_path / "there")
    assert answer(tmp_path / "there") == "42"


def test_same_packages_give_the_same_bytes(tmp_path):
    first = environment(tmp_path / "one")
    environment(tmp_path / "two")
    os.utime(first / "tool" / "__init__.py", (1, 1))
    assert pack(tmp_path / "one", tmp_path / "c1")[0] == pack(tmp_path / "two", tmp_path / "c2")[0]
    (first / "tool" / "__init__.py").write_text("ANSWER = 43\n")
    assert pack(tmp_path / "one", tmp_path / "c1")[0] != pack(tmp_path / "two", tmp_path / "c2")[0]


def test_editable_packages_and_other_directories_are_refused(tmp_path):
    packages = environment(tmp_path / "env")
    (packages / "__editable__.mine.pth").write_text("/home/me/mine\n")
    with pytest.raises(BadInput, match="links"):
        pack(tmp_path / "env", tmp_path / "cache")
    with pytest.raises(BadInput, match="not a virtual environment"):
        pack(tmp_path, tmp_path / "cache")


@pytest.mark.needs("pip")
def test_requirements_are_installed_once(tmp_path):
    """The wheel is made here, so that pip fetches nothing."""
    info = "tool-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / "tool-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tool.py", "ANSWER = 7\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (tmp_path / "requirements.txt").write_text("./tool-1.0-py3-none-any.whl\n")
    first = pack(tmp_path / "requirements.txt", tmp_path / "cache")
    with tarfile.open(first[1]) as archive:
        archive.extractall(tmp_path / "there")
    assert answer(tmp_path / "there") == "7"
    (tmp_path / "tool-1.0-py3-none-any.whl").unlink()
    assert pack(tmp_path / "requirements.txt", tmp_path / "cache") == first
    (tmp_path / "requirements.txt").write_text("./nothing-1.0-py3-none-any.whl\n")
    with pytest.raises(BadInput, match="pip could not install"):
        pack(tmp_path / "requirements.txt", tmp_path / "cache")
