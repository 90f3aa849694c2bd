"""Bounds of the pilot's memory and disk: specs, the cache and its locks, idle runners."""

import errno
import os
from types import SimpleNamespace

import pytest

from windfall.pilot.files import links, staging
from windfall.pilot.run import calls, spawner, spawners


def test_spawner_runs_more_specs_than_it_remembers(server, launch):
    """Each spec has its own environment and runs twice, the second time after a spawner has forgotten it."""
    launch("--cores", "2")
    count = 300 * 2                                          # two spawners share them
    for start in (0, 10000):
        for number in range(count):
            server.queue.append(({"bag": number, "environment": {"WHO": str(number)}},
                                 [[start + number + 1, "echo $WHO"], [start + count + number + 1, "echo $WHO"]]))
        server.say()
        for number in range(count):
            for attempt in (start + number + 1, start + count + number + 1):
                assert server.result(attempt, 60)["out"] == f"{number}\n"


def test_waiting_task_keeps_its_spec_after_the_spawner_forgets_it():
    made = spawner.Spawner.__new__(spawner.Spawner)
    made.base, made.gpus, made.plans, made.specs, made.waiting = {}, False, {}, {}, spawner.deque()
    made.calls = calls.Calls(made)
    made._on_specs({1: {"bag": 1, "time": 5000}, 2: {"bag": 2}})
    made._on_run(1, [(10, 1, ["true"], None, None, (), None, 1), (11, 1, ["true"], {"keep": 3}, None, (), None, 2)])
    made._plan(1, None, ())
    made._on_forget([1])
    assert list(made.specs) == [2] and not made.plans
    plans = [made._plan(task[1], task[3], task[5]) for task in made.waiting]
    assert [plan.time for plan in plans] == [5.0, 5.0] and plans[1].keep == 3


def test_agent_sends_each_spec_before_its_tasks():
    sent = []
    handle = spawners.SpawnerHandle(0, 1, SimpleNamespace(send=lambda orders: sent.extend(orders) or True), None)
    known = {}
    for number in range(3 * spawners.SPECS):
        key = number % (spawners.SPECS + 7)
        task = SimpleNamespace(attempt=number, command=["true"], extra=None, start_before=None, gpus=(), seats=1,
                               serial=0, number=number, spec=SimpleNamespace(key=key, fields={"bag": key}))
        handle.run(task, None)
    handle.flush()
    for order in sent:
        if order[0] == "specs":
            known.update(order[1])
        elif order[0] == "forget":
            for key in order[1]:
                del known[key]
        else:
            assert all(task[1] in known for task in order[2])
    assert len(handle.specs) == spawners.SPECS == len(known)


def test_idle_runners_are_retired():
    slots = [SimpleNamespace(runner=SimpleNamespace(used=used), job=job)
             for used, job in ((0.0, None), (500.0, None), (0.0, "busy"))]
    slots.append(SimpleNamespace(runner=None, job=None))
    made = calls.Calls(SimpleNamespace(slots=slots))
    retired = []

    def retire(slot):
        retired.append(slot)
        slot.runner = None

    made.retire = retire
    made.retire_at = calls.IDLE_SECONDS
    made.retire_idle(calls.IDLE_SECONDS - 1)
    assert not retired
    made.retire_idle(calls.IDLE_SECONDS)
    assert retired == [slots[0]] and made.retire_at == 500 + calls.IDLE_SECONDS
    made.retire_idle(made.retire_at)
    assert len(retired) == 2 and made.retire_at is None


class Source:
    """A server of blobs; it notes which ones were fetched."""

    closing = staticmethod(lambda: False)

    def __init__(self):
        self.fetched = []

    def fetch(self, digest, size, path, attempt):
        self.fetched.append(digest)
        with open(path, "wb") as file:
            file.write(bytes(size))


def names(*letters):
    return [letter * 64 for letter in letters]


def test_cache_evicts_the_least_recently_used_blob(tmp_path):
    cache, source = staging.Cache(str(tmp_path / "c"), 3000), Source()
    a, b, c, d = names("a", "b", "c", "d")
    for when, digest in enumerate((a, b, c)):
        os.utime(cache.get(source, staging.Blob(digest, 1000), 1), (when, links.SEALED))
    cache.get(source, staging.Blob(a, 1000), 1)  # used again: now b is the oldest
    cache.get(source, staging.Blob(d, 1000), 1)
    assert sorted(os.listdir(cache.folder)) == [a, c, d] and source.fetched == [a, b, c, d]
    assert cache.locks == {}


def test_cache_is_limited_to_a_part_of_its_disk(tmp_path):
    cache = staging.Cache(str(tmp_path))
    about = os.statvfs(str(tmp_path))
    assert 0 < cache._most() <= min(10 << 30, 0.2 * about.f_blocks * about.f_frsize)


def test_purge_removes_only_abandoned_transfers(tmp_path):
    for name, when in (("young.1.part", None), ("old.1.part", (0, 0))):
        (tmp_path / name).write_bytes(b"x")
        if when:
            os.utime(str(tmp_path / name), when)
    staging.Cache(str(tmp_path)).purge()
    assert os.listdir(str(tmp_path)) == ["young.1.part"]


def test_input_evicted_before_its_copy_is_fetched_again(tmp_path):
    cache, source = staging.Cache(str(tmp_path / "c"), 3000), Source()
    original, calls = cache.get, []

    def get(*args):
        path = original(*args)
        calls.append(path)
        if len(calls) == 1:
            os.unlink(path)
        return path

    cache.get = get
    staging.stage_in(str(tmp_path / "t"), {"inputs": [["f", "a" * 64, 10, 0o644]]}.get, cache, source, 1)
    assert (tmp_path / "t" / "f").stat().st_size == 10 and len(calls) == 2


def test_broken_off_transfer_leaves_no_part_on_a_full_disk(tmp_path):
    class Full(Source):
        def fetch(self, digest, size, path, attempt):
            super().fetch(digest, size, path, attempt)
            raise OSError(errno.ENOSPC, "No space left on device")

    cache = staging.Cache(str(tmp_path / "c"), 3000)
    with pytest.raises(OSError):
        cache.get(Full(), staging.Blob("a" * 64, 10), 1)
    assert os.listdir(cache.folder) == [] and cache.locks == {}
