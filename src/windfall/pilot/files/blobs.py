"""Blobs to and from the server, in bounded memory: ranged GET, resumable PUT, every content checked by its hash.

The transfer threads call this module.  It tries again after a failure of the network, until it succeeds or `closing()`
is true; a refusal by the server is an error at once.  For a moment after the pilot has enrolled again
(`just_enrolled()`) the server may not know yet that the pilot holds its attempts: "not found" is then tried again, too.
"""

import hashlib
import os
import time

from windfall.errors import NoServer, NotFound, OverQuota, Unavailable, WindfallError, from_wire
from windfall.pilot.files.limits import Closing, Limits
from windfall.pilot.net.link import Broken, HttpRequest

PIECE = 8 << 20          # bytes of an upload in one request: so many at most are sent again after a break
READ = 1 << 20
WAIT = 0.25              # seconds between two looks whether a transfer that waits must end
AGAIN = (401, 408, 425, 429, 500, 502, 503, 504, 507)    # statuses after which the same request is tried again


class _Unwritten(Exception):
    """A piece of an answer could not be written to this disk; an OSError would look like the connection's."""


class Blobs:
    """A thread's client for the server: downloads and uploads of blobs."""

    pause = staticmethod(time.sleep)
    limits = Limits()        # of the sending under way

    def __init__(self, link, token, closing, *, just_enrolled=lambda: False, again=AGAIN):
        self.link = link
        self.token = token       # function: the token changes when the pilot enrols again
        self.closing = closing   # function
        self.just_enrolled = just_enrolled   # function
        self.again = again       # statuses after which the same request is tried again

    def request(self, request, sink=None):
        """Send a request with the pilot's token and return the reply; `sink` takes the body piece by piece."""
        headers = [("Authorization", "Bearer " + self.token())] + list(request.headers)
        try:
            return self.link.call(request._replace(headers=headers), sink=sink)
        except BaseException as error:
            self.link.close()  # the rest of the answer may still come on it
            if isinstance(error, _Unwritten):
                raise error.args[0]
            raise

    def check(self):
        """Raise an error if the transfer must end."""
        if self.closing():
            raise Closing()
        self.limits.check()

    def _wait(self, seconds):
        """Wait as the server wishes; this time counts against no limit."""
        while seconds > 0:
            self.check()
            piece = min(seconds, WAIT)
            self.pause(piece)
            self.limits.waited += piece
            seconds -= piece

    def _patiently(self, step):
        """Call `step` until it returns a value; try again after None and after a failure of the network."""
        delay = 0.1
        while True:
            self.check()
            try:
                result = step()
                if result is not None:
                    return result
            except (NoServer, Broken, Unavailable) as error:
                delay = max(delay, error.retry_after or 0)
            self._wait(delay)
            delay = min(delay * 2, 30.0)

    # --- download

    def fetch(self, digest, size, path, attempt):
        """Download a blob to `path` for an attempt, going on after the bytes that an earlier try left there."""
        self._patiently(lambda: self._fetch_once(digest, size, path, attempt))
        if file_digest(path) != digest:
            os.unlink(path)
            raise WindfallError("the file {} arrived damaged: its SHA-256 is another".format(digest[:12]))

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
            reply = self.request(HttpRequest("GET", "/v1/blobs/" + digest, headers), _bounded(file, room))
            if reply.status == 200 and have:  # the answer is not the range asked for: start over
                file.truncate(0)
                return None
            if reply.status not in (200, 206):
                return self._refuse(reply)
            return True if file.tell() == size else None

    # --- upload

    def upload(self, file, digest, size, attempt):
        """Upload an open file, unless the server has its content."""
        self._patiently(lambda: self._upload_once(file, digest, size, attempt))

    def _upload_once(self, file, digest, size, attempt):
        blob = HttpRequest("HEAD", "/v1/blobs/" + digest, [("X-Attempt", str(attempt))])
        reply = self.request(blob)
        if reply.status == 200:
            return True
        if reply.status != 404:
            return self._refuse(reply)
        return self._send(file, blob._replace(method="PUT"), size, _received(reply))

    def _send(self, file, put, size, at):
        """Send the rest of a file in pieces; return None when the server has got another number of bytes meanwhile."""
        while True:
            file.seek(at)
            piece = file.read(PIECE)
            end = at + len(piece)
            headers = list(put.headers)
            if piece:
                headers.append(("Content-Range", "bytes {}-{}/{}".format(at, end - 1, size)))
            elif size:
                return None
            reply = self.request(put._replace(headers=headers, body=piece))
            if reply.status == 409:
                if _received(reply) in (at, size):
                    return None  # another pilot is sending the same blob
                at = _received(reply)
            elif not 200 <= reply.status < 300:
                return self._refuse(reply)
            elif reply.status == 201 or end >= size:
                return True
            else:
                at = end
            self.check()

    # --- questions and refusals

    def has(self, digest, attempt):
        """Does the server have this blob?"""
        return self._patiently(lambda: self._has_once(digest, attempt)) == 200

    def _has_once(self, digest, attempt):
        reply = self.request(HttpRequest("HEAD", "/v1/blobs/" + digest, [("X-Attempt", str(attempt))]))
        return reply.status if reply.status in (200, 404) else self._refuse(reply)

    def _refuse(self, reply):
        """Return None when trying again may help; else raise the server's error."""
        error = from_wire(_json(reply.body), reply.status)
        if reply.status in self.again and not isinstance(error, OverQuota):
            wait = reply.retry_after()
            if wait:
                raise Unavailable("the server is busy", retry_after=wait)
            return None
        if reply.status == 404:
            if self.just_enrolled():
                return None
            raise NotFound("the server does not have the file, or not for this pilot")
        raise error


def _bounded(file, room):
    def sink(piece):
        room[0] -= len(piece)
        if room[0] < 0:
            raise WindfallError("the server sent more bytes than the file has")
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


def stream_digest(file, check=lambda: None):
    """Return the SHA-256 of an open file; `check`, called now and then, may raise an error."""
    digest = hashlib.sha256()
    while True:
        check()
        piece = file.read(READ)
        if not piece:
            return digest.hexdigest()
        digest.update(piece)
