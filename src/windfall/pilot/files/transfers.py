"""Porters: a few threads that carry files, so that the loop never waits for a disk or for a large transfer.

Jobs go in through `fetch`, `bring`, `show`, `discard`; what became of them comes back through `done` (a deque) and a
byte on the bell.  Threads start when there is work for them.

A task's directory stays until its report was confirmed (`discard`): results may have to be sent again.
"""

import _thread
import os
import queue
from collections import deque

from windfall.errors import WindfallError
from windfall.pilot import clock
from windfall.pilot.files import outputs, packed, staging
from windfall.pilot.files.blobs import Blobs, Closing
from windfall.pilot.run import slot

THREADS = 3
AT_A_TIME = 16  # pieces of output


class Porters:
    def __init__(self, folders, dial, token, bell, settling=lambda: False):
        self.folder = folders.tasks
        self.cache_folder = folders.cache
        self.environments = packed.Environments(folders.environments)
        self.unpacking = _thread.allocate_lock()
        self.cache = None
        self.dial = dial             # function: a Link not connected yet
        self.token = token
        self.bell = bell             # function: wakes the loop
        self.settling = settling     # function: did we enrol again a moment ago?
        self.jobs = queue.Queue()
        self.done = deque()
        self.threads = 0
        self.working = []            # of each thread: its Blobs, and a lock it holds while it lives
        self.closed = False
        self.shown = deque()         # pieces of output to show, and whether somebody is about it
        self.showing = False
        self.order = _thread.allocate_lock()
        self.carried = {}            # attempt → (folder, report, cargo): being brought home

    def fetch(self, task):
        """Make the task's directory, with all that has to be there before it starts."""
        if self.cache is None:
            self.cache = staging.Cache(self.cache_folder)  # here, not in the threads: there must be one
        self._add(self._fetch, task.attempt, task.field)

    def bring(self, attempt, report, cargo):
        """Send home what `homeward.Wants` says of a task's directory."""
        self.carried[attempt] = (self.place(attempt), report, cargo)
        self._add(self._bring, attempt, report, cargo)

    def show(self, attempt, stream, offset, data):
        """One thread at a time sees to these: of two pieces the second must not come first."""
        with self.order:
            self.shown.append((attempt, stream, offset, data))
            begins, self.showing = not self.showing, True
        if begins:
            self._add(self._show)

    def discard(self, attempt):
        self._add(self._discard, attempt)

    def errand(self, function):
        """Anything else that takes a while: function(blobs)."""
        self._add(function)

    def place(self, attempt):
        return os.path.join(self.folder, str(attempt))

    def close(self, patience):
        """Break off what is under way and wait for the threads to end; True if all have, within `patience` seconds."""
        self.closed = True
        end = clock.seconds() + patience
        for _ in self.working:
            self.jobs.put(None)
        alive = list(self.working)
        while alive and clock.seconds() < end:
            for blobs, _ in alive:
                blobs.link.abort()  # again and again: a link tries once more by itself
            alive = [(blobs, life) for blobs, life in alive if not life.acquire(True, 0.05)]
        return not alive

    def make_room(self):
        (self.cache or staging.Cache(self.cache_folder)).purge()

    # --- in the threads

    def _add(self, *job):
        self.jobs.put(job)
        if self.threads < THREADS and self.jobs.qsize() > 0:
            self.threads += 1
            blobs = Blobs(self.dial(), self.token, lambda: self.closed, settling=self.settling)
            life = _thread.allocate_lock()
            life.acquire()
            self.working.append((blobs, life))
            _thread.start_new_thread(self._work, (blobs, life))

    def _work(self, blobs, life):
        try:
            self._do_jobs(blobs)
        finally:
            life.release()

    def _do_jobs(self, blobs):
        while not self.closed:
            job = self.jobs.get()
            if job is None:
                return
            try:
                job[0](blobs, *job[1:])
            except Closing:
                pass
            except Exception as error:  # a porter never dies of one job, and says what happened
                self._post("trouble", None, _said(error))

    def _post(self, *event):
        self.done.append(event)
        self.bell()

    def _fetch(self, blobs, attempt, field):
        report = None
        try:
            if field("packed"):
                self._unpack(blobs, attempt, field)
            staging.stage_in(self.place(attempt), field("inputs"), self.cache, blobs, attempt)
            staging.link_placed(self.place(attempt), field("placed"))
        except packed.Mismatch as error:
            report = _failure(attempt, "start", str(error))
        except WindfallError as error:
            report = _failure(attempt, "input", "an input could not be brought: {}".format(error.message))
        except OSError as error:
            report = _failure(attempt, "disk", "no place for the inputs: {}".format(error.strerror or error))
        except Closing:
            raise
        except Exception as error:  # whatever it is: an attempt that never ends would keep its seat for good
            report = _failure(attempt, "input", "an input could not be brought: {}".format(_said(error)))
        self._post("fetched", attempt, report)

    def _unpack(self, blobs, attempt, field):
        with self.unpacking:
            self.environments.prepare(field("packed"), self.cache, blobs, attempt)
            if not field("setup") and not field("modules"):  # else it may be another Python that runs
                packed.compare(self.environments.folder, field("packed"), field("kind") == "call")

    def _bring(self, blobs, attempt, report, cargo):
        trouble = None
        try:
            fields = outputs.send(self.place(attempt), cargo, report, blobs)
        except WindfallError as error:
            trouble = error.message
        except OSError as error:
            trouble = "the outputs cannot be read: {}".format(error)
        except Closing:
            raise
        except Exception as error:
            trouble = "the outputs cannot be sent: {}".format(_said(error))
        if self.closed:
            raise Closing()  # the outbox has it, or is about to: leave it as it is
        if trouble is None:
            report.update(fields)
        else:
            report.update(_failure(attempt, "output", trouble))
        self._post("brought", attempt, report)

    def _show(self, blobs):
        for _ in range(AT_A_TIME):
            with self.order:
                self.showing = bool(self.shown)
                if not self.showing:
                    return
                piece = self.shown.popleft()
            self._send(blobs, *piece)
        self.jobs.put((self._show,))  # others want the thread, too

    def _send(self, blobs, attempt, stream, offset, data):
        path = "/v1/attempts/{}/output?stream={}&offset={}".format(attempt, stream, offset)
        try:
            reply = blobs.request("POST", path, [("Content-Type", "application/octet-stream")], data)
            go = reply.status == 200 and b"false" not in reply.body
        except Closing:
            raise
        except Exception:
            go = False  # live output is a courtesy: what is kept comes with the report
        if not go:
            self._post("unwatch", attempt, None)

    def _discard(self, blobs, attempt):
        self.environments.leave(attempt)
        slot.remove(self.place(attempt))


def _said(error):
    return "{}: {}".format(type(error).__name__, error)


def _failure(attempt, why, note):
    return {"a": attempt, "o": "failed", "why": why, "note": note}
