"""Enrolment: the pilot sends its host and shape, and gets its token, epoch and lease.  Blocking."""

import json
import os
import time

from windfall.errors import NoServer, Refused, TrustError, VersionMismatch, WindfallError, from_wire
from windfall.pilot import clock
from windfall.pilot.net.link import Broken, HttpRequest
from windfall.wire.messages import ENROLLED, VERSIONS, check

PATIENCE = 300.0
REFUSALS = (400, 413, 422)   # statuses by which the server refuses a message for ever


def message(ticket, host, shape):
    return {"v": VERSIONS[-1], "versions": list(VERSIONS), "site": ticket.site, "nonce": ticket.nonce,
            "host": host, "shape": shape}


def enrol_once(link, ticket, body):
    """Enrol once and return ENROLLED; an error says whether trying again may help."""
    headers = [("Authorization", "Bearer " + ticket.token), ("Content-Type", "application/json")]
    reply = link.call(HttpRequest("POST", "/v1/enrol", headers, json.dumps(body).encode("utf-8")), timeout=30.0)
    answer = parse(reply.body)
    if reply.status != 200:
        error = from_wire(answer, reply.status)
        error.retry_after = error.retry_after or reply.retry_after()
        error.retry = error.retry or reply.status >= 500
        if reply.status == 426 and not isinstance(error, VersionMismatch):
            error = VersionMismatch("the server speaks another version of the protocol", "get a newer pilot")
        raise error
    problem = check(ENROLLED, answer, "the server's answer")
    if problem or answer["v"] not in VERSIONS:
        raise VersionMismatch(problem or "the server chose version {}".format(answer["v"]))
    return answer


def enrol(link, ticket, body, patience=PATIENCE, *, stopped=lambda: False, say=lambda text: None):
    """Try to enrol for `patience` seconds; return (ENROLLED, when its request was sent, by the pilot's clock)."""
    end = clock.seconds() + patience
    delay = 0.25
    while True:
        sent = clock.seconds()
        try:
            return enrol_once(link, ticket, body), sent
        except (NoServer, Broken) as failure:
            error = failure
        except WindfallError as failure:
            if not failure.retry:
                raise
            error = failure
        link.close()
        if stopped() or clock.seconds() + delay > end:
            raise NoServer("could not enrol: {}".format(error.message))
        say("{}; trying again".format(error.message))
        time.sleep(max(delay * (0.5 + fraction() / 2), min(error.retry_after or 0, 60)))
        delay = min(delay * 2, 30.0)


def parse(body):
    try:
        return json.loads(body.decode("utf-8"))
    except ValueError:
        return None


def refusal(reply):
    """Return the server's reason for refusing a message for ever, or "" if the reply is not such a refusal.

    Only a reply in the server's own format counts, or 413: any other may come from a proxy on the route and pass, and
    the pilot gives up no results for it.
    """
    error = from_wire(parse(reply.body), reply.status)
    if reply.status not in REFUSALS or error.retry or (type(error) is WindfallError and reply.status != 413):
        return ""
    return error.message or "status {}".format(reply.status)


def fraction():
    """Return a random number in [0, 1); importing `random` would take 3 ms."""
    return int.from_bytes(os.urandom(4), "big") / 2.0 ** 32


def final(error):
    """Will the server go on refusing?"""
    return isinstance(error, (Refused, TrustError)) and not error.retry
