"""Transfers: a few threads that move files, so that the agent's loop never waits for a disk or for a large transfer.

The agent adds jobs with `fetch`, `upload`, `show` and `discard`.  The threads put their outcomes into `done` (a deque)
and wake the loop.  Threads start when there is work for them.

A task's directory stays until the server has confirmed its report (`discard`): results may have to be sent again.
"""

import _thread
import os
import queue
from collections import deque

from windfall.errors import WindfallError
from windfall.pilot import clock
from windfall.pilot.files import outputs, packed, scratch, staging
from windfall.pilot.files.blobs import Blobs
from windfall.pilot.files.limits import Cancelled, Closing, Limits, OverLimit
from windfall.pilot.net.link import HttpRequest
from windfall.pilot.run import slot

THREADS = 3
AT_A_TIME = 16  # pieces of live output that a thread sends before it lets other jobs run


class Transfers:
    def __init__(self, folders, dial, token, wake, just_enrolled=lambda: False):
        self.folder = folders.tasks
        self.cache_folder = folders.cache
        self.environments = packed.Environments(folders.environments)
        self.unpacking = _thread.allocate_lock()
        self.cache = None
        self.dial = dial             # function: makes an HttpLink that is not connected yet
        self.token = token
        self.wake = wake             # function: wakes the loop
        self.just_enrolled = just_enrolled   # function: may the server not know the pilot's attempts yet?
        self.jobs = queue.Queue()
        self.done = deque()
        self.threads = 0
        self.working = []            # per thread: its Blobs, and a lock that it holds while it lives
        self.closed = False
        self.shown = deque()         # pieces of live output to send, and whether a thread sends them
        self.showing = False
        self.order = _thread.allocate_lock()
        self.cancelled = set()       # attempts whose uploads are to end
        self.uploading = {}          # attempt → (folder, report, uploads), while its files are being sent

    def fetch(self, task):
        """Make the task's directory, with all files that the task needs before it starts."""
        self._make_cache()
        self._add(self._fetch, task.attempt, task.field)

    def _make_cache(self):
        if self.cache is None:
            self.cache = staging.Cache(self.cache_folder)  # not in the threads, since they must share it

    def upload(self, attempt, report, uploads, task=None):
        """Upload files of a task's directory, as `outputs.FilesToSend` chose them, within the task's limits."""
        self._make_cache()
        self.uploading[attempt] = (self.folder_of(attempt), report, uploads)
        limits = Limits(cancelled=lambda: attempt in self.cancelled)
        if task is not None:
            limits.time, limits.disk = task.field("time") or 0, task.field("disk") or 0
        self._add(self._upload, report, uploads, limits)

    def break_off(self, attempt):
        """End the upload of a cancelled attempt."""
        if attempt in self.uploading:
            self.cancelled.add(attempt)

    def take_result(self, attempt, path):
        """Move the large result of a Python call into the attempt's directory."""
        folder = self.folder_of(attempt)
        os.makedirs(folder, 0o700, exist_ok=True)
        os.rename(path, os.path.join(folder, outputs.RESULT))

    def show(self, attempt, stream, offset, data):
        """Send a piece of a task's live output; one thread at a time does so, to keep the pieces in order."""
        with self.order:
            self.shown.append((attempt, stream, offset, data))
            begins, self.showing = not self.showing, True
        if begins:
            self._add(self._show)

    def discard(self, attempt):
        self._add(self._discard, attempt)

    def run_in_thread(self, function):
        """Call `function(blobs)` in one of the threads."""
        self._add(function)

    def folder_of(self, attempt):
        return os.path.join(self.folder, str(attempt))

    def close(self, patience):
        """Break off all transfers and wait for the threads; return True if all ended within `patience` seconds."""
        self.closed = True
        end = clock.seconds() + patience
        for _ in self.working:
            self.jobs.put(None)
        alive = list(self.working)
        while alive and clock.seconds() < end:
            for blobs, _ in alive:
                blobs.link.abort()  # repeatedly, since a link connects once more by itself
            alive = [(blobs, life) for blobs, life in alive if not life.acquire(True, 0.05)]
        return not alive

    def make_room(self):
        (self.cache or staging.Cache(self.cache_folder)).purge()

    # --- in the threads

    def _add(self, *job):
        self.jobs.put(job)
        if self.threads < THREADS and self.jobs.qsize() > 0:
            self.threads += 1
            blobs = Blobs(self.dial(), self.token, lambda: self.closed, just_enrolled=self.just_enrolled)
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
            except Exception as error:  # a thread outlives a job that fails, and tells the agent of it
                self._post("trouble", None, _describe(error))

    def _post(self, *event):
        self.done.append(event)
        self.wake()

    def _fetch(self, blobs, attempt, field):
        report = None
        try:
            if field("packed"):
                self._unpack(blobs, attempt, field)
            staging.stage_in(self.folder_of(attempt), field, self.cache, blobs, attempt)
            staging.link_placed(self.folder_of(attempt), field("placed"))
        except packed.Mismatch as error:
            report = _failure(attempt, "start", str(error))
        except WindfallError as error:
            report = _failure(attempt, "input", "an input could not be fetched: {}".format(error.message))
        except OSError as error:
            report = _failure(attempt, "disk", "no room for the inputs: {}".format(error.strerror or error))
            why = scratch.trouble(self.folder)
            if why:
                report.update(o="returned", note="the pilot has no room: " + why)
        except Closing:
            raise
        except Exception as error:  # an attempt that never ends would keep its slot for ever
            report = _failure(attempt, "input", "an input could not be fetched: {}".format(_describe(error)))
        self._post("fetched", attempt, report)

    def _unpack(self, blobs, attempt, field):
        with self.unpacking:
            self.environments.prepare(field("packed"), self.cache, blobs, attempt)
            if not field("setup") and not field("modules"):  # these may choose another Python
                packed.compare(self.environments.folder, field("packed"), field("kind") == "call")

    def _upload(self, blobs, report, uploads, limits):
        blobs.limits = limits
        limits.began = clock.seconds()
        try:
            fields = self._send_outputs(blobs, report, uploads)
        finally:
            blobs.limits = Limits()
        if self.closed:
            raise Closing()  # the outbox takes the report as it is
        report.update(fields)
        self._keep_results(report["a"], fields.get("files") or ())
        self._post("uploaded", report["a"], report)

    def _send_outputs(self, blobs, report, uploads):
        """Send a task's files; return the fields that its report gets, or those of a failure."""
        attempt = report["a"]
        try:
            return outputs.send(self.folder_of(attempt), uploads, report, blobs)
        except OverLimit as error:
            return _failure(attempt, error.why, error.message)
        except WindfallError as error:
            trouble = error.message
        except OSError as error:
            trouble = "the outputs cannot be read: {}".format(error)
        except Cancelled:
            return {} if report.get("o") else {"o": "cancelled", "why": "cancel"}
        except Closing:
            raise
        except Exception as error:
            trouble = "the outputs cannot be sent: {}".format(_describe(error))
        return _failure(attempt, "output", trouble)

    def _keep_results(self, attempt, files):
        """Keep the large result of a call for the next call, which may take it."""
        for path, digest, size, _ in files:
            if path == outputs.RESULT:
                self.cache.keep(staging.Blob(digest, size), os.path.join(self.folder_of(attempt), path))

    def _show(self, blobs):
        for _ in range(AT_A_TIME):
            with self.order:
                self.showing = bool(self.shown)
                if not self.showing:
                    return
                piece = self.shown.popleft()
            self._send(blobs, piece)
        self.jobs.put((self._show,))  # last in the queue, so that other jobs get the thread, too

    def _send(self, blobs, piece):
        attempt, stream, offset, data = piece
        path = "/v1/attempts/{}/output?stream={}&offset={}".format(attempt, stream, offset)
        try:
            reply = blobs.request(HttpRequest("POST", path, [("Content-Type", "application/octet-stream")], data))
            go = reply.status == 200 and b"false" not in reply.body
        except Closing:
            raise
        except Exception:
            go = False  # live output may be lost: the report has the output that is kept
        if not go:
            self._post("unwatch", attempt, None)

    def _discard(self, blobs, attempt):
        self.environments.leave(attempt)
        slot.remove(self.folder_of(attempt))


def _describe(error):
    return "{}: {}".format(type(error).__name__, error)


def _failure(attempt, why, note):
    return {"a": attempt, "o": "failed", "why": why, "note": note}
