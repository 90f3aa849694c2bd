"""Python calls in warm runners."""

import operator
import os
import pickle
import signal
import sys
import time

import pytest
from harness import Gate, alive, call, value, wait_until


@pytest.fixture
def one(server, launch):
    launch("--cores", "1")
    numbers = iter(range(1, 10000))

    def run(function, *args, spec=None, **kwargs):
        number = next(numbers)
        server.submit([number, call(function, *args, **kwargs)], kind="call", **(spec or {}))
        return server.result(number)

    return run


def test_call_returns_its_result(one):
    report = one(divmod, 17, 5)
    assert report.get("o", "succeeded") == "succeeded" and value(report) == ("ok", (3, 2))
    assert value(one(sorted, [3, 1, 2], reverse=True)) == ("ok", [3, 2, 1])


def test_runner_stays_warm_between_calls(one):
    assert value(one(os.getpid)) == value(one(os.getpid))


def test_call_returns_its_exception(one):
    report = one(operator.truediv, 1, 0)
    assert (report["o"], report["why"]) == ("failed", "exit")
    kind, error, text = value(report)
    assert kind == "error" and isinstance(error, ZeroDivisionError) and "Traceback" in text
    assert report["note"] == "ZeroDivisionError: division by zero"


def test_unpicklable_exception_comes_back_as_text(one):
    report = one(exec, "class Odd(Exception): pass\nraise Odd('hm')")
    kind, error, text = value(report)
    assert kind == "error" and error is None and "hm" in text and report["why"] == "exit"


def test_unpicklable_result_is_a_failure(one):
    assert one(eval, "lambda: 0")["why"] == "exit"


def test_malformed_call_is_a_failure(server, launch):
    launch()
    server.submit([1, "bm9uc2Vuc2U="], kind="call")
    assert server.result(1)["why"] == "exit"


def test_report_has_the_output_of_a_call(one):
    report = one(exec, "import os, sys; print('py'); os.system('echo sh'); print('err', file=sys.stderr)")
    assert sorted(report["out"].split()) == ["py", "sh"] and report["err"] == "err\n"
    assert "out" not in one(abs, 1)


def test_system_exit_is_a_failure(one):
    report = one(exec, "raise SystemExit(0)")
    assert (report["o"], report["why"]) == ("failed", "exit")


def test_runner_killed_in_mid_call_is_replaced(one):
    report = one(exec, "import os; os.kill(os.getpid(), 9)")
    assert (report["o"], report["why"], report["signal"]) == ("failed", "signal", signal.SIGKILL)
    assert value(one(abs, -4)) == ("ok", 4)


def test_call_that_exits_its_process_has_not_succeeded(one):
    report = one(os._exit, 0)
    assert (report["o"], report["why"]) == ("failed", "exit") and "value" not in report
    assert value(one(abs, -4)) == ("ok", 4)


def test_runner_that_closes_its_channel_is_replaced(one):
    report = one(exec, "import os, time\nos.closerange(3, 300)\ntime.sleep(600)")
    assert report["o"] == "failed"
    assert value(one(abs, -4)) == ("ok", 4)


def test_call_over_its_time_limit_is_ended(one):
    report = one(time.sleep, 600, spec={"time": 300})
    assert (report["o"], report["why"]) == ("failed", "time")
    assert value(one(abs, -4)) == ("ok", 4)


def test_children_of_a_call_end_with_it(one):
    report = one(exec, "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)")
    wait_until(lambda: not alive(int(report["out"])))
    report = one(exec, "import subprocess; subprocess.call('setsid sleep 60 > /dev/null 2>&1 & echo $!', shell=True)")
    wait_until(lambda: not alive(int(report["out"])))
    assert value(one(abs, -4)) == ("ok", 4)


def test_running_call_is_cancelled(server, launch):
    launch("--cores", "1")
    server.submit([1, call(time.sleep, 600)], kind="call")
    server.wait_started(1)
    server.say(cancel=[1])
    assert server.result(1)["o"] == "cancelled"


def test_call_gets_the_environment_of_its_spec(one):
    get = "__import__('os').environ.get('COLOUR')"
    assert value(one(eval, get, spec={"environment": {"COLOUR": "red"}})) == ("ok", "red")
    assert value(one(eval, get)) == ("ok", None)


def test_each_call_gets_an_empty_directory(one):
    assert value(one(exec, "open('junk', 'w').write('x')")) == ("ok", None)
    assert value(one(os.listdir)) == ("ok", [])


def test_large_argument_and_result_are_passed(server, one):
    report = one(bytes.upper, b"x" * 5000000)
    (path, digest, size, _), = report["files"]
    assert (path, report["value"]) == (".windfall-result", "@")
    assert pickle.loads(server.blobs[digest]) == ("ok", b"X" * 5000000) and size == len(server.blobs[digest])


def test_parts_of_a_call_and_results_of_others_are_files_that_it_does_not_see(server, launch):
    launch("--cores", "1")

    def result(attempt, function, *parts):
        blobs = [(server.blob(data), len(data)) for data in map(pickle.dumps, (function, *parts))]
        text = " ".join(["{}.{}".format(*sys.version_info), *(f"@{digest}:{size}" for digest, size in blobs)])
        files = [[".windfall-part-" + digest, digest, size, 0o400] for digest, size in blobs]
        server.submit([attempt, text], kind="call", inputs=files)
        return value(server.result(attempt))

    for attempt in (1, 2):  # the second time the runner knows the function
        found = result(attempt, "{} {} {c}".format, (["x", None], {"c": None}, [1, "c"]), ("ok", "y"), ("ok", "z"))
        assert found == ("ok", "x y z")
    assert result(3, os.listdir, ([None], {}, [0]), ("ok", ".")) == ("ok", [])


def test_half_a_result_of_a_call_that_died_is_removed(server, launch, tmp_path):
    launch("--cores", "1", "--dir", str(tmp_path / "pilot"))
    dies = ("import os, sys; open(os.path.join(os.path.dirname(sys.modules['__main__'].__file__), "
            "'result-' + os.environ['WINDFALL_ATTEMPT']), 'w').close(); os._exit(1)")
    server.submit([1, call(exec, dies)], kind="call")
    assert server.result(1)["o"] == "failed"
    assert not list((tmp_path / "pilot").glob("run-*/result-*"))


def test_call_sees_site_packages_of_the_user_only(one):
    assert value(one(eval, "__import__('sys').flags.no_site")) == ("ok", 0)
    kind, names = value(one(eval, "[m for m in __import__('sys').modules if m.startswith('windfall')]"))
    assert names == []


def test_calls_and_commands_take_turns(server, launch):
    launch("--cores", "2")
    for i in range(1, 61):
        if i % 2:
            server.submit([i, call(abs, -i)], kind="call")
        else:
            server.submit([i, f"echo {i}"])
    for i in range(1, 61):
        report = server.result(i)
        assert value(report) == ("ok", i) if i % 2 else report["out"] == f"{i}\n"


# --- many at once: short calls queue behind one another in their runner ---------------------------------------


def submit_many(server, first, calls, **spec):
    """Submit many calls, after one that shows the spawner that calls are short."""
    for i in range(first, first + 20):
        server.submit([i, call(abs, -i)], kind="call", **spec)
        server.result(i)
    numbers = list(range(first + 20, first + 20 + len(calls)))
    server.submit(*[[number, text] for number, text in zip(numbers, calls)], kind="call", **spec)
    return numbers


def test_output_goes_to_the_call_that_wrote_it(server, launch):
    launch("--cores", "1")
    texts = ["import sys; print({0}); sys.stderr.write('e{0}')", "import os; os.write(1, b'{0}\\n')", "{0}"]
    numbers = submit_many(server, 1, [call(exec, texts[i % 3].format(i)) for i in range(300)])
    for i, number in enumerate(numbers):
        report = server.result(number)
        assert report.get("out") == (None if i % 3 == 2 else f"{i}\n"), i
        assert report.get("err") == (f"e{i}" if i % 3 == 0 else None), i


def test_queued_calls_run_once_after_a_call_kills_its_runner(server, launch, tmp_path):
    launch("--cores", "1")
    note = "open({!r}, 'a').write('{{}} ')".format(str(tmp_path / "ran"))
    texts = [note.format(i) + ("\nimport os; os.kill(os.getpid(), 9)" if i in (40, 41, 90) else "") for i in range(200)]
    numbers = submit_many(server, 1, [call(exec, text) for text in texts])
    outcomes = [server.result(number).get("o", "succeeded") for number in numbers]
    assert [i for i, outcome in enumerate(outcomes) if outcome != "succeeded"] == [40, 41, 90]
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(200))  # each once


def test_time_limit_ends_only_the_call_that_runs(server, launch):
    launch("--cores", "1")
    calls = [call(time.sleep, 600 if i == 50 else 0) for i in range(150)]
    numbers = submit_many(server, 1, calls, time=5000)
    for i, number in enumerate(numbers):
        report = server.result(number)
        assert (report.get("o", "succeeded"), report.get("why")) == (
            ("failed", "time") if i == 50 else ("succeeded", None)), i


def behind(gate, count):
    """Return calls of which the first waits at the gate, and the others behind it."""
    return [call(exec, gate.python if i == 0 else "") for i in range(count)]


def test_cancelled_queued_calls_do_not_run(server, launch, gate):
    launch("--cores", "1")
    numbers = submit_many(server, 1, behind(gate, 60))
    server.wait_started(numbers[0])
    server.say(cancel=numbers[30:40])
    server.result(numbers[39])
    gate.open()
    for i, number in enumerate(numbers):
        assert server.result(number).get("o", "succeeded") == ("cancelled" if 30 <= i < 40 else "succeeded"), i


def test_recalled_queued_calls_are_returned(server, launch, gate):
    launch("--cores", "1")
    numbers = submit_many(server, 1, behind(gate, 60))
    server.wait_started(numbers[0])
    server.say(recall=numbers[20:])
    assert {server.result(number)["o"] for number in numbers[20:]} == {"returned"}
    gate.open()
    assert {server.result(number).get("o", "succeeded") for number in numbers[:20]} == {"succeeded"}


def test_next_call_stays_when_the_calls_behind_it_are_taken_back(server, launch):
    """The next call stays even if its runner has not begun it, which can take a while on a busy machine."""
    launch("--cores", "1")
    [first] = submit_many(server, 1, [call(os.getpid)])
    runner = value(server.result(first))[1]
    os.kill(runner, signal.SIGSTOP)
    numbers = list(range(100, 160))
    server.submit(*[[number, call(abs, -number)] for number in numbers], kind="call")
    server.wait_started(numbers[0])
    server.say(recall=numbers[20:])
    assert {server.result(number)["o"] for number in numbers[20:]} == {"returned"}
    os.kill(runner, signal.SIGCONT)
    assert [value(server.result(number)) for number in numbers[:20]] == [("ok", number) for number in numbers[:20]]


def test_files_of_a_call_are_removed_before_the_next(server, launch):
    launch("--cores", "1")
    texts = ["open('junk', 'w').write('x')" if i % 2 else "import os; print(os.listdir())" for i in range(100)]
    numbers = submit_many(server, 1, [call(exec, text) for text in texts])
    assert {server.result(number).get("out", "[]\n") for number in numbers} == {"[]\n"}


def test_large_calls_run_among_small_ones(server, launch):
    launch("--cores", "1")
    sizes = [(i % 5 == 0) * 300000 + i for i in range(100)]
    numbers = submit_many(server, 1, [call(len, b"x" * size) for size in sizes])
    assert [value(server.result(number)) for number in numbers] == [("ok", size) for size in sizes]


def test_runner_that_died_while_idle_is_replaced(server, launch, gate, tmp_path):
    launch("--cores", "1")
    dying = Gate(tmp_path)
    server.submit([1, call(exec, "import os, threading, time\n"
                                 "def later():\n"
                                 f"  while not os.path.exists({dying.path!r}): time.sleep(0.02)\n"
                                 "  os._exit(1)\n"
                                 "threading.Thread(target=later, daemon=True).start()\n"
                                 "print(os.getpid())")], kind="call")
    runner = int(server.result(1)["out"])
    server.submit([2, gate.shell + "; echo a command"])  # in the same slot
    dying.open()
    wait_until(lambda: not alive(runner))
    gate.open()
    assert server.result(2)["out"] == "a command\n"
    for number in (3, 4):
        server.submit([number, call(abs, -number)], kind="call")
        assert value(server.result(number)) == ("ok", number)
