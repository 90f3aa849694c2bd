"""Values in shell commands stay one word: tried with a real shell and hostile values."""

import subprocess

import pytest

from windfall.errors import BadInput
from windfall.model.checks.bag import check_target
from windfall.model.spec import Sweep, Target, Values
from windfall.model.templates.render import Renderer

MARK = "touch hit"
HOSTILE = [
    f"; {MARK}", f"$({MARK})", f"`{MARK}`", f"'; {MARK}; '", f'"; {MARK}; "', f"\n {MARK}\n", f"EOF\n{MARK}\ncat <<EOF",
    f"\\\n;{MARK}", f"\\'; {MARK} #", f"x[$({MARK})]", f"}}; {MARK}; {{", f") ; {MARK};; (a", f"a' ; {MARK} ; '",
]  # fmt: skip
SAFE = [
    "echo {x} | cat", 'echo "{x}" | cat', "echo '{x}' | cat", 'echo "$(basename {x})"', "echo $(basename {x})",
    "echo hi # {x}", "echo ${{y:-{x}}}", 'echo "${{y:-{x}}}"', "echo $(({x}))", "echo \"$(echo '{x}')\"",
    'echo "$(echo "{x}")"', "y={x}; echo $y", "case a in {x}) echo;; esac", "echo \"it's {x}\"", "true > ./{x}",
    "echo a # don't\necho {x} | cat", "# it's\necho {x} ; true", "echo a#'b {x}' ; true", "echo $# {x} | cat",
    "echo $((1 + (2 * {x}))) {x} ; true", "cat <<EOF\nit's\nEOF\necho {x} ; true", "cat <<< 'a' | cat; echo {x} ; true",
]  # fmt: skip
REFUSED = [
    ('echo "`basename {x}`"', "backquotes"), ("echo `basename {x}`", "backquotes"),
    ("cat <<EOF\n{x}\nEOF", "here-document"), ("cat <<'EOF'\n{x}\nEOF", "here-document"),
    ("cat <<{x}\na\n", "here-document"), ("echo $'{x}'", "inside"), ("echo \\{x} ; true", "backslash"),
    ('echo "\\{x}" ; true', "backslash"), ("cat <<A <<B\nA\n{x}\nB\n", "here-document"),
]  # fmt: skip


def target(command, value="v"):
    return Target(command=command, source=Sweep(axes=[Values(name="x", values=[value])]))


@pytest.mark.parametrize("command", SAFE)
def test_hostile_value_never_runs_as_a_command(command, tmp_path):
    for value in HOSTILE:
        made = target(command, value)
        check_target(made, False)
        text = Renderer(made).commands([0])[0]
        subprocess.run(text if isinstance(text, list) else ["/bin/sh", "-c", text], cwd=tmp_path, check=False,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=30)  # fmt: skip
        assert not (tmp_path / "hit").exists(), value


@pytest.mark.parametrize(("command", "where"), REFUSED)
def test_parameter_in_an_unsafe_place_is_refused(command, where):
    with pytest.raises(BadInput, match=where) as caught:
        Renderer(target(command))
    assert caught.value.hint


@pytest.mark.parametrize(("value", "sum_"), [("3", "4"), ("-2", "-1"), ("0x10", "17")])
def test_number_in_shell_arithmetic_is_computed(value, sum_):
    text = Renderer(target("echo $(({x} + 1))", value)).commands([0])[0]
    assert subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=True).stdout == f"{sum_}\n"


def test_text_in_shell_arithmetic_is_an_error_not_zero():
    text = Renderer(target("echo $(({x} + 1))", "rm -rf")).commands([0])[0]
    assert subprocess.run(["/bin/sh", "-c", text], capture_output=True, check=False).returncode
