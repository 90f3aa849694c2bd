"""Send home what pilots left behind: `windfall-pilot salvage --ticket FILE --outbox DIR --nonce NONCE [--nonce …]`.

Run on a head node, when jobs are gone.  Says how many results of each there were, as {"found": {NONCE: N}}; -1: its
pilot lives, for it holds its folder.  What the server did not take stays where it is, and its pilot is not in the
answer; if that is so of all of them, the exit code is 3.
"""

import json
import os
import sys

from windfall.errors import BadInput, WindfallError
from windfall.pilot import clock, ticket as tickets
from windfall.pilot.files import outbox
from windfall.pilot.files.blobs import AGAIN, Blobs, Closing
from windfall.pilot.net.ways import Ways

SECONDS = 60.0  # for all of it: the server may be about to be back


def find(base, nonces):
    """Folders of those pilots, whichever of their lives."""
    found = {nonce: [] for nonce in nonces}
    for folder in outbox.left_behind(base):
        found.get(_nonce(folder), []).append(folder)
    return found


def _nonce(folder):
    try:
        with open(os.path.join(folder, outbox.CREDENTIALS)) as file:
            nonce = json.load(file).get("nonce")
    except (OSError, ValueError, AttributeError):
        return None
    return nonce if isinstance(nonce, str) else None


def send(ticket, left):
    """How many results of each pilot were sent, -1 where somebody has them in hand; and what went wrong last."""
    until = clock.seconds() + SECONDS
    ways = Ways.of(ticket)

    def blobs_for(link, token):
        again = [status for status in AGAIN if status != 401]  # there is no other token for it
        return Blobs(link, lambda: token, lambda: clock.seconds() >= until, again=again,
                     settling=lambda: clock.seconds() < until)

    found, trouble = {}, None
    for nonce, folders in left.items():
        try:
            counts = [outbox.deliver(folder, ways, blobs_for) for folder in folders]
            found[nonce] = -1 if None in counts else sum(counts)
        except Closing:
            trouble = WindfallError("the server did not take it within {:.0f} s".format(SECONDS))
        except WindfallError as error:
            trouble = error
    ways.close()
    return found, trouble


def main(argv):
    try:
        ticket, box, nonces = _given(argv)
        left = find(box, nonces)
        found, trouble = send(tickets.read(ticket), left) if any(left.values()) else (dict.fromkeys(left, 0), None)
    except WindfallError as error:
        sys.stderr.write("windfall-pilot: {}\n".format(error))
        return error.exit_code
    if trouble is not None:
        sys.stderr.write("windfall-pilot: {}\n".format(trouble))
    sys.stdout.write(json.dumps({"found": found}) + "\n")
    return 0 if found else trouble.exit_code


def _given(argv):
    pairs = list(zip(argv[::2], argv[1::2]))
    given = dict(pairs)
    if set(given) != {"--ticket", "--outbox", "--nonce"} or len(argv) % 2:
        raise BadInput("salvage needs --ticket FILE --outbox DIR --nonce NONCE")
    return given["--ticket"], given["--outbox"], [value for name, value in pairs if name == "--nonce"]
