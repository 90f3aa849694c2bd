"""A site's file: what it says, and what it is told when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from windfall.errors import BadInput
from windfall.provision.site_files import example
from windfall.sites import site_file
from windfall.sites.dialects.job import Shape
from windfall.sites.dialects.table import DIALECTS

DIGEST = "0123456789abcdef" * 4
FULL = """\
[site]
name = "big"
dialect = "slurm"
host = "me@login.example.org"
port = 2222
account = "proj-7"
partition = "normal"
folder = "windfall/big"
arrays = true
max-pilots = 50
max-queued = 5
core-hours = 5000
grace = "3min"
python = "python3.11"
directives = ["#SBATCH --constraint=avx2"]
setup = ["module load python", "ulimit -c 0"]

[[shapes]]
cores = 4
memory = "8GiB"
walltime = "4h"

[[shapes]]
cores = 64
walltime = "12h"
gpus = 2
nodes = 1
whole-node = true

[variables]
SCRATCH = "/scratch/me"
OMP_NUM_THREADS = 4

[options]
signal = "yes"

[staged]
"panel.bin" = "/scratch/ref/panel.bin"
"""
SHORT = '[site]\nname = "x"\ndialect = "local"\n[[shapes]]\nwalltime = "1h"\n'


def test_a_full_file() -> None:
    site = site_file.parse(FULL)
    assert site == site_file.Site(
        "big", "slurm", (Shape(14400, 4, 8 << 30), Shape(43200, 64, 0, 2, 1, True)), "login.example.org", "me", 2222,
        "proj-7", "normal", "windfall/big", True, 50, 5, 5000, 180, "python3.11", ("#SBATCH --constraint=avx2",),
        ("module load python", "ulimit -c 0"), {"SCRATCH": "/scratch/me", "OMP_NUM_THREADS": "4"}, {"signal": "yes"},
        {"panel.bin": "/scratch/ref/panel.bin"})


def test_a_short_file(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SHORT)
    assert site_file.load(tmp_path / "x.toml") == site_file.Site("x", "local", (Shape(3600),), folder="windfall/x")


def test_example_shows_the_submission_of_a_site() -> None:
    text = example(site_file.parse(FULL), DIGEST)
    assert text.startswith("$ sbatch --parsable --no-requeue --job-name=wfexample-1 ")
    for line in ("#SBATCH --constraint=avx2", "SCRATCH=/scratch/me; export SCRATCH", "module load python",
                 "cd windfall/big"):
        assert f"\n{line}\n" in text or f" {line}\n" in text
    assert f"exec python3.11 pilot-{DIGEST[:24]}.pyz --ticket big-example.ticket --cores 4 " in text
    assert f"pilot-{DIGEST[:24]}.pyz {DIGEST} || exit" in text


@pytest.mark.parametrize("named", list(DIALECTS))
def test_every_dialect_is_shown(named: str) -> None:
    host = 'host = "a@b"\n' if named == "ssh" else ""
    text = example(site_file.parse(SHORT.replace('"local"\n', f'"{named}"\n{host}')), DIGEST)
    assert f"exec python3 pilot-{DIGEST[:24]}.pyz" in text


@pytest.mark.parametrize(("old", "new", "line", "says"), [
    ('dialect = "slurm"', 'dialect = "slrum"', 3, "slrum"),
    ('dialect = "slurm"', 'dialect = "gridengine"\nbalance = true', 4, "cannot ask gridengine for an account"),
    ('name = "big"', 'name = "a b"', 2, "cannot be the name of a site"),
    ('name = "big"', "", 1, "lacks 'name'"),
    ("max-pilots = 50", "max-pilot = 50", 10, "max-pilot"),
    ("max-pilots = 50", 'max-pilots = "many"', 10, "max-pilots"),
    ('memory = "8GiB"', 'memory = "8"', 20, "memory"),
    ('walltime = "4h"', "walltime = 4", 21, "walltime"),
    ('walltime = "4h"', 'walltime = "2min"', 18, "grace"),
    ('walltime = "12h"', "", 23, "walltime"),
    ("gpus = 2", "gpu = 2", 26, "gpu"),
    ('host = "me@login.example.org"', 'host = "-oProxyCommand=x"', 4, "not a host"),
    ('partition = "normal"', 'partition = "normal"\nqueue = "x"', 7, "mean the same"),
    ("arrays = true", 'reach = "pigeon"', 9, "pigeon"),
    ("arrays = true", 'relay = "head node; id"', 9, "not an address"),
    ('SCRATCH = "/scratch/me"', "SCRATCH = true", 31, "SCRATCH"),
    ('SCRATCH = "/scratch/me"', '"A B" = "x"', 1, "not the name of a variable"),
    ('folder = "windfall/big"', 'folder = "$HOME/x"', 1, "folder"),
    ('setup = ["module load python", "ulimit -c 0"]', 'setup = ["a\\nb"]', 1, "line break"),
    ("[options]", "[option]", 34, "option"),
    ('[site]', "[site", 1, "not TOML"),
])  # fmt: skip
def test_complaints_name_the_place(old: str, new: str, line: int, says: str) -> None:
    assert old in FULL
    with pytest.raises(BadInput) as wrong:
        site_file.parse(FULL.replace(old, new, 1), "big.toml")
    assert wrong.value.where == f"big.toml:{line}" and says in str(wrong.value)


def test_contradictory_site_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="needs a host"):
        site_file.parse(SHORT.replace('"local"', '"ssh"'))
    with pytest.raises(BadInput, match="no host"):
        site_file.parse(SHORT.replace('"local"', '"local"\nhost = "a@b"'))
    with pytest.raises(BadInput, match="at least one"):
        site_file.parse(SHORT.partition("[[shapes]]")[0])
    with pytest.raises(BadInput, match="parallel environment"):
        site_file.parse(SHORT.replace('"local"', '"gridengine"') + "nodes = 2\n")


@given(st.integers(0, len(FULL)), st.integers(0, 40), st.text(max_size=10))
def test_damaged_site_file_gives_a_site_or_an_error_with_its_place(at: int, gone: int, instead: str) -> None:
    try:
        site = site_file.parse(FULL[:at] + instead + FULL[at + gone :])
    except BadInput as error:
        assert error.where.startswith("site") and error.message
    else:
        assert example(site, DIGEST)
