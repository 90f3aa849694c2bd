"""Capture of a task's output: all of it while it is short, else its two ends.  Memory is bounded by 4 × keep."""

import binascii

from windfall.wire.messages import INLINE

DEFAULT_KEEP = INLINE // 2
MAX_KEEP = 1 << 20
GAP = "\n[windfall: {:,} bytes left out here; what is written to a file named in outputs is kept whole]\n"


class Capture:
    __slots__ = ("keep", "size", "head", "tail")

    def __init__(self, keep=DEFAULT_KEEP):
        self.keep = keep
        self.size = 0
        self.head = b""      # the first 2 × keep bytes while there are no more, then the first keep
        self.tail = None

    def add(self, data):
        self.size += len(data)
        if self.tail is None:
            self.head += data
            if self.size <= 2 * self.keep:
                return
            self.tail = bytearray(self.head[-self.keep:]) if self.keep else bytearray()
            self.head = self.head[:self.keep]
            return
        self.tail += data[-self.keep:] if self.keep else b""
        if len(self.tail) > 2 * self.keep:
            del self.tail[:-self.keep or None]

    def pieces(self):
        """Return the output kept, as [(offset, bytes)]."""
        if self.tail is None:
            return [(0, self.head)] if self.head else []
        tail = bytes(self.tail[-self.keep:]) if self.keep else b""
        return [(0, self.head), (self.size - len(tail), tail)]

    def kept(self):
        return self._gap().encode("ascii").join(data for _, data in self.pieces())

    def _gap(self):
        """Return the line that stands for the missing middle, so that nobody takes the two ends for one text."""
        if self.tail is None:
            return ""
        missing = self.size - sum(len(data) for _, data in self.pieces())
        return GAP.format(missing) if missing else ""

    def describe(self, report, name):
        """Put the output into a report as `out`/`err`, or as base64 where it is not UTF-8."""
        if not self.size:
            return
        report[name + "_size"] = self.size
        try:
            report[name] = self._text()
        except UnicodeDecodeError:
            report[name + "64"] = binascii.b2a_base64(self.kept(), newline=False).decode("ascii")

    def _text(self):
        if self.tail is None:
            return self.head.decode("utf-8")
        # A cut may go through a character: its remains on either side are dropped, too.
        (_, head), (_, tail) = self.pieces()
        return _trim_end(head).decode("utf-8") + self._gap() + _trim_start(tail).decode("utf-8")


def _trim_start(data):
    skip = 0
    while skip < min(3, len(data)) and data[skip] & 0xC0 == 0x80:
        skip += 1
    return data[skip:]


def _trim_end(data):
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if need > back else data
    return data


def keep_of(spec):
    """Return how many bytes to keep of each end, by the task's spec."""
    keep = spec.get("keep")
    return DEFAULT_KEEP if keep is None else max(0, min(int(keep), MAX_KEEP))
