"""The shell runs a component as Python would: the same files, the same exit code, the same words."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from windfall.workflow.components import quick, worker
from windfall.workflow.components.compiled import program
from windfall.workflow.components.files import Component, loads

ECHO = """<yml-query><component type="abstract" name="Echo"><params>
<param name="to" type="string" mode="out"/><param name="text" type="string"/><param name="how" type="integer"/>
<param name="kept" type="integer" mode="inout"/></params></component>
<component type="impl" name="Echo_Impl" abstract="Echo"><impl lang="C"><source><![CDATA[
    if (how == 1) return 7; if (how == 2) return 0; to = text; kept += how;
]]></source></impl></component></yml-query>"""
WORKER = f"{sys.executable} .component/run.py"
OTHERWISE = f"{WORKER} --run"
HERE = f"{platform.system()}-{platform.machine()}".lower()
ODD = "-e 'a' \"b\" \\n %s $HOME `x` {1}\nü "


@pytest.fixture(scope="module")
def parts() -> tuple[Component, Component]:
    echo, made = loads(ECHO.encode(), "echo.xml").components
    return echo, made


@pytest.fixture(scope="module")
def about(parts: tuple[Component, Component], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files that go along with a task."""
    echo, made = parts
    folder = tmp_path_factory.mktemp("about")
    (folder / ".component").mkdir()
    shutil.copy(worker.__file__, folder / ".component" / "run.py")
    params = [{"name": each.name, "type": each.type, "mode": each.mode, "collection": False} for each in echo.params]
    assert made.implementation is not None
    code = {"name": made.name, "lang": "C", "libs": "", "platform": "", "program": program(echo, made.implementation)}
    said = {"component": "Echo", "params": params, "implementations": [code]}
    (folder / ".component" / "about.json").write_text(json.dumps(said))
    (folder / ".component" / "run.sh").write_text(quick.script(echo, made, OTHERWISE))
    subprocess.run([*WORKER.split(), "--compile", made.name], cwd=folder, check=True)
    (folder / "binary").rename(folder / ".component" / f"{made.name}.bin")
    return folder


def ran(about: Path, folder: Path, command: str, *values: str) -> tuple[int, str, dict[str, str]]:
    """Exit code, what it said, and what it wrote."""
    if not (folder / ".component").exists():
        shutil.copytree(about, folder, dirs_exist_ok=True)
    done = subprocess.run([*command.split(), *values], cwd=folder, capture_output=True, text=True)
    out = folder / "out"
    files = {each.name: each.read_text() for each in out.iterdir()} if out.is_dir() else {}
    return done.returncode, done.stderr, files


@pytest.mark.needs("compilers")
@pytest.mark.parametrize(("text", "how"), [(ODD, "3"), ("plain", "1"), ("plain", "2")])
def test_shell_and_python_run_a_component_alike(about: Path, tmp_path: Path, text: str, how: str) -> None:
    found = [ran(about, tmp_path / name, command, "", text, how, "")
             for name, command in (("shell", "/bin/sh .component/run.sh"), ("python", OTHERWISE))]
    assert found[0] == found[1]
    code, said, files = found[0]
    assert code == {"1": 7, "2": 1, "3": 0}[how] and files == ({"to": text, "kept": "3"} if how == "3" else {})
    assert said == ("Echo has not written 'to'\n" if how == "2" else "")


@pytest.mark.needs("compilers")
def test_input_files_replace_missing_arguments(about: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "kept").write_text("40")
    (tmp_path / "in" / "text").write_text("from a file")
    assert ran(about, tmp_path, "/bin/sh .component/run.sh", "", "", "2000", "") == (
        0, "", {"to": "from a file", "kept": "2040"})


@pytest.mark.needs("compilers")
def test_a_binary_of_another_machine_is_made_anew(about: Path, tmp_path: Path) -> None:
    shutil.copytree(about, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".component" / "Echo_Impl.bin").write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 100)
    assert ran(about, tmp_path, "/bin/sh .component/run.sh", "", "x", "5", "")[::2] == (0, {"to": "x", "kept": "5"})


@pytest.mark.needs("compilers")
def test_python_reads_a_member_of_an_archive(about: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "2.1").write_text("picked")
    with tarfile.open(tmp_path / "in" / "text.tar", "w") as archive:
        archive.add(tmp_path / "2.1", "2.1")
    assert ran(about, tmp_path, "/bin/sh .component/run.sh", "", "2.1", "5", "")[2]["to"] == "picked"


def test_shell_runs_only_implementations_that_fit(parts: tuple[Component, Component]) -> None:
    echo, made = parts
    other = loads(ECHO.replace('lang="C"', 'lang="C" platform="$(rm)"').encode(), "echo.xml").components[1]
    family = loads(ECHO.replace('name="text"', 'name="text" collection="yes"').encode(), "echo.xml").components[0]
    assert quick.fits(echo, [made, other])
    assert not quick.fits(echo, [other, made]) and not quick.fits(family, [made])


# --- scripts and programs --------------------------------------------------------------------------------------------

MIXED = """<yml-query><component type="abstract" name="Mixed"><params>
<param name="to" type="string" mode="out"/><param name="text" type="string"/><param name="how" type="integer"/>
<param name="kept" type="integer" mode="inout"/><param name="mat" type="Matrix"/></params></component>
<component type="impl" name="MixedI" abstract="Mixed"><impl LANG</impl></component></yml-query>"""
SHELL = """lang="SHELL"><header>say() { printf '%s|' "$text" "$how" "$mat" "$(cat $mat)" "$PWD"; }</header><source>
    if [ "$how" = 1 ]; then false; fi
    if [ "$how" != 2 ]; then say &gt; $to; echo $(( $(cat $kept) + how )) > $kept; fi</source>"""
PROGRAM = """lang="EXECUTABLE"><source>
    PRINTER '%s|' {text} how={how} "a b" {mat}. {kept} $HOME '{how}"' > {to}</source>"""


def prepared(tmp_path: Path, lang: str, folder: str) -> tuple[Path, Component]:
    """Write the files that go along with a task, whose arguments may come from files."""
    mixed, made = loads(MIXED.replace("LANG", lang).encode(), "mixed.xml").components
    assert quick.fits(mixed, [made]) and made.implementation is not None
    place = tmp_path / folder
    (place / ".component").mkdir(parents=True)
    (place / "in").mkdir()
    (place / "in" / "mat").write_text("1,2")
    shutil.copy(worker.__file__, place / ".component" / "run.py")
    params = [{"name": each.name, "type": each.type, "mode": each.mode, "collection": False} for each in mixed.params]
    code = {"name": made.name, "platform": "", **{name: getattr(made.implementation, name) for name in
                                                 ("lang", "source", "header", "footer")}}
    said = {"component": "Mixed", "params": params, "implementations": [code]}
    (place / ".component" / "about.json").write_text(json.dumps(said))
    (place / ".component" / "run.sh").write_text(quick.script(mixed, made, OTHERWISE))
    (place / ".component" / "source.sh").write_text(quick.source(made.implementation))
    return place, mixed


@pytest.mark.parametrize("lang", [SHELL, PROGRAM.replace("PRINTER", shutil.which("printf") or "printf"),
                                  PROGRAM.replace("PRINTER", "printf"), PROGRAM.replace("PRINTER", "no-such-program")],
                         ids=["shell", "path", "name", "absent"])  # fmt: skip
@pytest.mark.parametrize(("text", "how", "kept"), [
    (ODD, "3", "4"), ("", "5", " 6\n"), ("plain", "1", "4"), ("plain", "2", "4"), ("x\n\n", "-7", None),
])  # fmt: skip
@pytest.mark.parametrize("in_file", [False, True])
def test_shell_and_python_run_scripts_and_programs_alike(
    tmp_path: Path, lang: str, text: str, how: str, kept: str | None, in_file: bool
) -> None:
    found = []
    for name, command in (("shell", "/bin/sh .component/run.sh"), ("python", OTHERWISE)):
        place, _ = prepared(tmp_path / name, lang, "task")
        if kept is not None:
            (place / "in" / "kept").write_text(kept)
        if in_file:
            (place / "in" / "text").write_text(text)
            (place / "in" / "how").write_text(f" {how}\n")
        values = ("", "", "", "", "") if in_file else ("", text, how, "", "")
        code, said, files = ran(place, place, command, *values)
        found.append((code, said, {name: text.replace(str(place), "") for name, text in files.items()}))
    assert found[0][0] == found[1][0] and found[0][2] == found[1][2]
    if "printf" in lang and "EXEC" in lang:
        assert found[0][2].get("to", "").startswith(f"{text}|how={how}|a b|in/mat.|out/kept|$HOME|{how}\"|")
    if "no-such" in lang:
        assert found[0][1] == found[1][1] and "needs the program no-such-program" in found[0][1]


@pytest.mark.parametrize(("platform", "here"), [
    (f"{HERE}", True), ("plan9-* " + HERE.upper(), True), ("plan9-mips esac", False), ("*-[!z]*", True), ("", True),
])  # fmt: skip
def test_script_runs_only_on_its_platforms(tmp_path: Path, platform: str, here: bool) -> None:
    place, _ = prepared(tmp_path, SHELL.replace('"SHELL"', f'"SHELL" platform="{platform}"'), "task")
    (place / "in" / "kept").write_text("1")
    (place / ".component" / "run.py").write_text("print(open('no-such-file'))")
    assert (ran(place, place, "/bin/sh .component/run.sh", "", "t", "3", "", "")[0] == 0) == here


def test_python_is_not_started_for_a_script(tmp_path: Path) -> None:
    place, _ = prepared(tmp_path, SHELL, "task")
    (place / ".component" / "run.py").unlink()
    (place / "in" / "kept").write_text("1")
    assert ran(place, place, "/bin/sh .component/run.sh", "", "t", "3", "", "")[0] == 0


@pytest.mark.parametrize("program", ["-x", "{text}", "A=1"])
def test_special_programs_are_left_to_python(program: str) -> None:
    lang = f'lang="EXECUTABLE"><source>{program} {{how}}</source>'
    mixed, made = loads(MIXED.replace("LANG", lang).encode(), "mixed.xml").components
    assert not quick.fits(mixed, [made])
