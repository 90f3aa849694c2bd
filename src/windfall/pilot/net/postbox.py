"""The relay's side of the spool: one listing for all connections, a look at most every FIRST seconds."""

import os
import re
import stat
import time

from windfall.pilot import clock
from windfall.pilot.net import spool
from windfall.pilot.net.relay import IDLE, Caller

SOON = 0.005             # seconds in which more may come for the same chunk
LONGEST = 0.25           # seconds between two looks, when nothing happens
ORPHAN = 10.0            # seconds after which a chunk of an unknown connection is deleted
GOODBYE = 60.0           # seconds a pilot may take to read our last words
_CHUNK = re.compile(r"([0-9a-f]{16})\.([0-9]{1,9})\Z")


class SpoolCaller(Caller):
    def __init__(self, number, now, name, box):
        Caller.__init__(self, number, now)
        self.box = box
        self.name = name
        self.down = os.path.join(box.down, name)
        self.sent, self.came = spool.Sent(), spool.Came()
        self.held = b""              # of the chunk last taken, what had no credit yet
        self.gone = False            # the pilot has hung up, or broke the rules
        self.said_end = 0.0

    def soon(self, relay):
        """Not at once: more may come for the same chunk."""
        self.box.hurry()

    def push(self):
        """Bytes handed on; None when it is gone."""
        if self.gone:
            return None
        try:
            if not (self.out and self.sent.room()):
                if self.came.owing():
                    self._write(b"")
                return 0
            content = bytes(self.out[:spool.CHUNK])
            self._write(content)
        except OSError:
            return None
        del self.out[:len(content)]
        return len(content)

    def _write(self, content, flags=0):
        spool.write(self.down, str(self.sent.next), content, flags, self.came.next)
        self.sent.wrote(content)
        self.came.told()

    def watch(self):
        """There is credit."""
        if self.held:
            self.box.hurry(0)

    def close(self):
        """Say so, where somebody may still listen; the folder goes later."""
        try:
            if not self.gone:
                self._write(b"", spool.END)
                return
        except OSError:
            pass
        self.gone = True
        spool.clear(self.down)


class Postbox:
    def __init__(self, base, now):
        self.up, self.down = os.path.join(base, "up"), os.path.join(base, "down")
        for path in (self.up, self.down):
            if not os.path.isdir(path):
                os.mkdir(path, 0o700)
            spool.folder(path)
        self.by_name = {}
        self.orphans = {}            # name of a chunk → since when
        self.pause = spool.FIRST
        self.due = now
        self._clear()

    def _clear(self):
        """Whatever our predecessor had open is broken, and is told so by its folder's end."""
        fresh = {found.group(1) for found in map(_CHUNK.match, os.listdir(self.up)) if found and found.group(2) == "0"}
        for name in os.listdir(self.down):
            if name not in fresh:
                spool.clear(os.path.join(self.down, name))
        for name in os.listdir(self.up):
            if name.startswith(".") and _old(os.path.join(self.up, name)):
                spool.remove(os.path.join(self.up, name))

    def look(self, relay, now):
        """Take what has come, write what is to go."""
        busy = False
        chunks = self._listed()
        for name in sorted(chunks):
            busy = self._from(relay, name, chunks[name], now) or busy
        for caller in list(self.by_name.values()):
            busy = self._to(relay, caller) or busy
        self._tidy(now)
        self.pause = spool.FIRST if busy else min(self.pause * 1.5, LONGEST)
        self.due = clock.seconds() + self.pause

    def hurry(self, seconds=SOON):
        self.pause = spool.FIRST
        self.due = min(self.due, clock.seconds() + seconds)

    def _listed(self):
        """Connection → numbers of its chunks."""
        chunks = {}
        for found in map(_CHUNK.match, os.listdir(self.up)):
            if found:
                chunks.setdefault(found.group(1), set()).add(int(found.group(2)))
        return chunks

    def _from(self, relay, name, numbers, now):
        caller = self.by_name.get(name)
        if caller is None and 0 in numbers and not relay.full():
            caller = SpoolCaller(relay.next_number(), now, name, self)
            self.by_name[name] = caller
            relay.admit(caller)
        if caller is None:
            self._orphaned(name, numbers, now)
            return False
        try:
            return self._take(relay, caller, numbers)
        except (OSError, spool.Bad):
            self._drop(relay, caller)
            return True

    def _take(self, relay, caller, numbers):
        """Chunks in order, as far as there is credit."""
        took = self._hand_on(relay, caller)
        while not caller.held and caller.came.next in numbers and len(relay.outbox) < (1 << 22):
            path = os.path.join(self.up, "{}.{}".format(caller.name, caller.came.next))
            flags, taken, content = spool.read(path)
            caller.sent.taken(taken)
            caller.came.took(content)
            caller.held = content
            self._hand_on(relay, caller)
            took = True
            if flags & spool.END:
                self._drop(relay, caller)
                break
        return took

    def _hand_on(self, relay, caller):
        if caller.told:
            caller.held = b""
        content = caller.held[:caller.flow.credit]
        if content:
            caller.held = caller.held[len(content):]
            relay.say(caller, content)
        return bool(content)

    def _to(self, relay, caller):
        busy = self._hand_on(relay, caller)
        while relay.push(caller):
            busy = True
        return busy

    def _drop(self, relay, caller):
        caller.gone = True
        relay.drop(caller)
        spool.clear(caller.down)
        self.by_name.pop(caller.name, None)

    def _orphaned(self, name, numbers, now):
        """A listing may miss what is renamed meanwhile, so they are given a moment."""
        for number in numbers:
            chunk = "{}.{}".format(name, number)
            if now - self.orphans.setdefault(chunk, now) > ORPHAN:
                spool.remove(os.path.join(self.up, chunk))
                spool.clear(os.path.join(self.down, name))
                del self.orphans[chunk]

    def _tidy(self, now):
        if len(self.orphans) > 1000:
            self.orphans.clear()
        for name, caller in list(self.by_name.items()):
            if caller.told:
                caller.said_end = caller.said_end or now
                if caller.gone or now - caller.said_end > GOODBYE:
                    caller.gone = True
                    spool.clear(caller.down)
                    del self.by_name[name]


def _old(path):
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and time.time() - about.st_mtime > IDLE
