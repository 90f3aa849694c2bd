"""Jobs as each dialect writes them: exact words, quoted so that no shell reads them twice."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.live.real import until
from windfall.errors import BadInput
from windfall.sites.dialects import gridengine, lsf, pbs, slurm
from windfall.sites.dialects.job import Job, Shape, check, nonce_of
from windfall.sites.dialects.table import DIALECTS, Dialect, dialect

SHAPE = Shape(walltime=7200, cores=4, memory=8 << 30, gpus=2, nodes=2, whole=True)
NAMED = pytest.mark.parametrize("named", list(DIALECTS))
BATCH = pytest.mark.parametrize("named", ["slurm", "gridengine", "htcondor", "pbs", "torque", "lsf"])


def job(**fields: object) -> Job:
    given = {"nonce": "abcd12-7", "shape": Shape(3600), "command": ("python3", "pilot.pyz", "--ticket", "t.json")}
    return Job(**{**given, **fields})  # type: ignore[arg-type]


def said(speaker: Dialect, wanted: Job) -> str:
    command = speaker.submit(wanted)
    return "\n".join([*command.argv, command.stdin])


@NAMED
def test_every_dialect_says_who_it_is_for(named: str) -> None:
    text = said(dialect(named), job())
    assert "abcd12-7" in text and "exec python3 pilot.pyz --ticket t.json" in text


@BATCH
def test_the_name_holds_the_nonce_and_is_short(named: str) -> None:
    assert "wfabcd12-7" in said(dialect(named), job())
    assert job(count=3).nonces == ["abcd12-7", "abcd12-8", "abcd12-9"]
    assert nonce_of("wfabcd12-7") == "abcd12-7" and nonce_of("wfabcd12-7", 993) == "abcd12-1000"
    for other in ("wf-7", "awfabcd-7", "", "wfabcd", "wfabcd-7-8", "wfabcd-07", "wfABCD-7", "wf" + "a" * 17 + "-7"):
        assert nonce_of(other) == ""


@BATCH
def test_shape_account_queue_and_lines_arrive(named: str) -> None:
    options = {"pe-nodes": "mpi", "memory": "mem_free"}
    text = said(dialect(named), job(shape=SHAPE._replace(nodes=1), account="proj-7", queue="long", options=options,
                                    directives=("#DIRECTIVE one",), setup=("module load python",)))
    assert "proj-7" in text and "#DIRECTIVE one" in text and "module load python" in text
    assert named == "htcondor" or "long" in text
    assert text.index("module load python") < text.index("exec python3")


def test_slurm_in_full() -> None:
    argv = slurm.submit(job(shape=SHAPE, account="a", queue="q", count=1000)).argv
    assert argv == (
        "sbatch", "--parsable", "--no-requeue", "--job-name=wfabcd12-7", "--export=NONE", "--input=/dev/null",
        "--output=windfall/wfabcd12-7-%A-%a.log", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--time=120",
        "--signal=B:TERM@120", "--mem=8388608K", "--gpus-per-node=2", "--exclusive", "--account=a", "--partition=q",
        "--array=1-1000")  # fmt: skip


def test_gridengine_in_full() -> None:
    argv = gridengine.submit(job(shape=Shape(7200, cores=4, memory=8 << 30, gpus=1), account="a", queue="q",
                                 count=1000, options={"memory": "h_vmem"})).argv
    assert argv == (
        "qsub", "-terse", "-N", "wfabcd12-7", "-S", "/bin/sh", "-cwd", "-j", "y", "-o", "windfall/", "-r", "n",
        "-notify", "-l", "h_rt=7200", "-pe", "smp", "4", "-l", "h_vmem=2147483648", "-l", "gpu=1", "-P", "a",
        "-q", "q", "-t", "1-1000")  # fmt: skip


def test_several_nodes_of_grid_engine_need_a_parallel_environment() -> None:
    with pytest.raises(BadInput, match="parallel environment"):
        gridengine.submit(job(shape=Shape(60, nodes=2)))
    assert "mpi" in gridengine.submit(job(shape=Shape(60, nodes=2), options={"pe-nodes": "mpi"})).argv


def test_lsf_in_full() -> None:
    argv = lsf.submit(job(shape=SHAPE, account="a", queue="q", count=1000)).argv
    assert argv == (
        "env", "LC_ALL=C", "LSB_NTRIES=1", "bsub", "-J", "wfabcd12-7[1-1000]", "-rn", "-env", "none", "-o",
        "windfall/wfabcd12-7-%J-%I.log", "-W", "120", "-wa", "TERM", "-wt", "2", "-n", "8", "-R", "span[ptile=4]",
        "-M", "8192MB", "-R", "rusage[mem=8192MB]", "-gpu", "num=2", "-x", "-P", "a", "-q", "q")  # fmt: skip


def test_pbs_asks_for_chunks_and_torque_for_nodes() -> None:
    wanted = job(shape=SHAPE, count=1000)
    openly, torque = pbs.submit(wanted).stdin, pbs.submit_torque(wanted).stdin
    assert "-l select=2:ncpus=4:mem=8388608kb:ngpus=2 -l walltime=02:00:00 -l place=scatter:excl" in openly
    assert "-J 1-1000" in openly and "-r n" not in openly
    assert "-l nodes=2:ppn=4:gpus=2,walltime=02:00:00,mem=16384mb -n" in torque and "-t 1-1000" in torque
    assert "-J" not in pbs.submit(job()).stdin and "-r n" in pbs.submit(job()).stdin


def test_htcondor_starts_nothing_twice() -> None:
    text = dialect("htcondor").submit(job(count=1000)).stdin
    assert "NumJobStarts =?= 0" in text and "periodic_remove = (JobStatus == 2" in text and "queue 1000" in text


@NAMED
@pytest.mark.parametrize("fields", [
    {"command": ("python3", "a\nb")}, {"setup": ("one\ntwo",)}, {"directives": ("a\rb",)}, {"command": ()},
    {"variables": (("A", "x\ny"),)}, {"variables": (("A B", "x"),)}, {"variables": (("A;rm", "x"),)},
    {"account": "a\nb"}, {"account": "--wrap=x"}, {"queue": "$(x)"}, {"queue": "a'b"}, {"folder": "a b"},
    {"folder": "$HOME"}, {"folder": "a%j"}, {"folder": "-x"},
    {"nonce": "ABC-1"}, {"nonce": "a" * 14 + "-1"}, {"nonce": "a-b-c"}, {"nonce": "abcd"},
    {"nonce": "-7"}, {"nonce": "a-07"}, {"count": 0}, {"count": 10**9}, {"shape": Shape(0)},
    {"shape": Shape(60, cores=0)}, {"shape": Shape(60, memory=-1)},
])  # fmt: skip
def test_job_that_a_dialect_cannot_write_exactly_is_refused(named: str, fields: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        dialect(named).submit(job(**fields))


@pytest.mark.parametrize("named", ["ssh", "local"])
def test_a_machine_without_batch_system_has_no_accounts(named: str) -> None:
    with pytest.raises(BadInput, match="no account"):
        dialect(named).submit(job(account="a"))


@NAMED
@pytest.mark.parametrize("id", ["-u everybody", "1; rm -rf", "$(x)", "", "1 2", "../..", "--all", "1\n2"])
def test_cancel_refuses_words_that_are_not_job_ids(named: str, id: str) -> None:
    with pytest.raises(BadInput):
        list(dialect(named).cancel([id]))


@NAMED
@pytest.mark.parametrize("user", ["-u", "a b", "$(x)", "", "a;b", "a\nb"])
def test_listing_refuses_words_that_are_not_user_names(named: str, user: str) -> None:
    with pytest.raises(BadInput):
        dialect(named).listing(user)


@pytest.mark.parametrize(("named", "ids"), [
    ("slurm", [f"12_{n}" for n in range(1, 1001)]), ("gridengine", [f"12.{n}" for n in range(1, 1001)]),
    ("htcondor", [f"12.{n}" for n in range(1000)]), ("pbs", [f"12[{n}].server" for n in range(1, 1001)]),
    ("lsf", [f"12[{n}]" for n in range(1, 1001)]), ("ssh", [f"abcd12-{n}" for n in range(1, 1001)]),
])  # fmt: skip
def test_a_thousand_jobs_are_cancelled_by_few_commands(named: str, ids: list[str]) -> None:
    assert 1 <= len(dialect(named).cancel(ids)) <= 2


def test_grid_engine_cancels_ranges() -> None:
    (command,) = gridengine.cancel(["7.1", "7.2", "7.3", "7.9", "8"])
    assert re.findall(r"qdel (.*) \|\|", command.stdin) == ["7 -t 1-3", "7 -t 9-9", "8"]


def test_an_unknown_dialect_is_refused_with_a_guess() -> None:
    with pytest.raises(BadInput) as refused:
        dialect("slrum")
    assert "slurm" in refused.value.hint


WORDS = st.text(st.characters(blacklist_characters="\n\r\0", blacklist_categories=["Cs"]), min_size=1, max_size=30)


@given(st.lists(WORDS, min_size=1, max_size=5), st.lists(WORDS, max_size=3))
def test_scripts_hand_over_exact_words(words: list[str], values: list[str]) -> None:
    """Read back by a real shell, for every dialect that writes a script."""
    variables = tuple((f"V{number}", value) for number, value in enumerate(values))
    text = slurm.render(check(job(command=("printf", "%s\\n", *words), variables=variables)))
    last = text.rstrip("\n").rpartition("\n")[2]
    assert shlex.split(last)[3:] == words
    assert "".join(values) == "" or all(shlex.quote(value) in text for value in values)


def test_a_shell_reads_what_was_meant() -> None:
    words = ["it's", '"x"', "$HOME", "`id`", "a\\b", "*", "a;b", "#c", "", "ü", "-n", "{x}", "~", "!1"]
    text = slurm.render(job(command=("printf", "%s\\n", *words)))
    done = subprocess.run(["/bin/sh"], input=text, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.split("\n")[:-1] == words


def test_a_warning_before_the_pilot_listens_ends_a_job_of_grid_engine(tmp_path: Path) -> None:
    """If nobody heard it, the pilot would take tasks, and be killed in their midst."""
    begun = tmp_path / "begun"
    job = Job("abc-1", Shape(60), ("/bin/sh", "-c", f"touch {begun}; while :; do sleep 0.1; done"))
    with subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE, start_new_session=True) as done:
        assert done.stdin is not None
        done.stdin.write(gridengine.render(job).encode())
        done.stdin.close()
        try:
            until(begun.exists)
            os.killpg(done.pid, signal.SIGUSR2)
            assert done.wait(20) == -signal.SIGUSR2
        finally:
            if done.poll() is None:
                os.killpg(done.pid, signal.SIGKILL)


@NAMED
def test_documents_end_where_they_should(named: str) -> None:
    """A set-up line that looks like the end of what the script is wrapped in."""
    wanted = job(setup=("WINDFALL", "WINDFALL_", "EOF"))
    text = dialect(named).submit(wanted).stdin
    assert "\nWINDFALL\nWINDFALL_\nEOF\n" in text
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True, timeout=20)
