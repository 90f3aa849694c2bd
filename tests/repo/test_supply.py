"""What Windfall is made of: bounds, locks, licences and the bill of materials agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKED = re.compile(r"([a-z0-9-]+)==([^\s;]+)(?: ; [^#\n]+?)?((?: --hash=sha256:[0-9a-f]{64})+)")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def lock(name: str) -> list[str]:
    return (ROOT / "share" / "lock" / f"{name}.txt").read_text().splitlines()


def versions(name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in lock(name)[1:]:
        match = LOCKED.fullmatch(line)
        assert match, line[:100]
        found.setdefault(match[1], set()).add(match[2])
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    every = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"], *sum(EXTRAS.values(), [])]
    assert [each for each in every if not re.match(r"[a-z0-9-]+(~=[\d.]+|>=[\d.]+,<\d+)(;|$)", each)] == []


@pytest.mark.parametrize("name", ["windfall", "test"])
def test_lock_has_wheels_by_hash_and_names_no_address(name: str) -> None:
    lines = lock(name)
    assert lines[0] == "--only-binary :all:" and not [line for line in lines if "://" in line or "index" in line]
    assert len(versions(name)) > 10


@pytest.mark.parametrize(("name", "wanted"), [
    ("windfall", PROJECT["project"]["dependencies"]), ("test", PROJECT["project"]["dependencies"] + EXTRAS["test"])])
def test_lock_fits_the_bounds_of_the_project(name: str, wanted: list[str]) -> None:
    found = versions(name)
    for each in wanted:
        match = re.match(r"([a-z0-9-]+)(?:~=([\d.]+)|>=([\d.]+),<(\d+))", each)
        assert match
        for version in found[match[1]]:
            assert numbers(version) >= numbers(match[2] or match[3]), each
            assert match[4] is None or numbers(version) < numbers(match[4]), each


def test_locks_agree_with_each_other() -> None:
    ours, tests = versions("windfall"), versions("test")
    assert {name: tests[name] for name in ours} == ours


def test_bill_of_materials_has_version_hashes_and_licence_of_each_locked_package() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "sbom"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    found: dict[str, set[str]] = {}
    for each in bill["components"]:
        found.setdefault(each["name"], set()).add(each["version"])
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["licenses"][0]["license"]["id"] and len(each["hashes"][0]["content"]) == 64
    assert found == versions("windfall")
    chosen = {each["name"]: each["licenses"][0]["license"]["id"] for each in bill["components"]}
    assert chosen["asyncssh"] == "EPL-2.0" and not [each for each in chosen.values() if each.startswith("GPL")]


def test_notice_names_no_package_that_is_not_used() -> None:
    listed = set(re.findall(r"^([a-z0-9-]+) {2,}\S", (ROOT / "NOTICE").read_text(), re.M))
    assert listed == set(versions("windfall"))
