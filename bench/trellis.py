"""How much do the choices matter that the Trellis thesis leaves open?

`bench/trellis.py` runs a few cells of its chapter 6 with each choice changed by itself, and prints them for comparison
with the thesis's numbers.  docs/explanation/experiments.md has the table.
"""

from __future__ import annotations

import argparse

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.sim.experiments import trellis as t
from windfall.sim.experiments.base import Options

SLOW = t.WAN._replace(rate=5_000), t.LAN._replace(rate=20_000)
CHANGES: dict[str, tuple[t.Choices, tuple[t.Net, t.Net], int]] = {
    "nothing": (t.CALIBRATION, (t.WAN, t.LAN), t.DELAY),
    "rates are bytes a second": (t.CALIBRATION, SLOW, t.DELAY),
    "sizes are independent": (t.APART, (t.WAN, t.LAN), t.DELAY),
    "spread 0.2": (t.Choices(spread=0.2), (t.WAN, t.LAN), t.DELAY),
    "spread 0.6": (t.Choices(spread=0.6), (t.WAN, t.LAN), t.DELAY),
    "bend 1 (linear)": (t.Choices(bend=1.0), (t.WAN, t.LAN), t.DELAY),
    "no barrier": (t.Choices(barrier=False), (t.WAN, t.LAN), t.DELAY),
    "one call a bundle": (t.Choices(calls=1), (t.WAN, t.LAN), t.DELAY),
    "queuing delay on top": (t.Choices(within=False), (t.WAN, t.LAN), t.DELAY),
    "the server is never held": (t.CALIBRATION, (t.WAN, t.LAN), 0),
    "comes back after 5 s": (t.Choices(returns=5_000), (t.WAN, t.LAN), t.DELAY),
    "comes back after 60 s": (t.Choices(returns=60_000), (t.WAN, t.LAN), t.DELAY),
    "sequences are not inflated": (t.Choices(sequences=False), (t.WAN, t.LAN), t.DELAY),
    "nothing is withheld": (t.Choices(withhold=False), (t.WAN, t.LAN), t.DELAY),
}


def row(choices: t.Choices, nets: tuple[t.Net, t.Net], delay: int, options: Options) -> list[str]:
    """Return the cells of FCFS and DC at WAN ×1, 8 and 32; WAN ×100, 16; LAN ×1, 32; and DC's affinity in the last."""
    wan, lan = nets
    cells = []
    for net, factor, count in ((wan, 1, 8), (wan, 1, 32), (wan, 100, 16), (lan, 1, 32)):
        blind, dc = (t.mean(t.Case(net, policy, count, factor, delay=delay, choices=choices), options)
                     for policy in ("fcfs", "data-conscious"))
        saved = 100 * (1 - dc.makespan / blind.makespan)
        cells.append(f"{blind.makespan / 1000:.1f} / {dc.makespan / 1000:.1f} ({saved:+.1f})")
        affinity = dc.affinity
    return [*cells, f"{affinity:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = Options(seeds=parser.parse_args().seeds)
    print("| changed | WAN ×1, 8 | WAN ×1, 32 | WAN ×100, 16 | LAN ×1, 32 | affinity |\n|---|---|---|---|---|---|")
    print("| the thesis | 104 / 90.0 (+13.5) | 33.4 / 31.1 (+6.9) | 107 / 50.5 (+52.8) | 28.8 / 29.1 (-1.0) | 0.5 |")
    for name, change in CHANGES.items():
        print("| " + " | ".join([name, *row(*change, options)]) + " |", flush=True)


if __name__ == "__main__":
    main()
