"""Lanes: the agent's two connections to the server.  One may wait in a parked poll; the other carries news meanwhile.

A lane carries one request at a time.  It connects in a thread, since name look-up and handshakes block; the agent's
loop does all else.  A lane replaces a kept connection that the server had closed; it tells the agent of other errors.
"""

import _thread
import json

from windfall.errors import WindfallError
from windfall.pilot import clock
from windfall.pilot.net.link import Broken, HttpRequest

ANSWER_SECONDS = 30.0    # beyond the time a request is willing to be parked
STALE_SECONDS = 1.0      # a kept connection that breaks this soon under a request was closed before the request


class Lane:
    def __init__(self, link, agent):
        self.link = link
        self.agent = agent       # has token, watch, rewatch, unwatch, call_in_loop; is told answered, broken
        self.request = None
        self.deadline = 0.0
        self.open = False
        self.watched = -1
        self.kept = False        # the connection has carried a request before
        self.begun = 0.0         # when the request was first sent
        self.life = 0            # number of the connection awaited; an earlier one that comes late is closed

    def adopt(self):
        """Use the link's connection, which is open already."""
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
        """Note that the server answered on either lane: from now on it may park this lane's poll for its full time."""
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
        except Exception as failure:  # resolvers and TLS libraries raise errors of their own
            error = Broken("cannot connect: {}".format(failure))
        self.agent.call_in_loop(lambda: self._dialled(life, error))

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
        headers = [("Authorization", "Bearer " + self.agent.token()), ("Content-Type", "application/json")]
        self.link.begin(HttpRequest("POST", "/v1/exchange", headers, body))
        self._ready(self.watched)

    def _ready(self, fd):
        if self.request is None:
            self.close()  # an idle connection becomes readable only when the server closes it
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
        """Was the connection closed while it was idle?  Then the server is up and has not seen the request."""
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
