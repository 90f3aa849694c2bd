"""The pilot's clock, which goes on while the host sleeps."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windfall.pilot import clock

PILOT = os.path.dirname(clock.__file__)


def test_pilot_clock_is_the_boot_time_clock():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    seen = clock.seconds()
    assert before <= seen <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert 1000 * seen - 1 <= clock.milliseconds()


def test_pilot_clock_falls_back_to_the_monotonic_clock(monkeypatch):
    def refuse(number):
        raise OSError(22, "Invalid argument")
    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert clock.pick() is time.monotonic


def test_pilot_code_reads_no_other_clock():
    found = sorted(Path(PILOT).rglob("*.py"))
    assert len(found) > 30
    for path in found:
        if path.name != "clock.py":
            assert "monotonic()" not in path.read_text(), path


@pytest.mark.root
def test_clock_counts_time_during_suspend():
    """A time namespace shifts the boot-time clock alone, as a suspended host would."""
    code = ("import time; from windfall.pilot import clock; "
            "print(int(clock.seconds() - time.monotonic() + 0.5))")
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(PILOT)))
    run = ["unshare", "--time", "--boottime", "100000", "--fork"]
    if subprocess.run(run + ["true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no time namespaces here")
    said = subprocess.check_output(run + [sys.executable, "-c", code], env=env)
    assert int(said) >= 100000
