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
        function, args, kwargs = pickle.loads(base64.b64decode(text))
        value = function(*args, **kwargs)
        return {"ok": True, "value": _pack(("ok", value))}
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return _failure(error)


def _pack(value):
    data = pickle.dumps(value, min(4, pickle.HIGHEST_PROTOCOL))
    if len(data) > MAX_VALUE:
        raise ValueError("the result has {} bytes, more than the {} a result may have; write it to a file and "
                         "name that as an output".format(len(data), MAX_VALUE))
    return base64.b64encode(data).decode("ascii")


def _failure(error):
    text = traceback.format_exc()
    try:
        value = _pack(("error", error, text))
        pickle.loads(base64.b64decode(value))  # some exceptions pickle and do not come back
    except Exception:
        value = _pack(("error", None, text))
    last = [line for line in text.splitlines() if line.strip()]
    return {"ok": False, "value": value, "note": last[-1][:1000] if last else repr(type(error))}


if __name__ == "__main__":
    main()
