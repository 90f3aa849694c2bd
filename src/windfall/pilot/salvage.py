"""Send home what a pilot left behind: `windfall-pilot salvage --ticket FILE --outbox DIR --nonce NONCE`.

Run on a head node, when a job is gone.  Says how many results there were, as {"found": N}; -1: its pilot lives, for it
holds its folder.  What the server did not take stays where it is, and the exit code is 3.
"""

import json
import os
import sys

from windfall.errors import BadInput, WindfallError

from . import clock, outbox, ticket as tickets
from .blobs import AGAIN, Blobs, Closing
from .ways import Ways

SECONDS = 60.0  # for all of it: the server may be about to be back


def find(base, nonce):
    """Folders of that pilot, whichever of its lives."""
    return [folder for folder in outbox.left_behind(base) if _nonce(folder) == nonce]


def _nonce(folder):
    try:
        with open(os.path.join(folder, outbox.CREDENTIALS)) as file:
            return json.load(file).get("nonce")
    except (OSError, ValueError, AttributeError):
        return None


def send(ticket, folders):
    """How many results were sent; -1 where somebody has them in hand."""
    until = clock.seconds() + SECONDS
    ways = Ways.of(ticket)

    def blobs_for(link, token):
        again = [status for status in AGAIN if status != 401]  # there is no other token for it
        return Blobs(link, lambda: token, lambda: clock.seconds() >= until, again=again,
                     settling=lambda: clock.seconds() < until)

    try:
        counts = [outbox.deliver(folder, ways, blobs_for) for folder in folders]
    except Closing:
        raise WindfallError("the server did not take it within {:.0f} s".format(SECONDS))
    finally:
        ways.close()
    return -1 if None in counts else sum(counts)


def main(argv):
    try:
        given = dict(zip(argv[::2], argv[1::2]))
        if set(given) != {"--ticket", "--outbox", "--nonce"}:
            raise BadInput("salvage needs --ticket FILE --outbox DIR --nonce NONCE")
        folders = find(given["--outbox"], given["--nonce"])
        found = send(tickets.read(given["--ticket"]), folders) if folders else 0
    except WindfallError as error:
        sys.stderr.write("windfall-pilot: {}\n".format(error))
        return error.exit_code
    sys.stdout.write(json.dumps({"found": found}) + "\n")
    return 0
