"""`python = ".venv"`: packed here, there for the tasks."""

import sys
import venv

BAG = """\
[bag]
name = "packed"
command = ["python3", "-c", "import tool; print(tool.ANSWER)"]
[task]
python = ".venv"
retries = 0
[capture]
answer = '^(\\d+)$'
"""


def test_packages_of_a_python_environment_reach_the_tasks(windfall):
    environment = windfall.folder / ".venv"
    venv.create(environment, with_pip=False)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (environment / "lib" / version / "site-packages" / "tool.py").write_text("ANSWER = 42\n")
    bag = windfall.write("packed.toml", BAG)
    shown = windfall("run", bag, "--dry-run")
    assert shown.returncode == 0 and "to pack: .venv" in shown.stdout, shown
    done = windfall("run", bag)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "42\n"
