"""Why tasks stand failed, cause by cause; what a bag took, in numbers."""

from server_tools import Pilot, sweep


def fail(pilot, task, **how):
    pilot.finish([task[0]], o="failed", **how)


def test_causes_with_counts_and_how_to_retry_each(client):
    bag, pilot = client.submit(sweep(9, retries=0)), Pilot(client, cores=9)
    tasks = pilot.get(want=9)
    for task in tasks[:3]:
        fail(pilot, task, why="exit", exit=3, note="exit code 3")
    for task in tasks[3:5]:
        fail(pilot, task, why="signal", signal=11)
    fail(pilot, tasks[5], why="output", note="the file out-5.txt is missing")
    fail(pilot, tasks[6], why="output", note="the file out-6.txt is missing")
    fail(pilot, tasks[7], why="output", note="the output does not match 'x'")
    pilot.finish([tasks[8][0]])
    found = client.call("GET", f"/v1/bags/{bag}/failures").body["failures"]
    assert [(c["why"], c["exit"], c["signal"], c["count"], c["tasks"]) for c in found] == [
        ("exit", 3, 0, 3, [0, 1, 2]), ("signal", 0, 11, 2, [3, 4]), ("output", 0, 0, 2, [5, 6]),
        ("output", 0, 0, 1, [7])]
    assert found[2]["note"] == "the file out-5.txt is missing"
    again = client.call("POST", f"/v1/bags/{bag}/retry", found[2]["retry"])
    assert again.body == {"count": 2}
    assert client.call("POST", f"/v1/bags/{bag}/retry", {"note": "the output does not match 'y'"}).body == {"count": 0}
    left = client.call("GET", f"/v1/bags/{bag}/failures").body["failures"]
    assert [c["count"] for c in left] == [3, 2, 1]
    assert client.call("POST", f"/v1/bags/{bag}/retry", {"why": "exit", "exit": 3}).body == {"count": 3}
    assert client.call("POST", f"/v1/bags/{bag}/retry", {"why": "exit", "exit": 3}).body == {"count": 0}
    counts = client.call("GET", f"/v1/bags/{bag}").body["counts"]
    assert counts["ready"] == 5 and counts["failed"] == 3


def test_causes_without_end_are_bounded(client):
    bag, pilot = client.submit(sweep(300, retries=0)), Pilot(client, cores=300)
    for place, task in enumerate(pilot.get(want=300)):
        fail(pilot, task, why=f"reason {place}", exit=place)
    found = client.call("GET", f"/v1/bags/{bag}/failures").body["failures"]
    assert len(found) <= 201 and sum(c["count"] for c in found) == 300
    assert {c["why"] for c in found} == {"other"}


def test_tasks_and_a_cause_are_two_ways(client):
    bag = client.submit(sweep(1))
    assert client.call("POST", f"/v1/bags/{bag}/retry", {"tasks": [0], "why": "exit"}).status == 400


def test_statistics_count_accepted_and_redundant_time(client):
    bag, pilot = client.submit(sweep(3, retries=1)), Pilot(client, cores=3)
    a, b, c = pilot.get(want=3)
    pilot.exchange(reports=[{"a": a[0], "wall": 400}, {"a": b[0], "wall": 100}])
    fail(pilot, c, why="exit", exit=1, wall=70)
    ((again, _),) = pilot.get()
    pilot.exchange(reports=[{"a": again, "wall": 50}])
    found = client.call("GET", f"/v1/bags/{bag}/statistics").body
    assert (found["tasks"], found["attempts"], found["accepted"]) == (3, 4, 3)
    assert (found["real"], found["redundant"]) == (550, 70)
    assert found["failures"] == {"exit": 1}
    assert found["sites"] == [{"name": "local", "attempts": 4, "wall": 620, "accepted": 3}]
    assert [row["name"] for row in found["hosts"]] == ["host"]
    assert [(row["task"], row["wall"]) for row in found["slowest"]] == [(0, 400), (1, 100), (2, 50)]
    assert found["wall_clock"] >= 0 and found["queuing_longest"] >= found["queuing_average"] >= 0
    if found["wall_clock"]:
        assert found["speed_up"] == 550 / found["wall_clock"]
