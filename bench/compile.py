"""How long does it take to compile a million tasks, and how much memory?

`bench/compile.py` compiles these graphs, each in a process of its own: the block product of the paper's figure 2 with
79 × 79 blocks (half a million tasks that wait for two events each, then a chain of as many), nests of parallel and
sequential loops, and a graph with conditions and indices that are not affine.  The bar is 10 s and 1.5 GiB each.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from common import ROOT  # noqa: F401  (puts src/ on the path)

PARTS = """<yml-query>
<component type="abstract" name="load"><param name="m" type="M" mode="out"/><param name="i" type="integer"/></component>
<component type="abstract" name="times"><param name="r" type="M" mode="out"/><param name="a" type="M"/>
<param name="b" type="M"/></component>
<component type="abstract" name="sum"><param name="s" type="M" mode="inout"/><param name="r" type="M"/></component>
</yml-query>"""

GRAPHS = {
    "figure 2": """par par (i:=1;79)(j:=1;79) do compute load(m[1][i][j], i); compute load(m[2][i][j], j);
        notify(e[1][i][j]); notify(e[2][i][j]); enddo //
        par (i:=1;79)(j:=1;79)(k:=1;79) do wait(e[1][i][k]); wait(e[2][k][j]);
        compute times(r[i][j][k], m[1][i][k], m[2][k][j]); enddo endpar
        seq (i:=1;79)(j:=1;79)(k:=1;79) do compute sum(final, r[i][j][k]); enddo""",
    "parallel": "par (i:=1;100) do par (j:=1;100) do par (k:=1;100) do compute load(m[i][j][k], k); enddo enddo enddo",
    "sequential": "seq (i:=1;100)(j:=1;100)(k:=1;100) do compute load(m[i][j][k], k); enddo",
    "alternating": """seq (i:=1;1000) do par (j:=1;10) do seq (k:=1;100) do
        compute load(m[i][j][k], k); enddo enddo enddo""",
    "conditions": """par (i:=1;1000)(j:=1;1000) do if i * j % 7 lt 3 then k := i * j; else k := i - j * j; endif
        compute load(m[k * 1000000 + i * 1000 + j], k); enddo""",
}


def one(name: str) -> None:
    from windfall.workflow.components.files import loads
    from windfall.workflow.graphs.plan import plan
    from windfall.workflow.graphs.report import requirements
    from windfall.workflow.yvetteml.program import ComponentLibrary, compile_application

    began = time.perf_counter()
    application = loads(f"<application><graph>{GRAPHS[name]}</graph></application>".encode(), name).application
    shelf = ComponentLibrary({each.name: each for each in loads(PARTS.encode(), "parts").components})
    assert application is not None
    program = compile_application(application, shelf)
    compiled = time.perf_counter() - began
    found = requirements(program)
    whole = time.perf_counter() - began
    began = time.perf_counter()
    made = plan(program)
    planned = time.perf_counter() - began
    began = time.perf_counter()
    first = next(program.stream())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    late = (time.perf_counter() - began) * 1e3
    print(f"{name:12} {found['tasks']:>9,} tasks, {len(program.dag.src):>9,} edges with gates, depth "
          f"{found['depth']:>9,}: compiled in {compiled:.1f} s, with its report {whole:.1f} s, {memory} MiB; "
          f"plan {len(made.dag.src):,} edges in {planned:.1f} s; first task after {late:.1f} ms ({first})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=GRAPHS)
    options = parser.parse_args()
    if options.name:
        one(options.name)
        return
    for name in GRAPHS:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main()
