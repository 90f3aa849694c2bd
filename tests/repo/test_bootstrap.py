"""`./windfall` on machines that lack something: each test installs the packages in one of the ways for real.

The interpreters are true ones with parts taken out (`stripped.py`); the packages come from wherever pip gets them.  To
save time the project under test asks for two packages only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.repo import stripped

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/bin:/bin"
pytestmark = pytest.mark.needs("pip")  # the fixture asks whether an index can be reached
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", autouse=True)
def _index(tmp_path_factory: pytest.TempPathFactory) -> None:
    where = tmp_path_factory.mktemp("index")
    asked = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(where), "msgspec"],
                           capture_output=True, text=True)
    if asked.returncode:
        pytest.skip("no Python package index can be reached: " + asked.stderr.strip()[-200:])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


def make_checkout(place: Path) -> Path:
    (place / "scripts").mkdir(parents=True)
    shutil.copy2(ROOT / "windfall", place)
    shutil.copy2(ROOT / "scripts" / "bootstrap.sh", place / "scripts")
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    text = (ROOT / "pyproject.toml").read_text()
    text, n = re.subn(r"(?ms)^dependencies = \[.*?^\]", 'dependencies = ["numpy", "msgspec"]', text)
    assert n == 1
    (place / "pyproject.toml").write_text(text)
    return place


def environment(home: Path, python: Path | str = "", path: str = SYSTEM_PATH) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or "proxy" in k.lower() or k.startswith("SSL")}
    if "PIP_CONFIG_FILE" not in kept:
        for file in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
            if file.exists():
                kept["PIP_CONFIG_FILE"] = str(file)
    return {**kept, "HOME": str(home), "PATH": path, "WINDFALL_PYTHON": str(python or os.path.realpath(sys.executable))}


def run(command: list[str | Path], env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300)


def way(checkout: Path) -> str:
    return (checkout / ".venv" / "made-of").read_text().splitlines()[1]


def assert_clean(checkout: Path) -> None:
    assert sorted(p.name for p in checkout.glob(".venv*")) == [".venv"]


def lock(checkout: Path, change: Callable[[str], str] = lambda line: line) -> dict[str, str]:
    """Give a checkout the lock of its two packages, each line changed; return their versions."""
    lines = [line for line in (ROOT / "share" / "lock" / "windfall.txt").read_text().splitlines()
             if line.startswith(("--", "msgspec==", "numpy=="))]
    (checkout / "share" / "lock").mkdir(parents=True)
    (checkout / "share" / "lock" / "windfall.txt").write_text("".join(change(line) + "\n" for line in lines))
    found = [re.match(r"(\w+)==([\d.]+)(?: ; python_full_version (\S+) '3.12')?", line) for line in lines]
    fits = {None: True, "<": sys.version_info < (3, 12), ">=": sys.version_info >= (3, 12)}
    return {each[1]: each[2] for each in found if each and fits[each[3]]}


def versions(checkout: Path) -> dict[str, str]:
    asked = "import msgspec, numpy; print(msgspec.__version__, numpy.__version__)"
    done = run([checkout / ".venv" / "bin" / "python", "-c", asked], {})
    return dict(zip(("msgspec", "numpy"), done.stdout.split(), strict=True))


# --- the everyday -------------------------------------------------------------------------------------------


def test_first_run_sets_up_once_and_later_runs_do_not(checkout: Path, tmp_path: Path) -> None:
    env = environment(tmp_path)
    first = run([checkout / "windfall", "--version"], env)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("windfall ")
    assert "setting up once" in first.stderr
    assert way(checkout) == "by_venv"
    assert_clean(checkout)
    again = run([checkout / "windfall", "--version"], env)
    assert (again.returncode, again.stderr) == (0, "")
    _through_links(checkout, tmp_path, env)
    _in_a_hostile_directory(checkout, tmp_path, env)
    _touched_and_changed(checkout, env)
    _moved(checkout, env)


def _through_links(checkout: Path, tmp_path: Path, env: dict[str, str]) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "wf").symlink_to("../checkout/windfall")
    (bin_ / "windfall").symlink_to("wf")
    found = run(["windfall", "--version"], {**env, "PATH": f"{bin_}:{SYSTEM_PATH}"}, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


def _in_a_hostile_directory(checkout: Path, tmp_path: Path, env: dict[str, str]) -> None:
    """Neither the current directory nor PYTHONPATH can stand in for a module."""
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("argparse", "windfall", "json", "numpy"):
        (trap / f"{name}.py").write_text("raise SystemExit('trapped')")
    answer = run([checkout / "windfall", "ls", "--help"], {**env, "PYTHONPATH": str(trap)}, cwd=trap)
    assert answer.returncode == 0, answer.stderr


def _touched_and_changed(checkout: Path, env: dict[str, str]) -> None:
    project = checkout / "pyproject.toml"
    os.utime(project, (time.time() + 2, time.time() + 2))
    touched = run([checkout / "windfall", "--version"], env)
    assert (touched.returncode, touched.stderr) == (0, ""), "touching the file must not install anything"
    project.write_text(project.read_text().replace('"msgspec"]', '"msgspec", "iniconfig"]'))
    changed = run([checkout / "windfall", "--version"], env)
    assert changed.returncode == 0 and "setting up" in changed.stderr
    assert way(checkout) == "kept", "a changed project updates the environment that is there"
    assert list(checkout.glob(".venv/lib/*/site-packages/iniconfig"))
    assert run([checkout / "windfall", "--version"], env).stderr == ""


def _moved(checkout: Path, env: dict[str, str]) -> None:
    elsewhere = checkout.rename(checkout.with_name("a new place"))
    moved = run([elsewhere / "windfall", "--version"], env)
    assert moved.returncode == 0, moved.stderr
    assert way(elsewhere) == "by_venv"
    assert_clean(elsewhere)


def test_later_run_starts_no_program_but_python(checkout: Path, tmp_path: Path) -> None:
    """Starting programs costs time; with only an empty directory in PATH there is none to start."""
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to("/bin/true")
    (checkout / ".venv" / "stamp").write_text(f"{checkout.resolve()}\n\n")
    (tmp_path / "empty").mkdir()
    warm = run(["/bin/sh", checkout / "windfall"], {"PATH": str(tmp_path / "empty")})
    assert (warm.returncode, warm.stdout, warm.stderr) == (0, "", "")


# --- something is missing -----------------------------------------------------------------------------------


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., Path]:
    def make(*names: str) -> Path:
        program = stripped.strip(tmp_path / "python", names)
        if program is None:
            pytest.skip("this interpreter cannot be copied to another place")
        return program

    return make


def _sets_up(checkout: Path, env: dict[str, str], by: str) -> None:
    answer = run([checkout / "windfall", "--version"], env)
    assert answer.returncode == 0, answer.stderr
    assert way(checkout) == by
    assert_clean(checkout)
    warm = run([checkout / "windfall", "--version"], env)
    assert (warm.returncode, warm.stderr) == (0, "")


def test_set_up_installs_the_locked_versions(checkout: Path, tmp_path: Path) -> None:
    wanted = lock(checkout)
    done = run([checkout / "windfall", "--version"], environment(tmp_path))
    assert done.returncode == 0 and "no wheels" not in done.stderr, done.stderr
    assert versions(checkout) == wanted
    again = run([checkout / "windfall", "--version"], environment(tmp_path))
    assert again.stderr == ""
    path = checkout / "share" / "lock" / "windfall.txt"
    path.write_text(path.read_text() + "\n")
    changed = run([checkout / "windfall", "--version"], environment(tmp_path))
    assert "setting up" in changed.stderr and versions(checkout) == wanted


def test_set_up_says_that_the_lock_has_no_wheels_for_the_machine(checkout: Path, tmp_path: Path) -> None:
    """The hashes of another file stand for a machine for which the lock has none."""
    lock(checkout, lambda line: re.sub(r" --hash=.*", f" --hash=sha256:{'0' * 64}", line))
    done = run([checkout / "windfall", "--version"], environment(tmp_path))
    assert done.returncode == 0 and "share/lock/windfall.txt has no wheels for this machine" in done.stderr
    assert set(versions(checkout)) == {"msgspec", "numpy"}
    assert_clean(checkout)


def test_system_pip_is_used_without_ensurepip(checkout: Path, tmp_path: Path, without: Callable[..., Path]) -> None:
    """Debian and Ubuntu with python3-pip but without python3-venv."""
    python = without("ensurepip")
    stripped.give_pip(python)
    _sets_up(checkout, environment(tmp_path, python), "by_pip_outside")


def test_old_pip_installs_into_a_target_folder(checkout: Path, tmp_path: Path, without: Callable[..., Path]) -> None:
    python = without("ensurepip", "venv")
    try:
        stripped.give_pip(python, "pip==22.2.2")
    except subprocess.CalledProcessError:
        pytest.skip("pip 22.2.2 cannot be had from this index")
    _sets_up(checkout, environment(tmp_path, python), "by_pip_target")


def test_debian_wheel_of_pip_is_used_without_pip(checkout: Path, tmp_path: Path, without: Callable[..., Path]) -> None:
    if not shutil.which("apt-get", path=SYSTEM_PATH):
        pytest.skip("apt-get is not here")
    asked = run(["apt-get", "-q", "download", "--print-uris", "python3-pip-whl"], environment(tmp_path), cwd=tmp_path)
    if asked.returncode:
        pytest.skip("apt-get knows no python3-pip-whl here")
    env = environment(tmp_path, without("ensurepip"), path=_only(tmp_path, exclude=("virtualenv", "uv")))
    _sets_up(checkout, env, "by_debian_wheel")


def test_set_up_goes_on_without_htcondor(checkout: Path, tmp_path: Path) -> None:
    file = checkout / "pyproject.toml"
    file.write_text(file.read_text().replace('["numpy", "msgspec"]', '["numpy", "msgspec", "htcondor>=999"]'))
    answer = run([checkout / "windfall", "--version"], environment(tmp_path))
    assert answer.returncode == 0, answer.stderr
    assert "without HTCondor's library, which could not be installed" in answer.stderr
    again = run([checkout / "windfall", "--version"], environment(tmp_path))
    assert (again.returncode, again.stderr) == (0, "")
    assert_clean(checkout)


def test_set_up_without_installer_says_what_helps(checkout: Path, tmp_path: Path, without: Callable[..., Path]) -> None:
    path = _only(tmp_path, exclude=("apt-get", "virtualenv", "uv"))
    answer = run([checkout / "windfall", "--version"], environment(tmp_path, without("ensurepip"), path))
    assert answer.returncode == 3
    assert answer.stdout == ""
    assert "could not be installed" in answer.stderr and "what helps" in answer.stderr
    assert not (checkout / ".venv" / "stamp").exists()
    assert not (checkout / ".venv.lock").is_symlink()


def _only(tmp_path: Path, exclude: tuple[str, ...]) -> str:
    """Return a PATH with the system's programs, without these."""
    place = tmp_path / "programs"
    place.mkdir()
    for folder in SYSTEM_PATH.split(":"):
        for program in Path(folder).iterdir():
            if program.name not in exclude and not (place / program.name).is_symlink():
                (place / program.name).symlink_to(program)
    return str(place)


@pytest.mark.parametrize("given", ["/bin/false", "no-such-program"])
def test_windfall_python_that_is_no_python_is_refused(checkout: Path, tmp_path: Path, given: str) -> None:
    answer = run([checkout / "windfall", "--version"], environment(tmp_path, given))
    assert answer.returncode == 3
    assert f"WINDFALL_PYTHON={given} is not Python 3.11" in answer.stderr
    assert not (checkout / ".venv.lock").is_symlink()


# --- several at once, interruptions, no room ----------------------------------------------------------------


def test_concurrent_first_runs_after_a_killed_one_set_up_once(checkout: Path, tmp_path: Path) -> None:
    env = environment(tmp_path)
    killed = subprocess.Popen([checkout / "windfall", "--version"], env=env, stderr=subprocess.DEVNULL,
                              start_new_session=True)
    _until((checkout / ".venv").is_dir)
    os.killpg(killed.pid, 9)
    killed.wait()
    assert (checkout / ".venv.lock").is_symlink()
    runs = [subprocess.Popen([checkout / "windfall", "--version"], env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [(process.communicate(timeout=300), process.returncode) for process in runs]
    assert [code for _, code in ends] == [0] * 4, ends
    assert [out.split()[0] for (out, _), _ in ends] == ["windfall"] * 4
    assert sum("setting up once" in err for (_, err), _ in ends) == 1
    assert_clean(checkout)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def read_only(checkout: Path) -> Iterator[list[str]]:
    """Yield the words before a command that make it see the checkout as read-only."""
    if os.geteuid():
        checkout.chmod(0o555)
        yield []
        checkout.chmod(0o755)
        return
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", script, str(checkout)]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("root may not mount here, and permissions do not stop root")
    yield prefix


def test_read_only_checkout_is_set_up_in_the_cache(checkout: Path, tmp_path: Path, read_only: list[str]) -> None:
    env = environment(tmp_path)
    first = run([*read_only, str(checkout / "windfall"), "--version"], env)
    assert first.returncode == 0, first.stderr
    assert not (checkout / ".venv").exists()
    made = list((tmp_path / ".cache" / "windfall").iterdir())
    assert len(made) == 1 and (made[0] / "stamp").exists()
    again = run([*read_only, str(checkout / "windfall"), "--version"], env)
    assert (again.returncode, again.stderr) == (0, "")


def test_set_up_with_nowhere_to_write_says_what_to_set(checkout: Path, tmp_path: Path, read_only: list[str]) -> None:
    answer = run([*read_only, str(checkout / "windfall"), "--version"], {**environment(tmp_path), "HOME": "/proc"})
    assert answer.returncode == 3
    assert "XDG_CACHE_HOME" in answer.stderr


# --- as a package -------------------------------------------------------------------------------------------


def test_package_runs_in_an_environment_of_ones_own(tmp_path: Path) -> None:
    source, wheels, own = tmp_path / "checkout", tmp_path / "wheels", tmp_path / "own"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copytree(ROOT / "share", source / "share")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    env = environment(tmp_path)
    made = run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, source], env)
    assert made.returncode == 0, made.stderr
    (wheel,) = wheels.glob("windfall-*.whl")
    made = run([sys.executable, "-m", "venv", "--system-site-packages", own], env)
    assert made.returncode == 0, made.stderr
    made = run([own / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", wheel], env)
    assert made.returncode == 0, made.stderr
    (packages,) = own.glob("lib/python3.*/site-packages")
    (packages / "needs.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    env["WINDFALL_HOME"] = str(tmp_path / "home")
    ran = run([own / "bin" / "windfall", "run", "--json", "echo {x}", "--sweep", "x=1..3"], env, tmp_path)
    assert ran.returncode == 0 and '"succeeded": 3' in ran.stdout, ran.stdout + ran.stderr
    program = "import windfall.client.client as it; print(it.__file__)"
    asked = run([own / "bin" / "python", "-c", program], env, tmp_path)
    assert asked.stdout.startswith(str(own))
