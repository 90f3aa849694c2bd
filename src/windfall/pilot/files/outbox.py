"""The outbox: reports and files that the server has not confirmed, kept on disk while the pilot cannot reach it.

Each pilot process has a folder of its own, with credentials by which a later pilot can deliver it (0600 in a 0700
folder).  A lock (`folder_locks`) tells a folder in use from one left behind.  The outbox never deletes a result before
the server has accepted it.
"""

import errno
import json
import os

from windfall.errors import WindfallError
from windfall.pilot.files import folder_locks, outputs
from windfall.pilot.net import enrol
from windfall.pilot.net.link import HttpLink, HttpRequest
from windfall.pilot.net.routes import Routes
from windfall.pilot.notes import short
from windfall.pilot.run import slot

CREDENTIALS = "credentials"
REPORTS_AT_ONCE = 64         # most reports delivered in one request,
BYTES_AT_ONCE = 4 << 20      # and most bytes of them
UPLOADS = "cargo"            # field of an entry; named so in folders that older pilots left


class Outbox:
    def __init__(self, base, name):
        self.base = base
        self.folder = os.path.join(base, name)
        self.held = None
        self.kept = set()

    def open(self, credentials):
        """Make the folder and hold it; may be called again when credentials change."""
        for folder in (self.base, self.folder):  # one by one: makedirs leaves parents open to all
            os.makedirs(folder, 0o700, exist_ok=True)
        if self.held is None:
            self.held = folder_locks.take(self.folder)
            if self.held is None:
                raise OSError(errno.EBUSY, "another process holds {}".format(self.folder))
        _write(os.path.join(self.folder, CREDENTIALS), credentials)

    def keep(self, report, folder=None, uploads=None):
        """Keep one report, with the directory of its files where they may have to be uploaded (again)."""
        attempt = report["a"]
        if attempt in self.kept:
            return
        entry = {"report": report}
        if folder is not None:
            if self._take_in(folder, "{}.d".format(attempt)):
                entry[UPLOADS] = uploads
            elif "files" in uploads and "files" not in report:
                entry["report"] = dict(report, o="failed", why="output", note="the outputs are gone")
        _write(os.path.join(self.folder, "{}.json".format(attempt)), entry)
        self.kept.add(attempt)

    def renew(self):
        if self.held is not None:
            self.held.renew()

    def _take_in(self, folder, name):
        """Move a directory into the outbox; return False if it does not exist."""
        target = os.path.join(self.folder, name)
        if os.path.isdir(target):
            return True  # an earlier try has moved it
        try:
            os.rename(folder, target)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            if error.errno != errno.EXDEV:
                raise
            _copy(folder, target)
        return True

    def forget(self, attempts):
        """Delete the entries of attempts whose reports the server has."""
        for attempt in attempts:
            if attempt in self.kept:
                self.kept.discard(attempt)
                _forget(self.folder, attempt)

    def close(self):
        """Release the folder; return True if no result was left in it, so that it is removed."""
        if self.held is None:
            return True
        gone = not self.kept and slot.remove(self.folder)
        self.held.release()
        self.held = None
        _rmdir(self.base)
        return gone


def _copy(folder, target):
    """Move a directory to another file system, whole or not at all."""
    import shutil
    slot.remove(target + ".new")
    shutil.copytree(folder, target + ".new", symlinks=True)
    os.rename(target + ".new", target)
    slot.remove(folder)


def left_behind(base):
    """Return the folders of an outbox directory, of earlier pilots and of this one."""
    try:
        return [os.path.join(base, name) for name in sorted(os.listdir(base))]
    except OSError:
        return []


def deliver(folder, routes, blobs_for, say=lambda text: None):
    """Send the results that an earlier pilot left; return how many reports, or None if the folder is in use.

    `routes` lead to this pilot's server; `blobs_for(link, token)` makes the Blobs that upload files.
    Raises WindfallError when the server does not take the reports.
    """
    try:
        held = folder_locks.take(folder)
    except OSError as error:
        raise WindfallError("the outbox {} cannot be locked: {}".format(folder, error))
    if held is None:
        return None
    try:
        with open(os.path.join(folder, CREDENTIALS)) as file:
            credentials = json.load(file)
        return _deliver(folder, credentials, routes, blobs_for, say)
    except (OSError, ValueError, KeyError) as error:
        raise WindfallError("the outbox {} cannot be read: {}".format(folder, error))
    finally:
        held.release()


def _deliver(folder, credentials, routes, blobs_for, say):
    if not credentials["certificate"] or credentials["certificate"] != routes.certificate:
        routes = Routes(credentials["server"], credentials["certificate"], credentials.get("routes") or ())
    # With the same certificate it is the same server, and this pilot's ticket knows its newest address.
    blobs = blobs_for(HttpLink(routes), credentials["token"])
    sent = 0
    for names in _batches(folder):
        reports = [_entry(folder, name, blobs) for name in names]
        _send_reports(blobs, credentials, reports, say)
        for report in reports:
            _forget(folder, report["a"])
        sent += len(reports)
    slot.remove(folder)
    _rmdir(os.path.dirname(folder))
    return sent


def _batches(folder):
    """Yield the names of the entries in lists, each as long as one request may be."""
    batch, size = [], 0
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json")):
        more = os.path.getsize(os.path.join(folder, name))
        if batch and (len(batch) == REPORTS_AT_ONCE or size + more > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += more
    if batch:
        yield batch


def _entry(folder, name, blobs):
    """Return an entry's report, once the server has its files; the server may have dropped earlier uploads."""
    with open(os.path.join(folder, name)) as file:
        entry = json.load(file)
    report = entry["report"]
    if type(report["a"]) is not int:  # it names a directory, which must not lie elsewhere
        raise ValueError("the entry {} has no attempt number".format(name))
    try:
        if entry.get(UPLOADS):
            where = os.path.join(folder, "{}.d".format(report["a"]))
            report.update(outputs.send(where, entry[UPLOADS], report, blobs))
        for path, digest, _, _ in report.get("files", ()) if not entry.get(UPLOADS) else ():
            if not blobs.has(digest, report["a"]):
                raise WindfallError("the server does not have the output {} any more".format(path))
    except WindfallError as error:
        if error.retry:
            raise
        report.pop("files", None)
        report.update(o="failed", why="output", note=short(error.message))
    return report


def _send_reports(blobs, credentials, reports, say):
    """Send reports.  Where the server refuses them for good, halve them until the wrong one is found; send that one
    shortened, or drop it."""
    problem = _exchange(blobs, credentials, reports)
    if not problem:
        return
    if len(reports) > 1:
        half = len(reports) // 2
        _send_reports(blobs, credentials, reports[:half], say)
        _send_reports(blobs, credentials, reports[half:], say)
        return
    attempt = reports[0]["a"]
    say("the server refused the report of attempt {}: {}".format(attempt, problem))
    less = {"a": attempt, "o": "failed", "why": "refused", "note": "the server refused the task's report"}
    if _exchange(blobs, credentials, [less]):
        say("the server refused even the shortest report of attempt {}; the pilot drops it".format(attempt))


def _exchange(blobs, credentials, reports):
    """Send one request with these reports; return why the server refuses them for good, or ""."""
    credentials["seq"] += 1
    request = {"v": credentials["v"], "epoch": credentials["epoch"], "seq": credentials["seq"],
               "ack": credentials["ack"], "reports": reports}
    body = json.dumps(request).encode()
    reply = blobs.request(HttpRequest("POST", "/v1/exchange", [("Content-Type", "application/json")], body))
    problem = enrol.refusal(reply)
    if reply.status != 200 and not problem:
        raise WindfallError("the server answered {} to results left in an outbox".format(reply.status))
    return problem


def _forget(folder, attempt):
    try:
        os.unlink(os.path.join(folder, "{}.json".format(attempt)))
    except OSError:
        pass
    path = os.path.join(folder, "{}.d".format(attempt))
    if os.path.isdir(path):
        slot.remove(path)


def _write(path, value):
    """Write a JSON file, whole or not at all, and flush it to the disk."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def _rmdir(path):
    try:
        os.rmdir(path)
    except OSError:
        pass
