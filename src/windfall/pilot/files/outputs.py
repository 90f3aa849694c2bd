"""What of a task's directory goes home: the outputs of a success, the checkpoint files of an attempt that was ended
early, all of it (as an archive) for a failure whose scratch is kept.

An output that is missing makes a success a failure; a checkpoint or an archive that cannot be sent is only noted.
"""

import os
import stat
import tarfile

from windfall.errors import WindfallError
from windfall.pilot.files import staging
from windfall.pilot.files.blobs import Closing, stream_digest

ARCHIVE_BYTES = 1 << 30      # largest directory that is kept
ARCHIVE_FILES = 100000
EARLY = ("stop", "time")     # why an attempt ended whose checkpoint is worth having


class Wants:
    """What a task wants of its directory."""

    __slots__ = ("outputs", "checkpoint", "scratch")

    def __init__(self, task):
        self.outputs = task.field("outputs")
        self.checkpoint = task.field("checkpoint")
        self.scratch = task.field("scratch") == "failed"

    def after(self, report):
        """{field of the report: what goes into it}, by how the attempt ended; empty if nothing."""
        outcome, why = report.get("o", "succeeded"), report.get("why", "")
        if outcome == "succeeded":
            return {"files": self.outputs} if self.outputs else {}
        cargo = {}
        if self.checkpoint and why in EARLY:
            cargo["saved"] = self.checkpoint
        if self.scratch and outcome == "failed" and why != "start":
            cargo["scratch"] = True
        return cargo


def send(folder, cargo, report, blobs):
    """Send it; returns fields for the report.  Raises WindfallError or OSError when outputs cannot be sent."""
    attempt, fields, notes = report["a"], {}, []
    if "files" in cargo:
        fields["files"] = _send_files(folder, cargo["files"], attempt, blobs)
    if "saved" in cargo:
        _optional(notes, "the checkpoint was not saved", lambda: _send_saved(folder, cargo["saved"], attempt, blobs),
                  fields, "saved")
    if "scratch" in cargo:
        _optional(notes, "the directory was not kept", lambda: _send_scratch(folder, attempt, blobs),
                  fields, "scratch")
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
    except Exception as error:  # whatever it is, the attempt has ended and that is to be told
        notes.append("{}: {}".format(what, getattr(error, "strerror", None) or error or type(error).__name__))


def _send_files(folder, paths, attempt, blobs):
    files = staging.describe(folder, paths)
    for path, digest, size, _ in files:
        with staging.open_inside(folder, path) as file:
            blobs.upload(file, digest, size, attempt)
    return files


def _send_saved(folder, paths, attempt, blobs):
    """Those that exist: a task may be ended before it had anything to save."""
    there = [path for path in paths if os.path.isfile(os.path.join(folder, staging.inside(path)))]
    return _send_files(folder, there, attempt, blobs)


def _send_scratch(folder, attempt, blobs):
    archive = folder + ".tar.gz"
    try:
        _pack(folder, archive)
        with open(archive, "rb") as file:
            digest, size = stream_digest(file), file.tell()
            blobs.upload(file, digest, size, attempt)
        return [digest, size]
    finally:
        try:
            os.unlink(archive)
        except OSError:
            pass


def _pack(folder, archive):
    room = [ARCHIVE_BYTES, ARCHIVE_FILES]

    def keep(entry):
        """Only what can be unpacked again by anybody; the rest of the tree is walked all the same."""
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
        while todo:  # no recursion: a task may have made directories in directories, thousands deep
            name = todo.pop()
            path = os.path.join(folder, name)
            is_directory = _make_readable(path)
            packed.add(path, name, recursive=False, filter=keep)
            if is_directory:
                todo.extend(sorted((os.path.join(name, each) for each in os.listdir(path)), reverse=True))


def _make_readable(path):
    """True for a directory; one that the task has locked is ours all the same."""
    about = os.lstat(path)
    is_directory = stat.S_ISDIR(about.st_mode)
    if is_directory and about.st_mode & 0o500 != 0o500:
        os.chmod(path, about.st_mode | 0o700)
    return is_directory
