"""`Executor` against a real server with a real pilot."""

import asyncio
import concurrent.futures
import gc
import operator
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import windfall
from tests.live.real import CommandLine, environment, processes_of, sweep_up, until
from windfall import Executor, as_completed
from windfall.client.api import Api
from windfall.client.functions.dispatcher import MAX_UNSENT_BYTES
from windfall.client.functions.payload import CallFailed, RemoteTraceback, StoredResult
from windfall.client.http import Http
from windfall.errors import BadInput, Conflict, NoServer


@pytest.fixture
def executor(client):
    with Executor(client, name="tested") as executor:
        yield executor


def test_submit_returns_the_value_of_a_call(executor):
    assert executor.submit(pow, 2, 10).result() == 1024
    assert executor.submit(sorted, [2, 3, 1], reverse=True).result() == [3, 2, 1]
    assert isinstance(executor, concurrent.futures.Executor)


def test_each_of_many_calls_gets_its_own_result(executor):
    futures = [executor.submit(abs, -i) for i in range(2000)]
    assert [future.result() for future in futures] == list(range(2000))
    assert len({future.task for future in futures}) == 2000


def test_each_call_knows_its_task_and_its_bag(client, executor):
    def asked(futures):
        said = [future.result() for future in futures]
        return said, [f"{future.bag} {future.task} main" for future in futures]

    names = "WINDFALL_BAG", "WINDFALL_TASK", "WINDFALL_TARGET"
    look = f"' '.join(map(__import__('os').environ.get, {names}))"
    found, wanted = asked([executor.submit(eval, look) for _ in range(50)])
    assert found == wanted
    with Executor(client) as other:  # its calls come to the same warm runners
        found, wanted = asked([other.submit(eval, look) for _ in range(50)])
    assert found == wanted


def test_raised_exception_carries_the_remote_traceback(executor):
    future = executor.submit(operator.truediv, 1, 0)
    with pytest.raises(ZeroDivisionError) as caught:
        future.result()
    assert isinstance(caught.value.__cause__, RemoteTraceback) and "ZeroDivisionError" in str(caught.value.__cause__)
    assert isinstance(future.exception(), ZeroDivisionError)


def test_call_that_kills_its_process_harms_no_other_call(executor):
    before, dying = executor.submit(abs, -1), executor.submit(os._exit, 3)
    after = [executor.submit(abs, -i) for i in range(50)]
    assert before.result() == 1 and [each.result() for each in after] == list(range(50))
    assert isinstance(dying.exception(), CallFailed)


def test_lambda_and_closure_run_by_value(executor):
    pytest.importorskip("cloudpickle")
    factor = 3
    assert executor.submit(lambda x: x * factor, 14).result() == 42


def test_lambda_without_cloudpickle_raises_with_a_hint(executor, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(BadInput, match="by name") as caught:
        executor.submit(lambda: 0)
    assert "cloudpickle" in caught.value.hint
    assert executor.submit(abs, -1).result() == 1


def test_runner_refuses_calls_of_another_python_version(executor, monkeypatch):
    monkeypatch.setattr("windfall.client.functions.payload.VERSION", "3.5")
    error = executor.submit(abs, -1).exception()
    assert isinstance(error, RuntimeError) and "Python 3.5" in str(error) and "same" in str(error)


# --- map ----------------------------------------------------------------------------------------------------


def test_map_yields_results_in_order(executor):
    assert list(executor.map(pow, range(3000), [2] * 3000)) == [i * i for i in range(3000)]
    assert list(executor.map(abs, range(10), chunksize=3)) == list(range(10))
    assert list(executor.map(abs, [])) == []


def test_map_groups_quick_calls_into_chunks(executor):
    before = executor.progress()["submitted"]
    assert list(executor.map(abs, range(20_000))) == list(range(20_000))
    assert executor.progress()["submitted"] - before < 2_000


def test_map_reads_a_bounded_part_of_an_endless_iterable(executor):
    read = []

    def endless():
        while True:
            read.append(None)
            yield len(read)

    results = executor.map(abs, endless(), chunksize=5)
    assert [next(results) for _ in range(12)] == list(range(1, 13))
    assert len(read) < 1000
    results.close()


def test_map_raises_at_the_place_of_the_failed_call(executor):
    results = executor.map(operator.truediv, [1] * 6, [1, 1, 0, 1, 1, 1], chunksize=6)
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError) as caught:
        next(results)
    assert isinstance(caught.value.__cause__, RemoteTraceback)


def test_map_raises_when_its_timeout_is_over(executor, client):
    executor.submit(abs, 1).result()  # a runner is there
    results = executor.map(time.sleep, [0, 600], timeout=5)
    assert next(results) is None
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    client.cancel(executor.bag)


# --- futures ------------------------------------------------------------------------------------------------


def test_result_with_timeout_raises_and_kill_cancels(executor):
    future = executor.submit(time.sleep, 600)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.2)
    assert future.kill() and future.cancelled() and not future.kill()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()


def test_cancelled_calls_never_run(client, tmp_path):
    with Executor(client) as executor:
        blocking = [executor.submit(time.sleep, 600) for _ in range(2 * os.cpu_count())]
        waiting = [executor.submit(os.mkdir, str(tmp_path / str(i))) for i in range(50)]
        until(lambda: all(future.task >= 0 for future in waiting))
        cancelled = [i for i in range(50) if waiting[i].cancel()]
        assert cancelled and all(waiting[i].cancelled() for i in cancelled)
        for future in blocking:
            future.kill()
    made = {int(name) for name in os.listdir(tmp_path)}
    assert made == set(range(50)) - set(cancelled)


def test_shutdown_cancels_calls_that_no_pilot_holds(client, tmp_path):
    executor = Executor(client)
    wait = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)"
    futures = [executor.submit(exec, wait if i else "") for i in range(4_000)]  # more than pilots hold ahead
    futures[0].result()
    executor.shutdown(wait=False, cancel_futures=True)
    (tmp_path / "go").touch()
    executor.shutdown()
    assert all(future.done() for future in futures)
    assert 0 < sum(future.cancelled() for future in futures) < 4_000
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_shutdown_cancels_any_number_with_one_request(client, monkeypatch):
    asked = []
    send = Http.send
    monkeypatch.setattr(Http, "send", lambda self, request: (asked.append(request.path), send(self, request))[1])
    executor = Executor(client)
    futures = [executor.submit(time.sleep, 0.1) for _ in range(20_000)]
    executor.shutdown(cancel_futures=True)
    assert sum(future.cancelled() for future in futures) > 19_000
    assert [path for path in asked if path.endswith("/cancel")] == [f"/v1/bags/{executor.bag}/cancel"]
    assert executor.progress()["left"] == 0


def test_second_shutdown_cancels_waiting_calls(client):
    executor = Executor(client)
    futures = [executor.submit(time.sleep, 0.2) for _ in range(40)]
    executor.shutdown(wait=False)
    until(lambda: executor._dispatcher._sending_ended, 10)
    executor.shutdown(cancel_futures=True)
    assert 0 < sum(future.cancelled() for future in futures) < 40
    assert executor.progress()["left"] == 0


def test_cancel_takes_many_futures_at_once(executor):
    blocking = [executor.submit(time.sleep, 30) for _ in range(40)]
    waiting = [executor.submit(abs, -i) for i in range(500)]
    until(lambda: all(future.task >= 0 for future in waiting), 10)
    assert executor.cancel([*waiting, waiting[0]]) == 500 and all(future.cancelled() for future in waiting)
    assert executor.cancel(waiting) == 0
    for future in blocking:
        future.kill()
    assert executor.progress() == {"submitted": 540, "succeeded": 0, "failed": 0, "cancelled": 540, "left": 0}


# --- whatever happens, every future ends ------------------------------------------------------------------------


@pytest.fixture
def held(executor):
    """An executor whose sender has taken a batch and waits for `go` before it sends it."""
    sender, go, waits = executor._dispatcher._client, threading.Event(), threading.Event()
    real = sender.append

    def append(*args, **named):
        waits.set()
        go.wait(30)
        return real(*args, **named)

    sender.append = append
    executor.first = executor.submit(abs, -1)
    assert waits.wait(10)
    executor.go = go
    yield executor
    go.set()


def test_bag_cancelled_elsewhere_fails_calls_being_sent(held, client):
    later = held.submit(abs, -2)
    client.cancel(held.bag)
    held.go.set()
    for future in (held.first, later):
        with pytest.raises(Conflict):
            future.result(20)
    assert held.progress() == {"submitted": 2, "succeeded": 0, "failed": 2, "cancelled": 0, "left": 0}
    with pytest.raises(Conflict):
        held.submit(abs, -1)


def test_give_up_fails_calls_being_sent_while_the_request_hangs(held):
    held._dispatcher.give_up(NoServer("it went away"))
    with pytest.raises(NoServer):
        held.first.result(0)
    held.go.set()
    held._dispatcher.join()
    assert held.progress()["left"] == 0


def test_give_up_fails_chained_calls(executor):
    gate = concurrent.futures.Future()
    chained = executor.submit(abs, gate)
    executor._dispatcher.give_up(NoServer("it went away"))
    with pytest.raises(NoServer):
        chained.result(0)
    gate.set_result(-1)  # now it would be put
    assert not executor._dispatcher._unsent and executor.progress()["left"] == 0


def test_give_up_fails_a_chained_call_that_waits_for_room(executor):
    gate = concurrent.futures.Future()
    chained = executor.submit(abs, gate)
    executor._dispatcher._unsent_bytes = MAX_UNSENT_BYTES + 1
    putting = threading.Thread(target=gate.set_result, args=(-1,))
    putting.start()
    putting.join(0.2)
    executor._dispatcher.give_up(NoServer("it went away"))
    putting.join(10)
    with pytest.raises(NoServer):
        chained.result(0)
    assert not putting.is_alive() and not executor._dispatcher._unsent


def test_bag_cancelled_elsewhere_breaks_its_executor(client):
    with Executor(client) as executor:
        assert executor.submit(abs, -1).result() == 1
        client.cancel(executor.bag)
        until(lambda: executor._broken, 10)
        with pytest.raises(Conflict, match="cancelled or closed elsewhere"):
            executor.submit(abs, -1)


def test_unsent_calls_can_be_cancelled_and_killed(held, tmp_path):
    waiting = [held.submit(os.mkdir, str(tmp_path / str(i))) for i in range(3)]
    assert waiting[1].cancel() and waiting[1].cancel() and waiting[2].kill() and not waiting[2].kill()
    held.go.set()
    assert waiting[0].result() is None and held.first.result() == 1
    assert not waiting[0].cancel()
    assert os.listdir(tmp_path) == ["0"]
    assert held.progress() == {"submitted": 4, "succeeded": 2, "failed": 0, "cancelled": 2, "left": 0}


def test_cancel_waits_until_a_call_being_sent_is_sent(held):
    threading.Timer(0.2, held.go.set).start()
    cancelled = held.first.cancel()  # unless a pilot was quicker
    assert cancelled == held.first.cancelled() and (cancelled or held.first.result() == 1)


def test_call_being_sent_can_be_killed(held):
    assert held.first.kill() and held.first.cancelled()
    held.go.set()
    held.shutdown()
    assert held.progress() == {"submitted": 1, "succeeded": 0, "failed": 0, "cancelled": 1, "left": 0}


def test_callback_of_a_cancellation_may_wait_for_other_threads(held):
    """The dispatcher runs callbacks without the lock that those threads need."""
    submitted = []

    def submit_elsewhere(_):
        thread = threading.Thread(target=lambda: submitted.append(held.submit(abs, -7)), daemon=True)
        thread.start()
        thread.join(5)

    waiting = held.submit(abs, -2)
    waiting.add_done_callback(lambda _: submit_elsewhere(_) or submitted.append("called back"))
    assert waiting.cancel()
    assert len(submitted) == 2 and submitted[1] == "called back"
    held.go.set()
    assert submitted[0].result() == 7


def test_shutdown_cancels_chained_calls(client):
    gate = concurrent.futures.Future()
    with Executor(client) as executor:
        chained = executor.submit(abs, gate)
        executor.shutdown(cancel_futures=True)
        assert chained.cancelled() and executor.progress()["left"] == 0
        gate.set_result(-1)


def test_failed_argument_and_its_call_count_as_failed(executor):
    assert executor.submit(abs, executor.submit(operator.truediv, 1, 0)).exception()
    assert executor.progress() == {"submitted": 2, "succeeded": 0, "failed": 2, "cancelled": 0, "left": 0}


@pytest.mark.parametrize("place", range(6))
def test_no_future_is_missed_that_ends_between_lines_of_as_completed(place):
    """One future is done; one ends at line `place` of the first `take`; one ends while only it is waited for."""
    done, between, late = futures = [concurrent.futures.Future() for _ in range(3)]
    done.set_result(None)
    lines = iter(range(100))

    def trace(frame, *_):
        return line if frame.f_code.co_name == "take" else None

    def line(*_):
        if next(lines) == place:
            thread = threading.Thread(target=between.set_result, args=(None,), daemon=True)
            thread.start()
            thread.join(0.2)  # it waits if we hold its lock
        return line

    before, timer = sys.gettrace(), threading.Timer(0.5, late.set_result, (None,))
    timer.start()
    sys.settrace(trace)
    try:
        assert set(as_completed(futures)) == set(futures)
    finally:
        sys.settrace(before)
    assert next(lines) > place


# --- chains -----------------------------------------------------------------------------------------------------


def test_call_waits_for_futures_among_its_arguments(executor):
    a, b = executor.submit(pow, 2, 3), executor.submit(pow, 3, 2)
    total = executor.submit(operator.add, a, b)
    assert executor.submit(divmod, total, 5).result() == (3, 2)
    assert executor.submit(sorted, [2, 1], reverse=executor.submit(bool, 1)).result() == [2, 1]


def test_call_raises_what_its_argument_raised(executor):
    bad = executor.submit(operator.truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        executor.submit(abs, executor.submit(abs, bad)).result()


def test_long_chain_of_calls_adds_no_threads(executor):
    before = threading.active_count()
    future = executor.submit(abs, 0)
    for _ in range(200):
        future = executor.submit(operator.add, future, 1)
    assert threading.active_count() == before
    assert future.result() == 200


def test_shutdown_waits_for_chained_calls(client):
    with Executor(client) as executor:
        future = executor.submit(abs, executor.submit(time.sleep, 0.3))
        other = executor.submit(str, executor.submit(time.sleep, 0.3))
    assert isinstance(future.exception(), TypeError) and other.result() == "None"


def test_our_as_completed_agrees_with_the_standard_librarys(executor):
    for function in (as_completed, concurrent.futures.as_completed):
        futures = [executor.submit(abs, -i) for i in range(500)]
        assert sorted(future.result() for future in function(futures)) == list(range(500))
        assert sorted(future.result() for future in function(futures)) == list(range(500))  # all are done
    slow = executor.submit(time.sleep, 600)
    with pytest.raises(concurrent.futures.TimeoutError):
        list(as_completed([slow], timeout=0.1))
    assert slow.kill() and list(as_completed([slow])) == [slow]


def test_standard_wait_and_callbacks_see_every_future(executor):
    futures = [executor.submit(abs, -i) for i in range(100)]
    told = []
    for future in futures:
        future.add_done_callback(lambda future: told.append(future.result()))
    done, left = concurrent.futures.wait(futures)
    assert len(done) == 100 and not left
    until(lambda: len(told) == 100)


def test_asyncio_can_await_call_futures(executor):
    async def both():
        return await asyncio.gather(*(asyncio.wrap_future(executor.submit(abs, -i)) for i in range(20)))

    assert asyncio.run(both()) == list(range(20))


def test_executor_has_two_threads_whatever_the_number_of_calls(client):
    before = threading.active_count()
    with Executor(client) as executor:
        futures = [executor.submit(abs, -i) for i in range(300)]
        assert threading.active_count() - before == 2
        concurrent.futures.wait(futures)
    assert threading.active_count() == before


def test_forgotten_executor_ends_by_itself(client):
    before = threading.active_count()
    executor = Executor(client)
    future = executor.submit(abs, -1)
    del executor
    gc.collect()
    assert future.result() == 1
    until(lambda: threading.active_count() == before)


# --- set-up ---------------------------------------------------------------------------------------------------


def test_initializer_runs_once_per_runner(client, tmp_path):
    log = tmp_path / "log"
    code = f"import os, builtins; builtins.ready = 7; open({str(log)!r}, 'a').write(str(os.getpid()) + ' ')"
    with Executor(client, initializer=exec, initargs=(code,)) as executor:
        assert [each.result() for each in [executor.submit(eval, "ready + 1") for _ in range(50)]] == [8] * 50
        pids = {executor.submit(os.getpid).result() for _ in range(10)}
    ran = log.read_text().split()
    assert len(ran) == len(set(ran)) and {str(pid) for pid in pids} <= set(ran)


def test_initializer_without_a_module_names_host_and_remedy(client):
    with Executor(client, initializer=exec, initargs=("import nowhere",)) as executor:
        error = executor.submit(abs, -1).exception()
        assert isinstance(error, concurrent.futures.BrokenExecutor)
        assert f"No module named 'nowhere' on the host {os.uname().nodename}" in str(error.__cause__)


def test_failing_initializer_breaks_the_executor(client):
    with Executor(client, initializer=exec, initargs=("raise ValueError('no licence')",)) as executor:
        futures = [executor.submit(abs, -1) for _ in range(20)]
        for future in futures:
            with pytest.raises(concurrent.futures.BrokenExecutor) as caught:
                future.result()
        assert "no licence" in str(caught.value.__cause__)
        until(lambda: executor._dispatcher.broken)
        with pytest.raises(concurrent.futures.BrokenExecutor):
            executor.submit(abs, -1)


def test_call_over_its_time_limit_fails(client):
    with Executor(client, time=0.5) as executor:
        slow, quick = executor.submit(time.sleep, 600), executor.submit(abs, -1)
        assert isinstance(slow.exception(), CallFailed) and "time limit" in str(slow.exception())
        assert quick.result() == 1
        assert len(client.task(executor.bag, 0)["attempts"]) == 1  # not tried again: `retries` is 0
    with Executor(client, time=0.2, time_retries=1) as executor:
        assert executor.submit(time.sleep, 600).exception()
        assert len(client.task(executor.bag, 0)["attempts"]) == 2


@pytest.mark.parametrize("wrong", [{"max_workers": 0}, {"initializer": 3}, {"chunk": "big"}, {"memory": "much"}])
def test_executor_refuses_wrong_arguments(client, wrong):
    with pytest.raises((ValueError, TypeError, BadInput)):
        Executor(client, **wrong)


def test_progress_counts_calls_and_notebooks_show_it(executor):
    executor.submit(abs, -1).result()
    assert executor.submit(operator.truediv, 1, 0).exception()
    assert executor.progress() == {"submitted": 2, "succeeded": 1, "failed": 1, "cancelled": 0, "left": 0}
    assert "0 of 2" in repr(executor)
    assert f"bag {executor.bag}" in executor._repr_html_() and "<td>2</td>" in executor._repr_html_()


def test_executor_embeds_a_server_that_ends_with_the_program(tmp_path):
    program = ("import math\nfrom windfall import Executor\n"
               "executor = Executor()\nprint(executor.submit(math.hypot, 3, 4).result())\n"
               "last = executor.submit(print, 'there')\nlast.add_done_callback(lambda f: print('done'))\n")
    done = subprocess.run([sys.executable, "-c", program], env=environment(tmp_path / "home"), capture_output=True,
                          text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "5.0\ndone\n"), done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_executor_takes_over_when_another_process_server_dies(tmp_path, number):
    """Calls that were submitted before, and after, get their results."""
    (tmp_path / "work").mkdir()
    line = CommandLine(tmp_path / "home", tmp_path / "work")
    run = line.start("run", f"until test -e {tmp_path}/go; do sleep 0.05; done", "--name", "first")
    until(lambda: (line.home / "server.json").exists() and line.json("ls"))
    wait = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)\n"
    program = ("from windfall import Executor\n"
               "with Executor() as executor:\n  print(executor.submit(abs, -1).result(), flush=True)\n"
               f"  before = executor.submit(exec, {wait!r})\n  input()\n"
               "  print(executor.submit(abs, -2).result(), before.result(), flush=True)\n")
    ours = subprocess.Popen([sys.executable, "-c", program], env=environment(line.home), text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert ours.stdout.readline() == "1\n"
        run.send_signal(number)
        run.communicate(timeout=60)
        (tmp_path / "go").touch()
        out, err = ours.communicate("\n", timeout=120)
        assert (out, ours.returncode) == ("2 None\n", 0), err
        until(lambda: not processes_of(line.home), 120)
    finally:
        sweep_up(line.home)


def test_importing_the_package_loads_no_module_of_it():
    code = "import sys, windfall; print([m for m in sys.modules if m.startswith('windfall.')])"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(windfall.__file__))}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "[]\n"


# --- large arguments -------------------------------------------------------------------------------------------


def test_large_arguments_are_sent_once_and_hidden_from_the_call(executor):
    data = os.urandom(1 << 20)
    futures = [executor.submit(operator.getitem, data, i) for i in range(3)]
    assert [future.result() for future in futures] == list(data[:3])
    same = [executor.submit(len, data) for _ in range(5)]
    assert [future.result() for future in same] == [1 << 20] * 5
    assert len(executor._dispatcher._uploaded) == 4  # the five calls share a blob
    assert executor.submit(eval, "__import__('os').listdir() if x else 0", {"x": data}).result() == []
    assert list(executor.map(len, [data, data[1:]], chunksize=2)) == [1 << 20, (1 << 20) - 1]


def test_blobs_of_calls_are_found_in_stored_items():
    import msgspec

    from windfall.model.calls import blobs_in, part_files, reference
    from windfall.model.spec import Items

    sha = "0123456789abcdef" * 4
    call = f"3.11 Zm9v {reference(sha, 300_000)}"
    part = (f".windfall-part-{sha}", sha, 300_000, 0o400)
    assert part_files(call) == [part] and part_files(f"3.11 {reference(sha, 300_000)} YmFy") == [part]
    assert part_files(f"{call} {reference(sha, 300_000)} {reference(sha[::-1], 5)}") == [
        part, (f".windfall-part-{sha[::-1]}", sha[::-1], 5, 0o400)]
    assert part_files("3.11 Zm9v YmFy") == [] and part_files(f"3.11 Zm9v {reference(sha, 5)}Zg") == []
    assert blobs_in(msgspec.msgpack.encode((0, Items(items=["3.11 Zm9v YmFy", call, call])))) == {sha}


def test_large_global_of_a_function_is_sent_once_and_unpickled_once_a_runner(executor):
    data = os.urandom(50 << 20)

    def part(start, length):
        return data[start:start + length]

    before = set(executor._dispatcher._uploaded)
    assert list(executor.map(part, range(6), [3] * 6, chunksize=2)) == [data[i:i + 3] for i in range(6)]
    futures = [executor.submit(part, i, 5) for i in range(3)]
    assert [future.result() for future in futures] == [data[i:i + 5] for i in range(3)]
    assert len(set(executor._dispatcher._uploaded) - before) == 1


def test_large_result_stays_on_the_server_until_it_is_asked_for(client, executor):
    future = executor.submit(bytes, 200 << 20)
    assert future.exception() is None
    assert isinstance(future._result, StoredResult) and future.stored.size > 200 << 20
    row, = (row for row in client.results(executor.bag) if row["task"] == future.task)
    assert row["value"] == "@" and row["files"][0][0] == ".windfall-result"
    assert future.result() == bytes(200 << 20)


def test_large_result_goes_to_the_next_call_without_its_client(server, executor, monkeypatch):
    monkeypatch.setattr(Api, "download", lambda *_: pytest.fail("the client downloaded a result"))

    def both_lengths(a, b, c):
        return len(a), len(b), c, os.listdir()

    made = executor.submit(bytes, 3 << 20)
    other = executor.submit(bytearray, 2 << 20)
    both = executor.submit(both_lengths, made, b=other, c=executor.submit(abs, -1))
    assert both.result() == (3 << 20, 2 << 20, 1, [])
    assert executor.submit(both_lengths, made, made, 7).result() == (3 << 20, 3 << 20, 7, [])
    kept = os.listdir(server.home / "pilot" / "local" / "cache")
    assert {made.stored.sha, other.stored.sha} <= set(kept)


def test_large_results_of_map_and_of_a_plain_call_come_whole(client, executor):
    assert list(executor.map(bytes, [2 << 20, 1], chunksize=2)) == [bytes(2 << 20), b"\0"]
    assert client.call(bytes, 3 << 20) == bytes(3 << 20)


def test_large_result_outlives_the_server_of_its_executor(tmp_path):
    program = ("from windfall import Executor\nwith Executor() as executor: future = executor.submit(bytes, 5 << 20)\n"
               "print(len(future.result()))")
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60,
                          env=environment(tmp_path / "home"))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{5 << 20}\n", "")


def test_call_without_a_module_names_host_interpreter_and_remedy(executor):
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere' on the host ") as caught:
        executor.submit(eval, "__import__('nowhere')").result()
    said = str(caught.value)
    assert os.uname().nodename in said and "python" in said and 'Executor(environment=".venv")' in said
    assert caught.value.name == "nowhere" and said in str(caught.value.__cause__)


def test_executor_sends_the_packages_of_an_environment_along(client, tmp_path):
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=False)
    assert made.returncode == 0
    (packages,) = (tmp_path / "env").glob("lib/python3.*/site-packages")
    (packages / "sent_along.py").write_text("answer = 42")
    with Executor(client, environment=tmp_path / "env") as executor:
        assert executor.submit(eval, "__import__('sent_along').answer").result() == 42
    with pytest.raises(BadInput, match="there is no"):
        Executor(client, environment=tmp_path / "none")
