"""The agent: joins the pure agenda to the network, the spawners, the porters and the outbox.  One epoll loop.

It decides nothing about tasks: it tells the agenda what happened and does what the agenda orders.
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
from windfall.pilot.net import enrol
from windfall.pilot.net.link import Link
from windfall.pilot.net.ways import Ways
from windfall.pilot.run import runners
from windfall.pilot.run.stations import Stations, count_for
from windfall.wire.messages import ANSWER, check

NODE_LISTS = ("SLURM_JOB_NODELIST", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS")  # of batch systems
LOOK_SECONDS = 0.25      # between looks at what runs
BYE_SECONDS = 5.0        # how long last words are tried before the outbox has to do
BRING_SECONDS = 20.0     # how long files may take to be brought once we leave; then the outbox has them
PORTERS_SECONDS = 5.0    # how long we wait for transfers to break off
SETTLE_SECONDS = 5.0     # after enrolling again: the server may not know yet what is ours
TOLD = tuple(int(getattr(signal, name)) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2", "SIGXCPU"))


class Agent:
    def __init__(self, options, ticket, folders, mark, guard):
        self.options = options
        self.ticket = ticket
        self.folders = folders
        self.guard = guard
        self.mark = mark
        self.born = clock.seconds()
        self.handlers = {}
        self.writing = set()         # descriptors also watched for room to write
        self.poller = select.epoll()
        self.errands = deque()       # functions other threads want called in the loop
        self.signals = 0
        self.passed_on = 0  # of these, by the guardian
        self.looked_round = 0.0
        self.code = None             # exit code, once it is known
        self.enrolling = False
        self.seen = set()            # attempts seen running at the last look
        self.next_look = self.born
        self.leaving_since = None
        self.files = {}              # attempt → Wants, of tasks with a directory of their own
        self.brought = {}            # attempt → cargo, uploaded but not confirmed: the directory is still there
        self.porters_ = None
        self.outbox_ = None
        self.outbox_trouble = ""
        self.settled = 0.0           # until when the server may not know our attempts
        self.pilot_token = ""

    # --- life

    def run(self):
        gc.set_threshold(50000)  # tasks come and go by the thousand, and none of them in cycles
        self._catch_signals()
        self._watch_guard()
        self.ways = Ways.of(self.ticket)
        self._shape()
        script = runners.write_script(self.folders.run)
        self.stations = Stations(count_for(self.cores), self.cores, self.folders.run,
                                 mark=self.mark, script=script, gpus=bool(self.gpus),
                                 environments=self.folders.environments)
        try:
            self._enrol()
            self._settle()
            while self.code is None:
                self._round()
        finally:
            self._close()
        return self.code

    def _shape(self):
        options = self.options
        self.cores = options.cores or host.cores()
        self.memory = host.memory() if options.memory is None else options.memory
        self.gpus = host.gpus(options.gpus)
        self.nodes = self._count_nodes()
        # ms: when we begin to leave, in time to bring home what there is
        self.end = None if options.walltime is None else int((self.born + options.walltime) * 1000) - self._reserve()

    def _count_nodes(self):
        if not any(name in os.environ for name in NODE_LISTS):
            return 1
        from windfall.pilot.run import nodes
        return len(nodes.hosts(os.environ))

    def _enrol(self):
        link = Link(self.ways)
        shape = {"cores": self.cores, "memory": self.memory, "gpus": len(self.gpus),
                 "disk": host.disk(self.folders.base)}
        if self.nodes > 1:
            shape["nodes"] = self.nodes
        if self.end is not None:
            shape["left"] = max(0, self.end - clock.milliseconds())
        self.body = enrol.message(self.ticket, host.describe(self.gpus), shape)
        patience = enrol.PATIENCE if self.options.idle is None else self.options.idle
        answer, sent = enrol.enrol(link, self.ticket, self.body, patience, stopped=lambda: self.signals,
                                   say=self.say)
        self.pilot_token = answer["token"]
        self._make_agenda()
        self.agenda.enrolled(clock.milliseconds(), answer, int(sent * 1000))
        self._make_lanes(link)

    def _make_agenda(self):
        from windfall.pilot.agenda.agenda import Agenda
        idle = None if self.options.idle is None else int(self.options.idle * 1000)
        self.agenda = Agenda(self.cores, self.memory, [gpu["id"] for gpu in self.gpus],
                             stations=len(self.stations.posts), end=self.end, idle=idle, jitter=enrol.fraction)

    def _make_lanes(self, link):
        from windfall.pilot.net.lanes import Lane
        self.lanes = [Lane(link, self), Lane(Link(self.ways), self)]
        if link.sock is not None:
            self.lanes[0].adopt()

    def _settle(self):
        """What can wait until the first request is out."""
        for post in self.stations.posts:
            self._watch_post(post)
        self._talk(clock.milliseconds())
        from windfall.pilot.run import proctree
        proctree.become_subreaper()
        self.folders.clear_others()
        self._deliver_leftovers()
        self.say("enrolled at {} with {} cores".format(self.lanes[0].link.where(), self.cores))

    def _round(self):
        now = clock.milliseconds()
        self._obey(now)
        self._talk(now)
        for fd, _ in self.poller.poll(self._timeout()):
            handler = self.handlers.get(fd)
            if handler is not None:
                handler(fd)
        self._timers(clock.seconds())

    def _timeout(self):
        now = clock.milliseconds()
        due = None if self.enrolling else self.agenda.due(now)
        if due is not None and due <= now:
            due = now + 1  # it was looked at a moment ago: the network is what it waits for
        look = int(self.next_look * 1000)
        return max(0, (look if due is None else min(due, look)) - now) / 1000.0

    def _close(self):
        """Let the spawners end what runs, and clear up."""
        from windfall.pilot.run import proctree
        for post in self.stations.posts:
            post.order("quit")
            post.flush()
        end = clock.seconds() + 2.0
        for post in self.stations.posts:
            proctree.reap(post.pid, end)
        proctree.kill_descendants()
        if getattr(self, "agenda", None) is not None:
            self._close_porters()
            self._close_outbox()
        self.ways.close()
        self.folders.clear()

    def _close_porters(self):
        """Nobody may touch the files of tasks while the outbox takes them, and what was brought by now counts."""
        if self.porters_ is not None:
            self.porters_.close(PORTERS_SECONDS)
            self._from_porters()

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

    def later(self, function):
        """Called from threads."""
        self.errands.append(function)
        self._ring()

    def _ring(self):
        try:
            os.write(self.bell, b"!")
        except OSError:
            pass  # full: it rings already

    def _catch_signals(self):
        reader, self.bell = os.pipe()
        for fd in (reader, self.bell):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.bell)
        for number in TOLD:
            if number != signal.SIGUSR2 or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._signalled)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.watch(reader, self._rung)

    def _signalled(self, number, frame):
        self.signals += 1

    def _watch_guard(self):
        if self.guard is not None:
            os.set_blocking(self.guard, False)
            self.watch(self.guard, self._from_guardian)

    def _from_guardian(self, fd):
        """A byte for every signal it passed on.  An end: it was killed; so are we, and all with us."""
        try:
            said = os.read(fd, 4096)
        except BlockingIOError:
            return
        self.passed_on += len(said)
        if said:
            return
        from windfall.pilot.run import proctree
        proctree.kill_descendants()
        os._exit(1)

    def _rung(self, fd):
        try:
            while len(os.read(fd, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass
        self._reap()
        while self.errands:
            self.errands.popleft()()
        if self.porters_ is not None:
            self._from_porters()
        if self.signals:
            self._told_to_stop()

    def _reap(self):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # a spawner's end is noticed on its socket
        except ChildProcessError:
            pass

    def _told_to_stop(self):
        if self.leaving_since is None:
            self.say("told to stop")
            self._leave("stopped")
        elif self._told_again():
            for post in self.stations.posts:
                post.order("hasten")
                post.flush()

    def _told_again(self):
        """A batch system may tell us and the guardian, which passes it on: that is once."""
        if self.guard is not None:
            self._from_guardian(self.guard)
        return max(self.passed_on, self.signals - self.passed_on) > 1

    def _leave(self, why):
        self.leaving_since = clock.seconds()
        self.agenda.stop(clock.milliseconds(), why)

    # --- orders

    def _obey(self, now):
        orders = self.agenda.orders(now)
        for order in orders:
            getattr(self, "_do_" + order[0])(*order[1:])
        for post in self.stations.posts:
            if post.orders or post.runs or post.frames.outbox:
                self.rewatch(post.frames.fileno(), not post.flush())

    def _do_run(self, task):
        cwd = self._porters().place(task.attempt) if task.attempt in self.files else None
        self.stations.posts[task.station.index].run(task, cwd)

    def _do_fetch(self, task):
        from windfall.pilot.files.outputs import Wants
        self.files[task.attempt] = Wants(task)
        self._porters().fetch(task)

    def _do_kill(self, attempt, why):
        task = self.agenda.placed.get(attempt)
        if task is not None:
            self.stations.posts[task.station.index].order("kill", attempt, why)

    def _do_give_back(self, index, attempts):
        self.stations.posts[index].order("give_back", attempts)

    def _do_watch(self, attempt):
        task = self.agenda.placed.get(attempt)
        if task is not None:
            self.stations.posts[task.station.index].order("watch", attempt)

    # --- spawners

    def _watch_post(self, post):
        self.watch(post.frames.fileno(), lambda fd: self._from_spawner(post))

    def _from_spawner(self, post):
        messages = post.frames.receive()
        if messages is None:
            self._spawner_died(post)
            return
        now = clock.milliseconds()
        for message in messages:
            if message[0] == "ended":
                self._ended(now, message[1])
            elif message[0] == "given_back":
                self.agenda.given_back(now, message[1])
            else:
                self._porters().show(*message[1:])

    def _ended(self, now, reports):
        for report in reports:
            attempt = report["a"]
            if report.get("why") == "signal" and report.get("signal") in TOLD and self._told_with_it():
                report.update(o="returned", why="stop", note="the site told every process of the job to end")
            if attempt in self.files:
                self._ended_with_files(now, attempt, report)
            else:
                self.agenda.task_ended(now, attempt, report)

    def _told_with_it(self):
        """Batch systems tell all processes of a job: a task may die, a moment earlier, of what was meant for us."""
        if not self.signals and clock.seconds() - self.looked_round > 1:
            time.sleep(0.05)
            self.looked_round = clock.seconds()
        return self.signals > 0

    def _ended_with_files(self, now, attempt, report):
        cargo = self.files.pop(attempt).after(report)
        if cargo:
            self.agenda.process_ended(now, attempt)
            self._porters().bring(attempt, report, cargo)
        else:
            self._porters().discard(attempt)
            self.agenda.task_ended(now, attempt, report)

    def _spawner_died(self, post):
        """Somebody killed it.  What ran there is over, by our hand at the latest; what waited there is not lost."""
        from windfall.pilot.run import proctree
        now = clock.milliseconds()
        there = [task for task in self.agenda.placed.values() if task.station.index == post.index]
        ran = [task.attempt for task in there if task.serial <= post.last_begun()]
        self.say("a spawner died with {} tasks begun".format(len(ran)))
        self.unwatch(post.frames.fileno())
        spare = [pid for pid in self.stations.pids() if pid != post.pid]
        proctree.kill_descendants(spare)
        for _, pid in post.running():
            proctree.signal_tree(pid, signal.SIGKILL)
        for attempt in ran:
            if self.files.pop(attempt, None) is not None:
                self._porters().discard(attempt)
            self.agenda.task_ended(now, attempt, {"a": attempt, "o": "returned", "why": "gone",
                                                  "note": "the pilot's spawner was killed while the task ran"})
        self.agenda.given_back(now, [task.attempt for task in there if task.attempt not in ran])
        self._watch_post(self.stations.restart(post.index))

    # --- the exchange

    def _talk(self, now):
        while not self.enrolling:
            request = self.agenda.next_request(now)
            if request is None:
                return
            free = [lane for lane in self.lanes if lane.request is None]
            best = [lane for lane in free if lane.open] or free
            best[0].send(request)

    def answered(self, request, reply):
        """From a lane: there is a reply."""
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
            self.agenda.failed(now, request["seq"], lost=False)
            return
        for lane in self.lanes:
            lane.heard(now / 1000.0)
        self._confirmed([report["a"] for report in request.get("reports", ())])
        self._discard_dropped()

    def _confirmed(self, attempts):
        """Nothing more has to be said about these."""
        if self.outbox_ is not None:
            self.outbox_.forget(attempts)
        for attempt in attempts if self.brought else ():
            if self.brought.pop(attempt, None) is not None:
                self.porters_.discard(attempt)

    def _refused(self, now, request, reply, error):
        wait = error.retry_after if error.retry_after is not None else reply.retry_after()
        if isinstance(error, Overloaded) and wait is None:
            wait = 1.0
        reason = enrol.refusal(reply)
        if reason:
            self._content_refused(now, request, reason)
            return
        self.agenda.failed(now, request["seq"], wait, lost=False)
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
        said = [report["a"] for report in request.get("reports", ())]
        self._confirmed([attempt for attempt in said if not self.agenda.holds(attempt)])

    def broken(self, request, error):
        """From a lane: there will be no reply."""
        if self.agenda.failures == 1:  # the first may be a connection gone stale, the tenth is no news
            self.say(error.message)
        self.agenda.failed(clock.milliseconds(), request["seq"])

    def _enrol_again(self):
        """The token is not valid any more: a new epoch, by the ticket."""
        if self.enrolling or self.code is not None:
            return
        self.enrolling = True
        import _thread
        _thread.start_new_thread(self._enrol_thread, ())

    def _enrol_thread(self):
        sent = clock.milliseconds()
        link = Link(self.ways)
        try:
            answer, error = enrol.enrol_once(link, self.ticket, self.body), None
        except WindfallError as failure:
            answer, error = None, failure
        link.close()
        self.later(lambda: self._enrolled_again(answer, error, sent))

    def _enrolled_again(self, answer, error, sent):
        self.enrolling = False
        if answer is not None:
            self.settled = clock.seconds() + SETTLE_SECONDS
            self.pilot_token = answer["token"]
            self.agenda.enrolled(clock.milliseconds(), answer, sent)
            self.say("enrolled again")
        elif enrol.final(error):
            self._give_up("the server does not let us in: {}".format(error.message))

    def _give_up(self, text):
        """No report of ours will be taken any more: keep what there is, and go."""
        self.complain(text)
        self.code = 3

    # --- files

    def _porters(self):
        if self.porters_ is None:
            from windfall.pilot.files.transfers import Porters
            self.porters_ = Porters(self.folders, lambda: Link(self.ways), self.token, self._ring, self._settling)
        return self.porters_

    def _settling(self):
        """From the porters' threads."""
        return self.enrolling or clock.seconds() < self.settled

    def _from_porters(self):
        now = clock.milliseconds()
        while self.porters_.done:
            what, attempt, value = self.porters_.done.popleft()
            if what == "fetched":
                self._fetched(now, attempt, value)
            elif what == "brought":
                self._brought(now, attempt, value)
            elif what == "unwatch":
                self._unwatch_attempt(attempt)
            else:
                self.say(value)

    def _brought(self, now, attempt, report):
        cargo = self.porters_.carried.pop(attempt)[2]
        if any(name in report for name in cargo):
            self.brought[attempt] = cargo
        else:
            self.porters_.discard(attempt)
        self.agenda.task_ended(now, attempt, report)

    def _fetched(self, now, attempt, report):
        if report is not None or not self.agenda.unplaced(attempt):
            self.files.pop(attempt, None)
            self.porters_.discard(attempt)
        self.agenda.fetched(now, attempt, report)

    def _unwatch_attempt(self, attempt):
        task = self.agenda.placed.get(attempt)
        if task is not None:
            self.stations.posts[task.station.index].order("unwatch", attempt)

    def _discard_dropped(self):
        """Directories of tasks that were returned or cancelled before they started."""
        for attempt in [a for a in self.files if not self.agenda.unplaced(a) and a not in self.agenda.placed]:
            del self.files[attempt]
            self.porters_.discard(attempt)

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
        self._wake_spawners()
        if self.end is not None and self.leaving_since is None and now * 1000 >= self.end:
            self._leave("walltime")
        if self.agenda.lease_out(clock.milliseconds()):
            self._keep(self.agenda.undelivered())
        self._check_departure(now)

    def _look_at_running(self):
        seen = {attempt for post in self.stations.posts for attempt, _ in post.running()}
        self.agenda.running(clock.milliseconds(), sorted(seen & self.seen))
        self.seen = seen

    def _wake_spawners(self):
        """A task can stop the process that watches it, which then neither ends it nor tells."""
        from windfall.pilot.run import proctree
        for post in self.stations.posts:
            if proctree.stopped(post.pid):
                self.say("a spawner had been stopped, and goes on")
                proctree.send(post.pid, signal.SIGCONT)

    def _reserve(self):
        """Milliseconds before the end of wall time at which we begin to leave."""
        return min(30000, int(100 * self.options.walltime))

    def _check_departure(self, now):
        """Leave without the server's blessing when it cannot be had."""
        agenda = self.agenda
        if agenda.leaving and self.leaving_since is None:
            self.leaving_since = now
        unheard = now - agenda.last_heard / 1000.0
        if agenda.placed or unheard < BYE_SECONDS or self._still_bringing(now):
            return
        if agenda.leaving and now - self.leaving_since >= BYE_SECONDS:
            self._depart()
        elif agenda.idle_limit is not None and unheard * 1000 >= agenda.idle_limit + agenda.lease:
            self._depart()  # P7 holds without a server, too

    def _still_bringing(self, now):
        """Files are under way and the server is there: worth a wait, in which it is heard only when a poll ends."""
        agenda = self.agenda
        return (agenda.leaving and agenda.finishing and not agenda.failures
                and now - self.leaving_since < BRING_SECONDS)

    def _depart(self):
        self.code = 0 if not self.agenda.undelivered() and not self.agenda.finishing else 3

    # --- the outbox

    def _keep(self, reports, carried=()):
        """Keep what is not kept yet, each for itself: one that cannot be kept stays in memory, and harms no other."""
        kept = self.outbox_.kept if self.outbox_ is not None else ()
        if self.outbox_ is not None:
            self.outbox_.renew()
        entries = [self._with_files(report) for attempt, report in reports.items() if attempt not in kept]
        entries.extend(entry for entry in carried if entry[1]["a"] not in kept)
        if not entries:
            return
        trouble = self._try_to_keep(self._open_outbox)
        for folder, report, cargo in entries if not trouble else ():
            trouble = self._try_to_keep(self.outbox_.keep, report, folder, cargo) or trouble
        if trouble and trouble != self.outbox_trouble:
            self.complain("the outbox cannot be written: {}".format(trouble))
        self.outbox_trouble = trouble

    def _with_files(self, report):
        cargo = self.brought.get(report["a"])
        return (None if cargo is None else self.porters_.place(report["a"])), report, cargo

    def _try_to_keep(self, act, *args):
        """What went wrong, or "".  A full disk is given a second chance, without the cache on it."""
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
        if self.outbox_ is None:
            from windfall.pilot.files.outbox import Outbox
            self.outbox_ = Outbox(self.folders.outbox, self.folders.name)
        self.outbox_.open({"server": self.ticket.server, "certificate": self.ticket.certificate,
                           "routes": self.ticket.routes, "token": self.pilot_token, "v": self.agenda.version,
                           "epoch": self.agenda.epoch, "seq": self.agenda.seq + 1, "ack": self.agenda.ack or 0,
                           "nonce": self.ticket.nonce})
        return self.outbox_

    def _close_outbox(self):
        self.folders.clear_scratch()  # there may be little room
        carried = list(self.porters_.carried.values()) if self.porters_ is not None else ()
        self._keep(self.agenda.undelivered(), carried)
        if self.outbox_ is not None and not self.outbox_.close():
            self.say("results not delivered are in {}".format(self.outbox_.folder))

    def _deliver_leftovers(self):
        if os.path.isdir(self.folders.outbox):
            from windfall.pilot.files import outbox
            for folder in outbox.left_behind(self.folders.outbox):
                self._porters().errand(lambda blobs, folder=folder: self._deliver(folder))

    def _deliver(self, folder):
        from windfall.pilot.files import outbox
        from windfall.pilot.files.blobs import AGAIN, Blobs
        again = [status for status in AGAIN if status != 401]  # there is no other token for it
        until = clock.seconds() + SETTLE_SECONDS

        def blobs_for(link, token):
            return Blobs(link, lambda: token, lambda: self.porters_.closed, again=again,
                         settling=lambda: clock.seconds() < until)

        try:
            count = outbox.deliver(folder, self.ways, blobs_for, lambda text: self.later(lambda: self.complain(text)))
            text = "" if count is None else "delivered {} results an earlier pilot left".format(count)
        except WindfallError as error:
            text = error.message
        if text:
            self.later(lambda: self.say(text))
