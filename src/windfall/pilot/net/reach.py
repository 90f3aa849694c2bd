"""Which ways lead to the server from here: `windfall-pilot reach --ticket FILE`, run where pilots will run.

One line of JSON for each route of the ticket, in its order: kind, address, ok, and what was found or went wrong.
The exit code is 0 if one of them works.
"""

import json
import sys

from windfall.errors import BadInput, WindfallError
from windfall.pilot import clock, ticket as tickets
from windfall.pilot.net.link import Link
from windfall.pilot.net.ways import Ways


def look(ticket):
    """[{"kind", "address", "ok", "ms", "why"}, …]"""
    routes = ticket.routes or [{"kind": "direct", "address": ticket.server}]
    return [_try(ticket, route) for route in routes]


def _try(ticket, route):
    begun = clock.milliseconds()
    link = Link(Ways(ticket.server, ticket.certificate, [route]))
    try:
        status = link.call("GET", "/health", [], timeout=30.0).status
        ok, why = status == 200, "the server answered {}".format(status)
    except (WindfallError, OSError) as error:
        ok, why = False, getattr(error, "message", str(error))
    finally:
        link.close()
    link.ways.close()
    return {"kind": route["kind"], "address": route["address"], "ok": ok, "ms": clock.milliseconds() - begun,
            "why": why}


def main(argv):
    try:
        if len(argv) != 2 or argv[0] != "--ticket":
            raise BadInput("reach needs --ticket FILE")
        found = look(tickets.read(argv[1]))
    except WindfallError as error:
        sys.stderr.write("windfall-pilot: {}\n".format(error))
        return error.exit_code
    for each in found:
        sys.stdout.write(json.dumps(each) + "\n")
    return 0 if any(each["ok"] for each in found) else 3
