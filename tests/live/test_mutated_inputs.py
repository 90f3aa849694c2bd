"""Files that are read or refused in words, whatever was done to them (`mutated_inputs.py` says what a case is)."""

from pathlib import Path

import pytest

from tests.live.mutated_inputs import case, kinds, run

KINDS = kinds()


@pytest.mark.parametrize("name", KINDS)
def test_good_file_of_each_kind_is_read(name: str, tmp_path: Path) -> None:
    assert case(KINDS[name], KINDS[name].samples[-1], tmp_path)


def test_mutated_files_are_read_or_refused_in_words() -> None:
    counts = run(len(KINDS) * 60)
    assert all(sum(pair) == 60 for pair in counts.values())
    assert sum(refused for _, refused in counts.values()) > 300


def test_file_name_that_no_system_takes_is_refused_in_words(tmp_path: Path) -> None:
    """A name of 300 bytes is an error of the operating system, not a missing file."""
    body = b"executable = /bin/true\ntransfer_input_files = " + b"a" * 300 + b"\nqueue\n"
    assert not case(KINDS["submit"], body, tmp_path)
    assert not case(KINDS["dag"], b"JOB A " + b"a" * 300 + b"\n", tmp_path)
