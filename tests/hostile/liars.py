"""Pilots that lie: exchanges, uploads and output in which anything may be wrong; and an honest pilot beside them."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.hostile.ground import SWEEP, Caller, Ground

BIG = (0, 1, 2, 255, 1 << 31, 1 << 32, 1 << 53, (1 << 63) - 1)


class Liar:
    """One pilot; it remembers what it was granted, and says what it likes."""

    def __init__(self, ground: Ground, nonce: str) -> None:
        self.draw, self.ground, self.nonce = ground.draw, ground, nonce
        self.caller, self.epoch = ground.caller.enrolled(nonce)
        self.attempts: list[int] = []
        self.seq = self.grant = 0

    def act(self) -> None:
        draw = self.draw
        act = draw.choices((self.exchange, self.upload, self.fetch, self.show, self.enrol), (8, 4, 2, 1, 0.2))[0]
        act()

    def attempt(self) -> int:
        draw = self.draw
        return draw.choice(self.attempts) if self.attempts and draw.random() < 0.7 else draw.choice(BIG)

    def exchange(self) -> None:
        draw = self.draw
        self.seq += draw.choice((1, 1, 1, 0, -1, 1 << 40))
        message: dict[str, Any] = {
            "v": 1, "seq": max(self.seq, 0),
            "epoch": draw.choice((self.epoch, self.epoch, self.epoch, self.epoch + 1, 0)),
            "ack": draw.choice((self.grant, self.grant, 0, 1 << 40)), "wait": 0,
            "want": draw.choice((0, 1, 4, 1 << 50))}
        if draw.random() < 0.6:
            message["reports"] = [self.report() for _ in range(draw.choice((1, 1, 2, 20)))]
        if draw.random() < 0.3:
            message["started"] = [self.attempt() for _ in range(draw.choice((1, 3, 50)))]
        if draw.random() < 0.2:
            message["held"] = [self.attempt() for _ in range(draw.choice((0, 1, 50)))]
        if draw.random() < 0.2:
            message["left"] = draw.choice((*BIG, None, -5))
        if draw.random() < 0.01:
            message["bye"] = draw.choice(("idle", "walltime", "x" * 500))
        reply = self.caller.call("POST", "/v1/exchange", message)
        if reply.status == 200:
            self.take(reply.body)
        elif reply.status in (401, 404):
            self.enrol()

    def take(self, answer: dict[str, Any]) -> None:
        for grant in answer.get("grants", ()):
            self.grant = max(self.grant, grant["n"])
            self.attempts += [task[0] for group in grant["groups"] for task in group["tasks"]]
        del self.attempts[:-200]

    def report(self) -> dict[str, Any]:
        draw = self.draw
        names = ("exit", "signal", "wall", "cpu", "rss", "t0", "t1", "out_size", "err_size")
        ends = ("succeeded", "failed", "cancelled", "returned")
        report: dict[str, Any] = {"a": self.attempt(), "o": draw.choice(ends)}
        report |= {name: draw.choice((*BIG, -1, 1 << 70)) for name in names if draw.random() < 0.3}
        if draw.random() < 0.3:
            report["why"] = draw.choice(("exit", "time", "memory", "output", "lease", "nonsense", "w" * 300))
        if draw.random() < 0.2:
            report["files"] = [[draw.choice(("o", "../o", "x" * 300)), self.sha(), draw.choice(BIG), draw.choice(BIG)]]
        if draw.random() < 0.2:
            report["saved"] = [["state", self.sha(), 1, 0o600]]
        if draw.random() < 0.2:
            report |= {"out": draw.choice(("", "\0", "\ud800", "o" * 50_000)), "note": "n" * draw.choice((1, 9_000)),
                       "values": {"v": "1", "k" * draw.choice((1, 300)): "2"}, "out64": "!!!", "left": [1, 1 << 60]}
        return report

    def body(self) -> bytes:
        return b"x" * self.draw.choice((0, 1, 5, 100_000))

    def sha(self) -> str:
        return hashlib.sha256(self.body()).hexdigest() if self.draw.random() < 0.7 else "ab" * 32

    def upload(self) -> None:
        draw, body = self.draw, self.body()
        sha = hashlib.sha256(body).hexdigest() if draw.random() < 0.7 else self.sha()
        headers = {"X_Attempt": str(self.attempt())}
        if draw.random() < 0.6:
            first, total = draw.choice((0, 0, 1, 10**14)), draw.choice((len(body), len(body) + 5, 0, 10**14))
            headers["Content_Range"] = f"bytes {first}-{first + len(body) - 1}/{total}"
        self.caller.call("PUT", f"/v1/blobs/{sha}", body, **headers)

    def fetch(self) -> None:
        method, last = self.draw.choice(("GET", "HEAD")), self.draw.choice(BIG)
        self.caller.call(method, f"/v1/blobs/{self.sha()}", X_Attempt=str(self.attempt()), Range=f"bytes=1-{last}")

    def show(self) -> None:
        stream, offset = self.draw.choice(("out", "no")), self.draw.choice(BIG)
        self.caller.call("POST", f"/v1/attempts/{self.attempt()}/output?stream={stream}&offset={offset}", self.body())

    def enrol(self) -> None:
        self.caller, self.epoch = self.ground.caller.enrolled(self.nonce)
        self.seq = self.grant = 0


def run(ground: Ground, most: int) -> int:
    """Let liars send so many requests; then an honest pilot of another user must run his bag to its end."""
    for name in ("a", "b"):
        spec = {**SWEEP, "name": name}
        spec["targets"] = [{**SWEEP["targets"][0], "outputs": ["o"], "checkpoint": ["state"], "retries": 5}]
        ground.caller.call("POST", "/v1/bags", spec)
    liars = [Liar(ground, f"liar-{number}") for number in range(4)]
    count = 0
    while count < most:
        ground.draw.choice(liars).act()
        count += 1
        if count % 500 == 0:
            ground.check_health()
            ground.caller.call("POST", "/v1/bags", SWEEP)
    honest(ground)
    return count


def honest(ground: Ground) -> None:
    """Run a bag of another user with a pilot of his own, to its end."""
    user: Caller = ground.caller.as_user("honest")
    user.call("POST", "/v1/sites", {"name": "own", "kind": "local"})
    bag = user.call("POST", "/v1/bags", SWEEP).body["bag"]
    pilot, epoch = user.enrolled("honest", "own")
    seq = ack = 0
    reports: list[dict[str, Any]] = []
    while user.call("GET", f"/v1/bags/{bag}").body["state"] != "succeeded":
        seq += 1
        answer = pilot.call("POST", "/v1/exchange", {
            "v": 1, "epoch": epoch, "seq": seq, "ack": ack, "want": 4, "wait": 0, "reports": reports}).body
        ack = max([ack, *(grant["n"] for grant in answer.get("grants", ()))])
        reports = [{"a": task[0], "wall": 1} for grant in answer.get("grants", ()) for group in grant["groups"]
                   for task in group["tasks"]]
        assert seq < 1_000, "the honest pilot's bag does not end"
