"""Hints for unknown words."""

from windfall.model.bagfile import words
from windfall.model.suggest import meant, nearest


def test_words_of_batch_systems_lead_to_ours():
    known = list(words.TASK)
    assert [meant(word, known) for word in ("cpus", "mem", "walltime", "cpus_per_task", "ENV")] == [
        "cores", "memory", "time", "cores", "environment"]
    assert meant("--cpus", ["--csv", "--cores"]) == "--cores"
    assert meant("cpus", ["gpus"]) == "gpus" and meant("threads", ["alpha"]) == ""


def test_near_words_are_found_as_before():
    assert nearest("memry", ["memory", "time"]) == "did you mean 'memory'?"
    assert nearest("zzz", ["memory", "time"]) == "known: memory, time" and nearest("zzz", []) == ""
