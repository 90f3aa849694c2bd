"""CPython's own tests of executors, those that any executor has to pass, against ours.

The suite comes with Debian's `libpython3.11-testsuite`, or with a Python that has its tests; elsewhere this module is
skipped.  `NOT_OURS` lists the tests that do not apply, each with its reason.  The classes about threads, processes and
futures made by hand are left out: they do not test executors in general.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path

import pytest

from windfall import Executor

NAME = "test_concurrent_futures"
PLACES = [Path(path) / "test" / f"{NAME}.py" for path in (*sys.path, "/usr/lib/python{}.{}".format(*sys.version_info))]
FILE = next((place for place in PLACES if place.exists()), None)

NOT_OURS = {
    "test_interpreter_shutdown": "imports the executor from concurrent.futures by its name, and expects a call's "
                                 "output on the caller's terminal; see test_executor for ours",
    "test_submit_after_interpreter_shutdown": "imports the executor from concurrent.futures by its name",
    "test_hang_gh83386": "imports the executor from concurrent.futures by its name",
}


def _load():
    spec = importlib.util.spec_from_file_location(NAME, FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, unittest.SkipTest) as error:
        pytest.skip(f"CPython's tests cannot be loaded: {error}", allow_module_level=True)
    return module


if FILE is None:
    pytest.skip("CPython's tests are not installed (Debian: libpython3.11-testsuite)", allow_module_level=True)
theirs = _load()


class Ours(Executor):
    """An executor on the server of this folder's tests; runners find CPython's module by its name."""

    where: dict = {}

    def __init__(self, max_workers=None, **more):
        super().__init__(self.where["profile"], max_workers=max_workers,
                         environment={"PYTHONPATH": self.where["modules"]}, **more)


@pytest.fixture(scope="module", autouse=True)
def _server(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / f"{NAME}.py").symlink_to(FILE)
    Ours.where.update(profile=server.profile, modules=str(folder))


class Mixin(theirs.ExecutorMixin):
    executor_type = Ours


def _made(name, *bases):
    """Return a class with the tests of `bases`, less those that do not apply."""
    made = type(name, bases, {"__module__": __name__})
    for test in NOT_OURS:
        if hasattr(made, test):
            setattr(made, test, None)
    return made


TestExecutor = _made("TestExecutor", Mixin, theirs.ExecutorTest, theirs.BaseTestCase)
TestWait = _made("TestWait", Mixin, theirs.WaitTests, theirs.BaseTestCase)
TestAsCompleted = _made("TestAsCompleted", Mixin, theirs.AsCompletedTests, theirs.BaseTestCase)
TestShutdown = _made("TestShutdown", Mixin, theirs.ExecutorShutdownTest, theirs.BaseTestCase)
TestInitializer = _made("TestInitializer", Mixin, theirs.InitializerMixin, theirs.BaseTestCase)
TestFailingInitializer = _made("TestFailingInitializer", Mixin, theirs.FailingInitializerMixin, theirs.BaseTestCase)


def test_left_out_tests_exist_in_cpythons_suite():
    assert all(hasattr(theirs.ExecutorShutdownTest, test) for test in NOT_OURS)
