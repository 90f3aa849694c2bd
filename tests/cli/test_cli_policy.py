"""`windfall policy`: needs no server to say whether an expression is one."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from windfall.cli.main import main
from windfall.cli.present import policy_hints


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["policy", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_check_tells_type_attributes_and_uses_of_an_expression(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--check", "Host.Memory >= 4000 && Tail")
    assert code == 0
    assert out == ("it yields true or false, and uses Host.Memory, Bag.Tail\n"
                   "it can stand for: requirements, rank\n")
    code, out, _ = said(capsys, "--check", "Concurrency=2 * Host.NumCpus", "--json")
    assert code == 0
    assert json.loads(out) == {"expression": "2 * Host.NumCpus", "type": "number", "attributes": ["Host.Cores"],
                               "policies": ["rank", "per-host", "attempt-deadline"]}


def test_check_refuses_text_that_is_no_expression(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "--check", "Host.Cores > 1 && Host.Memry > 4")
    assert code == 2
    assert err == ("windfall: column 19: there is no attribute 'Host.Memry'\n"
                   "    Host.Cores > 1 && Host.Memry > 4\n"
                   "                      ^\n"
                   "  hint: did you mean Host.Memory?\n")
    code, out, err = said(capsys, "--check", "rank=Host.Name", "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert error["code"] == "bad-input" and "rank must be a number" in error["message"]
    assert said(capsys, "--check", "Host.Memory == 4")[0] == 0  # no policy called Host.Memory is asked for
    assert said(capsys, "--check", "Tail =!= true")[0] == 0 and said(capsys, "--check", "rank=!Tail")[0] == 0
    assert said(capsys, "--check", "rang = 4")[0] == 2
    assert said(capsys)[0] == 2


def test_check_takes_expressions_longer_than_a_file_name(capsys: pytest.CaptureFixture[str]) -> None:
    for text in (" && ".join(["Host.Cores > 1"] * 30), "Host.Cores > 1\n&& Tail"):
        assert said(capsys, "--check", text)[0] == 0
    code, _, err = said(capsys, "--check", "1+" * 3_000 + "1")
    assert code == 2 and "at most 4,096" in err


def test_check_recognises_caps_of_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--check", "replicas-share=15%") == (
        0, "it is a cap: replicas that the bag may have, such as 15% of its tasks\n", "")
    assert said(capsys, "--check", "replicas-per-task = 3", "--json")[:2] == (0, '{"cap": "3"}\n')
    code, _, err = said(capsys, "--check", "replicas-cost=3")
    assert code == 2 and "as in 100 core-hours" in err
    code, _, err = said(capsys, "--check", "replicas-shre=15%")
    assert code == 2 and "did you mean 'replicas-share'?" in err


@pytest.mark.parametrize("setting", ["per-host=0", "per-host=0.5", "Concurrency= -2"])
def test_limit_that_admits_no_task_is_refused(capsys: pytest.CaptureFixture[str], setting: str) -> None:
    """A bag file with such a limit is refused, too."""
    for arguments in (("--check", setting), ("7", setting)):
        code, _, err = said(capsys, *arguments)
        assert code == 2 and "would let no host run a task" in err


@pytest.mark.parametrize(("given", "hint"), [
    ("replicate=tail-fats", "did you mean 'tail-fast'?"), ("sites=mine", """sites = 'Site.Name == "mine"'"""),
    ('Host.Name =~ "n"', "looks for a pattern"), ("Host.Cores > 1 # c", "cannot have comments"),
    ("Host.Cores > 1 and Tail", "&& is and"), ("requirements = undefined", "leave requirements out"),
    ("not Tail", "! is not"), ("Host.Cores => 2", "it is written >="), (r"Tail \|\| Host.Cores > 1", "|| is or"),
    ("Host.Site == 'lab'", """requirements = 'Host.Site == "lab"'"""), ("Task.Replica20.SentTime", "Task.Replica16"),
    ("replicate = Task.Replica1.Host.ErrorRat > 1", "Task.Replica1.Host.ErrorRate"),
    ("select = sjf", "cannot be changed"), ("priority = 3", "rank"), ("deadline = 30min", "attempt-deadline"),
])  # fmt: skip
def test_common_mistake_gets_a_hint(capsys: pytest.CaptureFixture[str], given: str, hint: str) -> None:
    code, _, err = said(capsys, "--check", given)
    assert code == 2 and hint in err


@pytest.mark.parametrize("beside", [["--check", "rank=Host.Cores", "+", "1"], ["7", "rank=3", "--check", "rank=1"],
                                    ["7", "--attributes"]])
def test_check_and_attributes_refuse_further_arguments(capsys: pytest.CaptureFixture[str], beside: list[str]) -> None:
    code, out, err = said(capsys, *beside)
    assert (code, out) == (2, "") and "only shows values" in err


def test_options_may_stand_between_bag_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--hosts only shows hosts" in said(capsys, "7", "--hosts", "rank=4")[2]


@pytest.mark.parametrize("given", ["replicate=Tail-safe", "replicate=Tail", "per_host=2", "budget = 5 core-hours",
                                   'replicate = "tail-safe"', "attempt-deadline = '30min'", "tail-fast"])
def test_check_accepts_other_spellings(capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert said(capsys, "--check", given)[0] == 0


def test_check_reads_the_policies_of_a_bag_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bag = tmp_path / "bag.toml"
    bag.write_text("[bag]\ncommand = 'true'\n[policy]\nreplicate = 'tail-fast'\nrank = 2\nreplicas-share = '9%'\n")
    assert said(capsys, "--check", str(bag)) == (
        0, f"{bag}: its policies are valid\n  rank = 2\n  replicate = tail-fast\n  replicas-share = 9%\n", "")
    found = json.loads(said(capsys, "--check", str(bag), "--json")[1])
    assert found["rank"]["type"] == "number"
    assert (found["replicate"], found["replicas-share"]) == ({"preset": "tail-fast"}, {"cap": "9%"})


@pytest.mark.parametrize(("line", "right"), [
    ('requirements = "Host.Site == "lab""', """requirements = 'Host.Site == "lab"'"""),
    ("requirements = 'Host.Site == 'lab''", """requirements = 'Host.Site == "lab"'"""),
    ("requirements = Host.Memory > 4000", 'requirements = "Host.Memory > 4000"'),
    ("attempt-deadline = 30min  # long", 'attempt-deadline = "30min"'), ("rank = [1", ""), ('rank = "a', ""),
])
def test_wrong_quotes_in_a_bag_file_get_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, right: str
) -> None:
    bag = tmp_path / "bag.toml"
    bag.write_text(f"[bag]\ncommand = 'true'\n[policy]\n{line}\n")
    code, _, err = said(capsys, "--check", str(bag))
    assert code == 2 and "not TOML" in err
    assert f"write texts in quotes: {right}\n" in err if right else "hint" not in err


def test_unknown_policy_is_refused_with_all_that_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "7", "order=sjf")
    assert code == 2 and "there is no policy 'order'" in err and err.endswith(", replicas-cost, budget\n")
    assert "did you mean 'budget'?" in said(capsys, "7", "buget=1 core-hours")[2]


@pytest.mark.parametrize("setting", ["attempt-deadline=0", "attempt-deadline=0s", "Deadline= -5"])
def test_deadline_without_time_is_refused(capsys: pytest.CaptureFixture[str], setting: str) -> None:
    for arguments in (("--check", setting), ("7", setting)):
        code, _, err = said(capsys, *arguments)
        assert code == 2 and "leaves no time for an attempt" in err and "leave it out" in err


@pytest.mark.parametrize("twice", [("rank=1", "rank=2"), ("rank=1", "Rank="), ("budget=", "budget=1 core-hours")])
def test_a_setting_is_given_once(capsys: pytest.CaptureFixture[str], twice: tuple[str, str]) -> None:
    code, _, err = said(capsys, "7", *twice)
    assert code == 2 and "is given twice" in err


def test_attributes_are_listed_with_types_and_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--attributes", "--json")
    found = {each["name"]: each for each in json.loads(out)}
    assert code == 0 and found["Host.Cores"]["aliases"] == ["NumCpus", "Cpus"] and found["Bag.Tail"]["type"] == "truth"
    assert "Host.Memory" in said(capsys, "--attributes")[1]


# --- of a bag -----------------------------------------------------------------------------------------------------

BAG = """
[bag]
name = "choosy"
command = "echo {x}"
[sweep]
x = "1..4"
[policy]
requirements = 'Host.Gpus > 1000 && Host.Cores > 0'
"""


def test_bag_that_matches_no_host_is_changed_while_it_runs(windfall):
    (windfall.folder / "bag.toml").write_text(BAG)
    assert windfall("policy", "--check", "bag.toml").stdout == (
        "bag.toml: its policies are valid\n  requirements = Host.Gpus > 1000 && Host.Cores > 0\n")
    done = windfall("submit", "bag.toml")
    assert done.returncode == 0, done.stderr
    bag = done.stdout.strip()
    assert "the bag's policies match none of the hosts that serve you now (1): " in done.stderr
    assert "Host.Gpus > 1000 is false: Host.Gpus is 0" in done.stderr
    assert "Host.Gpus > 1000 is false: Host.Gpus is 0" in windfall("explain", bag).stdout
    assert "no; requirements: Host.Gpus > 1000 is false: Host.Gpus is 0" in windfall("policy", bag, "--hosts").stdout
    shown = windfall("show", bag)
    assert "\nrequirements = Host.Gpus > 1000 && Host.Cores > 0\n" in shown.stdout and "match none" in shown.stderr
    assert "requirements = Host.Gpus > 1000 && Host.Cores > 0\n" in windfall("run", "bag.toml", "--dry-run").stdout
    assert windfall.json("run", "bag.toml", "--dry-run")["policy"] == {
        "requirements": "Host.Gpus > 1000 && Host.Cores > 0"}
    assert windfall("policy", "--hosts").stdout.startswith("host ")
    (host,) = windfall.json("policy", "--hosts")
    assert host["ad"]["Host"]["Gpus"] == 0
    assert windfall("policy", bag, "rank=1", "--hosts").returncode == 2
    paused = windfall("submit", "sleep 3", "-s", "x=1..2", "--name", "plain").stdout.strip()
    assert windfall("policy", paused, "--hosts").stdout.endswith("): yes\n"), "it has no rank"
    assert windfall("policy", paused, "--json", "per-host=1").returncode == 0
    assert windfall("policy", paused, "--hosts").stdout.endswith("): yes, 1 at most\n")
    windfall("cancel", paused)
    refused = windfall("policy", bag, "requirements=Host.Gpuz > 1")
    assert (refused.returncode, "Host.Gpus" in refused.stderr) == (2, True)
    assert windfall("policy", bag, "per-host=true").returncode == 2
    assert windfall("policy", bag, "rank=!Tail ? 1 : 2").returncode == 0
    assert "replicas-share = 30%\n" in windfall("policy", bag, "replicas-share=30%").stdout
    assert "replicas" not in windfall("policy", bag, "replicas-share=").stdout
    changed = windfall.json("policy", bag, "requirements=Host.Gpus < 1000", "rank=Host.Cores")
    assert changed["policy"] == {"requirements": "Host.Gpus < 1000", "rank": "Host.Cores", "replicate": "tail-safe"}
    assert (changed["match"], changed["hosts"], changed["why"]) == (1, 1, "")
    assert windfall("wait", bag).returncode == 0
    late = windfall("policy", bag, "JobRequirements=")
    assert late.stdout == "rank = Host.Cores\nreplicate = tail-safe\n"
    assert late.stderr == f"bag {bag} has ended: the change applies only to tasks that are retried or added\n"
    assert windfall("policy", bag, "replicate=").stdout == "rank = Host.Cores\nreplicate = none\n"


def test_policy_that_names_an_unknown_site_says_so(windfall):
    (windfall.folder / "bag.toml").write_text(BAG.replace(
        "requirements = 'Host.Gpus > 1000 && Host.Cores > 0'", """sites = 'Site.Name != "localy"'"""))
    done = windfall("submit", "bag.toml")
    assert "sites names 'localy', but there is no such site; did you mean 'local'?\n" in done.stderr
    windfall("wait", done.stdout.strip())


@pytest.mark.parametrize(("text", "names"), [
    ('Site.Name == "labb"', ["labb"]), ('"labb" =?= site.name || Site.Name isnt "LAB"', ["labb"]),
    ('member(Host.Site, {"lab", "x", "y"}) && Host.Name == "other"', ["x", "y"]), ("Host.Cores > 1", []),
])  # fmt: skip
def test_names_of_unknown_sites_are_found_in_expressions(text, names):
    found = list(policy_hints.unknown_sites({"sites": text}, ["lab", "local"]))
    assert [each.split("'")[1] for each in found] == names


def test_missing_match_is_no_mistake_while_a_site_starts_pilots():
    view = {"bag": 1, "policy": {"requirements": "x"}, "match": 0, "hosts": 1, "why": "here: x is false"}
    lab = {"site": "lab", "pilots": 0, "drained": False, "queued": 2}
    assert policy_hints.no_match(view, [lab]) == (
        "waiting for pilots at lab: their hosts may match; "
        "1 host elsewhere cannot have the bag's tasks (here: x is false)")
    for change in ({"drained": True}, {"queued": 0}, {"pilots": 1}):
        assert "match none of the hosts that serve you now (1)" in policy_hints.no_match(view, [{**lab, **change}])


def test_warning_that_no_host_matches_goes_to_standard_error(windfall):
    """Without the warning, a script would wait for ever."""
    (windfall.folder / "bag.toml").write_text(BAG)
    done = windfall("submit", "bag.toml", "--json")
    bag = json.loads(done.stdout)["bag"]
    assert done.stderr.startswith("the bag's policies match none of the hosts that serve you now (1): ")
    assert done.stderr.count("\n") == 1
    windfall("cancel", str(bag))
    for quietly in ("-q", "--json"):
        run = windfall.start("run", "bag.toml", quietly)
        enough = threading.Timer(60, run.kill)  # else a run that says nothing would be read for ever
        enough.start()
        said_first = run.stderr.readline()
        windfall("cancel", "choosy")
        out, _ = run.communicate()
        enough.cancel()
        assert said_first.startswith("the bag's policies match none of the hosts that serve you now (1): ")
        assert quietly == "-q" or json.loads(out)["cancelled"] == 4


def test_a_bag_file_with_a_bad_expression_is_refused_with_line_and_column(windfall):
    (windfall.folder / "bag.toml").write_text(BAG.replace("Host.Cores", "Host.Coors"))
    done = windfall("submit", "bag.toml")
    assert done.returncode == 2
    assert done.stderr.startswith("windfall: bag.toml:8:37: requirements: there is no attribute 'Host.Coors'\n")


def test_a_budget_is_changed_too(windfall):
    bag = windfall.json("submit", "sleep 60", "--time", "1min", "--cores", "1000")["bag"]
    assert windfall("policy", bag, "budget=5 core-hours").stdout.endswith("\nbudget = 5 core-hours\n")
    assert windfall.json("policy", bag, "budget=")["budget"] is None
    assert windfall("policy", bag, "budget=many").returncode == 2
    windfall("cancel", bag)
