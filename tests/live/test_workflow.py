"""The paper's application for real: C++ on blocks of matrices, over two sites, with a host that dies on the way."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.live.real import CommandLine, Pilots, serving, until
from tests.workflow.papers import FIGURE_2

MATRIX = Path(__file__).resolve().parents[2] / "examples" / "matrix"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The matrices' web server, on loopback."""
    folder = tmp_path / "web"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


@pytest.fixture
def windfall(tmp_path: Path) -> Iterator[CommandLine]:
    (tmp_path / "work").mkdir()
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--lease", "4") as server:
        yield CommandLine(server.home, tmp_path / "work")


def figure_2(size: int, div: int, address: str) -> str:
    """Return the printed figure without its credentials, with another web server and size."""
    text = FIGURE_2.replace(' login="userName" password="pass"', "")
    text = text.replace("http://www.prism.uvsq.fr/cni/yml", address)
    return re.sub(r"size      := 4;\n +div       := 2;", f"size := {size}; div := {div};", text)


def matrices(folder: Path, size: int) -> list[np.ndarray]:
    draw = np.random.default_rng(size)
    made = [draw.integers(-9, 10, (size, size)) for _ in range(2)]
    for number, matrix in enumerate(made, 1):
        np.savetxt(folder / f"matrix{number}.csv", matrix, delimiter=",", fmt="%d")
    return made


def read(file: Path) -> np.ndarray:
    rows, columns, *numbers = map(float, file.read_text().split())
    return np.array(numbers).reshape(int(rows), int(columns))


def product(windfall: CommandLine, web: tuple[str, Path], size: int, div: int, patience: float = 600) -> None:
    """Run the workflow; kill the host that ran the first tasks when some have succeeded."""
    a, b = matrices(web[1], size)
    windfall.write("figure2.query", figure_2(size, div, web[0]))
    pilots, running = Pilots(windfall), None
    try:
        pilots.start("one", 1, "--walltime", 90)  # what it is killed with is given up then, and not after an hour
        pilots.start("two", 1)
        running = windfall.start("run", "figure2.query", "--components", MATRIX, "-o", "out", "--json")
        bag = until(lambda: windfall.json("ls"))[0]["bag"]
        until(lambda: windfall.json("show", bag)["counts"]["succeeded"] > 5, 120)
        victim = pilots.started[0]
        victim.kill()
        victim.wait()
        pilots.start("three", 1)
        out, err = running.communicate(timeout=patience)
        assert running.returncode == 0, (out, err)
    finally:
        if running is not None and running.poll() is None:
            running.kill()
            running.wait()
        pilots.stop()
    done = json.loads(out)
    assert done["tasks"] == 2 * div**2 + 2 * div**3 + 3 == done["succeeded"]
    assert np.array_equal(read(windfall.folder / "out" / "final"), a @ b)
    rows = windfall.json("results", bag)
    assert len({row["site"] for row in rows}) > 1
    began = {row["task"]: row["started"] for row in rows}
    ended = {row["task"]: row["ended"] for row in rows}
    assert all(ended[before] <= began[after] for before, after in edges(windfall, bag))


def edges(windfall: CommandLine, bag: int) -> list[tuple[int, int]]:
    from windfall.client.client import Client
    from windfall.client.profile import from_fields

    with Client(from_fields(json.loads((windfall.home / "server.json").read_text()))) as client:
        spec = client.spec(bag)
    assert spec.flows is not None
    return [*spec.edges, *zip(spec.flows.before, spec.flows.after, strict=True)]


@pytest.mark.needs("compilers")
@pytest.mark.parametrize("size, div", [(8, 2), (16, 4)])
def test_figure_2_gives_the_product_though_a_host_dies(
    windfall: CommandLine, web: tuple[str, Path], size: int, div: int
) -> None:
    product(windfall, web, size, div)


@pytest.mark.needs("compilers")
@pytest.mark.lengthy
def test_figure_2_in_many_blocks(windfall: CommandLine, web: tuple[str, Path]) -> None:
    product(windfall, web, 64, 8, patience=3_600)
