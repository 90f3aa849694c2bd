"""The agent: joins the pure agenda to the network, the spawners, the file transfers and the outbox.  One epoll loop.

The agent decides nothing about tasks: it tells the agenda what happened and does what the agenda orders.
"""

import errno
import gc
import os
import select
import signal
import sys
import time
from collections import deque

from windfall.errors import Overloaded, VersionMismatch, WindfallError, from_wire
from windfall.pilot import clock, host
from windfall.pilot.files import scratch
from windfall.pilot.net import enrol
from windfall.pilot.net.link import HttpLink
from windfall.pilot.net.routes import Routes
from windfall.pilot.run import predecessors, runners
from windfall.pilot.run.runner import STORED, result_file
from windfall.pilot.run.spawners import Spawners, SpawnerSettings, count_for
from windfall.wire.messages import ANSWER, check

NODE_LISTS = ("SLURM_JOB_NODELIST", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS")  # of batch systems
LOOK_SECONDS = 0.25      # between two looks at the running tasks
SEEK_SECONDS = 2.0       # between two looks for the processes of earlier pilots
GOODBYE_SECONDS = 5.0    # how long a leaving pilot tries to reach the server before it keeps its reports in the outbox
UPLOAD_SECONDS = 20.0    # how long a leaving pilot goes on uploading before it keeps the files in the outbox
ABORT_SECONDS = 5.0      # how long the pilot waits for transfers to break off
UNKNOWN_SECONDS = 5.0    # after a new enrolment, in which the server may not know the pilot's attempts yet
IN_FILE = STORED.decode("ascii")     # value of a call whose result is in a file
STOP_SIGNALS = tuple(int(getattr(signal, name)) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2", "SIGXCPU"))


class Agent:
    def __init__(self, options, ticket, folders, mark, guard):
        self.options = options
        self.ticket = ticket
        self.folders = folders
        self.guard = guard
        self.mark = mark
        self.started_at = clock.seconds()
        self.handlers = {}
        self.writing = set()         # descriptors that are watched for room to write, too
        self.poller = select.epoll()
        self.calls_from_threads = deque()    # functions that the loop calls for other threads
        self.signals = 0             # signals to stop, and how many of them the guardian passed on
        self.signals_from_guardian = 0
        self.awaited_signal_at = 0.0     # when the agent last paused for a signal that may be under way
        self.code = None             # exit code, once it is known
        self.enrolling = False
        self.seen_running = set()    # attempts that ran at the last look
        self.next_look = self.next_seek = self.started_at
        self.delivering = 0          # outbox folders of earlier pilots, whose results are being delivered
        self.seeker = predecessors.Seeker(self._deliver_leftovers)
        self.leaving_since = None
        self.files_to_send = {}              # attempt → FilesToSend, of tasks with a directory of their own
        self.uploaded = {}            # attempt → uploads, uploaded but not confirmed: the directory is still placed
        self.transfers = None
        self.outbox = None
        self.outbox_trouble = ""
        self.unknown_until = 0.0     # until when the server may not know the pilot's attempts
        self.pilot_token = ""

    # --- life

    def run(self):
        gc.set_threshold(50000)  # tasks come and go by the thousand, and hold no reference cycles
        self._catch_signals()
        self._watch_guard()
        self.routes = Routes.of(self.ticket)
        self._find_resources()
        script = runners.write_script(self.folders.run)
        settings = SpawnerSettings(mark=self.mark, script=script, gpus=bool(self.gpus) or self.options.gpus == 0,
                                   environments=self.folders.environments)
        self.spawners = Spawners(count_for(self.cores), self.cores, self.folders.run, settings)
        try:
            self._enrol()
            self._finish_start()
            while self.code is None:
                self._run_once()
        finally:
            self._close()
        return self.code

    def _find_resources(self):
        options = self.options
        self.cores = options.cores or host.cores()
        self.memory = host.memory() if options.memory is None else options.memory
        self.gpus = host.gpus(options.gpus)
        self.nodes = self._count_nodes()
        # ms: when the pilot begins to leave, early enough to upload its results
        self.end = None
        if options.walltime is not None:
            self.end = int((self.started_at + options.walltime) * 1000) - self._reserve()

    def _count_nodes(self):
        if not any(name in os.environ for name in NODE_LISTS):
            return 1
        from windfall.pilot.run import nodes
        return len(nodes.hosts(os.environ))

    def _enrol(self):
        link = HttpLink(self.routes)
        shape = {"cores": self.cores, "memory": self.memory, "gpus": len(self.gpus),
                 "disk": host.disk(self.folders.base)}
        if self.nodes > 1:
            shape["nodes"] = self.nodes
        if self.end is not None:
            shape["left"] = max(0, self.end - clock.milliseconds())
        about = host.describe(self.gpus)
        about["life"] = predecessors.life(self.mark)
        self.body = enrol.message(self.ticket, about, shape)
        patience = enrol.PATIENCE if self.options.idle is None else self.options.idle
        answer, sent = enrol.enrol(link, self.ticket, self.body, patience, stopped=lambda: self.signals,
                                   say=self.say)
        self.pilot_token = answer["token"]
        self._make_agenda()
        self.agenda.enrolled(clock.milliseconds(), answer, int(sent * 1000))
        self._make_lanes(link)
        self._look_at_disk()

    def _make_agenda(self):
        from windfall.pilot.agenda.agenda import Agenda
        idle = None if self.options.idle is None else int(self.options.idle * 1000)
        self.agenda = Agenda(self.cores, self.memory, [gpu["id"] for gpu in self.gpus],
                             stations=len(self.spawners.handles), end=self.end, idle=idle, jitter=enrol.fraction)

    def _make_lanes(self, link):
        from windfall.pilot.net.lanes import Lane
        self.lanes = [Lane(link, self), Lane(HttpLink(self.routes), self)]
        if link.sock is not None:
            self.lanes[0].adopt()

    def _finish_start(self):
        """Send the first request; then run_in_thread the part of the start that can wait for it."""
        for spawner in self.spawners.handles:
            self._watch_spawner(spawner)
        self._send_requests(clock.milliseconds())
        from windfall.pilot.run import proctree
        proctree.become_subreaper()
        self.folders.clear_others()
        self._deliver_leftovers()
        self.say("enrolled at {} with {} cores".format(self.lanes[0].link.where(), self.cores))

    def _run_once(self):
        now = clock.milliseconds()
        self._send_orders(now)
        self._send_requests(now)
        for fd, _ in self.poller.poll(self._timeout()):
            handler = self.handlers.get(fd)
            if handler is not None:
                handler(fd)
        self._timers(clock.seconds())

    def _timeout(self):
        now = clock.milliseconds()
        due = None if self.enrolling else self.agenda.due(now)
        if due is not None and due <= now:
            due = now + 1  # the agenda was asked a moment ago: it waits for the network
        look = int(self.next_look * 1000)
        return max(0, (look if due is None else min(due, look)) - now) / 1000.0

    def _close(self):
        """Let the spawners end their tasks, keep undelivered results, and clear up."""
        from windfall.pilot.run import proctree
        for spawner in self.spawners.handles:
            spawner.order("quit")
            spawner.flush()
        end = clock.seconds() + 2.0
        for spawner in self.spawners.handles:
            proctree.reap(spawner.pid, end)
        proctree.kill_descendants()
        if getattr(self, "agenda", None) is not None:
            self._close_transfers()
            self._close_outbox()
        self.routes.close()
        self.folders.clear()

    def _close_transfers(self):
        """Stop the transfers, so that no thread touches a task's files while the outbox takes them."""
        if self.transfers is not None:
            self.transfers.close(ABORT_SECONDS)
            self._take_finished_transfers()

    def say(self, text):
        if not self.options.quiet:
            self.complain(text)

    def complain(self, text):
        try:
            sys.stderr.write("windfall-pilot: {}\n".format(text))
        except OSError:
            pass

    # --- the loop's plumbing, also for lanes

    def token(self):
        return self.pilot_token

    def watch(self, fd, function):
        self.handlers[fd] = function
        self.poller.register(fd, select.EPOLLIN)

    def rewatch(self, fd, writing):
        if writing != (fd in self.writing):
            self.poller.modify(fd, select.EPOLLIN | select.EPOLLOUT if writing else select.EPOLLIN)
            (self.writing.add if writing else self.writing.discard)(fd)

    def unwatch(self, fd):
        self.handlers.pop(fd, None)
        self.writing.discard(fd)
        try:
            self.poller.unregister(fd)
        except (OSError, ValueError):
            pass

    def call_in_loop(self, function):
        """Have the loop call a function; other threads call this."""
        self.calls_from_threads.append(function)
        self._wake()

    def _wake(self):
        try:
            os.write(self.bell, b"!")
        except OSError:
            pass  # the pipe is full, so the loop wakes anyway

    def _catch_signals(self):
        reader, self.bell = os.pipe()
        for fd in (reader, self.bell):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.bell)
        for number in STOP_SIGNALS:
            if number != signal.SIGUSR2 or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.watch(reader, self._woken)

    def _on_signal(self, number, frame):
        self.signals += 1

    def _watch_guard(self):
        if self.guard is not None:
            os.set_blocking(self.guard, False)
            self.watch(self.guard, self._from_guardian)

    def _from_guardian(self, fd):
        """Count the signals that the guardian passed on, a byte each; when it was killed, kill everything and end."""
        try:
            passed_on = os.read(fd, 4096)
        except BlockingIOError:
            return
        self.signals_from_guardian += len(passed_on)
        if passed_on:
            return
        from windfall.pilot.run import proctree
        proctree.kill_descendants()
        os._exit(1)

    def _woken(self, fd):
        try:
            while len(os.read(fd, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass
        self._reap()
        while self.calls_from_threads:
            self.calls_from_threads.popleft()()
        if self.transfers is not None:
            self._take_finished_transfers()
        if self.signals:
            self._stop_by_signal()

    def _reap(self):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # the loop notices a spawner's end on its socket
        except ChildProcessError:
            pass

    def _stop_by_signal(self):
        if self.leaving_since is None:
            self.say("told to stop")
            self._leave("stopped")
        elif self._stopped_twice():
            for spawner in self.spawners.handles:
                spawner.order("hasten")
                spawner.flush()

    def _stopped_twice(self):
        """Was the pilot told to stop a second time?  A signal that comes directly and by the guardian counts once."""
        if self.guard is not None:
            self._from_guardian(self.guard)
        return max(self.signals_from_guardian, self.signals - self.signals_from_guardian) > 1

    def _leave(self, why):
        self.leaving_since = clock.seconds()
        self.agenda.stop(clock.milliseconds(), why)

    # --- orders

    def _send_orders(self, now):
        orders = self.agenda.orders(now)
        for order in orders:
            getattr(self, "_do_" + order[0])(*order[1:])
        for spawner in self.spawners.handles:
            if spawner.orders or spawner.runs or spawner.frames.outbox:
                self.rewatch(spawner.frames.fileno(), not spawner.flush())

    def _do_run(self, task):
        cwd = self._get_transfers().folder_of(task.attempt) if task.attempt in self.files_to_send else None
        self.spawners.handles[task.station.index].run(task, cwd)

    def _do_fetch(self, task):
        from windfall.pilot.files.outputs import FilesToSend
        self.files_to_send[task.attempt] = FilesToSend(task)
        self._get_transfers().fetch(task)

    def _do_kill(self, attempt, why):
        task = self.agenda.placed.get(attempt)
        if task is not None:
            self.spawners.handles[task.station.index].order("kill", attempt, why)

    def _do_break_off(self, attempt):
        self._get_transfers().break_off(attempt)

    def _do_give_back(self, index, attempts):
        self.spawners.handles[index].order("give_back", attempts)

    def _do_watch(self, attempt):
        task = self.agenda.placed.get(attempt)
        if task is not None:
            self.spawners.handles[task.station.index].order("watch", attempt)

    # --- spawners

    def _watch_spawner(self, spawner):
        self.watch(spawner.frames.fileno(), lambda fd: self._from_spawner(spawner))

    def _from_spawner(self, spawner):
        messages = spawner.frames.receive()
        if messages is None:
            self._spawner_died(spawner)
            return
        now = clock.milliseconds()
        for message in messages:
            if message[0] == "ended":
                self._ended(now, message[1])
            elif message[0] == "given_back":
                self.agenda.given_back(now, message[1])
            else:
                self._get_transfers().show(*message[1:])

    def _ended(self, now, reports):
        for report in reports:
            attempt = report["a"]
            if report.get("why") == "disk":
                self._look_at_disk()
            if report.get("why") == "signal" and report.get("signal") in STOP_SIGNALS and self._stop_signal_came():
                report.update(o="returned", why="stop", note="the site told every process of the job to end")
            if report.get("value") == IN_FILE:
                self._ended_with_large_result(now, attempt, report)
            elif attempt in self.files_to_send:
                self._ended_with_files(now, attempt, report)
            else:
                self.agenda.task_ended(now, attempt, report)

    def _stop_signal_came(self):
        """Was the pilot told to stop, too?  A batch system signals all processes, and a task may die of it first."""
        if not self.signals and clock.seconds() - self.awaited_signal_at > 1:
            time.sleep(0.05)
            self.awaited_signal_at = clock.seconds()
        return self.signals > 0

    def _ended_with_files(self, now, attempt, report):
        uploads = self.files_to_send.pop(attempt).uploads_after(report)
        if uploads:
            self.agenda.process_ended(now, attempt)
            self._get_transfers().upload(attempt, report, uploads, self.agenda.finishing.get(attempt))
        else:
            self._get_transfers().discard(attempt)
            self.agenda.task_ended(now, attempt, report)

    def _ended_with_large_result(self, now, attempt, report):
        from windfall.pilot.files.outputs import RESULT
        transfers, files = self._get_transfers(), self.files_to_send.pop(attempt, None)
        uploads = files.uploads_after(report) if files is not None else {}
        try:
            transfers.take_result(attempt, result_file(self.folders.run, attempt))
        except OSError:
            pass  # the upload reports that the file is missing
        self.agenda.process_ended(now, attempt)
        uploads["files"] = (uploads.get("files") or []) + [RESULT]
        transfers.upload(attempt, report, uploads, self.agenda.finishing.get(attempt))

    def _spawner_died(self, spawner):
        """Replace a spawner that was killed: return the tasks that it had begun, and queue the waiting ones again."""
        from windfall.pilot.run import proctree
        now = clock.milliseconds()
        tasks = [task for task in self.agenda.placed.values() if task.station.index == spawner.index]
        ran = [task.attempt for task in tasks if task.serial <= spawner.last_begun()]
        self.say("a spawner died with {} tasks begun".format(len(ran)))
        self.unwatch(spawner.frames.fileno())
        spare = [pid for pid in self.spawners.pids() if pid != spawner.pid]
        proctree.kill_descendants(spare)
        for _, pid in spawner.running():
            proctree.signal_tree(pid, signal.SIGKILL)
        for attempt in ran:
            if self.files_to_send.pop(attempt, None) is not None:
                self._get_transfers().discard(attempt)
            self.agenda.task_ended(now, attempt, {"a": attempt, "o": "returned", "why": "gone",
                                                  "note": "the pilot's spawner was killed while the task ran"})
        self.agenda.given_back(now, [task.attempt for task in tasks if task.attempt not in ran])
        self._watch_spawner(self.spawners.restart(spawner.index))

    # --- the exchange

    def _send_requests(self, now):
        while not self.enrolling:
            request = self.agenda.next_request(now)
            if request is None:
                return
            free = [lane for lane in self.lanes if lane.request is None]
            best = [lane for lane in free if lane.open] or free
            best[0].send(request)

    def answered(self, request, reply):
        """Take a reply from a lane."""
        now = clock.milliseconds()
        answer = enrol.parse(reply.body)
        if reply.status != 200:
            self._refused(now, request, reply, from_wire(answer, reply.status))
            return
        try:
            problem = check(ANSWER, answer, "the answer")
            if not problem and not self.agenda.answer_received(now, answer):
                problem = "an answer to another request"
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = "the answer makes no sense: {!r}".format(error)
        if problem:
            self.say(problem)
            self.agenda.request_failed(now, request["seq"], lost=False)
            return
        for lane in self.lanes:
            lane.heard(now / 1000.0)
        self._confirmed([report["a"] for report in request.get("reports", ())])
        self._discard_dropped()

    def _confirmed(self, attempts):
        """Forget these attempts: the server has their reports."""
        if self.outbox is not None:
            self.outbox.forget(attempts)
        for attempt in attempts if self.uploaded else ():
            if self.uploaded.pop(attempt, None) is not None:
                self.transfers.discard(attempt)

    def _refused(self, now, request, reply, error):
        wait = error.retry_after if error.retry_after is not None else reply.retry_after()
        if isinstance(error, Overloaded) and wait is None:
            wait = 1.0
        reason = enrol.refusal(reply)
        if reason:
            self._content_refused(now, request, reason)
            return
        self.agenda.request_failed(now, request["seq"], wait, lost=False)
        if reply.status == 401:
            self._enrol_again()
        elif reply.status == 426 or isinstance(error, VersionMismatch):
            self._give_up("the server speaks another version of the protocol: {}".format(error.message))
        elif not error.retry:
            self.say("the server answered {}: {}".format(reply.status, error.message))

    def _content_refused(self, now, request, reason):
        given_up = self.agenda.refused(now, request["seq"], reason)
        if given_up:
            self.complain(given_up)
        reported = [report["a"] for report in request.get("reports", ())]
        self._confirmed([attempt for attempt in reported if not self.agenda.holds(attempt)])

    def broken(self, request, error):
        """Take an error from a lane: the request gets no reply."""
        if self.agenda.failures == 1:  # the first may be a stale connection, and the tenth is no news
            self.say(error.message)
        self.agenda.request_failed(clock.milliseconds(), request["seq"])

    def _enrol_again(self):
        """Begin a new epoch with the ticket: the token is no longer valid."""
        if self.enrolling or self.code is not None:
            return
        self.enrolling = True
        import _thread
        _thread.start_new_thread(self._enrol_thread, ())

    def _enrol_thread(self):
        sent = clock.milliseconds()
        link = HttpLink(self.routes)
        try:
            answer, error = enrol.enrol_once(link, self.ticket, self.body), None
        except WindfallError as failure:
            answer, error = None, failure
        link.close()
        self.call_in_loop(lambda: self._enrolled_again(answer, error, sent))

    def _enrolled_again(self, answer, error, sent):
        self.enrolling = False
        if answer is not None:
            self.unknown_until = clock.seconds() + UNKNOWN_SECONDS
            self.pilot_token = answer["token"]
            self.agenda.enrolled(clock.milliseconds(), answer, sent)
            self.say("enrolled again")
        elif enrol.final(error):
            self._give_up("the server does not let us in: {}".format(error.message))

    def _give_up(self, text):
        """End the pilot, since the server takes no more reports; the outbox keeps what is left."""
        self.complain(text)
        self.code = 3

    # --- files

    def _get_transfers(self):
        if self.transfers is None:
            from windfall.pilot.files.transfers import Transfers
            self.transfers = Transfers(self.folders, lambda: HttpLink(self.routes), self.token, self._wake,
                                       self._just_enrolled)
        return self.transfers

    def _just_enrolled(self):
        """May the server not know the pilot's attempts yet?  Transfer threads call this."""
        return self.enrolling or clock.seconds() < self.unknown_until

    def _take_finished_transfers(self):
        now = clock.milliseconds()
        while self.transfers.done:
            what, attempt, value = self.transfers.done.popleft()
            if what == "fetched":
                self._fetched(now, attempt, value)
            elif what == "uploaded":
                self._uploaded(now, attempt, value)
            elif what == "unwatch":
                self._unwatch_attempt(attempt)
            else:
                self.say(value)

    def _uploaded(self, now, attempt, report):
        uploads = self.transfers.uploading.pop(attempt)[2]
        self.transfers.cancelled.discard(attempt)
        if any(name in report for name in uploads):
            self.uploaded[attempt] = uploads
        else:
            self.transfers.discard(attempt)
        self.agenda.task_ended(now, attempt, report)

    def _fetched(self, now, attempt, report):
        if report is not None and report["why"] == "disk":
            self._look_at_disk()
        if report is not None or not self.agenda.unplaced(attempt):
            self.files_to_send.pop(attempt, None)
            self.transfers.discard(attempt)
        self.agenda.fetched(now, attempt, report)

    def _unwatch_attempt(self, attempt):
        task = self.agenda.placed.get(attempt)
        if task is not None:
            self.spawners.handles[task.station.index].order("unwatch", attempt)

    def _discard_dropped(self):
        """Discard the directories of tasks that were returned or cancelled before they started."""
        for attempt in [a for a in self.files_to_send if not self.agenda.unplaced(a) and a not in self.agenda.placed]:
            del self.files_to_send[attempt]
            self.transfers.discard(attempt)

    # --- time

    def _timers(self, now):
        if self.agenda.departed:
            self.code = 0
        if now < self.next_look:
            return
        self.next_look = now + LOOK_SECONDS
        for lane in self.lanes:
            lane.check(now)
        self._look_at_running()
        self._look_at_disk()
        self._seek_predecessors(now)
        self._wake_spawners()
        if self.end is not None and self.leaving_since is None and now * 1000 >= self.end:
            self._leave("walltime")
        if self.agenda.lease_out(clock.milliseconds()):
            self._keep_in_outbox(self.agenda.undelivered())
        self._check_departure(now)

    def _look_at_running(self):
        seen = {attempt for spawner in self.spawners.handles for attempt, _ in spawner.running()}
        self.agenda.running(clock.milliseconds(), sorted(seen & self.seen_running))
        self.seen_running = seen

    def _look_at_disk(self):
        """Take no tasks while the scratch disk is full; empty the cache before."""
        agenda, folder = self.agenda, self.folders.run
        trouble = scratch.trouble(folder, times=2 if agenda.trouble else 1)
        if trouble and not agenda.trouble:
            self._get_transfers().make_room()
            trouble = scratch.trouble(folder)
        if bool(trouble) == bool(agenda.trouble):
            return
        agenda.set_trouble(clock.milliseconds(), trouble)
        self.complain("takes no tasks: " + trouble if trouble else "takes tasks again: its scratch disk has room")

    def _seek_predecessors(self, now):
        if self.agenda.look and now >= self.next_seek:
            self.next_seek = now + SEEK_SECONDS
            dead = self.seeker.look(self.agenda.look, self.delivering > 0)
            if dead:
                self.agenda.tell_dead(dead)

    def _wake_spawners(self):
        """Continue a stopped spawner: a task can send SIGSTOP to the process that watches it."""
        from windfall.pilot.run import proctree
        for spawner in self.spawners.handles:
            if proctree.stopped(spawner.pid):
                self.say("a spawner was stopped (SIGSTOP); the pilot has continued it")
                proctree.send(spawner.pid, signal.SIGCONT)

    def _reserve(self):
        """Return how many ms before the end of the wall time the pilot begins to leave."""
        return min(30000, int(100 * self.options.walltime))

    def _check_departure(self, now):
        """Leave without an answer to the goodbye when the server does not answer."""
        agenda = self.agenda
        if agenda.leaving and self.leaving_since is None:
            self.leaving_since = now
        unheard = now - agenda.last_heard / 1000.0
        if agenda.placed or unheard < GOODBYE_SECONDS or self._still_uploading(now):
            return
        if agenda.leaving and now - self.leaving_since >= GOODBYE_SECONDS:
            self._depart()
        elif agenda.idle_limit is not None and unheard * 1000 >= agenda.idle_limit + agenda.lease:
            self._depart()  # an idle pilot leaves without a server, too (P7)

    def _still_uploading(self, now):
        """Is the leaving pilot still uploading to a server that answers?"""
        agenda = self.agenda
        return (agenda.leaving and agenda.finishing and not agenda.failures
                and now - self.leaving_since < UPLOAD_SECONDS)

    def _depart(self):
        self.code = 0 if not self.agenda.undelivered() and not self.agenda.finishing else 3

    # --- the outbox

    def _keep_in_outbox(self, reports, uploading=()):
        """Keep the reports that the outbox has not got; one that it cannot keep stays in memory and harms no other."""
        kept = self.outbox.kept if self.outbox is not None else ()
        if self.outbox is not None:
            self.outbox.renew()
        entries = [self._outbox_entry(report) for attempt, report in reports.items() if attempt not in kept]
        entries.extend(entry for entry in uploading if entry[1]["a"] not in kept)
        if not entries:
            return
        trouble = self._try_to_keep(self._open_outbox)
        for folder, report, uploads in entries if not trouble else ():
            trouble = self._try_to_keep(self.outbox.keep, report, folder, uploads) or trouble
        if trouble and trouble != self.outbox_trouble:
            self.complain("the outbox cannot be written: {}".format(trouble))
        self.outbox_trouble = trouble

    def _outbox_entry(self, report):
        uploads = self.uploaded.get(report["a"])
        return (None if uploads is None else self.transfers.folder_of(report["a"])), report, uploads

    def _try_to_keep(self, act, *args):
        """Call `act`; return what went wrong, or "".  When the disk is full, empty the cache and try once more."""
        for last in (False, True):
            try:
                act(*args)
                return ""
            except (OSError, ValueError) as error:
                if last or getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
                    return str(error)
            from windfall.pilot.files.staging import Cache
            Cache(self.folders.cache).purge()
        return ""

    def _open_outbox(self):
        if self.outbox is None:
            from windfall.pilot.files.outbox import Outbox
            self.outbox = Outbox(self.folders.outbox, self.folders.name)
        self.outbox.open({"server": self.ticket.server, "certificate": self.ticket.certificate,
                           "routes": self.ticket.routes, "token": self.pilot_token, "v": self.agenda.version,
                           "epoch": self.agenda.epoch, "seq": self.agenda.seq + 1, "ack": self.agenda.ack or 0,
                           "nonce": self.ticket.nonce})
        return self.outbox

    def _close_outbox(self):
        self.folders.clear_scratch()  # the outbox may need the room
        uploading = list(self.transfers.uploading.values()) if self.transfers is not None else ()
        self._keep_in_outbox(self.agenda.undelivered(), uploading)
        if self.outbox is not None and not self.outbox.close():
            self.say("results not delivered are in {}".format(self.outbox.folder))

    def _deliver_leftovers(self):
        if os.path.isdir(self.folders.outbox):
            from windfall.pilot.files import outbox
            for folder in outbox.left_behind(self.folders.outbox):
                self.delivering += 1
                self._get_transfers().run_in_thread(lambda blobs, folder=folder: self._deliver(folder))

    def _deliver(self, folder):
        from windfall.pilot.files import outbox
        from windfall.pilot.files.blobs import AGAIN, Blobs
        again = [status for status in AGAIN if status != 401]  # an outbox has no other token
        until = clock.seconds() + UNKNOWN_SECONDS

        def blobs_for(link, token):
            return Blobs(link, lambda: token, lambda: self.transfers.closed, again=again,
                         just_enrolled=lambda: clock.seconds() < until)

        try:
            count = outbox.deliver(folder, self.routes, blobs_for,
                                   lambda text: self.call_in_loop(lambda: self.complain(text)))
            text = "" if count is None else "delivered {} results that an earlier pilot left".format(count)
        except WindfallError as error:
            text = error.message
        finally:
            self.call_in_loop(self._delivered)
        if text:
            self.call_in_loop(lambda: self.say(text))

    def _delivered(self):
        self.delivering -= 1
