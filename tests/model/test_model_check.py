import sys

import msgspec
import pytest

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.bag import validate, validate_source
from windfall.model.spec import (
    MAX_TASKS,
    MAX_TEXT,
    Bag,
    Check,
    Derived,
    Input,
    Items,
    Lines,
    Policy,
    Range,
    Resources,
    Sweep,
    Target,
    Values,
    Zip,
)

HASH = "ab" * 32
X = Range(name="x", first=1, last=3)


def bag(target=None, **fields):
    return Bag(**{"name": "b", "targets": [target or Target(command="p")], **fields})


def sweep(*axes, derived=()):
    return Target(command="p", source=Sweep(axes=list(axes), derived=list(derived)))


GOOD = [
    bag(),
    bag(sweep(X, derived=[Derived(name="o", template="{x}.txt")])),
    bag(Target(source=Lines(text="a\nb", count=2))),
    bag(Target(source=Lines(text="", count=0)), open=True),
    bag(Target(kind="call", source=Items(items=[])), open=True),
    bag(Target(command="p", inputs=[Input(path="a/b", blob=HASH, size=1)], outputs=["o"], environment={"A_1": "x"})),
    bag(targets=[Target(command="p"), Target(name="t", command="q", after=["main"])], edges=[(0, 1)]),
    bag(targets=[Target(name="t", command="q", after=["main"]), Target(command="p")], edges=[(1, 0)]),
    bag(sweep(Range(name="x", first=1, last=MAX_TASKS))),
]


@pytest.mark.parametrize("good", GOOD)
def test_valid_bags_pass_and_survive_encoding(good):
    validate(good)
    assert msgspec.json.decode(msgspec.json.encode(good), type=Bag) == good


BAD = [
    bag(name=""),
    bag(name="x" * 201),
    bag(name="a\nb"),
    bag(targets=[]),
    bag(effects="some"),
    bag(policy=Policy(select="adaptive")),
    bag(policy=Policy(deadline=-1)),
    bag(policy=Policy(batch=2, per_host="4")),
    bag(Target(command="")),
    bag(Target(command=[])),
    bag(Target(command="p\0")),
    bag(Target(command="p {y}")),
    bag(Target(command="p {")),
    bag(Target(name="a b", command="p")),
    bag(Target(kind="dance", command="p")),
    bag(Target(kind="call", command="p")),
    bag(Target(command="p", resources=Resources(cores=0))),
    bag(Target(command="p", resources=Resources(memory=-1))),
    bag(Target(command="p", time=-1)),
    bag(Target(command="p", retries=-1)),
    bag(Target(command="p", priority=1 << 40)),
    bag(Target(command="p", outputs=["/etc/passwd"])),
    bag(Target(command="p", outputs=["a/../../b"])),
    bag(Target(command="p", outputs=["o", "o"])),
    bag(Target(command="p", outputs=["{y}"])),
    bag(Target(command="p", checkpoint=["{y}"])),
    bag(Target(command="p", check=Check(file=["{y}"]))),
    bag(Target(command="p", inputs=[Input(path="a", blob="zz", size=1)])),
    bag(Target(command="p", inputs=[Input(path="../a", blob=HASH, size=1)])),
    bag(Target(command="p", inputs=[Input(path="a", blob=HASH, size=1)] * 2)),
    bag(Target(command="p", inputs=[Input(path="a", blob=HASH, size=-1)])),
    bag(Target(command="p", environment={"A=B": "x"})),
    bag(Target(command="p", environment={"A": "\0"})),
    bag(Target(command="p", check=Check(exit=[]))),
    bag(Target(command="p", check=Check(exit=[256]))),
    bag(Target(command="p", check=Check(match="("))),
    bag(sweep(Range(name="x", first=2, last=1))),
    bag(sweep(Range(name="x", first=1, last=2, step=0))),
    bag(sweep(Range(name="x", first=1, last=float("inf")))),
    bag(sweep(Values(name="x", values=[]))),
    bag(sweep(X, X)),
    bag(sweep(Range(name="x y", first=1, last=2))),
    bag(sweep(Range(name="x", first=1, last=1 << 64))),
    bag(sweep(Zip(columns=[Values(name="a", values=[1]), Values(name="b", values=[1, 2])]))),
    bag(sweep(Zip(columns=[]))),
    bag(sweep(X, derived=[Derived(name="x", template="1")])),
    bag(sweep(derived=[Derived(name="a", template="{a}")])),
    bag(Target(source=Lines(text="a\nb", count=3))),
    bag(Target(source=Lines(text="a\n\nb", count=3))),
    bag(Target(source=Lines(text="", count=0))),
    bag(Target(command="p", source=Lines(text="a", count=1))),
    bag(Target(source=Items(items=[""]))),
    bag(Target(kind="call", source=Lines(text="a", count=1))),
    bag(targets=[Target(command="p"), Target(command="p")]),
    bag(Target(command="p", after=["x"])),
    bag(Target(command="p", after=["main"])),
    bag(edges=[(0, 0)]),
    bag(edges=[(0, 5)]),
    bag(sweep(X), edges=[(0, 1), (1, 0)]),
    bag(targets=[Target(command="p"), Target(name="t", command="q", after=["main"])], edges=[(1, 0)]),
    bag(Target(command="p", cost="{y}")),
    bag(Target(command="p", cost="x", source=Sweep(axes=[Values(name="x", values=["big"])]))),
]


@pytest.mark.parametrize("bad", BAD)
def test_invalid_bags_are_refused_with_a_message(bad):
    with pytest.raises(BadInput) as caught:
        validate(bad)
    assert caught.value.message


HUGE = [
    bag(sweep(Range(name="x", first=1, last=10**12))),
    bag(sweep(*[Range(name=f"x{i}", first=1, last=10) for i in range(60)])),
    bag(sweep(*[Range(name=f"x{i}", first=1, last=1) for i in range(65)])),
    bag(sweep(Range(name="x", first=0.0, last=1.0, step=1e-300))),
    bag(Target(command="p" * (MAX_TEXT + 1))),
    bag(
        sweep(
            Values(name="a0", values=["x" * 100]),
            derived=[Derived(name=f"a{i + 1}", template=f"{{a{i}}}" * 10) for i in range(60)],
        )
    ),
    bag(Target(command="p " + "{x}" * 20, source=Sweep(axes=[Values(name="x", values=["y" * 100_000])]))),
    bag(Target(source=Items(items=["x" * (MAX_TEXT + 1)]))),
    bag(Target(source=Lines(text="x" * (MAX_TEXT + 1), count=1))),
]


@pytest.mark.parametrize("huge", HUGE, ids=range(len(HUGE)))
def test_huge_bags_are_refused_without_expanding_them(huge):
    assert lines_run(lambda: pytest.raises(TooLarge, validate, huge)) < 100_000


def test_cost_of_validation_depends_on_axes_and_lines():
    """Counted in lines of Python, not in seconds."""
    small, large = (bag(sweep(Range(name="x", first=1, last=last))) for last in (100, 10**7))
    validate(small)  # fills caches
    assert lines_run(lambda: validate(small)) == lines_run(lambda: validate(large))
    hundred, thousand = (
        bag(Target(source=Lines(text="\n".join(f"prog {i}" for i in range(count)), count=count)))
        for count in (100, 1_000)
    )
    assert lines_run(lambda: validate(thousand)) <= 10 * lines_run(lambda: validate(hundred)) <= 10 * 100 * 10


def lines_run(function):
    """How many lines of Python a call takes."""
    count = 0

    def trace(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_lines_accept_only_lines_when_extended():
    target = Target(source=Lines(text="a", count=1))
    validate_source(target, Lines(text="b\nc", count=2))
    for wrong in (Items(items=["b"]), Sweep(), Lines(text="b", count=2)):
        with pytest.raises(BadInput):
            validate_source(target, wrong)


def test_calls_accept_only_items_when_extended():
    calls = Target(kind="call", source=Items(items=["3.11 Zg== MQ=="]))
    validate_source(calls, Items(items=["3.11 Zg== Mg=="]))
    for wrong in (Lines(text="echo 1", count=1), Sweep(axes=[Range(name="x", first=1, last=2)])):
        with pytest.raises(BadInput, match="calls need `items`"):
            validate_source(calls, wrong)
