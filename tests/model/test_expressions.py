"""Expressions of users and of attackers: read, checked, or refused with place and hint."""

from __future__ import annotations

import re
import tomllib
import tracemalloc
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from windfall.errors import BadInput, TooLarge
from windfall.model.bagfile import reader
from windfall.model.bagfile.editor_schema import bag_schema
from windfall.model.checks import bag as check
from windfall.model.policies import attributes, expressions as x

SCHEMA = Draft202012Validator(bag_schema())


def complaint(text: str, key: str = "requirements") -> BadInput:
    with pytest.raises(BadInput) as caught:
        x.check(text, key)
    return caught.value


# --- what is taken ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "key", "kind"), [
    ("Host.Memory >= 4000", "requirements", "truth"),
    ('Site.Name =!= "slow"', "sites", "truth"),
    ("host.memory>=4000&&HOST.CORES>1", "requirements", "truth"),
    ("!Tail ? 1 : Host.JobsToday", "rank", "number"),
    ('regexp("^node[0-9]+\\\\.rack", Host.Name, "i")', "requirements", "truth"),
    ('member(Host.Site, {"a", "b"}) || Host.Volunteer', "requirements", "truth"),
    ("max({Host.Cores, 4}) * 2", "per-host", "number"),
    ("ifThenElse(isUndefined(Host.ErrorRate), 0.5, Host.ErrorRate)", "rank", "number"),
    ("Host.ErrorRate is undefined", "requirements", "truth"),
    ("-1.5e3 + .5", "rank", "number"),
    ('Host.Site == "mine"', "rank", "truth"),
    ("Now - Host.LastSuccess < 3600", "requirements", "truth"),
    ("true", "requirements", "truth"),
])  # fmt: skip
def test_expression_gets_the_type_of_its_value(text: str, key: str, kind: str) -> None:
    assert x.check(text, key).type == kind


def test_names_of_gridbot_are_aliases() -> None:
    found = x.check("NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1 && BOT.Tail", "replicate")
    assert found.uses == ("Task.NumberOfReplicas", "Task.Replica1.Host.ErrorRate", "Bag.Tail")
    assert x.check("Concurrency * 2000", "attempt-deadline").uses == ("PerHost",)
    assert x.check("2 * Host.NumCpus", "per-host").uses == ("Host.Cores",)
    assert x.check("Queue.BOTsInQueue < 3", "requirements").uses == ("Queue.Bags",)
    assert x.ALIASES["JobRequirements"] == "requirements" and x.ALIASES["GridPolicy"] == "sites"


def test_parts_are_the_operands_of_and_at_the_top() -> None:
    found = x.check('Host.Cores > 1 && (Tail || Host.Memory > 5) && regexp("a", Host.Name)', "requirements")
    texts = [text for text, _ in found.parts]
    assert texts == ["Host.Cores > 1", "(Tail || Host.Memory > 5)", 'regexp("a", Host.Name)']
    assert x.check("Host.Cores > 1 || Tail && Host.Memory > 5", "requirements").parts == ()
    assert x.check("Tail ? Host.Cores > 1 && Host.Memory > 5 : true", "requirements").parts == ()


def test_every_attribute_is_found_by_each_of_its_names() -> None:
    for scope, table in attributes.ADS.items():
        for each in table:
            for name in (each.name, *each.aliases):
                found = attributes.find(f"{scope.upper()}.{name.lower()}")
                assert found is not None and found.path == f"{scope}.{each.name}" and found.type == each.type
    assert attributes.find("Task.Replica16.Host.ErrorRate") is not None
    assert attributes.find("Task.Replica17.Host.ErrorRate") is None
    assert attributes.find("Host.Replica1.Host.ErrorRate") is None
    for path in attributes.FRESH:
        found = attributes.find(path)
        assert found is not None and found.path == path


def test_policies_of_figure_3_in_the_reference_parse() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "policies.md").read_text()
    figure = page.split("## Figure 3")[1].split("```")[1].split("\n")[1:-1]
    read = {x.named(line.partition("=")[0].strip()): line.partition("=")[2] for line in figure}
    assert sorted(read) == ["attempt-deadline", "per-host", "rank", "replicate", "requirements"]
    for key, text in read.items():
        assert key in x.serves(x.check(text, key))


def test_examples_of_the_howto_page_parse() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "choosing-hosts.md").read_text()
    examples = re.findall(r"^\| [^|]+ \| `([a-z]+) = '(.*)'` \|$", page, re.MULTILINE)
    assert len(examples) == 7
    for key, text in examples:
        assert x.check(text.replace("\\|", "|"), key)


def test_serves_lists_the_policies_an_expression_fits() -> None:
    assert x.serves(x.parse("Host.Memory > 1")) == ["requirements", "rank"]
    assert x.serves(x.parse("Bag.Age")) == ["rank", "per-host", "attempt-deadline"]
    assert x.serves(x.parse('Site.Kind == "slurm"')) == ["requirements", "rank", "sites"]
    assert x.serves(x.parse("Task.Replica2.SentTime < Now - 60")) == ["replicate"]
    with pytest.raises(BadInput, match="no policy 'requirement'") as caught:
        x.named("requirement")
    assert "requirements" in caught.value.hint


# --- what is not, and what is said ------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "column", "says", "hint"), [
    ("Host.Memry >= 4", 1, "no attribute 'Host.Memry'", "Host.Memory"),
    ("Host.Cores > 1 && memory > 4", 19, "no attribute 'memory'", "Host.Memory"),
    ("Host.Foo > 4", 1, "no attribute", "Host.Name, Host.Site"),
    ("Quux.Foo > 4", 1, "no attribute", "Host."),
    ('Host.Memory >= "4"', 13, "compares a number with a text", "quotes"),
    ("Host.Name && true", 1, "must be true or false", "compare"),
    ("Host.Memory", 1, "requirements must be true or false", "compare"),
    ("Host.Memory = 4", 13, "'=' is not expected", "=="),
    ("Host.Memory > 4 & Tail", 17, "'&' is not expected", "&&"),
    ("Host.Memory > 4 Tail", 17, "'Tail' is not expected", "operator"),
    ("Host.Memory > 2K", 15, "not a number", "MB"),
    ("Host.Memory > 0x10", 15, "not a number", "MB"),
    ("Host.Memory > 99999999999999999999", 15, "too large", "9,007"),
    ("Host.Memory > 1e999", 15, "too large", ""),
    ("Host.Memory > 08", 15, "begins with a 0", "remove"),
    ("Host.Memory > 017", 15, "begins with a 0", "remove"),
    ("Host.Load > 00.5", 13, "begins with a 0", "remove"),
    ("member(Host.Cores, {1, 2,})", 26, "ends with a comma", "remove the comma"),
    ("-Tail > 1", 2, "'-' needs a number, and this is true or false", "? 1 : 0"),
    ("Host.Memory >", 14, "ends too early", ""),
    ("(Host.Memory > 4", 17, "')' is missing", ""),
    ("", 0, "empty", "leave the key out"),
    ('Host.Name == "a', 14, "closing quote", ""),
    ("Host.Name == 'a'", 14, "single quote", '"'),
    ("Host.Name == \"a\\n\"", 16, "unknown escape", ""),
    ("Höst.Name == 1", 2, "allowed only inside a text", ""),
    ("Host.Cores ?: \"a\"", 15, "a number in one case, a text in the other", "same type"),
    ("Tail ?:", 8, "ends too early", ""),
    ("substr(1, 2)", 8, "argument 1 of substr must be a text", ""),
    ("versioncmp(\"1\", 2)", 17, "argument 2 of versioncmp must be a text", ""),
    ('Host["Name"] == "a"', 1, "no attribute 'Host'", "Host.Name"),
    ('Host.Name["a"] == "a"', 10, "not expected", "subscripts"),
    ("[a = 1].a == 1", 1, "not expected", "records"),
    ("{{1}} == 1", 2, "a list in a list", ""),
    ("{1, 2} == 1", 8, "with a list", "member"),
    ("true; false", 5, "not expected", "one expression"),
    ("true // so", 6, "comment", "#"),
    ("regexp(Host.Name, /*myhost*/)", 19, "comment", "myhost"),
    ('regexp(Host.Name, "myhost")', 8, "must be a text in quotes", "comes first"),
    ('regexp(strcat("a", "b"), Host.Name)', 8, "must be a text in quotes", "comes first"),
    ('regexp("a", Host.Name, "x")', 1, "third argument", "leave it out"),
    ('regexp("a", "aaaa")', 13, "search only one attribute", "Host.Name"),
    ('regexp("a", strcat(Host.Name, Host.Name))', 13, "search only one attribute", "Host.Name"),
    ("isUndefined(1, 2)", 1, "takes 1 arguments", "missing"),
    ("Tail ? 1 : \"a\"", 12, "a number in one case, a text in the other", "same type"),
    ("Task.Replica1.Host.ErrorRate > 1", 1, "cannot use", "Host, Site"),
    ("PerHost > 1", 1, "cannot use", ""),
])  # fmt: skip
def test_invalid_expression_is_refused_with_column_and_hint(text: str, column: int, says: str, hint: str) -> None:
    error = complaint(text)
    assert says in error.message and hint in error.hint
    if column:
        assert error.message.startswith(f"column {column}: ")
        line, caret = error.text.split("\n")
        assert caret.index("^") - 4 == column - 1 and line == text


@pytest.mark.parametrize("name", [
    "time", "random", "userHome", "absTime", "dayTime", "relTime", "formatTime", "splitTime", "gettimeofday",
    "CurrentTime", "eval", "debug", "unparse", "userMap", "getenv", "envV1ToV2", "replaceAll", "split",
    "stringListMember", "evalInEachContext", "nonsense", "interval", "isClassAd", "mergeEnvironment",
])  # fmt: skip
def test_unlisted_functions_are_refused(name: str) -> None:
    error = complaint(f'{name}("x") == 1')
    assert "no function" in error.message and error.hint


def test_error_in_a_long_expression_shows_the_part_at_fault() -> None:
    text = "true && " * 100 + "Host.Memry > 1"
    error = complaint(text)
    assert error.message.startswith("column 801: ")
    line, caret = error.text.split("\n")
    assert len(line) <= 90 and line[caret.index("^") - 4 :].startswith("Host.Memry")
    error = complaint("Host.Cores > 1 &&\n  Host.Memry > 1")
    assert error.message.startswith("line 2, column 3: ") and error.text.startswith("  Host.Memry")


# --- attacks ----------------------------------------------------------------------------------------------------

ATTACKS = {
    "a sum of 400 kB": "+".join(["1"] * 200_000),
    "a sum that is short enough": "+".join(["1"] * 2_000),
    "parentheses": "(" * 2_000 + "1" + ")" * 2_000,
    "open parentheses": "(" * 4_000,
    "nots": "!" * 4_000 + "true",
    "minuses": "-" * 4_000 + "1",
    "conditions": "true?" * 700 + "1",
    "lists": "{" * 2_000 + "}" * 2_000,
    "records": "[a=" * 1_000 + "1" + "]" * 1_000,
    "calls": "int(" * 900 + "1" + ")" * 900,
    "ors": "||".join(["Tail"] * 600),
    "unterminated text": '"' + "\\" * 4_001,
    "quotes": '"' * 4_001,
    "a NUL": 'Host.Name == "a\0b"',
    "a surrogate": 'Host.Name == "\ud800"',
    "an override of direction": 'Host.Name == "\u202e"',
    "full-width letters": "Ｈｏｓｔ.Memory > 1",
    "digits of another script": "Host.Memory > ٣",
    "dots": "Host" + "." * 4_000,
    "a long chain of attributes": "Host" + ".Host" * 800,
    "a long name": "H" * 4_000,
    "a long list": "min({" + "1," * 600 + "1}) > 0",
    "a long number": "1" * 4_000,
    "a catastrophic pattern": 'regexp("(a+)+$", Host.Name)',
    "alternatives repeated": 'regexp("(a|a)*$", Host.Name)',
    "a counted group": 'regexp("((a{64}){64}){64}", Host.Name)',
    "a large count": 'regexp("a{999}", Host.Name)',
    "a reference back": 'regexp("(a)\\\\1", Host.Name)',
    "a verb": 'regexp("(*LIMIT_MATCH=999999999)a", Host.Name)',
    "a look ahead": 'regexp("(?=a)a", Host.Name)',
    "a recursion": 'regexp("(?R)", Host.Name)',
    "a long pattern": f'regexp("{"a?" * 1_500}", Host.Name)',
    "a pattern that is not closed": 'regexp("(a", Host.Name)',
    "comments": "/*" * 2_000,
    "many patterns": " || ".join(['regexp("a", Host.Name)'] * 5),
    "many calls": " + ".join(["int(1)"] * 25),
    "a doubled text": "strcat(" * 40 + "Host.Name, Host.Name" + ")" * 40,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused_in_bounded_memory(name: str) -> None:
    tracemalloc.start()
    error = complaint(ATTACKS[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.message and len(str(error)) < 1_000
    assert peak < 4 << 20


def test_overlong_expression_is_too_large() -> None:
    with pytest.raises(TooLarge):
        x.parse("1" * 4_097)
    with pytest.raises(TooLarge):
        x.parse('"' + "é" * 2_100 + '"')


# --- in bag files -------------------------------------------------------------------------------------------------

HEAD = '[bag]\ncommand = "echo {x}"\n[sweep]\nx = "1..3"\n[policy]\n'


def test_bag_file_takes_policies_by_either_name() -> None:
    ours = reader.parse(HEAD + "requirements = 'Host.Cores > 1'\nrank = 'Host.Cores'\nsites = 'Site.Shared'\n").bag
    named = "JobRequirements = 'Host.Cores > 1'\nRank = 'Host.Cores'\nGridPolicy = 'Site.Shared'\n"
    assert ours.policy == reader.parse(HEAD + named).bag.policy
    assert (ours.policy.requirements, ours.policy.rank, ours.policy.sites) == ("Host.Cores > 1", "Host.Cores",
                                                                              "Site.Shared")


@pytest.mark.parametrize(("line", "kept"), [
    ("rank = 2.5", "2.5"), ("Rank = -1e22", "-1e+22"), ("rank = 10", "10"), ("per-host = 2.0", "2.0"),
    ("attempt-deadline = 0.5", "0.5"), ("Deadline = 90", "90"),
])  # fmt: skip
def test_policy_that_is_a_number_needs_no_quotes(line: str, kept: str) -> None:
    policy = reader.parse(f"{HEAD}{line}\n").bag.policy
    assert kept in (policy.rank, policy.per_host, policy.attempt_deadline)
    assert SCHEMA.is_valid(tomllib.loads(HEAD + line))


@pytest.mark.parametrize(("line", "hint"), [
    ("requirements = true", """requirements = 'Site.Name == "lab"'"""),
    ("sites = ['lab']", """sites = 'Site.Name == "lab"'"""),
    ("GridPolicy = 1", """GridPolicy = 'Site.Name == "lab"'"""),
    ("replicate = 2.5", "replicate = 'NumberOfReplicas < 3'"),
    ("rank = nan", "rank = 'Host.Cores'"),
    ("rank = inf", "rank = 'Host.Cores'"),
])  # fmt: skip
def test_value_that_is_not_an_expression_gets_an_example_as_hint(line: str, hint: str) -> None:
    with pytest.raises(BadInput, match="must be a text") as caught:
        reader.parse(f"{HEAD}{line}\n")
    assert caught.value.hint == f"an expression in quotes, as in {hint}"


def test_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(BadInput, match="too large"):
        reader.parse(f"{HEAD}rank = {'9' * 400}\n")


@pytest.mark.parametrize(("line", "where", "says"), [
    ("requirements = 'Host.Cores > 1 && Host.Memry > 4'", "bag:6:35", "requirements: there is no attribute"),
    ("JobRequirements = 'Host.Memry > 4'", "bag:6:20", "requirements: there is no attribute"),
    ("rank = '''\nHost.Cores +\n  Host.Name'''", "bag:8:3", "rank: the operand after + must be a number"),
    ('requirements = "Host.Name == \\"a\\" && Host.Name"', "bag:6", "requirements, column 21: the operand after &&"),
    ("sites = 'Host.Cores > 1'", "bag:6:10", "sites: sites cannot use Host.Cores"),
    ("rank = true", "bag:6", "rank must be a text"),
    ("rank = ''", "bag:6", "rank, an empty expression"),
    ("rank = '1'\nRank = '1'", "bag:7", "Rank is another name of rank, and both are given"),
    ("per-host = 'Host.Name'", "bag:6:13", "per-host must be a number"),
    ("Concurrency = 'Host.Name'", "bag:6:16", "per-host must be a number"),
])  # fmt: skip
def test_bad_policy_is_refused_with_file_line_and_column(line: str, where: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        reader.parse(HEAD + line + "\n")
    assert caught.value.where == where and says in caught.value.message and str(caught.value)
    if where.count(":") == 2:
        shown, caret = caught.value.text.split("\n")
        assert caret.index("^") - 3 == int(where.split(":")[2]) and shown in (HEAD + line).split("\n")


def test_server_refuses_policies_that_a_client_did_not_check() -> None:
    bag = reader.parse(HEAD).bag
    for key, text in (("requirements", "Host.Memry > 1"), ("rank", "time()"), ("sites", "1" * 5_000)):
        with pytest.raises(BadInput, match=key):
            check.validate(replace(bag, policy=replace(bag.policy, **{key: text})))
