"""Deliver the results that pilots left: `windfall-pilot salvage --ticket FILE --outbox DIR --nonce NONCE [--nonce …]`.

Run on a head node, when the pilots' jobs are gone.  The answer, {"found": {NONCE: N}}, has the number of results
delivered for each pilot; -1 for a pilot that lives, since it holds its folder.  Results that the server did not take
stay in the outbox, and the answer leaves their pilot out.  The exit code is 3 when the answer names no pilot.
"""

import json
import os
import sys

from windfall.errors import BadInput, WindfallError
from windfall.pilot import clock, ticket as tickets
from windfall.pilot.files import outbox
from windfall.pilot.files.blobs import AGAIN, Blobs
from windfall.pilot.files.limits import Closing
from windfall.pilot.net.routes import Routes

SECONDS = 60.0  # for the whole delivery, tried again meanwhile: the server may be starting


def find(base, nonces):
    """Return {nonce: the outbox folders of that pilot}; a restarted pilot has left several."""
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
    """Return {nonce: number of results sent, or -1 if another process holds the folder}, and the last error."""
    until = clock.seconds() + SECONDS
    routes = Routes.of(ticket)

    def blobs_for(link, token):
        again = [status for status in AGAIN if status != 401]  # an outbox has no other token
        return Blobs(link, lambda: token, lambda: clock.seconds() >= until, again=again,
                     just_enrolled=lambda: clock.seconds() < until)

    found, trouble = {}, None
    for nonce, folders in left.items():
        try:
            counts = [outbox.deliver(folder, routes, blobs_for) for folder in folders]
            found[nonce] = -1 if None in counts else sum(counts)
        except Closing:
            trouble = WindfallError("the server did not take the results within {:.0f} s".format(SECONDS))
        except WindfallError as error:
            trouble = error
    routes.close()
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
