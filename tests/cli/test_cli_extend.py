"""A sweep grows: only what is new runs."""

import pytest

BAG = """\
[bag]
name = "growing"
command = "cat in.dat > out-{x}-{y}; echo {x} {y} >> LOG"
[sweep]
x = "1..LAST"
y = [YS]
[task]
inputs = ["d-{x} -> in.dat"]
outputs = ["out-{x}-{y}"]
retries = 0
"""


@pytest.fixture
def grow(windfall):
    for x in range(1, 5):
        windfall.write(f"d-{x}", f"data {x}")
    log = windfall.folder / "log"

    def write(last, ys):
        text = BAG.replace("LAST", str(last)).replace("YS", ys).replace("LOG", str(log))
        return windfall.write("growing.toml", text)

    return write


def test_only_new_points_run_and_files_come_along(windfall, grow):
    done = windfall("run", grow(2, "'a'"))
    assert done.returncode == 0, done.stderr
    done = windfall("run", grow(3, "'b', 'a'"), "--extend", "growing")
    assert done.returncode == 0 and "4 of them new" in done.stderr, done.stderr
    done = windfall("run", grow(3, "'a', 'b'"), "--extend", "growing")
    assert done.returncode == 0 and "none of them is new" in done.stderr, done.stderr
    done = windfall("submit", grow(4, "'a'"), "--extend", "growing")
    assert "1 new task;" in done.stderr
    number = done.stdout.strip()
    assert windfall("wait", number).returncode == 0
    ran = (windfall.folder / "log").read_text().splitlines()
    assert sorted(ran) == ["1 a", "1 b", "2 a", "2 b", "3 a", "3 b", "4 a"]
    assert (windfall.folder / "growing.results" / "out-3-b").read_text() == "data 3"


def test_what_is_not_the_same_bag_is_refused(windfall, grow):
    path = grow(2, "'a'")
    number = windfall("submit", path).stdout.strip()
    windfall.write("growing.toml", (windfall.folder / "growing.toml").read_text().replace("retries = 0", "retries = 1"))
    done = windfall("submit", path, "--extend", number)
    assert done.returncode == 2 and "retries of the target 'main'" in done.stderr
    done = windfall("submit", "p {z}", "--sweep", "z=1", "--extend", number)
    assert done.returncode == 2, done.stderr
    windfall("wait", number)
