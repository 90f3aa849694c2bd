"""Spoiled bag files through the real command line: exit 2 with the place, or a clean dry run; never a traceback."""

import contextlib
import io
import os
import re

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.model.everything import EVERYTHING, lay, tables, texts, toml

from windfall.cli.main import main
from windfall.errors import BadInput
from windfall.model.bagfile import reader
from windfall.model.templates.render import Renderer

LIMITS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the directory with the files, which is the current one; the user's own files are not read."""
    made = tmp_path_factory.mktemp("bags")
    lay(made)
    patch = pytest.MonkeyPatch()
    patch.chdir(made)
    patch.setenv("WINDFALL_HOME", str(made / "home"))
    yield made
    patch.undo()


def dry_run(folder, text):
    """Return exit code, standard output and standard error of a dry run."""
    (folder / "mutant.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["run", "--dry-run", "mutant.toml"])
    return code, out.getvalue(), err.getvalue()


def test_unspoiled_file_passes_a_dry_run(folder):
    code, out, err = dry_run(folder, EVERYTHING)
    assert (code, err) == (0, "")
    assert "ldla: 962 tasks" in out


def test_five_hundred_spoiled_files_three_hundred_of_them_bad(folder):
    codes = {}

    @settings(max_examples=700, derandomize=True, database=None, **LIMITS)
    @given(st.one_of(texts(), tables().map(toml)))
    def each(text):
        code, out, err = dry_run(folder, text)
        codes[text] = code
        assert "Traceback" not in err
        if code == 2:
            assert out == ""
            assert re.match(r"windfall: (mutant\.toml|points\.csv)(:\d+)?: \S", err), err
        else:
            assert (code, err) == (0, "") and "each" in out

    each()
    assert len(codes) >= 500 and list(codes.values()).count(2) >= 300
    assert not os.path.exists(folder / "home")  # nothing was begun


@settings(max_examples=300, **LIMITS)
@given(st.one_of(texts(), tables().map(toml)))
def test_every_file_that_parses_can_be_rendered(folder, text):
    try:
        bag = reader.parse(text, "mutant.toml", folder).bag
    except BadInput as error:
        assert error.where.startswith(("mutant.toml", "points.csv"))
        return
    for target in bag.targets:
        renderer = Renderer(target)
        for index in (0, renderer.count - 1):
            renderer.command(index, {"main": ["a"]}), renderer.params(index), renderer.environment(index)
            renderer.inputs(index), renderer.placed(index), renderer.outputs(index), renderer.checkpoint(index)
            renderer.check_file(index), renderer.check_command(index), renderer.capture(index)
