"""States and the moves between them, as tables.  The documentation's diagrams are drawn from these.

A task's state is apart from its attempts': an attempt may be lost while another one of the same task goes on, and
a lost one may still bring the result home.  *Ready* is zero on purpose: ten million fresh tasks are untouched pages.
"""

from __future__ import annotations

from typing import Final

Moves = tuple[tuple[int, int, str], ...]  # (old state, new state, why)

# --- tasks -------------------------------------------------------------------------------------------------------
READY: Final = 0
ACTIVE: Final = 1  # at least one attempt granted or started
VALIDATING: Final = 2  # a result is there, its validity is not decided yet (quorum comes later)
WAITING: Final = 3  # prerequisites between tasks are not done
SUCCEEDED: Final = 4
FAILED: Final = 5
CANCELLED: Final = 6
QUARANTINED: Final = 7  # present at repeated deaths of pilots

TASK_STATES: Final = ("ready", "active", "validating", "waiting", "succeeded", "failed", "cancelled", "quarantined")
FIRST_FINAL: Final = SUCCEEDED  # states from here on are ends of a generation

TASK_MOVES: Final = (
    (WAITING, READY, "its prerequisites are done"),
    (READY, ACTIVE, "granted to a pilot"),
    (WAITING, ACTIVE, "granted behind its prerequisite, to the same pilot"),
    (ACTIVE, READY, "attempt failed with retries left, was returned or lost"),
    (ACTIVE, VALIDATING, "a result came that others must confirm"),
    (VALIDATING, READY, "the results disagree"),
    (VALIDATING, SUCCEEDED, "enough results agree"),
    (ACTIVE, SUCCEEDED, "first valid success"),
    (READY, SUCCEEDED, "a lost attempt reported late"),
    (ACTIVE, FAILED, "no retries left"),
    (ACTIVE, QUARANTINED, "present at repeated deaths of pilots"),
    (WAITING, QUARANTINED, "an attempt given up before turns out to have died with its pilot"),
    (READY, QUARANTINED, "an attempt given up before turns out to have died with its pilot"),
    (READY, CANCELLED, "cancelled, or what it waits for failed"),
    (ACTIVE, CANCELLED, "cancelled"),
    (WAITING, CANCELLED, "cancelled, or what it waits for failed"),
    (FAILED, SUCCEEDED, "a lost attempt reported late"),
    (QUARANTINED, SUCCEEDED, "a lost attempt reported late"),
    (FAILED, READY, "retried by the user: a new generation"),
    (CANCELLED, READY, "retried by the user: a new generation"),
    (QUARANTINED, READY, "retried by the user: a new generation"),
    (READY, WAITING, "what it reads is gone, and is made again"),
    (ACTIVE, WAITING, "attempt over, and its prerequisite is not done, or what it reads is made again"),
    (WAITING, SUCCEEDED, "a lost attempt reported late"),
    (SUCCEEDED, READY, "run again by the user, or what it left is gone and needed: a new generation"),
    (SUCCEEDED, WAITING, "the same, and so is what it waits for"),
    (CANCELLED, WAITING, "retried by the user, prerequisites open"),
    (FAILED, WAITING, "retried by the user, prerequisites open"),
    (QUARANTINED, WAITING, "retried by the user, prerequisites open"),
)

# --- attempts ----------------------------------------------------------------------------------------------------
FREE: Final = 0  # the row is not in use
GRANTED: Final = 1
STARTED: Final = 2
LOST: Final = 3  # given up; a late report is still welcome
DROPPED: Final = 4  # its task ended otherwise; told to stop, report outstanding

ATTEMPT_STATES: Final = ("free", "granted", "started", "lost", "dropped")
ATTEMPT_MOVES: Final = (
    (FREE, GRANTED, "handed to a pilot"),
    (GRANTED, STARTED, "the pilot says it runs"),
    (GRANTED, LOST, "the lease ran out, or the pilot is gone"),
    (STARTED, LOST, "the site says the pilot is gone, or limit and lease passed in silence"),
    (LOST, STARTED, "the pilot came back and still runs it"),
    (GRANTED, DROPPED, "the task ended otherwise"),
    (STARTED, DROPPED, "the task ended otherwise"),
    (LOST, DROPPED, "the task ended otherwise"),
    (GRANTED, FREE, "reported"),
    (STARTED, FREE, "reported"),
    (LOST, FREE, "reported late"),
    (DROPPED, FREE, "reported, or its pilot is gone"),
)

# How an attempt ends.  Only *failed* costs the task anything.
OUTCOMES: Final = ("succeeded", "failed", "cancelled", "returned", "lost")
O_SUCCEEDED, O_FAILED, O_CANCELLED, O_RETURNED, O_LOST = range(5)
OUTCOME_CODE: Final = {name: code for code, name in enumerate(OUTCOMES)}
NO_HOST_FAULT: Final = ("time", "memory", "program")  # reasons of failures that are no host's fault
NOT_RETRIED: Final = "program"  # the reason of a failure that every host would repeat

# --- pilots ------------------------------------------------------------------------------------------------------
LIVE: Final = 0
DRAINING: Final = 1  # finishes what it runs, takes nothing new
SUPERSEDED: Final = 2  # a newer epoch enrolled under its nonce: may report, not start
GONE: Final = 3  # ended, cleanly or not

PILOT_STATES: Final = ("live", "draining", "superseded", "gone")
PILOT_MOVES: Final = (
    (LIVE, DRAINING, "told to leave"),
    (LIVE, SUPERSEDED, "its nonce enrolled again"),
    (DRAINING, SUPERSEDED, "its nonce enrolled again"),
    (LIVE, GONE, "said goodbye, or the site says it is gone"),
    (DRAINING, GONE, "said goodbye, or the site says it is gone"),
    (SUPERSEDED, GONE, "said goodbye, or the site says it is gone"),
)

# --- hosts -------------------------------------------------------------------------------------------------------
FINE: Final = 0
HELD_BACK: Final = 1  # quarantined: it is given nothing
PROBATION: Final = 2  # it is given one task at a time

HOST_STANDINGS: Final = ("fine", "quarantined", "on probation")

# --- intents: pilots in a batch system ------------------------------------------------------------------------------
INTENDED: Final = 0  # committed; whoever starts pilots may have been told
QUEUED: Final = 1
RUNNING: Final = 2
STOPPING: Final = 3  # not wanted any more; counts until its batch system has let go of it
LEAVING: Final = 4  # its pilot has said goodbye; counts until its batch system has let go of it
ENDED: Final = 5

INTENT_STATES: Final = ("intended", "queued", "running", "stopping", "leaving", "ended")
INTENT_MOVES: Final = (
    (INTENDED, QUEUED, "the batch system took it"),
    (INTENDED, RUNNING, "its pilot enrolled before that was heard"),
    (INTENDED, STOPPING, "the demand is gone; it may have been submitted"),
    (INTENDED, ENDED, "refused, or not wanted any more before anybody was told"),
    (QUEUED, RUNNING, "its pilot enrolled, or the batch system says so"),
    (QUEUED, STOPPING, "the demand is gone"),
    (QUEUED, ENDED, "the batch system has it no more"),
    (RUNNING, LEAVING, "its pilot said goodbye, or somebody says that it is dead"),
    (RUNNING, STOPPING, "its batch system took it back into the queue, or its site is to be empty at once"),
    (RUNNING, ENDED, "the batch system has it no more, or its wall time is over"),
    (LEAVING, STOPPING, "its batch system still has it, or has it in the queue again"),
    (LEAVING, ENDED, "the batch system has it no more, or its wall time is over"),
    (STOPPING, ENDED, "stopped"),
)


def mermaid(names: tuple[str, ...], moves: Moves) -> str:
    """Return the state diagram of one table, for the documentation."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {names[a]} --> {names[b]}: {why}" for a, b, why in moves]
    return "\n".join(lines)


def allowed(moves: Moves) -> frozenset[tuple[int, int]]:
    """Return the pairs (old state, new state) that a table has."""
    return frozenset((a, b) for a, b, _ in moves)
