"""Full disks: the pilot's directory is a small tmpfs."""

import os
import subprocess

import pytest
from harness import wait_until

pytestmark = pytest.mark.root


@pytest.fixture
def small(server):
    """The directory of the pilot n1, on a disk of 4 MB."""
    if os.geteuid():
        pytest.skip("needs root to mount")
    folder = os.path.join(server.folder, "pilot-n1")
    os.mkdir(folder)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]).returncode:
        os.rmdir(folder)
        pytest.skip("cannot mount here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def pilot(small, server, launch):
    return launch("--cores", "1")


def fill(folder):
    path = os.path.join(folder, "filler")
    with open(path, "wb", 0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def test_input_that_fills_the_disk_fails_its_task_alone(server, pilot):
    data = os.urandom(6 << 20)
    server.submit([1, "true"], inputs=[["big", server.blob(data), len(data), 0o644]])
    small = os.urandom(1 << 20)
    server.submit([2, "cat f | wc -c"], inputs=[["f", server.blob(small), len(small), 0o644]])
    server.submit([3, "echo fine"])
    assert (server.result(1)["o"], server.result(1)["why"]) == ("failed", "disk")
    assert server.result(2)["out"].strip() == str(1 << 20) and server.result(3)["out"] == "fine\n"


def test_inputs_that_fit_one_after_the_other_both_succeed(server, pilot):
    """Two inputs at once, each in the cache and in its task's directory, would not fit."""
    for attempt in (1, 2):
        data = os.urandom(1200000)
        server.submit([attempt, "wc -c < f"], inputs=[["f", server.blob(data), len(data), 0o644]])
    assert [server.result(attempt).get("out", "").strip() for attempt in (1, 2)] == ["1200000"] * 2


def test_cache_makes_way_for_the_next_input(server, pilot):
    for attempt in range(1, 6):
        data = os.urandom(1500000)
        server.submit([attempt, "wc -c < f"], inputs=[["f", server.blob(data), len(data), 0o644]])
        assert server.result(attempt)["out"].strip() == "1500000"


def test_task_that_fills_the_disk_fails_for_that_reason(server, pilot):
    server.submit([1, "head -c 9000000 /dev/zero > big"], [2, "echo x > f && cat f"], [3, "exit 3"])
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "disk") and "full" in report["note"]
    assert server.result(2)["out"] == "x\n" and server.result(3)["why"] == "exit"


def test_pilot_on_a_full_disk_returns_tasks_asks_for_none_and_says_why(server, small, launch):
    pilot = launch("--cores", "1")
    wait_until(lambda: server.requests)
    filler = fill(small)
    server.submit(*([number, "echo x > f"] for number in range(1, 40)))
    assert {(server.result(number)["o"], server.result(number)["why"]) for number in range(1, 40)} == {
        ("returned", "disk")}
    wait_until(lambda: server.requests[-1].get("trouble"))
    assert "full" in server.requests[-1]["trouble"] and small in server.requests[-1]["trouble"]
    assert "want" not in server.requests[-1] and "takes no tasks" in pilot.text()
    os.unlink(filler)
    wait_until(lambda: server.requests[-1].get("want"))
    assert "trouble" not in server.requests[-1] and "takes tasks again" in pilot.text()
    server.submit([40, "echo x > f && cat f"])
    assert server.result(40)["out"] == "x\n"


def test_pilot_that_starts_on_a_full_disk_asks_for_no_task(server, small, launch):
    fill(small)
    os.truncate(os.path.join(small, "filler"), (4 << 20) - (100 << 10))  # room for its folders
    launch("--cores", "1")
    wait_until(lambda: server.requests)
    assert server.requests[0]["trouble"] and "want" not in server.requests[0]


def test_task_is_returned_when_others_filled_the_disk_and_its_files_are_small(server, small, launch, gate):
    launch("--cores", "1")
    server.submit([1, gate.shell + "; echo a line > f"])
    server.wait_started(1)
    fill(small)
    gate.open()
    assert (server.result(1)["o"], server.result(1)["why"]) == ("returned", "disk")


def test_report_stays_in_memory_while_the_outbox_disk_is_full(server, small, launch, gate):
    """The report cannot be written, so it stays in memory and is sent when the server is back."""
    server.lease = 500
    pilot = launch("--cores", "1")
    server.submit([1, gate.shell + "; echo late"])
    server.wait_started(1)
    filler = fill(small)
    server.intercept = lambda handler, method, path: _drop(handler)
    server.say(census=True)
    gate.open()
    wait_until(lambda: "outbox cannot be written" in pilot.text())
    server.intercept = None
    assert server.result(1, 60)["out"] == "late\n"
    os.unlink(filler)
    server.submit([2, "echo on"])
    assert server.result(2)["out"] == "on\n"
    assert pilot.stop() == 0


def _drop(handler):
    handler.close_connection = True
    handler.connection.close()
    return True
