"""Settings of the core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Config:
    """Times are milliseconds, unless a comment says otherwise."""

    lease: int = 60_000  # a silent pilot may start tasks for so long
    margin: int = 5_000  # added before the server gives the pilot's unstarted tasks to others
    park: int = 20_000  # longest that a request waits for an answer (long polling)
    idle: int = 120_000  # a pilot without work leaves after this; the pilot itself decides (`pilot/agenda`)
    worth: int = 2_000  # of work make one more slot worth while
    surplus: int = 10_000  # pilots of a site go home when no open bag has been able to use the site for so long
    # a silent pilot that holds no attempt ends after this; so does an attempt without limit on one without wall time
    silence: int = 3_600_000
    prefetch: int = 500  # worth of work per slot a pilot holds beyond what it runs
    prefetch_most: int = 256  # tasks per slot
    deaths: int = 3  # of pilots, before a task is quarantined
    message: int = 4 << 20  # bytes of commands in one answer, about
    token: int = 90 * 86_400_000  # a pilot's token ends so long after its wall time, or after its enrolment
    forget: int = 86_400_000  # a pilot that is gone is forgotten after this
    owned: int = 400_000_000  # tasks in all bags of one owner, ended or not
    provision: int = 1_000  # sites are provisioned at most once in this time
    landing: int = 30_000  # a submission that was under way when its tender died has landed after this, or never will
    listing: int = 60_000  # how often tenders are asked what their batch system has of ours
    # a site without a word from its tender, or without a listing that it was asked for, gets no more pilots after this
    suspect: int = 180_000
    blackout: int = 900_000  # sites are tried again when no pilot was active anywhere for so long, and work is wanted
    salvage: int = 120_000  # what a pilot that is gone left behind is looked for so long, then its tasks run again
    quarantine: int = 600_000  # of a host; twice as long each time, a day at most
    parting: int = 2_000  # ms that a batch system takes, mostly, to let go of a job whose pilot has said goodbye
    fail_over: int = 3_600_000  # tasks wait so long for a pilot at their fail-over site, then any site will do
    ageing: int = 86_400_000  # a bag that was given to nobody for so long goes before its owner's others
    mark: str = "intent"  # begins the nonces of intents; no other server that uses the same sites may have it
