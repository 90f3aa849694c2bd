"""`--extend` adds the new points of a sweep to a bag."""

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


def test_extension_runs_only_new_points_with_their_files(windfall, grow):
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


def test_extension_that_changes_more_than_the_sweep_is_refused(windfall, grow):
    path = grow(2, "'a'")
    number = windfall("submit", path).stdout.strip()
    windfall.write("growing.toml", (windfall.folder / "growing.toml").read_text().replace("retries = 0", "retries = 1"))
    done = windfall("submit", path, "--extend", number)
    assert done.returncode == 2 and "target 'main': retries differs" in done.stderr
    done = windfall("submit", "p {z}", "--sweep", "z=1", "--extend", number)
    assert done.returncode == 2, done.stderr
    windfall("wait", number)


def test_a_changed_input_is_refused_by_name(windfall, grow):
    number = windfall("submit", grow(2, "'a'")).stdout.strip()
    assert windfall("wait", number).returncode == 0
    windfall.write("d-1", "other data")
    for ys in ("'a'", "'a', 'b'"):
        done = windfall("run", grow(2, ys), "--extend", number)
        assert done.returncode == 2 and "'d-1' has changed" in done.stderr, done.stderr
    windfall.write("d-1", "data 1")
    assert windfall("run", grow(3, "'a'"), "--extend", number).returncode == 0
    windfall.write("d-3", "other data")
    done = windfall("run", grow(3, "'a', 'b'"), "--extend", number)
    assert done.returncode == 2 and "'d-3' has changed" in done.stderr, "what came with an extension counts too"
    assert sorted((windfall.folder / "log").read_text().splitlines()) == ["1 a", "2 a", "3 a"]


def test_csv_sweep_is_extended_row_by_row(windfall):
    windfall.write("table.toml", '[bag]\nname = "rows"\ncommand = "echo {name} {size}"\n[sweep.csv]\nfile = "t.csv"\n')
    rows = ["name,size", "ann,1", "bob,2"]
    windfall.write("t.csv", "\n".join(rows))
    assert windfall("run", "table.toml").returncode == 0
    for row, says in [("cay,3", "1 of them new"), ("dan,4", "1 of them new"), ("ann,1", "none of them is new")]:
        rows.append(row)
        windfall.write("t.csv", "\n".join(rows))
        done = windfall("run", "table.toml", "--extend", "rows")
        assert done.returncode == 0 and says in done.stderr, done.stderr
    found = windfall("results", "rows", "--csv").stdout
    assert [line.split(",")[0] for line in found.splitlines()[1:]] == ["0", "1", "2", "3"]
    for name in ("ann", "bob", "cay", "dan"):
        assert name in found


def test_sample_is_extended_by_further_draws(windfall):
    text = '[bag]\nname = "drawn"\ncommand = "echo {x}"\n[sweep]\nx = {sample = "normal(0, 1)", n = COUNT, seed = 3}\n'
    for count in (3, 5, 8):
        windfall.write("drawn.toml", text.replace("COUNT", str(count)))
        done = windfall("run", "drawn.toml", *([] if count == 3 else ["--extend", "drawn"]), "--json")
        assert done.returncode == 0, done.stderr
    assert len(windfall("results", "drawn", "--csv").stdout.splitlines()) == 1 + 8


def test_a_dry_run_shows_what_is_new(windfall, grow):
    number = windfall("submit", grow(2, "'a'")).stdout.strip()
    assert windfall("wait", number).returncode == 0
    assert windfall("run", grow(3, "'a'"), "--extend", number).returncode == 0
    done = windfall("run", "-n", grow(4, "'a', 'b'"), "--extend", number)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "growing: 5 new tasks"
    assert [line.split()[0] for line in lines[1:6]] == ["3", "4", "5", "6", "7"]
    assert lines[-1] == "to send: 1 file, 6 B"
    shown = windfall.json("run", "-n", grow(4, "'a', 'b'"), "--extend", number)
    assert shown["tasks"] == 5 and shown["targets"][0]["first"] == 3
    assert windfall.json("run", "-n", grow(3, "'a'"), "--extend", number) == {
        "name": "growing", "tasks": 0, "targets": []}
    assert windfall("run", grow(4, "'a', 'b'"), "--extend", number, "-q").returncode == 0
    outputs = [paths[0] for paths in shown["targets"][0]["outputs"]]
    assert [row["files"][0][0] for row in windfall.json("results", number)[3:]] == outputs


def test_an_added_task_runs_here_with_its_own_file(windfall, grow):
    number = windfall("submit", grow(1, "'a'")).stdout.strip()
    assert windfall("wait", number).returncode == 0
    for last in (2, 3):
        assert windfall("run", grow(last, "'a'"), "--extend", number, "-q").returncode == 0
    for task in (0, 1, 2):
        done = windfall("retry", number, task, "--here", "-o", f"here-{task}")
        assert done.returncode == 0, done.stderr
        assert (windfall.folder / f"here-{task}" / f"out-{task + 1}-a").read_text() == f"data {task + 1}"
