"""The two lanes to the server: one may be parked in a poll, the other is opened when something must be said meanwhile.

A lane carries one request at a time.  Connecting takes a thread, since names and handshakes block; all else is done
by the agent's loop.  A kept connection that turns out to have been closed is replaced at once; whatever else
breaks is told to the agent.
"""

import _thread
import json

from windfall.errors import WindfallError
from windfall.pilot import clock
from windfall.pilot.net.link import Broken

ANSWER_SECONDS = 30.0    # beyond the time a request is willing to be parked
STALE_SECONDS = 1.0      # a kept connection that breaks this soon under a request had been closed before it


class Lane:
    def __init__(self, link, agent):
        self.link = link
        self.agent = agent       # gives token, watch, rewatch, unwatch, later; is told answered, broken
        self.request = None
        self.deadline = 0.0
        self.open = False
        self.watched = -1
        self.kept = False        # the connection has carried a request before
        self.begun = 0.0         # when the request was put on the line
        self.life = 0            # tells a connection that came too late from the one we wait for

    def adopt(self):
        """The link is connected already."""
        self.link.sock.setblocking(False)
        self.open = self.kept = True
        self.watched = self.link.fileno()
        self.agent.watch(self.watched, self._ready)

    def send(self, request):
        self.request = request
        self.heard(clock.seconds())
        if self.open:
            self._begin()
        else:
            self._connect()

    def heard(self, now):
        """The server answers, here or on the other lane: from then on it may keep a poll waiting for as long again."""
        if self.request is not None:
            self.deadline = now + self.request.get("wait", 0) / 1000.0 + ANSWER_SECONDS

    def _connect(self):
        self.life += 1
        _thread.start_new_thread(self._dial, (self.life,))

    def _dial(self, life):
        try:
            self.link.connect()
            error = None
        except WindfallError as failure:
            error = failure
        except Exception as failure:  # whatever a resolver or TLS library comes up with
            error = Broken("cannot connect: {}".format(failure))
        self.agent.later(lambda: self._dialled(life, error))

    def _dialled(self, life, error):
        if life != self.life or self.request is None:
            self.link.close()
        elif error is not None:
            self._lost(error)
        else:
            self.adopt()
            self.kept = False
            self._begin()

    def _begin(self):
        self.begun = clock.seconds()
        body = json.dumps(self.request, separators=(",", ":")).encode("utf-8")
        self.link.begin("POST", "/v1/exchange",
                        [("Authorization", "Bearer " + self.agent.token()), ("Content-Type", "application/json")], body)
        self._ready(self.watched)

    def _ready(self, fd):
        if self.request is None:
            self.close()  # an idle connection has nothing to say but that it ends
            return
        try:
            reply = self.link.pump()
        except Broken as error:
            if self._stale():
                self.close()
                self._connect()
            else:
                self._lost(error)
            return
        if reply is None:
            self.agent.rewatch(self.watched, bool(self.link.out))
            return
        self._answered(reply)

    def _stale(self):
        """Was the connection closed while it was idle?  Then the server is not lost, nor has it seen the request."""
        return self.kept and self.link.silent() and clock.seconds() - self.begun < STALE_SECONDS

    def _answered(self, reply):
        request, self.request = self.request, None
        self.kept = True
        if self.link.sock is None:
            self._forget()
        else:
            self.agent.rewatch(self.watched, False)
        self.agent.answered(request, reply)

    def _lost(self, error):
        request, self.request = self.request, None
        self.close()
        self.agent.broken(request, error)

    def check(self, now):
        """Give up on a request whose answer is overdue."""
        if self.request is not None and now > self.deadline:
            self.life += 1
            self._lost(Broken("no answer in time"))

    def close(self):
        self._forget()
        self.link.close()

    def _forget(self):
        if self.watched >= 0:
            self.agent.unwatch(self.watched)
        self.watched = -1
        self.open = False
