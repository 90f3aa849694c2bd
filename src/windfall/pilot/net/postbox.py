"""The relay's side of the spool (`spool.py`): one listing of the folder serves all connections.

The pause between two listings grows from 0.02 s to LONGEST_PAUSE while nothing happens.
"""

import os
import re
import stat
import time

from windfall.pilot import clock
from windfall.pilot.net import spool
from windfall.pilot.net.callers import IDLE_SECONDS, Caller

GATHER_SECONDS = 0.005   # how long to wait for more bytes for the same chunk
LONGEST_PAUSE = 0.25     # seconds between two listings while nothing happens
ORPHAN_SECONDS = 10.0    # after which a chunk of an unknown connection is deleted
GOODBYE_SECONDS = 60.0   # how long a pilot may take to read the end of its connection
_CHUNK = re.compile(r"([0-9a-f]{16})\.([0-9]{1,9})\Z")


class SpoolCaller(Caller):
    def __init__(self, number, now, name, box):
        Caller.__init__(self, number, now)
        self.box = box
        self.name = name
        self.down = os.path.join(box.down, name)
        self.written, self.taken = spool.Written(), spool.Taken()
        self.held = b""              # the part of the last chunk taken for which there was no credit
        self.gone = False            # the pilot has hung up, or broke the rules
        self.end_written_at = 0.0

    def send_soon(self, relay):
        """Send after a moment, since more bytes may come for the same chunk."""
        self.box.hurry()

    def send(self):
        """Write one chunk for the pilot; return its size, or None when the pilot is gone."""
        if self.gone:
            return None
        try:
            if not (self.unsent and self.written.has_room()):
                if self.taken.owes_notice():
                    self._write(b"")
                return 0
            content = bytes(self.unsent[:spool.CHUNK])
            self._write(content)
        except OSError:
            return None
        del self.unsent[:len(content)]
        return len(content)

    def _write(self, content, flags=0):
        spool.write(self.down, str(self.written.next), content, flags, self.taken.next)
        self.written.add(content)
        self.taken.note_told()

    def watch(self):
        """Go on with the rest of a chunk, now that there is credit."""
        if self.held:
            self.box.hurry(0)

    def close(self):
        """Write the end for a pilot that may still read; its folder goes later."""
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
            spool.check_folder(path)
        self.by_name = {}
        self.orphans = {}            # name of a chunk → when it was first seen
        self.pause = spool.FIRST_PAUSE
        self.due = now
        self._clear()

    def _clear(self):
        """Break the connections of the relay before this one: a pilot takes the end of its folder for a hang-up."""
        matches = [_CHUNK.match(name) for name in os.listdir(self.up)]
        unopened = {match.group(1) for match in matches if match and match.group(2) == "0"}
        for name in os.listdir(self.down):
            if name not in unopened:
                spool.clear(os.path.join(self.down, name))
        for name in os.listdir(self.up):
            if name.startswith(".") and _is_old(os.path.join(self.up, name)):
                spool.remove(os.path.join(self.up, name))

    def exchange(self, relay, now):
        """Take the chunks that pilots have written, and write chunks for them."""
        busy = False
        chunks = self._list_chunks()
        for name in sorted(chunks):
            busy = self._receive(relay, name, chunks[name], now) or busy
        for caller in list(self.by_name.values()):
            busy = self._send(relay, caller) or busy
        self._forget_closed(now)
        self.pause = spool.FIRST_PAUSE if busy else min(self.pause * 1.5, LONGEST_PAUSE)
        self.due = clock.seconds() + self.pause

    def hurry(self, seconds=GATHER_SECONDS):
        self.pause = spool.FIRST_PAUSE
        self.due = min(self.due, clock.seconds() + seconds)

    def _list_chunks(self):
        """Return {connection: numbers of its chunks}."""
        chunks = {}
        for match in map(_CHUNK.match, os.listdir(self.up)):
            if match:
                chunks.setdefault(match.group(1), set()).add(int(match.group(2)))
        return chunks

    def _receive(self, relay, name, numbers, now):
        """Take the chunks of one connection, which may be new; return True if anything moved."""
        caller = self.by_name.get(name)
        if caller is None and 0 in numbers and relay.make_room():
            caller = SpoolCaller(relay.next_number(), now, name, self)
            self.by_name[name] = caller
            relay.admit(caller)
        if caller is None:
            self._delete_orphans(name, numbers, now)
            return False
        try:
            return self._take(relay, caller, numbers)
        except (OSError, spool.BadChunk):
            self._drop(relay, caller)
            return True

    def _take(self, relay, caller, numbers):
        """Take a caller's chunks in order, as far as it has credit; return True if anything moved."""
        moved = self._send_home(relay, caller)
        while not caller.held and caller.taken.next in numbers and len(relay.outbox) < (1 << 22):
            path = os.path.join(self.up, "{}.{}".format(caller.name, caller.taken.next))
            flags, taken, content = spool.read(path)
            caller.written.note_taken(taken)
            caller.taken.add(content)
            caller.held = content
            self._send_home(relay, caller)
            moved = True
            if flags & spool.END:
                self._drop(relay, caller)
                break
        return moved

    def _send_home(self, relay, caller):
        """Send home what is held of a caller's chunk, as far as it has credit; return True if anything moved."""
        if caller.closed_here:
            caller.held = b""
        content = caller.held[:caller.flow.credit]
        if content:
            caller.held = caller.held[len(content):]
            relay.send_home(caller, content)
        return bool(content)

    def _send(self, relay, caller):
        busy = self._send_home(relay, caller)
        while relay.send_to(caller):
            busy = True
        return busy

    def _drop(self, relay, caller):
        caller.gone = True
        relay.drop(caller)
        spool.clear(caller.down)
        self.by_name.pop(caller.name, None)

    def _delete_orphans(self, name, numbers, now):
        """Delete chunks of an unknown connection, after a while: a listing may have missed its first chunk."""
        for number in numbers:
            chunk = "{}.{}".format(name, number)
            if now - self.orphans.setdefault(chunk, now) > ORPHAN_SECONDS:
                spool.remove(os.path.join(self.up, chunk))
                spool.clear(os.path.join(self.down, name))
                del self.orphans[chunk]

    def _forget_closed(self, now):
        if len(self.orphans) > 1000:
            self.orphans.clear()
        for name, caller in list(self.by_name.items()):
            if caller.closed_here:
                caller.end_written_at = caller.end_written_at or now
                if caller.gone or now - caller.end_written_at > GOODBYE_SECONDS:
                    caller.gone = True
                    spool.clear(caller.down)
                    del self.by_name[name]


def _is_old(path):
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and time.time() - about.st_mtime > IDLE_SECONDS
