"""`bench/compare` reads the rows of benches, and its ratios are right.  No timing decides whether a test passes."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.repo.source import ROOT

SCRIPT = ROOT / "bench" / "compare"

IN_CHECKOUT = pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"),
                                 reason="needs git, and a checkout made by it")

PRINTED = {
    "dispatch": """      server: 2.47 s CPU, 162 MiB
10 connections, grants of 10: 69,720.1  [69,720.1 … 69,720.1]  n=1 tasks/s (bar 40,000)
""",
    "submit": """sweep of 10,000,000 accepted: 1.8  [1.7 … 6.6]  n=5 ms (bar 100)
core bytes per task of a sweep, waiting or finished: 11.0 (bar 16)
""",
    "polls": """2000 pilots enrolled in 1.9 s; server 120 MiB
500/s for 5 s: 2500 done; submission to grant: p50 1.6  p99 3.1 (bar 20)  worst 3.8 ms (bar 100); server 127 MiB
restart: serving after 0.4 s, 2000 of 2000 back after 10.0 s (bar 15)
""",
    "replicas": """tail-safe         1000 tasks run:   0.025 ms, losers   0.019 ms; 60 replicas
  500 hosts wait: a start   0.030 ms, a failure   0.402 ms
""",
    "roundtrip": """flush: 0.14 ms
command: p50 2.39 ms  p99 2.67 ms  worst 3.60 ms  n=200
""",
    "store": "| 1 report (200 B) | SQLite, WAL, FULL | 6,142 (6,142 – 6,142) | 170 | 238 | 8.0 |\n",
    "classads": """compiling it                                                   6.52 µs
of hosts only                                 50 bags:     25.7 µs, first    106.8 µs;  37,797/s
""",
    "executor": "submit: 40,911/s  (0.49 s for 20,000)\na process pool, submit: 15,608/s  (1.28 s for 20,000)\n",
    "simulate": "   50,000 tasks,  1,000 hosts:    2.1 s of processor (2.2 s by the clock),   107 µs a task\n",
    "matching": "   100 classes ×  20 sites:     3.3 ms, 92,784 of 107,545 slots\n",
}

READ = {
    "dispatch": {"10 connections, grants of 10": (69_720.1, "tasks/s", "higher"),
                 "10 connections, grants of 10: server's processor time": (2.47, "s", "lower"),
                 "10 connections, grants of 10: server's memory": (162, "MiB", "lower")},
    "submit": {"sweep of 10,000,000 accepted": (1.8, "ms", "lower"),
               "core bytes per task of a sweep, waiting or finished": (11, "bytes", "lower")},
    "polls": {"2000 pilots: enrolled": (1.9, "s", "lower"), "2000 pilots: server's memory": (120, "MiB", "lower"),
              "submission to grant: median": (1.6, "ms", "lower"),
              "submission to grant: 99th percentile": (3.1, "ms", "lower"),
              "submission to grant: worst": (3.8, "ms", "lower"), "restart: serving": (0.4, "s", "lower")},
    "replicas": {"tail-safe 1000 tasks run: replica": (0.025, "ms", "lower"),
                 "tail-safe 1000 tasks run: loser": (0.019, "ms", "lower"),
                 "500 hosts wait: start": (0.03, "ms", "lower"), "500 hosts wait: failure": (0.402, "ms", "lower")},
    "roundtrip": {"flush: the disk by itself": (0.14, "ms", "-"), "command: median": (2.39, "ms", "lower"),
                  "command: 99th percentile": (2.67, "ms", "lower")},
    "store": {"1 report (200 B): commits": (6_142, "commits/s", "higher"),
              "1 report (200 B): processor time but for the flush": (8, "µs", "lower")},
    "classads": {"compiling it": (6.52, "µs", "lower"), "of hosts only 50 bags: request": (25.7, "µs", "lower"),
                 "of hosts only 50 bags: first request": (106.8, "µs", "lower")},
    "executor": {"submit": (40_911, "calls/s", "higher"), "a process pool, submit": (15_608, "calls/s", "-")},
    "simulate": {"50,000 tasks: a task": (107, "µs", "lower")},
    "matching": {"100 classes × 20 sites": (3.3, "ms", "lower")},
}


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("bench_compare", str(SCRIPT))
    spec = importlib.util.spec_from_loader("bench_compare", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    keep, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = keep
    return module


@pytest.mark.parametrize("name", PRINTED)
def test_compare_reads_the_figures_of_a_bench(compare: ModuleType, name: str) -> None:
    found = compare.figures(compare.BENCHES[name], PRINTED[name])
    assert {figure.name: (value, figure.unit, figure.better) for figure, value in found.items()} == READ[name]


def test_every_bench_that_compare_knows_exists(compare: ModuleType) -> None:
    assert [bench.file for bench in compare.BENCHES.values() if not (ROOT / "bench" / bench.file).exists()] == []
    assert set(compare.DEFAULT) <= set(compare.BENCHES)


@pytest.mark.parametrize("better, rounds, ratio, worse", [
    ("higher", [(100.0, 110.0)], 1.10, False),
    ("higher", [(100.0, 96.0)], 0.96, False),
    ("higher", [(100.0, 94.0)], 0.94, True),
    ("lower", [(100.0, 94.0)], 0.94, False),
    ("lower", [(100.0, 104.0)], 1.04, False),
    ("lower", [(100.0, 106.0)], 1.06, True),
    ("-", [(100.0, 300.0)], 3.0, False),
])
def test_compare_marks_a_ratio_that_is_worse_by_five_percent(
    compare: ModuleType, better: str, rounds: list[tuple[float, float]], ratio: float, worse: bool
) -> None:
    found = compare.compare("bench", compare.Figure("f", "s", better), rounds)
    assert (found.ratio, found.worse) == (pytest.approx(ratio), worse)


def test_compare_takes_the_median_of_the_ratios_of_rounds(compare: ModuleType) -> None:
    rounds = [(10.0, 11.0), (40.0, 60.0), (20.0, 20.0)]
    found = compare.compare("bench", compare.Figure("f", "s", "lower"), rounds)
    assert (found.old, found.new) == (20, 20)
    assert (found.ratio, found.ratio_min, found.ratio_max) == pytest.approx((1.1, 1.0, 1.5))


def test_ratio_of_two_zeros_is_one(compare: ModuleType) -> None:
    assert (compare.ratio(0.0, 0.0), compare.ratio(0.0, 1.0)) == (1.0, float("inf"))


def test_compare_leaves_out_a_bench_that_the_old_tree_lacks(
    compare: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "store.py").touch()
    assert compare.chosen(compare.Tree(tmp_path, "d26c810"), ["store", "replicas", "store"]) == ["store"]
    assert "d26c810 has no bench/replicas.py: replicas is left out" in capsys.readouterr().err


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], env={**os.environ, "TMPDIR": str(folder)},
                          capture_output=True, text=True, timeout=120, check=False)


@IN_CHECKOUT
def test_compare_runs_a_bench_in_both_trees_and_removes_its_worktree(tmp_path: Path) -> None:
    done = run("HEAD", "matching", "--rounds", "1", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rounds"] == 1 and found["new"].startswith("this tree, ")
    assert len(found["figures"]) == 3
    for figure in found["figures"]:
        assert figure["bench"] == "matching" and figure["unit"] == "ms" and figure["better"] == "lower"
        ratio = pytest.approx(figure["new"] / figure["old"])
        assert figure["ratio"] == figure["ratio_min"] == figure["ratio_max"] == ratio
    assert list(tmp_path.iterdir()) == []
    listed = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listed


@pytest.mark.parametrize("words, status, message", [
    (["HEAD", "warp-drive"], 2, "no bench is called 'warp-drive'; bench/compare --list shows all"),
    (["HEAD", "matching", "--rounds", "0"], 2, "--rounds must be 1 or more"),
    ([], 2, "name the revision to compare with"),
    pytest.param(["no-such-revision", "matching"], 1, "git knows no revision 'no-such-revision'", marks=IN_CHECKOUT),
])
def test_compare_refuses_what_it_cannot_run(words: list[str], status: int, message: str, tmp_path: Path) -> None:
    done = run(*words, folder=tmp_path)
    assert done.returncode == status and message in done.stderr


def test_compare_lists_benches_with_their_questions(tmp_path: Path) -> None:
    done = run("--list", folder=tmp_path)
    assert done.returncode == 0 and "* dispatch" in done.stdout and "bench/store.py" in done.stdout
