"""The files of a task's directory that the pilot uploads: the outputs after a success, the checkpoint files of an
attempt that was ended early, and an archive of what is new or changed in the directory after a failure whose scratch is
kept.

An output that is missing makes a success a failure; a checkpoint or an archive that cannot be sent is only noted.
"""

import os
import stat
import tarfile

from windfall.errors import WindfallError
from windfall.pilot.files import found, staging
from windfall.pilot.files.blobs import file_digest, stream_digest
from windfall.pilot.files.limits import Closing

ARCHIVE_BYTES = 1 << 30      # largest directory that is kept
ARCHIVE_FILES = 100000
NOT_BEGUN = ("start", "program")
RESULT = ".windfall-result"  # the file of a Python call's large result
EARLY = ("stop", "time")     # reasons of an early end after which the next attempt can use the checkpoint


class FilesToSend:
    """The files that a task wants uploaded from its directory, by how it ends."""

    __slots__ = ("outputs", "checkpoint", "scratch", "inputs")

    def __init__(self, task):
        self.outputs = task.field("outputs")
        self.checkpoint = task.field("checkpoint")
        self.scratch = task.field("scratch") == "failed"
        self.inputs = []             # that a kept directory lacks if they are unchanged
        if self.scratch:  # checkpoint files are kept, since the server forgets them when the task has ended
            restored = self.checkpoint or ()
            self.inputs = [entry for entry in task.field("inputs") or () if entry[0] not in restored]

    def uploads_after(self, report):
        """Return {field of the report: the paths whose files go into it}, by how the attempt ended."""
        outcome, why = report.get("o", "succeeded"), report.get("why", "")
        if outcome == "succeeded":
            return {"files": self.outputs} if self.outputs else {}
        uploads = {}
        if self.checkpoint and why in EARLY:
            uploads["saved"] = self.checkpoint
        if self.scratch and outcome == "failed" and why not in NOT_BEGUN:
            uploads["scratch"] = self.inputs
        return uploads


def send(folder, uploads, report, blobs):
    """Upload files; return fields for the report.  Raise WindfallError or OSError when outputs cannot be sent."""
    attempt, fields, notes = report["a"], {}, []
    if "files" in uploads:
        fields["files"] = _send_files(folder, found.expand(folder, uploads["files"]), attempt, blobs)
    if "saved" in uploads:
        _optional(notes, "the checkpoint was not saved", lambda: _send_saved(folder, uploads["saved"], attempt, blobs),
                  fields, "saved")
    if "scratch" in uploads:
        _optional(notes, "the directory was not kept",
                  lambda: _send_scratch(folder, uploads["scratch"], attempt, blobs), fields, "scratch")
    if notes:
        fields["note"] = "; ".join(([report["note"]] if report.get("note") else []) + notes)
    return fields


def _optional(notes, what, function, fields, name):
    try:
        value = function()
        if value:
            fields[name] = value
    except WindfallError as error:
        notes.append("{}: {}".format(what, error.message))
    except Closing:
        raise
    except Exception as error:  # the attempt has ended, and its report must not be lost for any reason
        notes.append("{}: {}".format(what, getattr(error, "strerror", None) or error or type(error).__name__))


def _send_files(folder, paths, attempt, blobs):
    files = staging.describe(folder, paths, blobs)
    for path, digest, size, _ in files:
        with staging.open_inside(folder, path) as file:
            blobs.upload(file, digest, size, attempt)
    return files


def _send_saved(folder, paths, attempt, blobs):
    """Upload the checkpoint files that exist: a task may be ended before it has written any."""
    there = [path for path in paths if os.path.isfile(os.path.join(folder, staging.inside(path)))]
    return _send_files(folder, there, attempt, blobs)


def _send_scratch(folder, inputs, attempt, blobs):
    """Upload an archive of the directory without the inputs, [[path, sha256, size, mode]], that are as they were."""
    archive = folder + ".tar.gz"
    inputs = inputs if isinstance(inputs, list) else []  # outboxes of older pilots have True
    try:
        _pack(folder, archive, {path: (digest, size) for path, digest, size, _ in inputs})
        with open(archive, "rb") as file:
            digest, size = stream_digest(file, blobs.check), file.tell()
            blobs.upload(file, digest, size, attempt)
        return [digest, size]
    finally:
        try:
            os.unlink(archive)
        except OSError:
            pass


def _pack(folder, archive, inputs):
    room = [ARCHIVE_BYTES, ARCHIVE_FILES]

    def keep(entry):
        """Take only entries that any user can unpack, without their owner; skip sockets, pipes and devices."""
        room[0] -= entry.size
        room[1] -= 1
        if min(room) < 0:
            raise WindfallError("it has more than {} files or {} GB".format(ARCHIVE_FILES, ARCHIVE_BYTES >> 30))
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry if entry.isreg() or entry.isdir() or entry.issym() or entry.islnk() else None

    fd = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as packed:
        todo = sorted(os.listdir(folder), reverse=True)
        while todo:  # no recursion: a task may have nested directories thousands deep
            name = todo.pop()
            path = os.path.join(folder, name)
            if name in inputs and _holds(path, *inputs[name]):
                continue
            is_directory = _make_readable(path)
            packed.add(path, name, recursive=False, filter=keep)
            if is_directory:
                todo.extend(sorted((os.path.join(name, each) for each in os.listdir(path)), reverse=True))


def _holds(path, digest, size):
    """Does a file have this content?"""
    try:
        about = os.stat(path)
        return stat.S_ISREG(about.st_mode) and about.st_size == size and file_digest(path) == digest
    except OSError:
        return False


def _make_readable(path):
    """Return True for a directory, after opening it to the pilot if the task has removed the permission."""
    about = os.lstat(path)
    is_directory = stat.S_ISDIR(about.st_mode)
    if is_directory and about.st_mode & 0o500 != 0o500:
        os.chmod(path, about.st_mode | 0o700)
    return is_directory
