"""The same DAG under HTCondor's own DAGMan and under Windfall: the same nodes end well, the same files come out, and
each reads the other's rescue file."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.real import CommandLine, serving
from tests.testbed.base import USER, eventually, require
from tests.testbed.condor import Condor

pytestmark = [pytest.mark.testbed, pytest.mark.slow]

QUICK = "DAGMAN_USER_LOG_SCAN_INTERVAL = 1\nDAGMAN_SUBMIT_DELAY = 0\nSCHEDD_MIN_INTERVAL = 1\nDAGMAN_USE_STRICT = 0"
SUB = """executable = /bin/sh
arguments = "-c '$(do)'"
output = $(JOB).out
should_transfer_files = yes
when_to_transfer_output = on_exit
request_memory = 10
request_disk = 100
queue
"""
SAY = SUB.replace("\"-c '$(do)'\"", '"say.sh $(words)"\ntransfer_input_files = say.sh').replace(
    "queue", "environment = \"WHO='two  words' QUOTE='it''s \"\"that\"\"'\"\nqueue")


@pytest.fixture(scope="module")
def pool() -> Iterator[Condor]:
    require()
    made = Condor(f"d{os.getpid()}", extra=QUICK)
    yield made
    made.stop()


def files() -> dict[str, str]:
    lines = []
    for pre, job, post in itertools.product("-SF", "SF", "-SF"):
        name = f"n{pre}{job}{post}".replace("-", "_")
        lines += [f"JOB {name} do.sub", f'VARS {name} do="exit {0 if job == "S" else 3}"']
        lines += [f"SCRIPT {kind} {name} {how}.sh" for kind, how in (("PRE", pre), ("POST", post)) if how != "-"]
    lines += [
        "JOB skipped do.sub", 'VARS skipped do="exit 1"', "SCRIPT PRE skipped F.sh", "PRE_SKIP skipped 4",
        "JOB noop none.sub NOOP", "JOB done none.sub DONE", "PARENT done CHILD noop", "PARENT noop CHILD say",
        "JOB say say.sub", r"""VARS say words="one 'two words' \"\"three\"\" $(JOB)" """.rstrip(),
        "JOB told do.sub", 'VARS told do="exit 7"', "SCRIPT POST told post.sh $JOB $RETURN $PRE_SCRIPT_RETURN",
        "RETRY told 2", "JOB behind do.sub", 'VARS behind do="exit 0"', "PARENT nFSS CHILD behind",
        "JOB after do.sub", 'VARS after do="echo after"',
        "SPLICE inner inner.dag", "PARENT n_S_ nSSS CHILD inner", "PARENT inner CHILD after",
    ]
    return {
        "t.dag": "\n".join(lines) + "\n", "do.sub": SUB, "say.sub": SAY,
        "inner.dag": 'JOB X do.sub\nJOB Y do.sub\nPARENT X CHILD Y\nVARS ALL_NODES do="echo $(JOB)"\n',
        "S.sh": "#!/bin/sh\nexit 0\n", "F.sh": "#!/bin/sh\nexit 4\n", "post.sh": '#!/bin/sh\ntest "$*" = "told 7 -1"\n',
        "say.sh": 'for each; do echo "<$each>"; done; echo "<$WHO>"; echo "<$QUOTE>"\n',
    }  # fmt: skip


TRIES = {
    "r.dag": """JOB post do.sub
VARS post do="exit 3"
SCRIPT POST post again.sh $RETRY $MAX_RETRIES
RETRY post 2
JOB vars do.sub
VARS vars do="test $(RETRY) = 1"
RETRY vars 3
JOB never do.sub
VARS never do="exit 1$(RETRY)"
RETRY never 4 UNLESS-EXIT 11
SUBDAG EXTERNAL unit unit.dag
RETRY unit 1
JOB after do.sub
VARS after do="true"
PARENT unit CHILD after
""",
    "unit.dag": 'JOB U do.sub\nJOB V do.sub\nVARS U do="echo $(JOB)"\nVARS V do="false"\nPARENT U CHILD V\n',
    "do.sub": SUB, "again.sh": '#!/bin/sh\ntest "$1" = "$2"\n',
}  # fmt: skip


def put(folder: Path, what: dict[str, str] | None = None) -> None:
    for name, text in (what or files()).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def done(folder: Path, number: int = 1, dag: str = "t.dag") -> set[str]:
    return set(re.findall(r"^DONE (\S+)", (folder / f"{dag}.rescue{number:03}").read_text(), re.MULTILINE))


def dagman(pool: Condor, folder: Path, dag: str = "t.dag") -> int:
    """Run a DAG with HTCondor's DAGMan to its end; return its exit status."""
    log = folder / f"{dag}.dagman.out"
    log.unlink(missing_ok=True)
    asked = subprocess.run([*pool.chroot(USER), "condor_submit_dag", "-update_submit", dag], capture_output=True,
                           text=True, timeout=60)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    said = "EXITING WITH STATUS"
    eventually(lambda: log.exists() and said in log.read_text(), "DAGMan ends", 240)
    return int(re.findall(rf"{said} (\d+)", log.read_text())[-1])


def test_dagman_and_windfall_agree(pool: Condor, tmp_path: Path) -> None:
    theirs, ours = pool.inside / "home", tmp_path / "ours"
    ours.mkdir()
    put(theirs)
    put(ours)
    assert dagman(pool, theirs) == 1
    with serving(tmp_path / "home", "--pilot") as server:
        line = CommandLine(server.home, ours)
        first = line.json("run", "t.dag", code=1)
        assert done(ours) == done(theirs)
        for name in ("say.out", "after.out", "inner+X.out", "inner+Y.out"):
            assert (ours / name).read_text() == (theirs / name).read_text(), name
        assert first["failed"] == 12 and first["cancelled"] == 1 and len(done(ours)) == 18 - 12 + 8
        (ours / "t.dag.rescue002").write_text((theirs / "t.dag.rescue001").read_text())
        again = line.json("run", "t.dag", code=1)
        assert again["succeeded"] == 0 and again["tasks"] == len(_nodes()) - len(done(theirs))
    (theirs / "F.sh").write_text("#!/bin/sh\nexit 0\n")  # less fails now: what DAGMan runs is what our file leaves
    (theirs / "t.dag.rescue002").write_text((ours / "t.dag.rescue001").read_text())
    assert dagman(pool, theirs) == 1
    left = {"n_F_", "nSF_", "nFF_"}
    assert set(_nodes()) - done(theirs, 3) == left
    assert f"Dag contains {len(_nodes())} total jobs" in (theirs / "t.dag.dagman.out").read_text()


def test_retries_and_rescue_files_are_those_of_dagman(pool: Condor, tmp_path: Path) -> None:
    """$RETRY, and a SUBDAG that is tried again as a whole: the same rescue files, inside and outside."""
    theirs, ours = pool.inside / "home", tmp_path / "ours"
    ours.mkdir()
    put(theirs, TRIES)
    put(ours, TRIES)
    assert dagman(pool, theirs, "r.dag") == 1
    with serving(tmp_path / "home", "--pilot") as server:
        CommandLine(server.home, ours).json("run", "r.dag", code=1)
    assert done(ours, 1, "r.dag") == done(theirs, 1, "r.dag") == {"post", "vars"}
    assert (ours / "U.out").read_text() == (theirs / "U.out").read_text() == "U\n"
    for number in (1, 2):
        assert done(ours, number, "unit.dag") == done(theirs, number, "unit.dag") == {"U"}
    for folder in (ours, theirs):
        assert not (folder / "unit.dag.rescue003").exists() and not (folder / "r.dag.rescue002").exists()


def _nodes() -> list[str]:
    return [*re.findall(r"^JOB (\S+)", files()["t.dag"], re.MULTILINE), "inner+X", "inner+Y"]
