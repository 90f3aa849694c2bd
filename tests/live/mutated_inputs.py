"""Mutated files of every kind that Windfall reads: each is read, or refused in words, in bounded time and memory.

    python -m tests.live.mutated_inputs [CASES] [FIRST SEED]     (scripts/soak inputs; default: 130000 cases)

Each case mutates a good file and has its reader read it.  Anything but a value or a WindfallError is a failure, and so
is a case that takes more than SECONDS of processor time; the process may take no more than MEMORY beyond its start.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import resource
import signal
import sys
import tarfile
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from windfall.errors import WindfallError

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10
MEMORY = 3 << 30
MOST = 200_000  # bytes of a mutated file

WORDS = (
    b"0", b"-1", b"1e999", b"nan", b"inf", b"9223372036854775808", b"18446744073709551616", b"0x7fffffff",
    b"99999999999", b'"', b"'", b"\\", b"\0", b"\xff", b"\xc3", b"\r", b"\n", b"\t", b"$(", b"${", b"{", b"}", b"[",
    b"]", b"<", b">", b"</", b"&lt;", b"<![CDATA[", b"..", b"/", b"~", b"*", b"%", b"true", b"null", b"1..10",
    b"1..1e9", b"1d", b"=", b"==", b";", b",", b"#", b"((((((((", b"[[[[[[[[", b"{}{}{}", b"\xe2\x80\xae",
    b"\xef\xbb\xbf", b" " * 300, b"a" * 3000,
)


class Kind(NamedTuple):
    """A kind of file: how it is read, what it may be called, and good files of it."""

    read: Callable[[Path], object]
    name: str
    samples: list[bytes]
    beside: dict[str, bytes] = {}  # files that good ones name


# --- readers ----------------------------------------------------------------------------------------------------

def _bag(path: Path) -> object:
    from windfall.model.bagfile.reader import load

    return load(path)


def _csv(path: Path) -> object:
    from windfall.model.bagfile.reader import from_options

    return from_options("echo {a}", [], "n", {}, path.parent, csv=path.name)


def _apst(path: Path) -> object:
    from windfall.model.bagfile import apst

    return apst.load(path, "n", {})


def _yvetteml(path: Path) -> object:
    from tests.workflow.library import MATRICES, SORT, library
    from windfall.workflow.components.files import load
    from windfall.workflow.yvetteml.program import compile_application

    found = load(path)
    parts = library(MATRICES + SORT)
    given = {"size": "4", "div": "2", "url1": "a", "url2": "b"}
    return compile_application(found.application, parts, given) if found.application else None


def _dag(path: Path) -> object:
    from windfall.workflow.dagman import bag, jobs, reader

    if path.suffix != ".dag":  # the submit description of a good graph
        (path.parent / "a.dag").write_text(f"JOB A {path.name}\nJOB B {path.name}\nPARENT A CHILD B\n")
        path = path.parent / "a.dag"
    graph = reader.load(path)
    jobs.checked(graph)
    return bag.parsed(graph)


def _wfformat(path: Path) -> object:
    from windfall.workflow.wfformat import instance, recorded, sleep_tasks

    workflow = instance.load(path)
    sleep_tasks.stand_ins(workflow)
    return recorded.parsed(workflow, path.parent)


def _site(path: Path) -> object:
    from windfall.sites.site_file import load

    return load(path)


def _scenario(path: Path) -> object:
    from windfall.sim.scenario import load

    return load(path)


def _swf(path: Path) -> object:
    from windfall.sim.models import swf

    return swf.processors(path), swf.read(path)


def _classad(path: Path) -> object:
    from windfall.core.expressions import classads
    from windfall.model.policies.expressions import check

    text = path.read_bytes().decode("utf-8", "replace")
    check(text, "requirements" if "=" in text else "rank")
    return classads.program(text) if classads.available() else None


def _archive(path: Path) -> object:
    from windfall.pilot.files.packed import unpack

    if path.suffix == ".tar":
        body, path = path.read_bytes(), path.with_suffix(".tgz")
        path.write_bytes(gzip.compress(body, 1))
    folder = path.parent / "unpacked"
    folder.mkdir(exist_ok=True)
    return unpack(str(path), str(folder))


def _answer(path: Path) -> object:
    """Let every dialect read what a batch system might have printed."""
    from windfall.sites.dialects.job import Answer
    from windfall.sites.dialects.table import DIALECTS

    text = path.read_bytes().decode("utf-8", "replace")
    for answer in (Answer(0, text, ""), Answer(1, "", text), Answer(0, text, text)):
        for dialect in DIALECTS.values():
            for read in (dialect.submitted, dialect.listed, dialect.cancelled, dialect.balanced, dialect.roomed):
                try:
                    read(answer)
                except WindfallError:
                    continue
    return None


# --- good files -------------------------------------------------------------------------------------------------

def _packed() -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name, kind in (("bin", tarfile.DIRTYPE), ("bin/python", tarfile.REGTYPE), ("lib", tarfile.SYMTYPE),
                           ("hard", tarfile.LNKTYPE), ("long" * 60, tarfile.REGTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "bin/python", 700 if kind == tarfile.REGTYPE else 0
            archive.addfile(entry, io.BytesIO(b"x" * 700))
    return body.getvalue()


def kinds() -> dict[str, Kind]:
    """Return all kinds; tests and examples of this repository have the good files."""
    examples = ROOT / "examples"
    read = {suffix: [path.read_bytes() for path in sorted(examples.rglob(f"*{suffix}"))]
            for suffix in (".toml", ".apst", ".query", ".xml", ".dag", ".sub", ".json")}
    scenarios = [path.read_bytes() for path in sorted((examples / "scenarios").glob("*.toml"))]
    beside = {path.name: path.read_bytes() for folder in ("", "graphs") for path in (examples / folder).iterdir()
              if path.is_file()}
    beside |= {"a.sub": b"executable = /bin/true\narguments = $(x:)\nqueue\n", "left.count": b"1\n",
               "right.count": b"2\n"}
    return {
        "bag": Kind(_bag, "bag.toml", [body for body in read[".toml"] if body not in scenarios]),
        "csv": Kind(_csv, "t.csv", [b"a,b\n1,2\n3,4\n", b'a,"b"\n"x, y","z ""q"""\n', b"\xef\xbb\xbfa\r\n1\r\n2\r\n"]),
        "apst": Kind(_apst, "t.apst", read[".apst"], beside),
        "yvetteml": Kind(_yvetteml, "a.query", read[".query"] + read[".xml"]),
        "dag": Kind(_dag, "d.dag", [*read[".dag"], DAG], beside),
        "submit": Kind(_dag, "d.sub", [*read[".sub"], SUBMIT], beside),
        "wfformat": Kind(_wfformat, "w.json", read[".json"]),
        "site": Kind(_site, "s.toml", [SITE]),
        "scenario": Kind(_scenario, "s.toml", scenarios),
        "swf": Kind(_swf, "l.swf", [b"; MaxProcs: 64\n" + b"".join(
            b"%d %d 5 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n" % (n, n * 60) for n in range(1, 20))]),
        "classad": Kind(_classad, "e.txt", [b'Host.Cores >= 4 && Site.Name != "a"', b"ifThenElse(Tail, 2.5, -Age / 60)",
                                            b'regexp("^n[0-9]+", Host.Name) ? 1 : member("a", {"a", "b"})']),
        "archive": Kind(_archive, "e.tar", [_packed()]),
        "packed": Kind(_archive, "e.tgz", [gzip.compress(_packed())]),
        "answer": Kind(_answer, "a.txt", ANSWERS),
    }


DAG = b"""JOB A a.sub
JOB B a.sub
VARS A x="1" y="$(JOB)"
PARENT A CHILD B
RETRY A 3 UNLESS-EXIT 2
SCRIPT POST A /bin/true $RETURN
PRIORITY B 10
CATEGORY B big
MAXJOBS big 2
ABORT-DAG-ON A 3 RETURN 1
FINAL F a.sub
"""
SUBMIT = b"""executable = /bin/echo
arguments = "$(x:) 'a b' $(Process)"
request_memory = 2GB
request_cpus = 2
transfer_input_files = a.sub
environment = "A=1 B=2"
queue
"""
SITE = b"""[site]
name = "cluster"
dialect = "slurm"
host = "ann@login.example.org"
server = "https://here.example.org:8765"
max-pilots = 10
core-hours = 100
grace = "2min"
setup = ["module load x"]
[[shapes]]
cores = 4
memory = "8GB"
walltime = "30min..24h"
gpus = 1
[variables]
A = "b"
[staged]
panel = "/ref/panel.bin"
"""
ANSWERS = [
    b"12_7|R|1794758400|4|None|wfabcd-100\n13|PD|N/A|1|JobHeldUser|else's\n",
    b"7|0|PEND|1|-|-|mine\n8|0|RUN|1|-|-|wfabcd-1\n",
    b'[{"ClusterId": 8, "ProcId": 0, "JobBatchName": "wfabcd-1", "JobStatus": 2, "HoldReasonCode": 1}]',
    b"Job Id: 8.s\n    Job_Name = wfabcd-1\n    job_state = R\n    Resource_List.ncpus = 4\n",
    b"<job_info><queue_info><job_list state='running'><JB_job_number>8</JB_job_number><JB_name>wfabcd-1</JB_name>"
    b"<state>r</state><slots>4</slots></job_list></queue_info></job_info>",
    b"abcd-1|R|0\nend\n", b"Submitted batch job 4711\n", b"Your job 12 (\"wf\") has been submitted\n",
    b"sbatch: error: Batch job submission failed: Invalid partition name specified\n",
]


# --- mutation ---------------------------------------------------------------------------------------------------

def mutate(body: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """Return the file with one to four changes."""
    made = bytearray(body)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 4))):
        at = dice.randrange(len(made) + 1)
        end = min(len(made), at + dice.choice((1, 2, 8, 40, 400)))
        change = dice.randrange(8)
        if change == 0 and made:
            made[min(at, len(made) - 1)] ^= 1 << dice.randrange(8)
        elif change == 1:
            del made[at:end]
        elif change == 2:
            made[at:at] = dice.choice(WORDS) * dice.choice((1, 1, 1, 50))
        elif change == 3:
            made[at:end] = dice.choice(WORDS)
        elif change == 4:
            made[at:at] = made[at:end] * dice.choice((1, 2, 200))
        elif change == 5:
            del made[at:]
        elif change == 6:
            other = dice.choice(others)
            start = dice.randrange(len(other) + 1)
            made[at:at] = other[start : start + dice.choice((10, 100, 1000))]
        else:
            _change_number(made, dice)
    return bytes(made[:MOST])


def _change_number(made: bytearray, dice: random.Random) -> None:
    digits = [place for place, byte in enumerate(made) if 48 <= byte <= 57]
    if digits:
        place = dice.choice(digits)
        made[place : place + 1] = dice.choice((b"0", b"-7", b"4294967296", b"9" * 25, b"1e308", b"0.0000001", b"x"))


# --- a case -----------------------------------------------------------------------------------------------------

class TooLong(Exception):
    pass


def _too_long(number: int, frame: object) -> None:
    raise TooLong(f"more than {SECONDS} s")


def case(kind: Kind, body: bytes, folder: Path) -> bool:
    """Have a file read; return whether the reader took it.  Raise anything else than a refusal in words."""
    path = folder / kind.name
    for name, content in kind.beside.items():
        (folder / name).write_bytes(content)
    path.write_bytes(body)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        kind.read(path)
    except WindfallError as error:
        assert error.message
        assert len(str(error)) < 200_000, "a refusal as long as a book"
        str(error).encode()
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return True


def run(cases: int, first: int = 1, failures: list[str] | None = None) -> dict[str, list[int]]:
    """Run the cases; return for each kind how many files were taken, and how many refused.  With `failures`, gather
    what failed there; else raise at the first."""
    signal.signal(signal.SIGPROF, _too_long)
    found = kinds()
    names = list(found)
    counts = {name: [0, 0] for name in names}
    with TemporaryDirectory(prefix="windfall-inputs-") as root:
        for seed in range(first, first + cases):
            dice = random.Random(seed)
            name = names[seed % len(names)]
            kind = found[name]
            body = mutate(dice.choice(kind.samples), kind.samples, dice)
            with TemporaryDirectory(dir=root) as folder:
                try:
                    counts[name][not case(kind, body, Path(folder))] += 1
                except Exception as error:
                    said = f"seed {seed}, {name}: {type(error).__name__}: {str(error)[:300]}"
                    if failures is None:
                        print(f"{said}\n{body[:2000]!r}", file=sys.stderr)
                        raise
                    failures.append(said + "\n" + "".join(traceback.format_tb(error.__traceback__)[-3:]))
    return counts


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (pages + MEMORY, pages + MEMORY))


if __name__ == "__main__":
    _bound_memory()
    failed: list[str] = []
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 130_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1, failed))
    print(*failed[:40], sep="\n")
    print(f"{len(failed)} failures")
    sys.exit(bool(failed))
