"""The nodes of an allocation: read from the batch system's variables, and passed to tasks that run on several nodes.

The pilot runs on the first node.  A task finds the names in the file $WINDFALL_NODEFILE, one per line, and their number
in $WINDFALL_NODES; the batch system's own variables stay, too, so that `srun` and `mpirun` find the nodes.
"""

import os
import re

MOST = 100000
_PART = re.compile(r"[^,\[\]]*(?:\[[^\[\]]*\][^,\[\]]*)*")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def hosts(environ):
    """Return the names of the nodes in order, each once; none on a machine without a batch system."""
    found = []
    if environ.get("SLURM_JOB_NODELIST"):
        found = expand(environ["SLURM_JOB_NODELIST"])
    elif environ.get("PBS_NODEFILE"):
        found = [line.split()[0] for line in _lines(environ["PBS_NODEFILE"])]
    elif environ.get("PE_HOSTFILE"):
        found = [line.split()[0] for line in _lines(environ["PE_HOSTFILE"])]
    elif environ.get("LSB_MCPU_HOSTS"):
        found = environ["LSB_MCPU_HOSTS"].split()[::2]
    elif environ.get("LSB_HOSTS"):
        found = environ["LSB_HOSTS"].split()
    return list(dict.fromkeys(found[:MOST]))


def _lines(path):
    try:
        with open(path) as file:
            return [line for line in file.read(1 << 24).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        return []


def expand(text):
    """Return the hosts of a list as Slurm writes it: `a[1-3,07],b` → a1 a2 a3 a07 b."""
    found = []
    at = 0
    while at < len(text) and len(found) < MOST:
        part = _PART.match(text, at).group()
        if part:
            found += _one(part)
        at += len(part) + 1
    return found[:MOST]


def _one(part):
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, after = rest.partition("]")
    names = []
    for each in inside.split(","):
        match = _RANGE.fullmatch(each.strip())
        if match is None:
            continue
        first, last = match.group(1), match.group(2) or match.group(1)
        for number in range(int(first), min(int(last), int(first) + MOST) + 1):
            names.append("{}{:0{}d}".format(before, number, len(first)))
    ends = _one(after) if after else [""]
    return [name + end for name in names for end in ends][:MOST]


def tell(env, folder, count):
    """Add the nodes to a task's environment; write their file if it does not exist yet."""
    names = hosts(os.environ)[:count]
    path = os.path.join(folder, "nodes-{}".format(count))
    if not os.path.exists(path):
        with open(path + ".new", "w") as file:
            file.write("".join(name + "\n" for name in names))
        os.rename(path + ".new", path)
    env["WINDFALL_NODES"] = str(len(names))
    env["WINDFALL_NODEFILE"] = path
    env.pop("SLURM_EXPORT_ENV", None)  # set to NONE for the pilot's job; the task's job steps need its environment
