"""Every reason code of a batch system has a sentence, and stays visible beside it."""

import json
import re

import pytest

from windfall.sites.dialects import gridengine, htcondor, reasons, slurm, text
from windfall.sites.dialects.job import Answer

PSIJ = """AssociationJobLimit AssociationResourceLimit AssociationTimeLimit BadConstraints BeginTime Cleaning Dependency
FrontEndDown InactiveLimit InvalidAccount InvalidQOS JobHeldAdmin JobHeldUser JobLaunchFailure Licenses NodeDown
NonZeroExitCode PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit Priority Prolog QOSJobLimit
QOSResourceLimit QOSTimeLimit ReqNodeNotAvail Reservation Resources SystemFailure TimeLimit QOSUsageThreshold
WaitingForScheduling""".split()
"""The reasons that PSI/J explains."""

LIMITS = {
    "QOSMaxJobsPerUserLimit": "your quality of service allows no more jobs per user",
    "QOSMaxCpuPerUserLimit": "your quality of service allows no more cores per user",
    "QOSMaxSubmitJobPerUserLimit": "your quality of service allows no more submitted jobs per user",
    "QOSMaxWallDurationPerJobLimit": "the job asks for more wall time than your quality of service allows per job",
    "QOSMaxGRESPerUser": "your quality of service allows no more GPUs or other devices per user",
    "QOSMinCpuNotSatisfied": "your quality of service demands more cores than the job asks for",
    "QOSGrpCPURunMinutesLimit": "your quality of service allows no more core-minutes for all its jobs together",
    "AssocGrpCpuLimit": "your account allows no more cores for all its jobs together",
    "AssocGrpBillingMinutes": "your account allows no more billed unit-minutes for all its jobs together",
    "AssocMaxJobsLimit": "your account allows no more jobs",
    "AssocMaxNodePerJobLimit": "the job asks for more nodes than your account allows per job",
    "MaxMemoryPerAccount": "your quality of service allows no more memory per account",
}


@pytest.mark.parametrize("code", [*reasons.SLURM, *PSIJ, *LIMITS])
def test_reason_code_of_slurm_is_followed_by_a_sentence(code: str) -> None:
    listed, = slurm.listed(Answer(0, f"7|PD|N/A|1|{code}|wfabcd-1\n", ""))
    assert re.fullmatch(rf"{re.escape(code)}: [a-z].{{15,}}[^.]", listed.reason)
    assert len(listed.reason) < text.MAX_REASON


@pytest.mark.parametrize(("code", "sentence"), LIMITS.items())
def test_limit_code_of_slurm_names_owner_resource_and_bound(code: str, sentence: str) -> None:
    assert reasons.slurm(code) == f"{code}: {sentence}"


def test_node_names_of_slurm_stay_in_the_reason() -> None:
    reason = reasons.slurm("ReqNodeNotAvail, UnavailableNodes:node7")
    assert reason == "ReqNodeNotAvail, UnavailableNodes:node7: nodes that the job needs are down, drained or reserved"


@pytest.mark.parametrize("reason", ["", "SomethingNew", "QOSMaxUnicornsPerUser", "Nodes required for job are DOWN"])
def test_unknown_reason_of_slurm_is_returned_unchanged(reason: str) -> None:
    assert reasons.slurm(reason) == reason


@pytest.mark.parametrize("state", sorted(reasons.SLURM_ENDS))
def test_ended_job_of_slurm_shows_its_state_with_a_sentence(state: str) -> None:
    listed, = slurm.listed(Answer(0, f"7|{state}|0|1|None|wfabcd-1\n", ""))
    assert listed.state == "ended" and listed.reason == f"{state}: {reasons.SLURM_ENDS[state]}"


def test_ended_job_of_slurm_explains_its_reason_unless_the_state_says_the_same() -> None:
    assert reasons.slurm_end("TO", "TimeLimit") == "TO: the job reached its wall time (TimeLimit)"
    assert reasons.slurm_end("F", "NodeDown") == (
        "F: the job's script ended with an error (NodeDown: a node that the job needs is down)")


@pytest.mark.parametrize(("state", "reason"), [
    ("Eqw", "Eqw: the job's start failed: qstat -j tells why"),
    ("hqw", f"hqw: {reasons.GRIDENGINE['h']}"),
    ("dr", "dr: the job is being deleted"),
    ("qw", ""), ("r", ""), ("t", ""),
])  # fmt: skip
def test_state_letters_of_grid_engine_become_sentences(state: str, reason: str) -> None:
    job = f"<job_list><JB_job_number>7</JB_job_number><JB_name>wfabcd-1</JB_name><state>{state}</state></job_list>"
    listed, = gridengine.listed(Answer(0, f"<job_info>{job}</job_info>", ""))
    assert listed.reason == reason


@pytest.mark.parametrize("code", sorted(reasons.HTCONDOR_HOLDS))
def test_hold_code_of_htcondor_is_followed_by_a_sentence_and_its_own_words(code: int) -> None:
    ad = {"ClusterId": 3, "ProcId": 0, "JobStatus": 5, "HoldReasonCode": code, "HoldReason": "disk full"}
    listed, = htcondor.listed(Answer(0, json.dumps([ad]), ""))
    assert listed.reason == f"HoldReasonCode {code}: {reasons.HTCONDOR_HOLDS[code]} (disk full)"


@pytest.mark.parametrize(("words", "reason"), [
    ("no match found", "no match found: no free machine meets the job's requirements"),
    ("concurrency limit XSW reached",
     "concurrency limit XSW reached: as many jobs run under this concurrency limit as may run"),
    ("something new", "something new"), ("", ""),
])  # fmt: skip
def test_rejection_of_htcondor_is_followed_by_a_sentence_if_it_is_known(words: str, reason: str) -> None:
    ad = {"ClusterId": 3, "ProcId": 0, "JobStatus": 1, "LastRejMatchReason": words}
    listed, = htcondor.listed(Answer(0, json.dumps([ad]), ""))
    assert listed.reason == reason


def test_listing_of_htcondor_asks_for_the_hold_code() -> None:
    assert "HoldReasonCode" in " ".join(htcondor.listing("me").argv)
