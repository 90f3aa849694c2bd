"""`windfall site`: files that are written once, read back before, and shown with what the server knows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.live.real import CommandLine, serving, until
from windfall import Client
from windfall.client.profile import Profile
from windfall.errors import BadInput, Forbidden
from windfall.sites import site_file
from windfall.sites.dialects.table import DIALECTS
from windfall.sites.write import written


@pytest.fixture
def windfall(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home", tmp_path)


FULL = ("--slurm", "--ssh", "me@login.example.org", "--port", "2222", "--account", "proj-7", "--partition", "normal",
        "--folder", "scratch/wf", "--max-pilots", "50", "--max-queued", "5", "--core-hours", "5000", "--grace", "3min",
        "--python", "python3.11", "--directives", "#SBATCH --constraint=avx2", "--setup", "module load python",
        "--setup", "ulimit -c 0", "--cores", "4", "--memory", "8GiB", "--walltime", "4h", "--gpus", "1", "--nodes", "2",
        "--whole-node", "--variables", "A=b=c", "--options", "signal=no", "--staged", "panel.bin=/ref/panel.bin")


def test_every_option_arrives_in_the_file(windfall: CommandLine) -> None:
    made = windfall.json("site", "add", "big", *FULL)
    path = windfall.home / "sites" / "big.toml"
    assert made == {"site": "big", "dialect": "slurm", "file": str(path)}
    assert path.stat().st_mode & 0o777 == 0o600
    site = site_file.named(path)
    assert site == site_file.parse("""
        [site]
        name = "big"
        dialect = "slurm"
        host = "me@login.example.org"
        port = 2222
        account = "proj-7"
        partition = "normal"
        folder = "scratch/wf"
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
        gpus = 1
        nodes = 2
        whole-node = true
        [variables]
        A = "b=c"
        [options]
        signal = "no"
        [staged]
        "panel.bin" = "/ref/panel.bin"
    """)


@pytest.mark.parametrize("named", list(DIALECTS))
def test_commented_lines_of_a_new_site_file_are_valid(named: str) -> None:
    """The reader accepts each commented line once its `#` is removed."""
    host = {"host": "a@b"} if named == "ssh" else {}
    text = written({"name": "x", "dialect": named, **host}, {"walltime": "1h"}, {})
    commented = [line for line in text.split("\n") if line.startswith("# ") and " = " in line]
    assert len(commented) >= 10
    for line in commented:
        extra = 'pe-nodes = "mpi"' if named == "gridengine" else ""
        site_file.parse(text.replace(line, line[2:]) + f"\n[options]\n{extra}\n")


def test_site_add_overwrites_no_file_and_writes_no_wrong_one(windfall: CommandLine) -> None:
    windfall.json("site", "add", "a", "--local")
    before = (windfall.home / "sites" / "a.toml").read_text()
    again = windfall("site", "add", "a", "--slurm")
    assert again.returncode == 2 and "already" in again.stderr and "windfall site rm a" in again.stderr
    wrong = {
        ("b",): "what kind of site", ("b", "--local", "--account", "x"): "no account",
        ("b", "--local", "--walltime", "1min"): "grace", ("../b", "--local"): "cannot be the name of a site",
        ("local", "--local"): "reserved", ("b", "--ssh", "a b"): "not a host",
        ("b", "--local", "--variables", "x"): "=",
        ("b", "--slurm", "--lsf"): "not allowed with",
    }
    for words, says in wrong.items():
        done = windfall("site", "add", *words)
        assert done.returncode == 2 and says in done.stderr, (words, done.stderr)
    assert [path.name for path in (windfall.home / "sites").iterdir()] == ["a.toml"]
    assert (windfall.home / "sites" / "a.toml").read_text() == before


@pytest.mark.parametrize(("flag", "says"), [
    ("--slurm", "$ sbatch "), ("--gridengine", "qsub"), ("--htcondor", "condor_submit"), ("--pbs", "qsub"),
    ("--torque", "qsub"), ("--lsf", "bsub"), ("--local", "setsid"),
])  # fmt: skip
def test_a_dry_run_shows_the_script_and_writes_nothing(windfall: CommandLine, flag: str, says: str) -> None:
    done = windfall("site", "add", "x", flag, "--setup", "module load gcc", "--dry-run")
    assert done.returncode == 0 and says in done.stdout and "\nmodule load gcc\n" in done.stdout
    file = re.search(r"exec python3 (pilot-([0-9a-f]{24})\.pyz) --ticket x-", done.stdout)  # as jobs have it
    assert file and f"{file[1]} {file[2]}" in done.stdout
    assert not (windfall.home / "sites").exists()


def test_lists_show_wrong_site_files_beside_good_ones(windfall: CommandLine) -> None:
    windfall.json("site", "add", "good", "--local")
    (windfall.home / "sites" / "bad.toml").write_text("[site]\nname = 'bad'\n")
    (windfall.home / "sites" / "other.toml").write_text((windfall.home / "sites" / "good.toml").read_text())
    rows = {row["site"]: row for row in windfall.json("site", "ls")}
    assert rows["good"]["state"] == "ready" and rows["bad"]["state"] == "wrong file"
    assert "lacks 'dialect'" in rows["bad"]["error"] and "is called other.toml" in rows["other"]["error"]
    assert "bad.toml:1" in windfall("site", "ls").stdout
    assert windfall.json("site", "show", "good")["dialect"] == "local"
    assert json.loads(windfall("site", "show", "gold", "--json").stdout)["error"]["hint"] == "did you mean 'good'?"


def test_completion_offers_names_of_sites(windfall: CommandLine) -> None:
    for name in ("alpha", "beta"):
        windfall.json("site", "add", name, "--local")
    shown = windfall("completion", "words", "3", "--", "windfall", "site", "show", "").stdout
    assert shown.split() == ["alpha", "beta"]
    assert "drain" in windfall("completion", "words", "2", "--", "windfall", "site", "dr").stdout


def test_options_of_add_are_refused_by_other_actions(windfall: CommandLine) -> None:
    for words in (("ls", "--slurm"), ("show", "x", "--cores", "2"), ("ls", "x"), ("show",)):
        assert windfall("site", *words).returncode == 2, words


def test_a_site_is_drained_used_again_and_forgotten(windfall: CommandLine) -> None:
    windfall.json("token", "add", "--scope", "enrol", "--site", "lab", "-o", "ticket.json")
    assert windfall.json("site", "drain", "lab")["drained"] is True
    assert {row["site"]: row["state"] for row in windfall.json("site", "ls")} == {"lab": "drained", "local": "ready"}
    assert windfall.json("site", "show", "lab")["state"] == "drained", "after a restart, too"
    assert windfall.json("site", "undrain", "lab")["drained"] is False
    assert windfall.json("site", "rm", "lab") == {"site": "lab"}
    assert [row["site"] for row in windfall.json("site", "ls")] == ["local"]
    assert [token["scope"] for token in windfall.json("token", "ls")] == ["admin"]
    for action in ("drain", "undrain", "rm"):
        assert windfall("site", action, "lab").returncode == 2


def test_a_site_is_shared(windfall: CommandLine) -> None:
    windfall.json("site", "add", "x", "--local")
    windfall.json("user", "add", "ann", "-o", "ann.json")
    assert windfall.json("site", "share", "x", "ann")["shared"] == ["ann"]
    assert windfall.json("site", "show", "x")["history"][0]["kind"] == "shared"
    assert windfall.json("site", "unshare", "x", "ann")["shared"] == []
    for words in (("share", "x", "nobody"), ("share", "none", "ann"), ("share", "x"), ("show", "x", "ann")):
        assert windfall("site", *words).returncode == 2, words


def test_rm_removes_the_file_of_a_site(windfall: CommandLine) -> None:
    windfall.json("site", "add", "x", "--local")
    said = windfall("site", "rm", "x").stderr
    assert "rm -r windfall/x; and ~/.windfall/jobs, if no other site uses that machine" in said
    assert list((windfall.home / "sites").iterdir()) == []
    windfall.json("site", "add", "x", "--slurm")


@pytest.mark.slow
def test_site_with_pilots_is_removed_only_with_now(windfall: CommandLine) -> None:
    with serving(windfall.home) as server:
        windfall.json("token", "add", "--scope", "enrol", "--site", "lab", "-o", "ticket.json")
        pilot = windfall.start("pilot", "--ticket", "ticket.json", "--idle", "600")
        with Client(server.profile) as client:
            until(client.pilots)
            refused = windfall("site", "rm", "lab")
            assert refused.returncode == 3 and "1 pilots" in refused.stderr and "--now" in refused.stderr
            assert windfall.json("site", "rm", "lab", "--now") == {"site": "lab"}
            assert [each["state"] for each in client.pilots()] == ["gone"]
        assert pilot.wait(30) == 0


TEXT = st.text(max_size=20)


@settings(max_examples=200)
@given(TEXT, TEXT, st.lists(TEXT, max_size=3), st.dictionaries(TEXT, TEXT, max_size=2))
def test_written_site_file_is_read_back_unchanged(account: str, python: str, lines: list[str], more: Any) -> None:
    site = {"name": "x", "dialect": "slurm", "account": account, "python": python, "setup": lines}
    try:
        read = site_file.parse(written(site, {"walltime": "1h"}, {"variables": more}))
    except (BadInput, UnicodeEncodeError):
        return
    assert (read.account, read.python, read.setup, read.variables) == (account, python, tuple(lines), more)


def test_simultaneous_trials_run_as_separate_users(windfall: CommandLine) -> None:
    with serving(windfall.home) as server, Client(server.profile) as client:
        first, second = client.try_site("x"), client.try_site("x")
        assert first["site"] != second["site"]
        with Client(Profile(server.profile["server"], first["token"], server.profile["certificate"])) as mine:
            with pytest.raises(Forbidden):
                mine.try_site("x")
            for token in sorted(mine.tokens(), key=lambda each: each["scope"] == "user"):
                mine.remove_token(token["id"])
        owners = {token["user"] for token in client.tokens()}
        assert len([owner for owner in owners if "+trial" in owner]) == 1, "the other goes on"
        assert client.try_site("x")["site"] == first["site"], "and a name is used again"
        with pytest.raises(BadInput, match="reserved for site trials"):
            client.add_token("user", "ann+trial1")
        assert [site["site"] for site in client.sites()] == ["local"]


def test_testing_a_site_without_a_file_says_what_it_is(windfall: CommandLine) -> None:
    """`site ls` lists both, so that neither may be said not to exist."""
    windfall("token", "add", "--scope", "enrol", "--site", "lab", "--days", "1", "-o", "t.json")
    done = windfall("site", "test", "local")
    assert (done.returncode, "is this machine, with the server's own pilot" in done.stderr) == (2, True), done.stderr
    done = windfall("site", "test", "lab")
    assert (done.returncode, "there is no site file lab.toml" in done.stderr) == (2, True), done.stderr
