"""The outbox: results the server has not confirmed, kept on disk when it is out of reach or we have to go.

One folder per life of a pilot, with the credentials that let a later one deliver it (0600 in a 0700 folder).  A lock
tells a folder in use from one left behind.  What the server has not accepted is never deleted.
"""

import fcntl
import json
import os

from windfall.errors import WindfallError

from . import slot, staging
from .link import Link, address, tls_context

CREDENTIALS = "credentials"


class Outbox:
    def __init__(self, base, name):
        self.base = base
        self.folder = os.path.join(base, name)
        self.lock = None
        self.kept = set()

    def open(self, credentials):
        """Make the folder and lock it; may be called again when credentials change."""
        for folder in (self.base, self.folder):  # one by one: makedirs leaves parents open to all
            os.makedirs(folder, 0o700, exist_ok=True)
        if self.lock is None:
            self.lock = _lock(self.folder)
        _write(os.path.join(self.folder, CREDENTIALS), credentials)

    def keep(self, report, folder=None, outputs=None):
        """Keep one report, with the directory its outputs lie in if they have not been uploaded."""
        attempt = report["a"]
        if attempt in self.kept:
            return
        entry = {"report": report}
        if folder is not None:
            os.rename(folder, os.path.join(self.folder, "{}.d".format(attempt)))
            entry["outputs"] = outputs
        _write(os.path.join(self.folder, "{}.json".format(attempt)), entry)
        self.kept.add(attempt)

    def forget(self, attempts):
        """The server has these."""
        for attempt in attempts:
            if attempt in self.kept:
                self.kept.discard(attempt)
                _forget(self.folder, attempt)

    def close(self):
        """Remove the folder if nothing is left in it; True if so."""
        if self.lock is None:
            return True
        gone = not self.kept and slot.remove(self.folder)
        os.close(self.lock)
        self.lock = None
        _rmdir(self.base)
        return gone


def left_behind(base):
    """Folders of earlier pilots."""
    try:
        return [os.path.join(base, name) for name in sorted(os.listdir(base))]
    except OSError:
        return []


def deliver(folder, blobs_for):
    """Send what an earlier pilot left; returns how many reports, or None if the folder is in use.

    `blobs_for(link, token)` makes the way for uploads.  Raises WindfallError when the server does not take them.
    """
    lock = _lock(folder)
    if lock is None:
        return None
    try:
        with open(os.path.join(folder, CREDENTIALS)) as file:
            credentials = json.load(file)
        return _deliver(folder, credentials, blobs_for)
    except (OSError, ValueError, KeyError) as error:
        raise WindfallError("the outbox {} cannot be read: {}".format(folder, error))
    finally:
        os.close(lock)


def _deliver(folder, credentials, blobs_for):
    place = address(credentials["server"])
    link = Link(place, tls_context(credentials["certificate"]) if place[0] != "unix" else None)
    blobs = blobs_for(link, credentials["token"])
    names = [name for name in sorted(os.listdir(folder)) if name.endswith(".json")]
    sent = 0
    for start in range(0, len(names), 64):
        reports = [_entry(folder, name, blobs) for name in names[start:start + 64]]
        credentials["seq"] += 1
        _exchange(blobs, credentials, reports)
        for report in reports:
            _forget(folder, report["a"])
        sent += len(reports)
    slot.remove(folder)
    _rmdir(os.path.dirname(folder))
    return sent


def _entry(folder, name, blobs):
    with open(os.path.join(folder, name)) as file:
        entry = json.load(file)
    report = entry["report"]
    if entry.get("outputs"):
        where = os.path.join(folder, "{}.d".format(report["a"]))
        try:
            files = staging.describe(where, entry["outputs"])
            for path, digest, size, _ in files:
                blobs.upload(os.path.join(where, staging.inside(path)), digest, size, report["a"])
            report["files"] = files
        except WindfallError as error:
            report.update(o="failed", why="output", note=error.message)
    return report


def _exchange(blobs, credentials, reports):
    request = {"v": credentials["v"], "epoch": credentials["epoch"], "seq": credentials["seq"],
               "ack": credentials["ack"], "reports": reports}
    body = json.dumps(request).encode()
    reply = blobs.request("POST", "/v1/exchange", [("Content-Type", "application/json")], body)
    if reply.status != 200:
        raise WindfallError("the server answered {} to results left in an outbox".format(reply.status))


def _forget(folder, attempt):
    try:
        os.unlink(os.path.join(folder, "{}.json".format(attempt)))
    except OSError:
        pass
    path = os.path.join(folder, "{}.d".format(attempt))
    if os.path.isdir(path):
        slot.remove(path)


def _write(path, value):
    """Whole or not at all, and on the disk."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def _lock(folder):
    """A locked descriptor, or None if another pilot has it."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        os.close(fd)
        return None


def _rmdir(path):
    try:
        os.rmdir(path)
    except OSError:
        pass
