"""Blobs to and from the server, in bounded memory: ranged GET, resumable PUT, every content checked by its hash.

Called from the porters' threads.  A failure of the network is tried again until it works or `closing` is set; what
the server refuses is an error at once.  For a moment after the pilot has enrolled again (`settling`) the server may
not know yet that its attempts are still ours: what it does not have for us then is asked for again.
"""

import hashlib
import os
import time

from windfall.errors import NoServer, NotFound, Unavailable, WindfallError, from_wire
from windfall.pilot.net.link import Broken

PIECE = 8 << 20          # of an upload: what has to be sent again after a break
READ = 1 << 20
AGAIN = (401, 408, 425, 429, 500, 502, 503, 504, 507)


class Closing(Exception):
    """The pilot is leaving; the transfer is left for the outbox."""


class _Unwritten(Exception):
    """A piece of an answer could not be written here; not an OSError, which would look like the connection's."""


class Blobs:
    """One thread's way to the server."""

    def __init__(self, link, token, closing, pause=time.sleep, *, settling=lambda: False, again=AGAIN):
        self.link = link
        self.token = token       # function: it may change when we enrol again
        self.closing = closing   # function
        self.pause = pause
        self.settling = settling  # function
        self.again = again       # statuses after which the same is tried again

    def request(self, method, path, headers=(), body=b"", *, sink=None):
        headers = [("Authorization", "Bearer " + self.token())] + list(headers)
        try:
            return self.link.call(method, path, headers, body, sink=sink)
        except BaseException as error:
            self.link.close()  # the rest of the answer may still be on it
            if isinstance(error, _Unwritten):
                raise error.args[0]
            raise

    def _patiently(self, step):
        """Do `step` until it gives something; it returns None, or fails to connect, to be called again."""
        delay = 0.1
        while True:
            if self.closing():
                raise Closing()
            try:
                result = step()
                if result is not None:
                    return result
            except (NoServer, Broken, Unavailable) as error:
                delay = max(delay, error.retry_after or 0)
            self.pause(delay)
            delay = min(delay * 2, 30.0)

    # --- download

    def fetch(self, digest, size, path, attempt):
        """Bring a blob to `path` for an attempt, going on from what an earlier try left there."""
        self._patiently(lambda: self._fetch_once(digest, size, path, attempt))
        if file_digest(path) != digest:
            os.unlink(path)
            raise WindfallError("the blob {} arrived with another content".format(digest[:12]))

    def _fetch_once(self, digest, size, path, attempt):
        with open(path, "ab") as file:
            have = file.tell()
            if have == size:
                return True
            if have > size:
                file.truncate(0)
                have = 0
            headers = [("X-Attempt", str(attempt))]
            if have:
                headers.append(("Range", "bytes={}-".format(have)))
            room = [size]
            reply = self.request("GET", "/v1/blobs/" + digest, headers, sink=_bounded(file, room))
            if reply.status == 200 and have:  # no ranges here: start over
                file.truncate(0)
                return None
            if reply.status not in (200, 206):
                return self._refuse(reply)
            return True if file.tell() == size else None

    # --- upload

    def upload(self, file, digest, size, attempt):
        """Send an open file."""
        self._patiently(lambda: self._upload_once(file, digest, size, attempt))

    def _upload_once(self, file, digest, size, attempt):
        reply = self.request("HEAD", "/v1/blobs/" + digest, [("X-Attempt", str(attempt))])
        if reply.status == 200:
            return True
        if reply.status != 404:
            return self._refuse(reply)
        return self._send(file, digest, size, attempt, _received(reply))

    def _send(self, file, digest, size, attempt, at):
        """Piece by piece; None when the server is elsewhere with this blob and should be asked again."""
        while True:
            file.seek(at)
            piece = file.read(PIECE)
            end = at + len(piece)
            headers = [("X-Attempt", str(attempt))]
            if piece:
                headers.append(("Content-Range", "bytes {}-{}/{}".format(at, end - 1, size)))
            elif size:
                return None
            reply = self.request("PUT", "/v1/blobs/" + digest, headers, piece)
            if reply.status == 409:
                if _received(reply) in (at, size):
                    return None  # somebody else is sending it
                at = _received(reply)
            elif not 200 <= reply.status < 300:
                return self._refuse(reply)
            elif reply.status == 201 or end >= size:
                return True
            else:
                at = end
            if self.closing():
                raise Closing()

    # --- what is no success

    def has(self, digest, attempt):
        """Does the server have this blob?"""
        return self._patiently(lambda: self._has_once(digest, attempt)) == 200

    def _has_once(self, digest, attempt):
        reply = self.request("HEAD", "/v1/blobs/" + digest, [("X-Attempt", str(attempt))])
        return reply.status if reply.status in (200, 404) else self._refuse(reply)

    def _refuse(self, reply):
        """None when trying again may help, else the server's error."""
        if reply.status in self.again:
            wait = reply.retry_after()
            if wait:
                raise Unavailable("the server is busy", retry_after=wait)
            return None
        if reply.status == 404:
            if self.settling():
                return None
            raise NotFound("the server does not have it, or not for us")
        raise from_wire(_json(reply.body), reply.status)


def _bounded(file, room):
    def sink(piece):
        room[0] -= len(piece)
        if room[0] < 0:
            raise WindfallError("the blob is larger than its description says")
        try:
            file.write(piece)
        except OSError as error:
            raise _Unwritten(error)
    return sink


def _received(reply):
    text = reply.headers.get("x-received", "0")
    return int(text) if text.isdigit() else 0


def _json(body):
    import json
    try:
        return json.loads(body.decode("utf-8"))
    except ValueError:
        return None


def file_digest(path):
    with open(path, "rb") as file:
        return stream_digest(file)


def stream_digest(file):
    digest = hashlib.sha256()
    while True:
        piece = file.read(READ)
        if not piece:
            return digest.hexdigest()
        digest.update(piece)
