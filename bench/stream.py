"""How long does it take until the first of a million tasks runs, and until the last one is submitted?

`bench/stream.py [NAME …]` compiles and checks graphs of `bench/compile.py`, with components that do nothing, and sends
them part by part to a server with a pilot on this machine, as `windfall run` does.  Times count from the first reading
of the file; the first task's times are those in the server's results.  The rest of the bag is cancelled once all of it
is submitted.
"""

from __future__ import annotations

import argparse
import time

from common import Server, server
from compile import GRAPHS, PARTS
from windfall.model.spec import Bag, Items, Target

MADE = "".join(f'<component type="impl" name="{name}I" abstract="{name}"><impl lang="SHELL"><source>echo 1 &gt; ${out}'
               "</source></impl></component>" for name, out in (("load", "m"), ("times", "r"), ("sum", "s")))


def one(running: Server, name: str, whole: bool) -> str:
    from windfall.model.checks.bag import validate
    from windfall.workflow.build.builder import build
    from windfall.workflow.build.streaming import cut
    from windfall.workflow.components.files import loads
    from windfall.workflow.yvetteml.program import ComponentLibrary, compile_application

    began = time.time()
    application = loads(f"<application><graph>{GRAPHS[name]}</graph></application>".encode(), name).application
    parts = loads(PARTS.replace("</yml-query>", f"{MADE}</yml-query>").encode(), "parts").components
    shelf = ComponentLibrary({each.name: each for each in parts})
    assert application is not None
    program = compile_application(application, shelf)
    compiled = time.time() - began
    built = build(program, shelf)
    validate(built.bag)
    found = None if whole else cut(built.bag)
    checked = time.time() - began
    with running.client() as client:
        longest, asked = 0.0, time.time()
        bag = client.submit(found.bag if found else built.bag, built.uploads)
        for part in found.parts if found else ():
            longest, asked = max(longest, time.time() - asked), time.time()
            client.append_part(bag, part)
        longest = max(longest, time.time() - asked)
        client.close_bag(bag)
        last = time.time() - began
        ended = client.bag(bag)["counts"]["succeeded"]
        while not client.bag(bag)["counts"]["succeeded"]:
            time.sleep(0.01)
        memory = running.rss()
        client.cancel(bag)
        row = min(client.results(bag, "succeeded"), key=lambda row: row["ended"])
        client.remove(bag)
    first, over = row["started"] / 1e3 - began, row["ended"] / 1e3 - began
    return (f"{name:12} {program.tasks:>9,} tasks: compiled in {compiled:.1f} s, checked by {checked:.1f} s; first "
            f"task started at {first:.1f} s and ended at {over:.1f} s, last one there at {last:.1f} s, when {ended:,} "
            f"had succeeded; a part took {longest * 1e3:.0f} ms at most; server {memory >> 20} MiB")


def warm(running: Server) -> None:
    """Wait until the pilot works, for its start is not measured."""
    with running.client() as client:
        client.wait(client.submit(Bag(name="warm", targets=[Target(source=Items(items=["true"]))])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["parallel", "alternating", "figure 2"])
    parser.add_argument("--whole", action="store_true", help="as one bag, for comparison")
    options = parser.parse_args()
    with server(tls=False, pilot=True) as running:
        for name in options.names:
            warm(running)
            print(one(running, name, options.whole), flush=True)


if __name__ == "__main__":
    main()
