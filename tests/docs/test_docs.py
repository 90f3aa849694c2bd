"""The documentation is run: commands of tutorial and how-tos as they stand, bag files as they stand, links followed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.live.real import MARK as OF_HOME, free_port, sweep_up
from windfall.cli.main import COMMANDS
from windfall.model.bagfile import reader

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
RUN = sorted([*(DOCS / "tutorial").glob("*.md"), *(DOCS / "howto").glob("*.md"), ROOT / "README.md"])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def script(path: Path) -> str:
    """Return the lines after `$ ` and `> ` of a page's console blocks."""
    lines = [line[2:] for block in blocks(path, "console") for line in block.splitlines() if line[:2] in ("$ ", "> ")]
    return "\n".join(line for line in lines if line != "./scripts/test")


MARK = "\x1e"


def steps(path: Path) -> list[tuple[str, list[str]]]:
    """Each command of a page's console blocks, and the lines printed below it."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks(path, "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.startswith("> "):
                found[-1] = (found[-1][0] + "\n" + line[2:], [])
            else:
                found[-1][1].append(line)
    return found


PID = r"""sed 's/.*"pid": *\([0-9]*\).*/\1/;t;d' "$WINDFALL_HOME/server.json" """
UP = f'until kill -0 "$({PID})"; do sleep 0.1; done 2>/dev/null'


def marked(path: Path) -> str:
    """The page as a script that says where the output of each command begins.  A machine that runs many tests may have
    the page's port in use, and may take longer than a reader's to start a server."""
    made = "\n".join(f"echo '{MARK}'\n{command}" for command, _ in steps(path) if command != "./scripts/test")
    return re.sub(r"^sleep 2$", lambda _: UP, made.replace(":18765", f":{free_port()}"), flags=re.MULTILINE)


DIFFERS = re.compile(
    r"\b\d\d:\d\d:\d\d\b|\b(\d+min )?\d+(\.\d+)?(ms|s|min)\b"  # times
    r"|\b\d+(\.\d+)? ?[kMG]i?B\b|\bspeed-up [\d.]+|\b\d{8,}\b"  # sizes, ratios, numbers of attempts
    r"|\bowner \S+|\babout 3\.\d+"  # whose machine it is; every awk throws its own darts
)


def plain(lines: list[str]) -> list[str]:
    """Return the lines without padding, progress, and values that differ between runs or machines."""
    kept = []
    for line in lines:
        if re.match(r"\S+  [\d,]+/[\d,]+  ", line) or not line.strip():
            continue
        line = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "laptop", line)
        kept.append(re.sub(r"\s+", " ", DIFFERS.sub("…", line)).strip())
    return kept


def fits(printed: list[str], real: list[str]) -> bool:
    """Line by line; `…` stands for any number of them."""
    if "…" not in printed:
        return printed == real
    at = printed.index("…")
    return printed[:at] == real[:at] and any(fits(printed[at + 1 :], real[n:]) for n in range(at, len(real) + 1))


# --- generated pages ----------------------------------------------------------------------------------------


def test_generated_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "scripts" / "generate.py")
    assert spec and spec.loader
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, text in generate.pages().items():
        assert (ROOT / name).read_text() == text, f"{name} is stale: run scripts/docs"


# --- links --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{name_of(page)} links to {target}"


def _anchors(page: Path) -> list[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


SOURCES = ROOT / "src" / "windfall"


# --- the field's words ---------------------------------------------------------------------------------------

WORDS = [
    ("work stealing", "core/decide/grant/steal.py"), ("straggler", "core/decide/replicas/candidates.py"),
    ("speculative execution", "core/decide/replicas/candidates.py"), ("backfill", "core/decide/grant/grant.py"),
    ("black hole", "core/decide/hosts/quarantine.py"), ("starv", "core/decide/grant/fair_share.py"),
    ("fair share", "core/decide/grant/fair_share.py"), ("evict", "pilot/files/staging.py"),
    ("dedup", "data/blobs.py"), ("throttl", "server/http/listen.py"),
]
"""Words of the literature, each with the module that `grep -ri` must find."""


@pytest.mark.parametrize(("word", "module"), WORDS)
def test_field_word_leads_to_the_module_that_implements_it(word: str, module: str) -> None:
    assert f"`{module}`" in (DOCS / "explanation" / "words.md").read_text()
    assert word in (SOURCES / module).read_text().lower().replace("-", " ")


def test_granting_page_lists_every_clause_of_eligibility() -> None:
    from windfall.core.decide.grant.eligibility import CLAUSES

    text = (DOCS / "explanation" / "granting.md").read_text().split("## Clauses of eligibility")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert sorted(named) == sorted(name for name, _ in CLAUSES)


def test_every_page_can_be_found() -> None:
    """From the README, by links alone."""
    found, todo = {ROOT / "README.md"}, [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        for target in re.findall(r"\]\(([^)\s#]+\.md)", page.read_text()):
            file = (page.parent / target).resolve()
            if "://" not in target and file not in found:
                found.add(file)
                todo.append(file)
    assert set(PAGES) - found == set()


# --- commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_exists(page: Path) -> None:
    text = page.read_text()
    code = "\n".join(re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)) + "\n"
    code += "\n".join(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))
    for command in re.findall(r"(?:^|[\s/;=])windfall ([a-z]+)\b", code):
        assert command in COMMANDS or command == "help", f"{name_of(page)}: windfall {command}"


def test_every_command_is_described() -> None:
    text = (DOCS / "reference" / "command-line.md").read_text()
    assert [name for name in COMMANDS if f"## windfall {name}\n" not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.needs("compilers") if page.name == "workflows.md" else ()) for page in RUN
    if script(page)
], ids=name_of)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program = tmp_path / "windfall"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -c "import sys; sys.path.insert(0, \'{ROOT / "src"}\'); '
                       'from windfall.cli.main import main; sys.exit(main())" "$@"\n')
    program.chmod(0o755)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    env = {key: value for key, value in os.environ.items() if not key.startswith("WINDFALL")}
    home = tmp_path / "home"
    env |= {"WINDFALL_HOME": str(home), OF_HOME: str(home), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen(["bash", "-e", "-m", "-c", marked(page)], cwd=tmp_path, env=env, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        sweep_up(home)
        raise AssertionError("still running after two minutes:\n" + process.communicate()[0]) from None
    finally:
        sweep_up(home)
    assert process.returncode == 0, output
    if page.parent.name == "tutorial":
        real = output.split(MARK + "\n")[1:]
        for (command, printed), text in zip(steps(page), real, strict=True):
            assert fits(plain(printed), plain(text.splitlines())), f"$ {command}\n{text}"
            assert printed or not text.strip(), f"the page does not show what this prints:\n$ {command}\n{text}"


# --- Python ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"  # a file: some of it is read again, as source
    program.write_text("\n".join(blocks(page, "python")))
    env = {key: value for key, value in os.environ.items() if not key.startswith("WINDFALL")}
    env |= {"WINDFALL_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen([sys.executable, "-m", "windfall", "serve", "--pilot"], env=env, text=True,
                              stderr=subprocess.PIPE)
    assert server.stderr
    try:
        assert "serving at" in server.stderr.readline()
        done = subprocess.run([sys.executable, program], cwd=tmp_path, env=env, text=True, timeout=60,
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        server.terminate()
        server.communicate(timeout=30)


def test_every_method_of_the_client_is_described() -> None:
    from windfall import Client

    text = (DOCS / "reference" / "python.md").read_text()
    methods = [name for name in vars(Client) if not name.startswith("_")]
    assert [name for name in methods if f"`{name}(" not in text] == []


def test_the_readme_shows_the_example() -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    assert (ROOT / "examples" / "client.py").read_text().endswith(code)


# --- bag files ----------------------------------------------------------------------------------------------


def _bags() -> list[tuple[str, str]]:
    found = [(f"{name_of(page)}-{n}", text) for page in PAGES for n, text in enumerate(blocks(page, "toml"))]
    return found + [(name_of(path), path.read_text()) for path in sorted((ROOT / "examples").glob("*.toml"))]


@pytest.mark.parametrize("text", [text for _, text in _bags()], ids=[name for name, _ in _bags()])
def test_bag_files_parse(text: str, tmp_path: Path) -> None:
    if "[bags." in text:
        from windfall.sim import scenario

        assert scenario.parse(text, base=tmp_path).bags
    elif "[site]" in text:
        from windfall.provision.site_files import example
        from windfall.sites import site_file

        assert example(site_file.parse(text), "0" * 64)
    else:
        assert reader.parse(text, base=tmp_path).bag.targets


def test_every_key_is_described() -> None:
    """The page also describes no key that does not exist."""
    sections = re.split(r"^## ", (DOCS / "reference" / "bag-file.md").read_text(), flags=re.MULTILINE)
    for kind in ("bag", "task", "check", "policy"):
        section = next(text for text in sections if text.startswith(f"[{kind}]"))
        rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
        described = [key for row in rows for key in re.findall(r"`([\w-]+)`", row)]
        assert sorted(described) == sorted(reader.KEYS[kind])


def test_every_key_of_a_site_is_described() -> None:
    from windfall.sites import site_file

    sections = re.split(r"^## ", (DOCS / "reference" / "site-file.md").read_text(), flags=re.MULTILINE)
    for kind, known in (("[site]", site_file.KEYS["site"]), ("[[shapes]]", site_file.KEYS["shapes"])):
        section = next(text for text in sections if text.startswith(kind))
        rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
        assert sorted(key for row in rows for key in re.findall(r"`([\w-]+)`", row)) == sorted(known)
    assert [name for name in site_file.KEYS["tables"] if not any(s.startswith((f"[{name}]", f"[[{name}]]"))
                                                              for s in sections)] == []


def test_the_examples_are_toml() -> None:
    assert all(tomllib.loads(path.read_text()) for path in (ROOT / "examples").glob("*.toml"))
