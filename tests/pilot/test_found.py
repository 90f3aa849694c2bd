"""Outputs that are patterns or directories: which files they stand for, and what is refused."""

import fnmatch
import os

import pytest

from windfall.errors import BadInput
from windfall.pilot.files import found
from windfall.wire.patterns import Pattern, fixed_part, is_pattern

TREE = ("a.png", "b.png", ".hidden.png", "notes[1].txt", "out/one.txt", "out/.settings", "out/deep/er/two.txt",
        "run-1/log", "run-2/log", "run-2/data.bin")


@pytest.fixture
def task(tmp_path):
    folder = tmp_path / "task"
    for name in TREE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    os.mkfifo(str(folder / "out" / "pipe"))
    return folder


@pytest.mark.parametrize(("outputs", "files"), [
    (["*.png"], ["a.png", "b.png"]),
    (["./?.png", "b.png"], ["a.png", "b.png"]),
    (["[!b].png"], ["a.png"]),
    (["out/"], ["out/.settings", "out/deep/er/two.txt", "out/one.txt"]),
    (["out"], ["out/.settings", "out/deep/er/two.txt", "out/one.txt"]),
    (["out/*"], ["out/deep/er/two.txt", "out/one.txt"]),
    (["**/*.txt"], ["notes[1].txt", "out/deep/er/two.txt", "out/one.txt"]),
    (["run-*/log"], ["run-1/log", "run-2/log"]),
    (["run-?"], ["run-1/log", "run-2/data.bin", "run-2/log"]),
    (["notes[1].txt"], ["notes[1].txt"]),
    (["a.png", "missing"], ["a.png", "missing"]),  # a name: the pilot looks for the file when it reads it
])
def test_output_stands_for_every_file_that_it_matches(task, outputs, files):
    assert found.expand(str(task), outputs) == files
    patterns = [Pattern(output) for output in outputs]
    assert all(path in outputs or any(each.matches(path) for each in patterns) for path in files)


@pytest.mark.parametrize("output", ["*.jpg", "empty/", "a.png/", "nowhere/*", "**/none"])
def test_output_that_matches_nothing_is_an_error(task, output):
    (task / "empty").mkdir()
    with pytest.raises(BadInput, match="matches no file"):
        found.expand(str(task), ["a.png", output])


@pytest.mark.parametrize(("link", "to", "output"), [
    ("c.png", "/etc/passwd", "*.png"), ("out/etc", "/etc", "out/"), ("away", "/etc", "away/*"),
    ("out/up", "../..", "out"),
])
def test_link_that_leads_out_of_the_directory_is_refused(task, link, to, output):
    (task / link).symlink_to(to)
    with pytest.raises(BadInput, match="leads out"):
        found.expand(str(task), [output])


def test_links_inside_the_directory_are_followed_to_files_alone(task):
    (task / "latest.png").symlink_to("a.png")
    (task / "out" / "self").symlink_to(".")
    assert found.expand(str(task), ["*.png"]) == ["a.png", "b.png", "latest.png"]
    assert len(found.expand(str(task), ["out"])) == 3


@pytest.mark.parametrize(("bound", "most"), [("MAX_FILES", 1), ("MAX_NAMES", 8), ("MAX_SEEN", 3), ("MAX_BYTES", 9),
                                             ("MAX_PARTS", 2)])
def test_files_of_patterns_are_bounded(task, monkeypatch, bound, most):
    (task / "out" / "deep" / "er" / "est").mkdir()
    monkeypatch.setattr(found, bound, most)
    with pytest.raises(BadInput):
        found.expand(str(task), ["out/"])


@pytest.mark.parametrize("name", ["line\nbreak.png", "\udce4.png"])
def test_name_that_cannot_travel_is_refused(task, name):
    (task / name).write_text("x")
    with pytest.raises(BadInput, match="cannot travel"):
        found.expand(str(task), ["*.png"])


def test_matching_is_quick_for_hostile_patterns():
    many = Pattern("*a" * 100 + "b")
    assert not many.matches("a" * 255)
    assert not Pattern("**/" + "*/" * 20 + "b").matches("/".join("a" * 31))
    assert not Pattern("**").matches("/".join("a" * 33))


@pytest.mark.parametrize("pattern", ["a*b*c", "[a-c]?[!a]", "*.tar.*", "x[", "[]]x", "a-[0-9]*"])
def test_names_match_as_the_shell_matches_them(pattern):
    for name in ("abc", "aXbXc", "b.c", "x[", "]x", "a-7", "a-7.tar.gz", "ab]", ".tar.x"):
        wanted = fnmatch.fnmatchcase(name, pattern) and not name.startswith(".")
        assert Pattern(pattern).matches(name) == wanted


def test_fixed_part_ends_before_the_first_wildcard():
    assert [fixed_part(text) for text in ("a/b*/c", "*.png", "./a/b", "out/")] == ["a", "", "a/b", "out"]
    assert [is_pattern(text) for text in ("a", "a[", "a]b[", "a[1]", "a?", "a/")] == [False] * 3 + [True] * 3
