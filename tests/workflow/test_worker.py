"""The worker that goes along with a task: it unpacks inputs, packs outputs and reports mistakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from windfall.workflow.components import worker


def task(place: Path, lang: str, source: str, params: str, header: str = "") -> None:
    """`params`: "out integer* all, in string text"."""
    said = [dict(zip(("mode", "type", "name"), each.split(), strict=True)) for each in params.split(", ")]
    about = {
        "component": "Echo", "implementations": [{"name": "EchoI", "lang": lang, "platform": "", "header": header,
                                                  "source": source, "footer": ""}],
        "params": [{**each, "type": each["type"].rstrip("*"), "collection": "*" in each["type"]} for each in said],
    }  # fmt: skip
    (place / ".component").mkdir(parents=True)
    shutil.copy(worker.__file__, place / ".component" / "run.py")
    (place / ".component" / "about.json").write_text(json.dumps(about))


def run(place: Path, *values: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, ".component/run.py", "--run", *values], cwd=place, capture_output=True,
                          text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("lang", "source"), [("SHELL", "printf '[%s]' \"$t\" > $o"), ("PYTHON", "o = f'[{t}]'")])
@pytest.mark.parametrize("text", ["", "--compile", "a\n"])
def test_any_text_survives_as_a_value(tmp_path: Path, lang: str, source: str, text: str) -> None:
    task(tmp_path, lang, source, "in string t, out string o")
    assert run(tmp_path, text, "") == (0, "")
    assert (tmp_path / "out" / "o").read_text() == f"[{text}]"


def test_a_member_that_was_written_later_is_not_overwritten(tmp_path: Path) -> None:
    task(tmp_path, "SHELL", "cat $all/1 $all/2 > $o", "out string o, in string* all")
    (tmp_path / "in" / "all").mkdir(parents=True)
    (tmp_path / "in" / "all" / "2").write_text("new")
    with tarfile.open(tmp_path / "in" / "all.tar", "w") as archive:
        for name in ("1", "2"):
            (tmp_path / name).write_text("old")
            archive.add(tmp_path / name, name)
    assert run(tmp_path, "", "") == (0, "")
    assert (tmp_path / "out" / "o").read_text() == "oldnew"


def test_the_same_members_are_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name, umask, age in (("one", 0o022, 1e9), ("two", 0o077, 1.5e9)):
        place = tmp_path / name
        source = f"umask {umask:o}; echo 2 > $all/2; echo 10 > kept; ln -s ../../kept $all/10; echo 1 > $all/1"
        task(place, "SHELL", source, "out integer* all")
        assert run(place, "") == (0, "")
        os.utime(place / "kept", (age, age))
        found.append((place / "out" / "all").read_bytes())
    assert found[0] == found[1]
    with tarfile.open(tmp_path / "one" / "out" / "all") as archive:
        assert [(each.name, each.isfile(), each.size) for each in archive] == [("1", True, 2), ("2", True, 2),
                                                                              ("10", True, 3)]


def test_python_errors_name_the_lines_of_the_component(tmp_path: Path) -> None:
    header, source = "\n    def half(x):\n        return x / 0\n", "\n  y = 3\n  o = half(y)\n"
    task(tmp_path, "PYTHON", source, "out string o", header)
    code, said = run(tmp_path, "")
    assert code == 1 and "run.py" not in said
    assert 'File "<source of EchoI>", line 3' in said and "o = half(y)" in said
    assert 'File "<header of EchoI>", line 3' in said and "return x / 0" in said
    assert said.strip().endswith("ZeroDivisionError: division by zero")


def test_broken_python_fails_with_a_syntax_error_and_its_line(tmp_path: Path) -> None:
    task(tmp_path, "PYTHON", "\n  o = (\n", "out string o")
    code, said = run(tmp_path, "")
    assert code == 1 and "run.py" not in said and "SyntaxError" in said and "line 2" in said
