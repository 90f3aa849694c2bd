"""Rules for every file: short functions, no reminders of unfinished work, no paths of one machine."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest

import windfall
from tests.repo.source import ROOT, functions
from windfall.cli.main import COMMANDS

MEDIAN, P90 = 12, 45


def test_functions_stay_short() -> None:
    lengths = sorted(((node.end_lineno or 0) - node.lineno + 1, f"{name}.{node.name}") for name, node in functions())
    sizes = [length for length, _ in lengths]
    median, p90 = statistics.median(sizes), sizes[int(len(sizes) * 0.9)]
    longest = "\n".join(f"{length:>5}  {name}" for length, name in lengths[:-16:-1])
    print(f"{len(sizes)} functions, median {median}, 90th percentile {p90}, longest:\n{longest}")
    assert median < MEDIAN and p90 < P90, f"median {median}, 90th percentile {p90}; the longest:\n{longest}"


def texts() -> list[Path]:
    """Return the text files of the repository; without git, all text files below its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if shutil.which("git") else None
    if listed and listed.returncode == 0:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        hidden = re.compile(r"/(\.venv|\.git|__pycache__|\.\w+_cache)/")
        paths = [path for path in ROOT.rglob("*") if not hidden.search(str(path))]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def _lines_with(pattern: str) -> list[str]:
    found = re.compile(pattern)
    return [f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for path in texts() for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
            if found.search(line)]


def test_repository_holds_no_reminders_of_unfinished_work() -> None:
    assert _lines_with(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b") == []


def test_files_name_no_path_of_one_machine() -> None:
    places = "|".join(("wo" "rk", "ro" "ot", "tmp/" "venv", "opt/" "wheels"))
    assert _lines_with(rf"(?<![\w.~}})*-])(?<!\+ \")/({places})(?=/|\b(?![-\w.]))") == []


@pytest.mark.parametrize("name", [
    "windfall", "scripts/test", "scripts/soak", "scripts/fresh", "scripts/docs", ".ci/run",
])  # fmt: skip
def test_scripts_are_executable(name: str) -> None:
    assert (ROOT / name).stat().st_mode & 0o111 == 0o111


# --- the public surface -------------------------------------------------------------------------------------


def test_package_exports_its_public_names() -> None:
    assert windfall.__all__ == ["AsyncClient", "Client", "Executor", "WindfallError", "__version__", "as_completed"]
    assert all(getattr(windfall, name) for name in windfall.__all__)


def test_command_line_offers_its_commands() -> None:
    assert list(COMMANDS) == [
        "run", "submit", "ls", "show", "wait", "results", "logs", "explain", "policy", "cancel", "retry", "rerun",
        "pause",
        "unpause", "rm", "serve", "provision", "pilot", "site", "doctor", "login", "user", "token", "compile", "graph",
        "component", "simulate", "experiment", "completion",
    ]  # fmt: skip


def test_client_offers_its_methods() -> None:
    assert sorted(name for name in dir(windfall.Client) if not name.startswith("_")) == [
        "add_site", "add_token", "allowances", "append", "append_part", "appended", "bag", "bags", "call", "cancel",
        "close",
        "close_bag",
        "download",
        "drain_site", "explain", "extend", "failures", "fetch", "fetch_some", "find", "free", "gone", "health", "hosts",
        "log", "number_of", "pause",
        "pilots", "policy",
        "remove",
        "remove_site", "remove_token",
        "rerun",
        "results", "retry", "running",
        "set_allowance", "set_budget", "set_policy", "set_weight", "share_site", "site", "sites",
        "spec",
        "statistics", "story", "submit",
        "submitted", "table", "task", "task_spec", "texts", "tokens", "try_site", "undrain_site", "unpause", "upload",
        "usage", "wait", "watch",
    ]  # fmt: skip


def test_version_is_the_same_in_pyproject_and_package() -> None:
    import tomllib

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == windfall.__version__
