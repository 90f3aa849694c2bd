"""The papers' studies by their ids.  A module is imported when one of its studies is run.

A study without a module is listed as one that does not exist yet.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.sim.experiments.base import Experiment


class Study(NamedTuple):
    title: str
    module: str = ""  # its name in this folder; empty: the study does not exist yet

    @property
    def here(self) -> bool:
        return bool(self.module) and find_spec(f"{__name__}.{self.module}") is not None


STUDIES = {
    "s-f1": Study("replication on all sites: when the last of five tasks starts", "swarm"),
    "s-f2": Study("one swarm of pilots: when the last of five tasks starts", "swarm"),
    "s-t2": Study("broker, replication and swarm, competing on four loaded sites", "swarm"),
    "t-2.3": Study("three pipelines on two hosts, first come first served and data-conscious", "trellis"),
    "t-5.2": Study("batching: makespan by factor and placeholders", "trellis5"),
    "t-5.4": Study("batching: BLAST speed-up", "trellis5"),
    "t-5.6": Study("batching: parsing speed-up", "trellis5"),
    "t-6.2": Study("makespan and affinity in a wide-area network", "trellis"),
    "t-6.4": Study("makespan and affinity in a wide-area network, files ten times as large", "trellis"),
    "t-6.6": Study("makespan and affinity in a wide-area network, files a hundred times as large", "trellis"),
    "t-6.8": Study("makespan and affinity in a local network", "trellis"),
    "t-6.10": Study("makespan and affinity in a local network, files ten times as large", "trellis"),
    "t-6.12": Study("makespan and affinity in a local network, files a hundred times as large", "trellis"),
    "t-6.15": Study("mean response time in a wide-area network", "trellis"),
    "t-6.16": Study("mean response time in a local network", "trellis"),
    "t-6.17": Study("mean response time in a wide-area network, files a hundred times as large", "trellis"),
    "t-6.18": Study("mean response time in a local network, files a hundred times as large", "trellis"),
    "a-f5": Study("workqueue and Gantt heuristics with shared files, four ways of staging them"),
    "a-f6": Study("error of the forecasts during a run"),
    "a-f7": Study("launches in flight at once"),
    "y-t1": Study("prices and start windows of six servers"),
    "y-t2": Study("prices and start windows, with subcontracting"),
    "g-c": Study("three thousand short jobs, against a plain pool", "condor"),
    "g-n": Study("policies against naive scheduling", "naive"),
    "g-r": Study("replication by scheduling, thirty thousand jobs", "replicas"),
    "g-8": Study("five bags at once, each with a policy of its own", "bags"),
    "g-9": Study("four rules of replication in the tail", "several"),
    "g-s": Study("scale: jobs a second, jobs in a bag, bags at a time", "scale"),
}


def find(name: str) -> Experiment:
    study = STUDIES.get(name)
    if study is None:
        raise BadInput(f"there is no experiment '{name}'", _nearest(name))
    if study.here:
        for each in import_module(f"{__name__}.{study.module}").EXPERIMENTS:
            if each.id == name:
                assert isinstance(each, Experiment)
                return each
    raise BadInput(f"experiment '{name}' ({study.title}) is not there yet",
                   "'windfall experiment --list' says which are")


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), STUDIES, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else "'windfall experiment --list' lists them"
