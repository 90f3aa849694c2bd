"""Test of a ticket's routes: `windfall-pilot reach --ticket FILE`, run where pilots will run.

Writes one line of JSON for each route, in the ticket's order: kind, address, ok, milliseconds and why.  The exit code
is 0 if a route works.
"""

import json
import sys

from windfall.errors import BadInput, WindfallError
from windfall.pilot import clock, ticket as tickets
from windfall.pilot.net.link import HttpLink, HttpRequest
from windfall.pilot.net.routes import Routes


def try_routes(ticket):
    """Return [{"kind", "address", "ok", "ms", "why"}, …] of all routes."""
    routes = ticket.routes or [{"kind": "direct", "address": ticket.server}]
    return [_try(ticket, route) for route in routes]


def _try(ticket, route):
    begun = clock.milliseconds()
    link = HttpLink(Routes(ticket.server, ticket.certificate, [route]))
    try:
        status = link.call(HttpRequest("GET", "/health"), timeout=30.0).status
        ok, why = status == 200, "the server answered {}".format(status)
    except (WindfallError, OSError) as error:
        ok, why = False, getattr(error, "message", str(error))
    finally:
        link.close()
    link.routes.close()
    return {"kind": route["kind"], "address": route["address"], "ok": ok, "ms": clock.milliseconds() - begun,
            "why": why}


def main(argv):
    try:
        if len(argv) != 2 or argv[0] != "--ticket":
            raise BadInput("reach needs --ticket FILE")
        found = try_routes(tickets.read(argv[1]))
    except WindfallError as error:
        sys.stderr.write("windfall-pilot: {}\n".format(error))
        return error.exit_code
    for each in found:
        sys.stdout.write(json.dumps(each) + "\n")
    return 0 if any(each["ok"] for each in found) else 3
