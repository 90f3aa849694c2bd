"""A bag file with every key, the files it names, and ways to spoil it."""

import json
import tomllib

from hypothesis import strategies as st

EVERYTHING = """\
[bag]
name = "ldla"
command = "ldla --position {position} --seed {seed} --rate {rate} --sample {sample} > {out}"
effects = "external"
[sweep]
position = "1..20"
seed = [1, 2, 3]
fixed = true
rate = { sample = "loguniform(1e-3, 1)", n = 2, seed = 7 }
out = "result-{position}-{seed}-{rate}.txt"
[[sweep.zip]]
a = ["x", "y"]
b = "0.5..1:0.5"
[sweep.latin]
n = 2
seed = 3
u = "uniform(0, 1)"
k = "integer(1, 6)"
[sweep.csv]
file = "points.csv"
columns = ["sample", "the mass -> mass"]
delimiter = ","
[task]
cores = 2
memory = "2GB"
gpus = 1
disk = "1GiB"
whole-node = false
time = "30min"
expect = "5min"
cost = "{position}"
inputs = ["model.dat", "model.dat -> data/model.dat", "part-{seed}.dat -> part.dat", "site:/ref/{seed}.bin -> ref.bin"]
outputs = ["{out}"]
checkpoint = ["state.bin"]
retries = 5
memory-retries = 2
time-retries = 2
environment = { OMP_NUM_THREADS = 2, SEED = "{seed}" }
setup = ["ulimit -s unlimited"]
modules = ["gcc/12"]
container = "docker://ubuntu:24.04"
scratch = "failed"
priority = 3
grace = "10s"
[check]
exit = [0, 3]
file = "{out}"
match = "converged"
schema = "result.json"
command = "validate {out}"
[capture]
lod = 'LOD=([0-9.]+)'
steps = { file = "{out}", match = 'steps: (\\d+)' }
[policy]
select = "sjf"
[targets.merge]
after = ["main"]
command = ["merge", "{k}", "{main.outputs}"]
memory = "4GB"
[targets.merge.sweep]
k = "1..2"
[targets.merge.check]
exit = 1
[targets.merge.capture]
total = 'total (.*)'
"""


def lay(folder):
    """Write the files that the bag file names."""
    (folder / "points.csv").write_text('sample,the mass,rest\nalpha,1.5,\n"be,ta",2,x\n')
    (folder / "result.json").write_text('{"type": "object"}')
    for name in ("model.dat", "part-1.dat", "part-2.dat", "part-3.dat"):
        (folder / name).write_text(name)


PIECES = [
    "[", "]", "=", '"', "'", "{", "}", "..", "\n", "#", "0", "-1", "1e999", "nan", "true", "\\", "\x00", "é", "@stay",
    "->", "..:", "[[", "]]", "name", "command", "[sweep]", "[task]", "x = 1", "1..", "99999999999999999999", '"""',
    "''", "{x}", "{{", "after = ['main']", "{main.outputs}", "site:", "uniform(", "$ref",
]  # fmt: skip


@st.composite
def texts(draw, good=EVERYTHING, least=1, most=3):
    """Draw a bag file with spoiled text."""
    lines = good.splitlines()
    for _ in range(draw(st.integers(least, most))):
        kind = draw(st.sampled_from(["cut", "insert", "swap", "drop", "double", "change"]))
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        column = draw(st.integers(0, len(line)))
        if kind == "cut":
            lines[at] = line[:column]
        elif kind == "insert":
            lines[at] = line[:column] + draw(st.sampled_from(PIECES)) + line[column:]
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "double":
            lines.insert(at, line)
        elif kind == "change":
            lines[at] = line[:column] + draw(st.text(max_size=3)) + line[column + 1 :]
        elif len(lines) > 1:
            del lines[at]
    return "\n".join(lines)


VALUES = st.recursive(
    st.sampled_from(
        [
            0,
            -1,
            1,
            3.5,
            2**70,
            True,
            False,
            "",
            "x",
            "1..3",
            "5..1",
            "{position}",
            "{nix}",
            "{",
            "2GB",
            "90s",
            "../x",
            "/abs",
            "a.dat",
            "points.csv",
            "uniform(0,1)",
            "failed",
            "fcfs",
            "a b",
            "(",
            "main",
            "part-{seed}.dat",
            "part-{k}.dat",
            "{main.outputs}",
            "site:/x",
            "\u0000",
            "x" * 300,
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "n", "file", "match"]), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "x",
        "cores",
        "core",
        "n",
        "file",
        "sample",
        "command",
        "after",
        "select",
        "zip",
        "csv",
        "latin",
        "exit",
        "a b",
        "main",
        "nodes",
        "deadline",
        "schema",
        "match",
        "lod",
        "inputs",
        "task",
        "sweep",
    ]
)


@st.composite
def tables(draw):
    """Draw a bag file with a spoiled value, key or entry."""
    tree = tomllib.loads(EVERYTHING)
    for _ in range(draw(st.integers(1, 2))):
        table = draw(st.sampled_from(list(_tables(tree))))
        kind = draw(st.sampled_from(["value", "value", "rename", "drop", "add"]))
        key = draw(st.sampled_from(sorted(table))) if table else None
        if kind == "add" or key is None:
            table[draw(KEYS)] = draw(VALUES)
        elif kind == "value":
            table[key] = draw(VALUES)
        elif kind == "rename":
            table[draw(KEYS)] = table.pop(key)
        else:
            del table[key]
    return tree


def _tables(tree):
    yield tree
    for value in tree.values():
        if isinstance(value, dict):
            yield from _tables(value)


def toml(tree):
    return "\n".join(f"{json.dumps(key)} = {_inline(value)}" for key, value in tree.items())


def _inline(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_inline(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)
