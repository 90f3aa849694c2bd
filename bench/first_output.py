"""How long does `windfall run BAG.toml` take from the start of the process to the first byte that it prints?

The benchmark starts the interpreter as ./windfall does: `python -I -m windfall`, from .venv where there is one.  After
the first byte it waits for the command to end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ENV, ROOT, home, spread

BAR = 100  # ms
BAG = '[bag]\nname = "first"\ncommand = "true {x}"\n[sweep]\nx = "1..1000"\n'
START = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from windfall.cli.main import main; sys.exit(main())"


def interpreter() -> list[str]:
    ours = ROOT / ".venv" / "bin" / "python"
    return [str(ours), "-I", "-m", "windfall"] if ours.exists() else [sys.executable, "-I", "-c", START]


def once(command: list[str], folder: str) -> float:
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**ENV, "WINDFALL_HOME": folder}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, bufsize=0)  # fmt: skip
    assert process.stderr is not None
    first = process.stderr.read(1)
    took = time.perf_counter() - began
    rest = process.communicate()[1]
    if process.returncode or not first:
        raise SystemExit(f"it failed:\n{(first + rest).decode()}")
    return 1000 * took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder, home() as place:
        bag = Path(folder) / "first.toml"
        bag.write_text(BAG)
        command = [*interpreter(), "run", str(bag)]
        once(command, str(place))
        took = [once(command, str(place)) for _ in range(times)]
    print(f"first byte of 'windfall run': {spread(took)} ms (bar {BAR})")


if __name__ == "__main__":
    main()
