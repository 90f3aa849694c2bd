"""A value stays one word of the command, whatever it contains: compared with /bin/sh itself."""

import subprocess

import pytest
from hypothesis import example, given, settings, strategies as st

from windfall.errors import BadInput
from windfall.model.spec import Sweep, Target, Values
from windfall.model.templates import template as tpl
from windfall.model.templates.render import Renderer

VALUES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=12)


def rendered(command, value):
    return Renderer(Target(command=command, source=Sweep(axes=[Values(name="x", values=[value])]))).command(0)


def words(command):
    """Return the words that a command passes to printf."""
    done = subprocess.run(
        command if isinstance(command, list) else ["/bin/sh", "-c", command], capture_output=True, check=True
    )
    return done.stdout.split(b"\0")[:-1]


PRINT = "printf '%s\\0'"


@settings(max_examples=60, deadline=None)
@given(VALUES)
@example("a b")
@example("$(id)")
@example("`id`")
@example("'\"\\")
@example("")
@example("-n")
def test_value_stays_one_word_in_every_kind_of_quotes(value):
    command = rendered(PRINT + """ {x} 'in {x} single' "in {x} double" "$(printf %s "{x}")" a{x}b""", value)
    assert isinstance(command, str)
    want = value.encode()
    got = words(command)
    assert got[:3] == [want, b"in " + want + b" single", b"in " + want + b" double"]
    assert got[3] == want.rstrip(b"\n")  # what $( ) does
    assert got[4] == b"a" + want + b"b"


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_split_command_means_the_same_as_in_the_shell(value):
    text = "/usr/bin/env printf %s\\0 {x} 'a b' --k={x} \"c {x}\""
    vector = rendered(text.replace("%s\\0", "'%s\\0'"), value)
    assert isinstance(vector, list)
    want = value.encode()
    assert words(vector) == [want, b"a b", b"--k=" + want, b"c " + want]


@pytest.mark.parametrize("text", ["prog a b", "prog --x={x} 'a b'", "/bin/true", 'prog "a" b', "prog a=b"])
def test_plain_command_needs_no_shell(text):
    assert isinstance(rendered(text, 1), list)


@pytest.mark.parametrize(
    "text",
    [
        "cd /tmp",
        "X=1 prog",
        "prog | wc",
        "prog > f",
        "prog $HOME",
        "prog *.txt",
        "echo {x}",
        "{x} a",
        "prog ~",
        "a; b",
        "a & b",
        "prog # no",
        "if true; then a; fi",
        "prog \\\na",
        'prog "$HOME"',
        "a\nb",
        "prog 'open",
    ],
)
def test_command_with_shell_features_goes_to_the_shell(text):
    assert isinstance(rendered(text, "v"), str)


def test_words_of_a_list_command_are_never_split():
    assert rendered(["prog", "{x}", "{x} and {{x}}"], "a b; $c") == ["prog", "a b; $c", "a b; $c and {x}"]


def test_doubled_braces_and_percent_signs_stay_literal():
    assert rendered(["{{{x}}}", "%s %d 100%", "{x}%s"], 5) == ["{5}", "%s %d 100%", "5%s"]


@pytest.mark.parametrize("text", ["{", "}", "{x", "x}", "{}", "{1x}", "{a b}", "{{{x}}", "awk '{print $1}'"])
def test_malformed_template_is_refused_with_a_hint(text):
    with pytest.raises(BadInput) as caught:
        tpl.pieces(text)
    assert caught.value.hint


def test_template_can_use_only_the_outputs_of_another_target():
    assert tpl.pieces("merge {main.outputs}") == ["merge ", tpl.Slot("main.outputs")]
    assert (tpl.taken_target("main.outputs"), tpl.taken_target("outputs")) == ("main", "")
    with pytest.raises(BadInput, match="another target"):
        tpl.pieces("merge {main.inputs}")


@given(st.text(max_size=30))
def test_escaped_text_comes_back(text):
    assert "".join(tpl.pieces(text.replace("{", "{{").replace("}", "}}"))) == text
