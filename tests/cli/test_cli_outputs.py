"""Outputs that are directories or patterns, from the command line to the results."""

import pytest


def below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_of_patterns_and_directories_come_home_under_their_names(windfall):
    done = windfall("run", "mkdir -p out/sub; touch {x}.png {x}.txt out/sub/{x} out/.h; ln -s {x}.png l.png",
                    "-s", "x=7", "--output", "*.png", "--output", "out/", "--name", "plot")
    assert done.returncode == 0 and "4 files in plot.results/" in done.stderr, done.stderr
    assert below(windfall.folder / "plot.results") == ["7.png", "l.png", "out/.h", "out/sub/7"]


def test_tasks_whose_patterns_may_clash_have_directories(windfall):
    done = windfall("run", "touch {x}.log same.log; mkdir d-{x}; touch d-{x}/f", "-s", "x=a,b", "--output", "*.log",
                    "--name", "clash")
    assert done.returncode == 0, done.stderr
    assert below(windfall.folder / "clash.results") == ["0/a.log", "0/same.log", "1/b.log", "1/same.log"]
    done = windfall("run", "mkdir d-{x}; touch d-{x}/f", "-s", "x=a,b", "--output", "d-{x}", "--name", "apart")
    assert done.returncode == 0, done.stderr
    assert below(windfall.folder / "apart.results") == ["d-a/f", "d-b/f"]
    archive = windfall.folder / "apart.tar.gz"
    assert windfall("results", "apart", "--archive", str(archive)).returncode == 0 and archive.stat().st_size


def test_pattern_that_matches_nothing_fails_the_task_with_words(windfall):
    done = windfall("run", "touch a.txt", "--output", "*.png", "--retries", "0")
    assert done.returncode == 1 and "the output *.png matches no file" in done.stderr


def test_files_of_patterns_are_inputs_of_later_targets(windfall):
    bag = windfall.write("chain.toml", """\
[bag]
name = "chain"
command = "mkdir parts; echo {n} > parts/first; echo {n}{n} > parts/second"
[sweep]
n = [1, 2]
[task]
outputs = ["parts/*"]
[targets.merge]
after = ["main"]
command = "cat {main.outputs} > all.txt"
outputs = ["a*.txt"]
""")
    done = windfall("run", bag)
    assert done.returncode == 0, done.stderr
    assert (windfall.folder / "chain.results" / "2" / "all.txt").read_text() == "1\n11\n2\n22\n"


@pytest.mark.parametrize(("keys", "says"), [
    ('[task]\ncheckpoint = ["state/*"]', "checkpoint: 'state/*' is a pattern"),
    ('[check]\nfile = "*.png"', "check: file: '*.png' is a pattern"),
    ("[capture]\nx = { file = \"*.log\", match = '([0-9])' }", "capture: '*.log' is a pattern"),
    ('[task]\noutputs = ["**/a/**"]', "outputs: the pattern '**/a/**' is too large"),
])
def test_patterns_are_refused_where_they_mean_nothing(windfall, keys, says):
    done = windfall("run", windfall.write("wrong.toml", f'[bag]\nname = "w"\ncommand = "true"\n{keys}\n'))
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_sweep_over_files_gives_each_task_its_own(windfall):
    for name in ("b.fq", "a.fq"):
        windfall.write(name, f"in {name}")
    done = windfall("run", "cat {x} > {x}.out", "-s", "x=glob:*.fq", "--input", "{x}", "--output", "*.out",
                    "--name", "reads")
    assert done.returncode == 0 and "hint" not in done.stderr, done.stderr
    folder = windfall.folder / "reads.results"
    assert {path.name: path.read_text() for path in folder.rglob("*.out")} == {
        "a.fq.out": "in a.fq", "b.fq.out": "in b.fq"}
    done = windfall("run", "true {x}", "-s", "x=1-3")
    assert done.returncode == 0 and "hint: 'x' has the text '1-3' as a value; for a range" in done.stderr
