"""The zipapp: built the same each time, checked statically, and run on every Python from 3.6 that is installed."""

import ast
import glob
import os
import subprocess
import zipfile

import pytest
from harness import Pilot, Server, call, value, zipapp

from windfall.pilot import bundle

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(bundle.__file__)))
FOUND = sorted(path for path in glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python")) + ["/usr/bin/python3"]
               if os.access(path, os.X_OK))
ALLOWED = {"_thread", "base64", "binascii", "collections", "ctypes", "difflib", "errno", "fcntl", "functools", "gc",
           "gzip", "hashlib", "zlib", "shutil",
           "json", "marshal", "mmap", "os", "pickle", "queue", "re", "resource", "select", "signal", "socket", "ssl",
           "stat", "struct", "subprocess", "sys", "tarfile", "tempfile", "termios", "threading", "time", "traceback"}
# Younger than 3.6, in the modules we use; `posix_spawn` is guarded in spawn.py.
YOUNGER = {"posix_spawn", "posix_spawnp", "pidfd_open", "memfd_create", "monotonic_ns", "time_ns", "perf_counter_ns",
           "removeprefix", "removesuffix", "capture_output", "copy_file_range", "waitstatus_to_exitcode",
           "freeze", "get_running_loop", "register_at_fork", "preadv", "pwritev", "eventfd",
           "fromisoformat", "isascii", "bit_count", "SSLCertVerificationError", "minimum_version"}


def parts():
    with zipfile.ZipFile(zipapp()) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}


def test_same_sources_give_the_same_zipapp(tmp_path):
    first, second = bundle.build(str(tmp_path / "a")), bundle.build(str(tmp_path / "b"))
    assert first[1] == second[1] and open(first[0], "rb").read() == open(second[0], "rb").read()


def test_zipapp_has_pilot_wire_and_errors():
    names = parts()
    assert "windfall/pilot/bundle.py" not in names and names["windfall/__init__.py"] == ""
    assert {"__main__.py", "windfall/errors.py", "windfall/wire/messages.py"} <= set(names)


@pytest.mark.parametrize("name", sorted(parts()))
def test_modules_keep_to_python_3_6(name):
    tree = ast.parse(parts()[name], name, feature_version=(3, 6))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.NamedExpr)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            assert not node.args.posonlyargs
        for module in _imports(node):
            assert module in ALLOWED or module.startswith(("windfall", ".")), module
        word = node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.keyword) else None
        assert word not in YOUNGER or name.endswith("spawn.py"), word


def _imports(node):
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." if node.level else node.module.split(".")[0]]
    return []


def test_pilot_imports_only_wire_and_errors():
    for name, text in parts().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module.startswith("windfall."):
                assert node.module.split(".")[1] in ("wire", "errors", "pilot"), name


def test_interpreters_to_test_with_are_found():
    """Fail if this machine has no interpreter to test with; missing versions alone are left out."""
    assert FOUND


@pytest.mark.parametrize("python", FOUND)
def test_pilot_works_on_every_interpreter(python, tmp_path):
    server = Server(tmp_path, tls=True)
    pilot = Pilot(server, "--idle", "10", python=python)
    try:
        server.submit(*[[i, ["echo", str(i)]] for i in range(1, 41)])
        server.submit([41, ["nonsense-command"]], [42, "exit 3"], [43, "sleep 600"], time=3000)
        version = subprocess.check_output([python, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"])
        calls = [call(divmod, 17, n, python=version.decode().strip()) for n in (5, 0)]
        server.submit([44, calls[0]], [45, calls[1]], [48, call(abs, 1, python="2.1")], kind="call")
        server.submit([46, "cat in > out"], inputs=[["in", server.blob(b"data"), 4, 0o644]], outputs=["out"])
        server.submit([47, "setsid sleep 60 & echo $!"])
        for i in range(1, 41):
            assert server.result(i)["out"] == f"{i}\n"
        assert [server.result(i)["why"] for i in (41, 42, 43)] == ["start", "exit", "time"]
        assert value(server.result(44)) == ("ok", (3, 2)) and value(server.result(45))[0] == "error"
        assert "Python 2.1" in server.result(48)["note"]
        assert server.result(46)["files"][0][2] == 4
        assert not os.path.exists("/proc/{}".format(server.result(47)["out"].strip()))
        assert pilot.stop() == 0 and not server.problems, pilot.text()
    finally:
        pilot.end()
        server.close()


def test_start_imports_no_slow_module(tmp_path):
    """The pilot imports no argparse, asyncio, logging, subprocess, http or typing before its first request."""
    code = ("import sys; sys.path.insert(0, {!r})\n"
            "from windfall.pilot import agent, guardian, main\n"
            "from windfall.pilot.agenda import agenda\n"
            "from windfall.pilot.files import folders\n"
            "from windfall.pilot.net import lanes\n"
            "print(' '.join(sys.modules))")
    found = subprocess.check_output([FOUND[-1], "-I", "-S", "-c", code.format(zipapp())]).decode().split()
    dear = {"argparse", "asyncio", "logging", "subprocess", "http.client", "typing", "threading", "ssl", "ctypes",
            "random"}
    assert not dear & set(found)
