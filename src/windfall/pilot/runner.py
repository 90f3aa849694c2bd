"""What runs inside a warm runner: takes pickled calls from descriptor 3, gives back pickled results.

Stands alone: it is copied out of the zipapp and started with the user's interpreter and site-packages, so that a call
finds the user's modules and not ours.  Only here is anything unpickled.  Frames: 4 bytes of length, then JSON.
"""

import base64
import json
import os
import pickle
import resource
import struct
import sys
import traceback

CHANNEL = 3
MAX_VALUE = 40 << 20
MAX_FUNCTIONS = 256
PROTOCOL = 4
VERSION = "{}.{}".format(*sys.version_info)
MISMATCH = ("the call was made with Python {}, and this pilot's is {}: what one pickles the other may not read; "
            "use the same on both sides")
INITIALIZER = "WINDFALL_INITIALIZER"
ENDS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)

_functions = {}  # text → function: most calls are of the same


class InitializerFailed(Exception):
    """No call of this runner can succeed."""


def initialize():
    """Once per runner, before its first call."""
    text = os.environ.pop(INITIALIZER, None)
    if text is None:
        return
    try:
        _, function, arguments = text.split(" ")
        args, kwargs = pickle.loads(base64.b64decode(arguments))
        pickle.loads(base64.b64decode(function))(*args, **kwargs)
    except ENDS as error:
        os.environ[INITIALIZER] = text  # the next call must not run either
        raise InitializerFailed() from error


def main():
    sys.path[0] = ""  # not the pilot's directory: where the call runs
    channel = os.dup(CHANNEL)
    os.set_inheritable(channel, False)
    os.close(CHANNEL)
    while True:
        call = _receive(channel)
        if call is None:
            return
        _send(channel, _run(call))


def _receive(channel):
    head = _exactly(channel, 4)
    if head is None:
        return None
    body = _exactly(channel, struct.unpack("=I", head)[0])
    return None if body is None else json.loads(body.decode("utf-8"))


def _exactly(channel, size):
    data = b""
    while len(data) < size:
        more = os.read(channel, size - len(data))
        if not more:
            return None
        data = more if not data else data + more
    return data


def _send(channel, value):
    data = json.dumps(value).encode("utf-8")
    data = memoryview(struct.pack("=I", len(data)) + data)
    while data:
        data = data[os.write(channel, data):]


def _run(call):
    os.chdir(call["cwd"])
    os.environ["WINDFALL_ATTEMPT"] = str(call["a"])
    before = _cpu()
    result = _call(call["call"])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    result["a"] = call["a"]
    result["cpu"] = int(1000 * (_cpu() - before))
    result["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result["left"] = _has_children()
    return result


def _cpu():
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def _has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def _call(text):
    try:
        version, function, arguments = text.split(" ")
        chunk = version.endswith("*")
        if version.rstrip("*") != VERSION:
            raise RuntimeError(MISMATCH.format(version.rstrip("*"), VERSION))
        initialize()
        function = _function(function)
        if chunk:
            return {"ok": True, "value": _pack(_chunk(function, pickle.loads(base64.b64decode(arguments))))}
        args, kwargs = pickle.loads(base64.b64decode(arguments))
        return {"ok": True, "value": _pack(("ok", function(*args, **kwargs)))}
    except ENDS as error:
        return _failure(error)


def _function(text):
    function = _functions.get(text)
    if function is None:
        if len(_functions) >= MAX_FUNCTIONS:
            _functions.clear()
        function = _functions[text] = pickle.loads(base64.b64decode(text))
    return function


def _chunk(function, calls):
    """One call failing keeps no other from its result."""
    values, errors = [], {}
    for place, args in enumerate(calls):
        try:
            values.append(function(*args))
        except ENDS as error:
            values.append(None)
            errors[place] = _portable(error)
    return "chunk", values, errors


def _pack(value):
    data = pickle.dumps(value, PROTOCOL)
    if len(data) > MAX_VALUE:
        raise ValueError("the result has {} bytes, more than the {} a result may have; write it to a file and "
                         "name that as an output".format(len(data), MAX_VALUE))
    return base64.b64encode(data).decode("ascii")


def _portable(error):
    """(exception or None, traceback): some exceptions do not pickle, or pickle and do not come back."""
    text = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error, PROTOCOL))
        return error, text
    except Exception:
        return None, text


def _failure(error):
    broken = isinstance(error, InitializerFailed)
    error, text = _portable(error)
    value = _pack(("broken", None, text) if broken else ("error", error, text))
    last = [line for line in text.splitlines() if line.strip()]
    return {"ok": False, "value": value, "note": last[-1][:1000] if last else "it failed without a word"}


if __name__ == "__main__":
    main()
