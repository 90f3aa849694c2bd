"""Starting is what every command costs: nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

HEAVY = (
    "numpy",
    "ssl",
    "asyncio",
    "http.client",
    "email",
    "logging",
    "dataclasses",
    "subprocess",
    "hypothesis",
    "random",
    "csv",
    "difflib",
)
PROBE = "import sys; {}; print([name for name in {!r} if name in sys.modules])"


@pytest.mark.parametrize(
    "code",
    [
        "import windfall",
        "import windfall.cli.main as m; m.main(['--help'])",
        "import windfall.cli.main as m; m.main(['run', 'p {x}', '--sweep', 'x=1..3', '--dry-run'])",
        "import windfall.client",
        "import windfall.cli.connect, windfall.cli.commands.bags.run, windfall.cli.present.summary",
    ],
)
def test_starting_imports_no_heavy_module(code):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(code, HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_itself_imports_nothing_of_ours():
    code = "import sys, windfall; print([name for name in sys.modules if name.startswith('windfall.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout == "[]\n"
