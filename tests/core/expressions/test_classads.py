"""ClassAds: HTCondor evaluates what our reader accepts, and memory and time stay bounded."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import psutil
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.expressions import classads
from windfall.core.expressions.classads import ERROR, MOST_PROGRAMS, UNDEFINED, evaluate, matches
from windfall.core.messages import events as e
from windfall.core.step import Core
from windfall.errors import BadInput
from windfall.model.checks.patterns import refusal
from windfall.model.policies import expressions as x
from windfall.model.policies.language import tokens

HOST = {"Name": "is3.myhost", "Memory": 4000, "Cores": 4, "JobsToday": 7, "Volunteer": False, "Site": "Technion"}
ADS = {"Host": HOST, "Bag": {"Tail": True, "JobsLeft": 10, "JobsDone": 5}, "Queue": {"Bags": 1}, "Now": 1000}


@pytest.mark.parametrize(("text", "result"), [
    ("Host.Memory >= 4000", True),
    ("Host.Memory > 4000", False),
    ("Host.Memory / 1000 + 0.5", 4.5),
    ("Host.ErrorRate < 0.1", UNDEFINED),
    ("Host.ErrorRate < 0.1 || true", True),
    ("Host.ErrorRate < 0.1 && false", False),
    ("!(Host.ErrorRate < 0.1)", UNDEFINED),
    ("Host.ErrorRate is undefined", True),
    ("isUndefined(Host.ErrorRate) ? 1 : 2", 1),
    ("1 / 0", ERROR),
    ("1 / 0 || true", ERROR),
    ("Host.Memory % 0 == 1", ERROR),
    ("0.0 / 0.0", ERROR),  # not a number is no rank
    ("1e308 * 10", ERROR),
    ('Host.Name == "IS3.MYHOST"', True),  # == ignores case, =?= does not
    ('Host.Name =?= "IS3.MYHOST"', False),
    ('regexp("myhost", Host.Name)', True),
    ('regexp("MYHOST", Host.Name)', False),
    ('regexp("MYHOST", Host.Name, "i")', True),
    ('regexp("^is[0-9]\\\\.my", Host.Name)', True),
    ('member(Host.Site, {"technion", "osg"})', True),
    ('identicalMember(Host.Site, {"technion", "osg"})', False),
    ("max({Host.Cores, 2, 3.5})", 4.0),
    ("-5 / 2", -2),
    ("Now - 1", 999),
    ('strcat(Host.Name, "@", Host.Site) == "is3.myhost@Technion"', True),
    ("Host.ErrorRate ?: 0.5", 0.5),
    ("Host.Cores ?: 1", 4),
    ("Host.ErrorRate ?: Host.Speed ?: 7", 7),
    ("1 / 0 ?: 3", ERROR),  # only what is undefined has a substitute
    ("(Host.ErrorRate ?: 0) < 0.1 && Host.Cores > 2", True),
    ('strcat("n", Host.Cores, Host.Volunteer) == "n4false"', True),
    ('strcat("n", Host.ErrorRate) == "n"', UNDEFINED),
    ('join("-", 1, "a", true) == "1-a-true"', True),
    ('substr(Host.Name, 4) == "myhost"', True),
    ('substr(Host.Name, 4, -2) == "myho" && substr(Host.Name, -4, 99) == "host"', True),
    ('substr(Host.Name, 99) == ""', True),
    ('versioncmp("8.9.11", "8.10.1") < 0 && versioncmp("8.10", "8.10") == 0', True),
    ('versionGT("10.0", "9.9") && versionGE("1", "1") && versionLT("a1", "a2") && versionLE("1", "1")', True),
    ('versionEQ("1.0", "1.00")', False),
    ('version_in_range("9.5", "9.0", "10.0")', True),
    ("isInteger(Host.Cores) && !isInteger(2.0) && isReal(2.0) && isString(Host.Name) && isBoolean(Tail)", True),
    ("isInteger(Host.ErrorRate)", False),
    ('string(4) == "4" && bool("true")', True),
    ("pow(2, 10) + quantize(7, 4)", 1032),
    ('anyCompare("<", {8, 2}, Host.Cores) && !allCompare("<", {8, 2}, Host.Cores)', True),
    ("Host.Volunteer ? 0 : 1", 1),
    ("ifThenElse(Tail, Host.JobsToday, 1)", 7),
    ("undefined", UNDEFINED),
    ("error", ERROR),
])  # fmt: skip
def test_evaluation_yields_values_undefined_or_error(text: str, result: object) -> None:
    found = evaluate(text, ADS)
    assert found == result and type(found) is type(result)


def test_true_and_nonzero_numbers_match() -> None:
    assert [matches(each) for each in (True, 1, 0.5, False, 0, UNDEFINED, ERROR)] == [True] * 3 + [False] * 4


def test_figure_3_of_the_gridbot_paper_evaluates_as_corrected() -> None:
    """The printed figure lacks a sign, has a pattern that reads as a comment, and swaps the arguments of `regexp`."""
    requirements = '!Tail ? true : regexp("myhost", Host.Name) && Host.ErrorRate < 0.1'
    replicate = "NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1"
    job = {"NumberOfReplicas": 2,
           "Replica1": {"Host": {"Name": "is3.myhost", "ErrorRate": 0.08}, "SentTime": 242525},
           "Replica2": {"Host": {"Name": "is2.myhost", "ErrorRate": 0.08}, "SentTime": 242525}}

    def with_host(**more: object) -> dict[str, object]:
        return {**ADS, "Host": {**HOST, **more}, "Task": job}

    assert evaluate(requirements, with_host(ErrorRate=0.08)) is True
    assert evaluate(requirements, with_host(ErrorRate=0.2)) is False
    assert evaluate(requirements, with_host(ErrorRate=0.08, Name="elsewhere")) is False
    assert evaluate(requirements, {**with_host(ErrorRate=0.2), "Bag": {"Tail": False}}) is True
    assert evaluate("!Tail ? 1 : Host.JobsToday", with_host()) == 7
    assert evaluate(replicate, with_host()) is False
    job["Replica1"]["Host"]["ErrorRate"] = 0.2  # type: ignore[index]
    assert evaluate(replicate, with_host()) is True
    per_host = evaluate("2 * Host.NumCpus", with_host())
    assert per_host == 8
    assert evaluate("Concurrency * 2000", {"PerHost": per_host}) == 16_000


# --- the language is the real one -----------------------------------------------------------------------------------


def _raw(text: str) -> object:
    import classad2

    ads = {"Host": {"Cores": 4, "Memory": 7}, "Bag": {"Tail": True, "Age": 3}}
    try:
        found = classad2.ExprTree(text).eval(classad2.ClassAd(ads))
    except classad2.ClassAdException:
        return ERROR
    return classads._result(found)


def _grow(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(["Host.Cores", "Host.Memory", "Bag.Tail", "Bag.Age", "Host.ErrorRate", "1", "2.5", "0",
                            "true", "false", "undefined"])
    sign = draw.choice(["||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "is", "isnt", "=?=",
                        "=!=", "!", "-", "()", "?"])
    left, right = _grow(draw, depth - 1), _grow(draw, depth - 1)
    if sign in ("!", "-") and draw.random() < 0.5:
        return f"{sign} {left}"
    if sign == "()" or sign == "!":
        return f"({left})"
    return f"{left} ? {right} : {_grow(draw, depth - 1)}" if sign == "?" else f"{left} {sign} {right}"


def test_accepted_expressions_evaluate_as_classad2_evaluates_them() -> None:
    draw, same = random.Random(7), 0
    ads = {"Host": {"Cores": 4, "Memory": 7}, "Bag": {"Tail": True, "Age": 3}}
    for _ in range(3_000):
        text = _grow(draw, 4)
        try:
            ours = evaluate(text, ads)
        except BadInput:
            continue
        theirs = _raw(text)
        assert (ours, type(ours)) == (theirs, type(theirs)), text
        same += 1
    assert same > 2_000


PIECES = [
    "Host.Cores", "Host.Name", "Tail", "0", "1", "08", "017", "1.", ".5", "1e3", "01.5", "1e05", '"a"', '"\\\\"',
    "true", "undefined", "error", "{", "}", "(", ")", ",", ",", "+", "-", "!", "?", ":", "&&", "==", "=?=", "is",
    "member(", "min(", "strcat(", "ifThenElse(", "regexp(", "size(", "%", "<",
]  # fmt: skip


def test_accepted_expressions_can_be_compiled() -> None:
    """Otherwise an expression would be journaled, and refused when a host asks."""
    seeds = ["member(Host.Cores, {1, 2, 3})", 'regexp("a", Host.Name, "i") && Tail', "Host.Cores > 8 ? 1 : 2.5",
             'strcat("a", Host.Name) == "ab" || {} is undefined', "-(Host.Cores + 1) * 2 < 1e3"]
    draw, taken = random.Random(9), 0
    for _ in range(6_000):
        pieces = [token.text for token in tokens(draw.choice(seeds))][:-1]
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(pieces) + 1)
            pieces[at : at + draw.randint(0, 1)] = draw.choices(PIECES, k=draw.randint(0, 2))
        text = " ".join(pieces)
        try:
            x.parse(text)
        except BadInput:
            continue
        taken += 1
        assert not classads.program(text).broken, text
    assert taken > 500


def test_text_that_classad2_cannot_read_is_refused_by_the_compiler() -> None:
    with pytest.raises(RuntimeError, match="cannot read it"):
        classads._compiled("{1,}", [])


def test_parts_of_an_expression_match_exactly_when_the_whole_does() -> None:
    """`why_not` looks at the parts of a conjunction, which must be those of ClassAd's own precedence."""
    draw, seen = random.Random(8), 0
    ads = {"Host": {"Cores": 4, "Memory": 7}, "Bag": {"Tail": True, "Age": 3}}
    for _ in range(3_000):
        text = " && ".join(_grow(draw, 2) for _ in range(3))
        try:
            parts = [part for part, _ in x.parse(text).parts]
        except BadInput:
            continue
        if len(parts) > 1:
            seen += 1
            assert matches(evaluate(text, ads)) == all(matches(evaluate(part, ads)) for part in parts), text
    assert seen > 300


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    " || ".join(["Host.Cores == 9"] * 100),
    "+".join(["1"] * 201),
    "(" * 32 + "+".join(["1"] * 201) + ")" * 32,
    "".join(f"Host.Cores == {n} ? {n} : " for n in range(31)) + "0",
    "!" * 31 + "true",
    "int(" * 24 + "1" + ")" * 24,
    " && ".join(["(Tail || (Tail && (Tail || Tail)))"] * 40),
], ids=["ors", "sums", "nested sums", "conditions", "nots", "calls", "mixed"])  # fmt: skip
def test_expressions_just_within_bounds_evaluate(text: str) -> None:
    assert evaluate(text, ADS) not in (ERROR, UNDEFINED)


@pytest.mark.parametrize("pattern", ["a{0,64}a{0,64}a{0,64}a{0,64}[bc]", "(a|b)?a*a*a*[xy]",
                                     "a{0,42}a{0,42}a{0,42}[xy]"])
def test_a_pattern_runs_out_of_steps_long_before_it_has_tried_everything(pattern: str) -> None:
    """Without a limit these patterns are false after many steps; with it they are an error, which does not match
    either."""
    name = "a" * classads.MOST_TEXT
    assert _raw(f'regexp("{pattern}", "{name}")') is False
    assert evaluate(f'regexp("{pattern}", Host.Name)', {"Host": {"Name": name}}) == ERROR


@pytest.mark.parametrize("pattern", ["^node[0-9]+\\\\.rack[0-9]+$", ".*myhost.*", "(big|small)-[a-z]*-x", "a+$"])
def test_reasonable_pattern_never_runs_out_of_steps(pattern: str) -> None:
    for name in ("a" * classads.MOST_TEXT, "node12.rack7" * 20, "big-" * 60):
        assert evaluate(f'regexp("{pattern}", Host.Name)', {"Host": {"Name": name}}) in (True, False)


def test_the_longest_text_that_can_be_made_is_short() -> None:
    names = "Host.Name, " * 7 + "Host.Name"
    text = f"size(strcat({', '.join([f'strcat({names})'] * 8)})) > 0"  # an expression may hold two more of these
    assert evaluate(text, {"Host": {"Name": "x" * 10_000_000}}) is True
    assert evaluate(text.replace("> 0", f"== {64 * classads.MOST_TEXT}"), {"Host": {"Name": "x" * 10_000_000}}) is True


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x\ny", '"; y = 1', "\\", "é", "𝄞" * 300, ""])
def test_host_names_may_be_any_text(name: str) -> None:
    assert evaluate('Host.Name == "q"', {"Host": {"Name": name}}) is False
    assert evaluate('regexp("^q", Host.Name)', {"Host": {"Name": name}}) is False


@pytest.mark.parametrize("value", [float("inf"), float("nan"), float("-inf")])
def test_infinite_and_nan_attributes_are_undefined(value: float) -> None:
    assert evaluate("Host.Load > 0", {"Host": {"Load": value}}) == UNDEFINED
    assert evaluate("Host.Memory > 0", {"Host": {"Memory": 1 << 80}}) is True


def test_results_remembered_by_one_program_are_bounded() -> None:
    known = classads.program("Host.Cores > 17")
    for n in range(3 * classads.MOST_RESULTS):
        assert known.result((n,)) is (n > 17)
    assert len(known.known) <= classads.MOST_RESULTS


def test_results_remembered_by_all_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classads, "MOST_OF_ALL", 1_000)
    programs = [classads.program(f"Host.Cores > {n}") for n in range(100)]
    for n in range(50):
        assert [known.result((n,)) for known in programs] == [n > least for least in range(100)]
        assert sum(len(known.known) for known in programs) <= 1_000


def test_the_module_is_not_loaded_before_it_is_needed() -> None:
    code = ("import sys; import windfall.core.step, windfall.core.expressions.classads;"
            "import windfall.model.policies.expressions as x;"
            "x.check('Host.Memory > 1', 'requirements'); print('classad2' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- why not --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "says"), [
    ("Host.Cores > 1 && Host.Memory > 8000", "Host.Memory > 8000 is false: Host.Memory is 4000"),
    ("Host.Cores > 1 && Host.ErrorRate < 0.1", "Host.ErrorRate < 0.1 is undefined: Host.ErrorRate is not known there"),
    ("Host.Cores / 0 == 1", "Host.Cores / 0 == 1 is an error: Host.Cores is 4"),
    ('Host.Name == "x"', 'Host.Name == "x" is false: Host.Name is "is3.myhost"'),
    ("false", "false is false"),
    ("Host.Cores > 1", ""),
])  # fmt: skip
def test_why_not_names_the_part_that_does_not_hold(text: str, says: str) -> None:
    assert classads.why_not(text, {f"Host.{name}": value for name, value in HOST.items()}) == says


ATOMS = ("a", "b", "-", "1", ".", "[ab]", "[^a]", r"\d", r"\.", "a{2}", ".*", ".*", ".+", "b?", "[0-9]*", "(a|b)", "a+",
         r"\b", "$", "^")  # fmt: skip


def test_patterns_find_what_they_say_and_most_never_give_up() -> None:
    draw, pieces = random.Random(1), 0
    for _ in range(5_000):
        pattern = "".join(draw.choice(ATOMS) for _ in range(draw.randint(1, 7)))
        name = "".join(draw.choice("ab-1.") for _ in range(draw.choice((0, 3, 8, 20, 60))))
        if refusal(pattern):
            continue
        written = pattern.replace("\\", "\\\\")
        found = evaluate(f'regexp("{written}", Host.Name)', {"Host": {"Name": name}})
        plain = r"\b" not in pattern and not re.search(r"[?(]|[ab\]]\*|a\+|.\^|\$.", pattern)
        pieces += plain
        assert found is bool(re.search(pattern, name)) or (found == ERROR and not plain), (pattern, name)
    assert pieces > 500


def test_escaped_backslash_does_not_escape_the_end_of_a_pattern() -> None:
    for name, found in (("rack\\7", False), ("rack\\", True)):
        assert evaluate('regexp("rack\\\\\\\\$", Host.Name)', {"Host": {"Name": name}}) is found


@pytest.mark.parametrize("pattern", [".*-2.*edu", ".*gpu.*rack.*edu$", ".*-.*-.*-.*edu", "^node[0-9]{2}.*x.*y.*z.*w$"])
def test_hosts_with_long_names_are_no_errors(pattern: str) -> None:
    for name in ("ip-10-0-12-133.eu-central-1.compute.internal", "a-" * 128, "-" * 256, "node12" + "xyz" * 83):
        assert evaluate(f'!regexp("{pattern}", Host.Name)', {"Host": {"Name": name}}) is True


def test_compiled_expressions_are_bounded_by_their_total_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classads, "_programs", {})
    monkeypatch.setattr(classads, "MOST_WRITTEN", 2_000)
    for n in range(100):
        classads.program(f"{n} + " + " + ".join(["Now"] * 20))
        assert sum(map(len, classads._programs)) <= 2_000


def test_evaluations_leak_no_memory() -> None:
    """`classad2` never frees ads or compiled expressions, so the core uses them again."""
    text = 'Host.Disk * Now != 3 && Host.Name != "x" && Task.Replica1.Host.Memory isnt undefined'
    known = classads.program(text)

    def evaluate_many(times: int) -> None:
        for n in range(times):
            known._evaluate((n, n, "host", None if n % 2 else n))

    evaluate_many(5_000)
    before = psutil.Process().memory_info().rss
    evaluate_many(50_000)
    assert psutil.Process().memory_info().rss - before < 2_000_000, "an ad of its own would take 144 bytes each"
    assert not any(list(ad) for ad in classads._idle), "an ad must not keep the values of the last evaluation"


def test_attributes_of_one_evaluation_are_unknown_to_the_next() -> None:
    assert evaluate("Host.Cores + Now", {"Host": {"Cores": 3}, "Now": 4}) == 7
    assert evaluate("Host.Cores + Bag.Age", {"Bag": {"Age": 4}}) == "undefined"
    assert evaluate("1 / 0 + Host.Cores", {"Host": {"Cores": 3}}) == "error"
    assert evaluate("Host.Cores", {}) == "undefined"


def test_programs_that_bags_hold_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classads, "_programs", {})
    monkeypatch.setattr(classads, "MOST_WRITTEN", 500)
    b = Bench()
    numbers = [b.submit(shape(1), policy={"per-host": f"Host.Cores + {n}"}) for n in range(100)]
    bags = [b.core.state.bags[number] for number in numbers]
    held = [classads.program_of(bag, "per-host") for bag in bags]
    assert len(classads._programs) < 100
    assert [classads.program_of(bag, "per-host") for bag in bags] == held


def test_expressions_of_very_many_bags_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    core, bags = Core(), MOST_PROGRAMS + 100
    core.step(1, [e.AddSite(1, "here", "ann", "local")])
    ranks = [{"rank": f"{n} + Host.Cores"} for n in range(bags)]
    core.step(1, [e.Submit(1, "ann", "b", "", b"", [shape(1)], False, "fcfs", False, policy=rank) for rank in ranks])
    core.step(1, [e.Enrol(1, "here", "n", "h", "h", 1, 1 << 30, 0, 1 << 30, None, b"t")])
    core.step(2, [e.Exchange(1, 1, 1, 1, want=1)])
    read = []
    made = classads.Program.__init__
    monkeypatch.setattr(classads.Program, "__init__", lambda self, text: (read.append(text), made(self, text))[1])
    for seq, number in enumerate((7, 8, 9), 2):
        core.step(seq, [e.Pause(1, number, True), e.Exchange(1, 1, 1, seq, want=1)])  # the ready list changes
    assert bags - 10 < len(core.state.ready) < bags
    assert len(read) < 10
