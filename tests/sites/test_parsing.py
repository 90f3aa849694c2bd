"""The parsers of batch systems' output.  `test_contract.py` runs real Slurm, Grid Engine and HTCondor; for PBS and LSF,
which cannot be installed here, these texts follow their documentation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from windfall.errors import SiteError, SiteRefused, SiteUnreachable
from windfall.sites.dialects import bare, gridengine, htcondor, lsf, pbs, slurm, text
from windfall.sites.dialects.job import ENDED, HELD, QUEUED, RUNNING, Answer, Balance, Listed, Room
from windfall.sites.dialects.table import DIALECTS, dialect


def printed(out: str, exit: int = 0, err: str = "") -> Answer:
    return Answer(exit, out, err)


LONG: dict[str, Callable[[int], str]] = {  # a listing of so many jobs, the last of which is ours
    "slurm": lambda n: "".join(f"{k}|PD|N/A|1|Priority|mine\n" for k in range(1, n)) + "7|R|0|1|None|wfabcd-1\n",
    "lsf": lambda n: "7|0|PEND|1|-|-|mine\n" * (n - 1) + "8|0|RUN|1|-|-|wfabcd-1\n",
    "htcondor": lambda n: json.dumps(
        [{"ClusterId": 7, "ProcId": 0}] * (n - 1) + [{"ClusterId": 8, "ProcId": 0, "JobBatchName": "wfabcd-1"}]),
    "pbs": lambda n: "Job Id: 7.s\n    Job_Name = mine\n    job_state = Q\n    Priority = 0\n" * (n - 1)
    + "Job Id: 8.s\n    Job_Name = wfabcd-1\n    job_state = R\n",
    "gridengine": lambda n: "<job_info>" + "<job_list><JB_job_number>7</JB_job_number></job_list>" * (n - 1)
    + "<job_list><JB_job_number>8</JB_job_number><JB_name>wfabcd-1</JB_name></job_list></job_info>",
    "local": lambda n: "other-7|R|0\n" * (n - 1) + "abcd-1|R|0\nend\n",
}


@pytest.mark.parametrize("name", LONG)
def test_a_listing_is_whole_or_an_error_however_long_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off, it would say that pilots behind the cut are gone, and others would be started for them."""
    monkeypatch.setattr(text, "MAX_JOBS", 500)
    jobs = dialect(name).listed(printed(LONG[name](500)))
    assert len(jobs) == 500 and jobs[-1].nonce == "abcd-1"
    with pytest.raises(SiteError):
        dialect(name).listed(printed(LONG[name](501)))


def test_jobs_of_other_users_do_not_count_against_the_listing_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some PBS commands list the jobs of all users."""
    monkeypatch.setattr(text, "MAX_JOBS", 500)
    others = "Job Id: 7.s\n    Job_Name = x\n    Job_Owner = bob@h\n    job_state = Q\n" * 1000
    ours = "Job Id: 8.s\n    Job_Name = wfabcd-1\n    Job_Owner = ann@h\n    job_state = R\n"
    assert [job.id for job in pbs.listed(printed("owner ann\n" + others + ours))] == ["8.s"]


@pytest.mark.parametrize("said", ["", "a", "\n", "a\n", "a\n\nb", " \n\t\na b \n", "\n\n a"])
def test_lines_are_split_without_blank_ones(said: str) -> None:
    assert list(text.lines(said)) == [line for line in said.split("\n") if line.strip()]


# --- Slurm -----------------------------------------------------------------------------------------------------


def test_output_of_squeue_is_parsed() -> None:
    jobs = slurm.listed(printed(
        "12_7|R|1794758400|4|None|wfabcd-100\n"
        "12_8|PD|1794760000|4|Resources|wfabcd-100\n"
        "13|PD|N/A|1|JobHeldUser|somebody|else's\n"
        "14|CD|1794758000|1|None|wfefgh-5\n"
        "15|TO|1794758000|1|TimeLimit|wfefgh-5\n"
        "16|CG|1794758000|1|None|wfefgh-5\n"
        "17|PD|N/A|1|launch failed requeued held|wfefgh-5\n"
        "slurm_load_jobs: something new\n"))
    assert jobs == [
        Listed("12_7", "abcd-106", RUNNING, "", 1794758400, 4),
        Listed("12_8", "abcd-107", QUEUED, "Resources: the job waits for free nodes", 1794760000, 4),
        Listed("13", "", HELD, "JobHeldUser: the job was submitted on hold, or you have held it", None, 1),
        Listed("14", "efgh-5", ENDED, "CD: the job's script ended without an error", 1794758000, 1),
        Listed("15", "efgh-5", ENDED, "TO: the job reached its wall time (TimeLimit)", 1794758000, 1),
        Listed("16", "efgh-5", RUNNING, "", 1794758000, 1),
        Listed("17", "efgh-5", HELD, "launch failed requeued held: a node could not start the job, and the job is held",
               None, 1),
    ]


@pytest.mark.parametrize(("err", "kind"), [
    ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS "
     "policy (job submit limit, user's size and/or time limits)", text.LIMIT),
    ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
     "accounting/QOS policy (job submit limit, user's size and/or time limits)", text.LIMIT),
    ("sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates "
     "accounting/QOS policy (job submit limit, user's size and/or time limits)", text.SHAPE),
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
     text.ACCOUNT),
    ("sbatch: error: invalid partition specified: nonsense\nsbatch: error: Batch job submission failed: Invalid "
     "partition name specified", text.QUEUE),
    ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
     text.SHAPE),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available", text.SHAPE),
    ("sbatch: error: Batch job submission failed: User's group not permitted to use this partition", text.DENIED),
    ("sbatch: error: Batch job submission failed: Invalid job array specification", text.ARRAY),
    ("sbatch: error: Unable to create temporary file: Disk quota exceeded", text.DISK),
    ("sh: 1: sbatch: not found", text.MISSING),
    ("sbatch: error: the moon is in the wrong place", text.OTHER),
])  # fmt: skip
def test_refusals_of_sbatch_are_classified(err: str, kind: str) -> None:
    with pytest.raises(SiteRefused) as refused:
        slurm.submitted(printed("", 1, err))
    assert refused.value.kind == kind and refused.value.hint == text.CURES[kind]


@pytest.mark.parametrize("err", [
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
])  # fmt: skip
def test_unanswered_sbatch_is_not_a_refusal(err: str) -> None:
    with pytest.raises(SiteUnreachable):
        slurm.submitted(printed("", 1, err))


def test_the_id_of_a_job() -> None:
    assert slurm.submitted(printed("4711\n")) == "4711"
    assert slurm.submitted(printed("4711;cluster\n")) == "4711"
    assert slurm.submitted(printed("Welcome to the cluster\n4711\n")) == "4711"


@pytest.mark.parametrize("dialect", [slurm, gridengine, htcondor, lsf, pbs, bare])
@pytest.mark.parametrize("answer", [
    printed("you have 5 units left\n"), printed("", -9), printed("", 137), printed("", 143, "Terminated"),
    printed("", 1, "no time limit given, using 1h\nSocket timed out on send/recv operation"),
])
def test_unclear_answer_to_a_submission_is_not_a_refusal(dialect: Any, answer: Answer) -> None:
    with pytest.raises(SiteUnreachable):
        dialect.submitted(answer)


def test_output_of_sshare_gives_the_balances() -> None:
    assert slurm.balanced(printed(
        "proj|||cpu=6000||cpu=0\nproj||999|cpu=6000,gres/gpu=10|cpu=5000,mem=9|cpu=700,mem=1\n"
        " proj|me|1200||cpu=20|cpu=300\nother|me|60||||\n")) == [
        Balance("proj", 300_000, 360_000, 24_000), Balance("other", 60, None)]
    assert slurm.balanced(printed("proj||100||cpu=9|cpu=50\n proj|me|100|cpu=40|cpu=9|cpu=50\n")) == [
        Balance("proj", 540, 2_400)], "his own running jobs are counted as pilots"
    assert slurm.balanced(printed("old||360000|cpu=6000||\n")) == [Balance("old", 360_000, 360_000)]
    with pytest.raises(SiteRefused, match="keeps no accounts") as refused:
        slurm.balanced(printed("", 1, "You are not running a supported accounting_storage plugin"))
    assert "core-hours" in refused.value.hint
    with pytest.raises(SiteError, match="did not show the account.s balance: sshare: error: Connection refused"):
        slurm.balanced(printed("", 1, "sshare: error: Connection refused"))


# --- Grid Engine -----------------------------------------------------------------------------------------------

QSTAT_XML = """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://www.w3.org/2001/XMLSchema">
  <queue_info>
    <job_list state="running">
      <JB_job_number>12</JB_job_number>
      <JAT_prio>0.55500</JAT_prio>
      <JB_name>wfabcd-100</JB_name>
      <JB_owner>me</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-15T16:00:00</JAT_start_time>
      <queue_name>main.q@node</queue_name>
      <slots>4</slots>
      <tasks>7</tasks>
      <full_job_name>wfabcd-100</full_job_name>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>12</JB_job_number>
      <JB_name>wfabcd-100</JB_name>
      <state>qw</state>
      <JB_submission_time>2026-11-15T15:59:00</JB_submission_time>
      <slots>4</slots>
      <tasks>8-10:1,12</tasks>
    </job_list>
    <job_list state="pending">
      <JB_job_number>13</JB_job_number><JB_name>&lt;odd&gt;</JB_name><state>Eqw</state><slots>1</slots>
    </job_list>
    <job_list state="pending">
      <JB_job_number>14</JB_job_number><JB_name>wfefgh-5</JB_name><state>hqw</state><slots>1</slots>
    </job_list>
  </job_info>
</job_info>
"""


def test_qstat_of_grid_engine() -> None:
    jobs = gridengine.listed(printed(QSTAT_XML))
    assert jobs[0] == Listed("12.7", "abcd-106", RUNNING, "", 1794758400, 4)
    assert [(each.id, each.nonce, each.state) for each in jobs[1:5]] == [
        (f"12.{n}", f"abcd-{99 + n}", QUEUED) for n in (8, 9, 10, 12)]
    assert jobs[5].state == HELD and jobs[5].nonce == "" and "failed" in jobs[5].reason
    assert jobs[6].state == HELD and jobs[6].nonce == "efgh-5"


def test_xml_with_entities_is_refused() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>' + "<job_info>&b;</job_info>"
    for hostile in (bomb, QSTAT_XML[:500], "", "error: commlib error"):
        with pytest.raises(SiteUnreachable):
            gridengine.listed(printed(hostile))


def test_a_range_of_tasks_is_bounded() -> None:
    """A hostile listing may repeat the range; a cut listing would mean that the other tasks are gone."""
    hostile = QSTAT_XML.replace("8-10:1,12", "1-999999999:1").replace("</job_info>", "")
    for xml in (hostile + "</job_info>", hostile + hostile[hostile.index("<job_info"):] * 50):
        with pytest.raises(SiteError):
            gridengine.listed(printed(xml))


@pytest.mark.parametrize(("err", "kind"), [
    ("Unable to run job: job rejected: Only 100 jobs are allowed per user (current job count: 100)", text.LIMIT),
    ('Unable to run job: Job was rejected because job requests unknown queue "nonsense.q".', text.QUEUE),
    ('Unable to run job: job rejected: the requested parallel environment "x" does not exist.', text.SHAPE),
    ('Unable to run job: job rejected: the requested project "x" does not exist.', text.ACCOUNT),
    ("Unable to run job: unknown resource \"gpus\".", text.SHAPE),
    ("Unable to run job: job rejected: array job task number of 5000 exceeds limit of max_aj_tasks=2000", text.ARRAY),
    ('Unable to run job: denied: host "x" is no submit host.', text.DENIED),
])  # fmt: skip
def test_refusals_of_grid_engine_are_classified(err: str, kind: str) -> None:
    with pytest.raises(SiteRefused) as refused:
        gridengine.submitted(printed("", 1, err))
    assert refused.value.kind == kind


def test_a_master_that_is_down() -> None:
    with pytest.raises(SiteUnreachable):
        gridengine.listed(printed("", 1, "error: commlib error: got select error (Connection refused)"))


# --- HTCondor --------------------------------------------------------------------------------------------------


def test_output_of_condor_q_is_parsed() -> None:
    ads = [{"ClusterId": 3, "ProcId": 0, "JobStatus": 2, "JobBatchName": "wfabcd-100",
            "JobCurrentStartDate": 1794758400, "RequestCpus": 4},
           {"ClusterId": 3, "ProcId": 1, "JobStatus": 1, "JobBatchName": "wfabcd-100"},
           {"ClusterId": 4, "ProcId": 0, "JobStatus": 5, "JobBatchName": "other", "HoldReason": "no\nroom"},
           {"ClusterId": "x"}, 7]
    assert htcondor.listed(printed(json.dumps(ads))) == [
        Listed("3.0", "abcd-100", RUNNING, "", 1794758400, 4), Listed("3.1", "abcd-101", QUEUED),
        Listed("4.0", "", HELD, "no room")]
    assert htcondor.listed(printed("")) == []
    for no_list in ('{"error": "no schedd"}', "null", "{}"):
        with pytest.raises(SiteUnreachable, match="not a list"):
            htcondor.listed(printed(no_list))
    for hostile in ("[" * 100_000, '[{"ClusterId": 3', "-- Failed to fetch ads"):
        with pytest.raises(SiteUnreachable):
            htcondor.listed(printed(hostile))


@pytest.mark.parametrize(("err", "kind"), [
    ("ERROR: Failed to create new proc id: Number of jobs submitted exceeds MAX_JOBS_PER_OWNER", text.LIMIT),
    ("ERROR: Number of submitted jobs would exceed MAX_JOBS_SUBMITTED", text.LIMIT),
    ("ERROR: Number of jobs in a submission would exceed MAX_JOBS_PER_SUBMISSION", text.ARRAY),
    ("ERROR: Failed to commit job submission into the queue. Job rejected by submit requirement", text.SHAPE),
])  # fmt: skip
def test_refusals_of_htcondor_are_classified(err: str, kind: str) -> None:
    with pytest.raises(SiteRefused) as refused:
        htcondor.submitted(printed("", 1, err))
    assert refused.value.kind == kind


# --- PBS: written after the documentation ----------------------------------------------------------------------

OPENPBS = """\
Job Id: 1234[7].pbs01
    Job_Name = wfabcd-100
    Job_Owner = me@login1
    job_state = R
    queue = workq
    Resource_List.ncpus = 4
    Resource_List.select = 1:ncpus=4:mem=4gb
    stime = Sun Nov 15 16:00:00 2026
    Variable_List = PBS_O_HOME=/home/me,PBS_O_LANG=C,PBS_O_PATH=/opt/pbs/bin:/us
\tr/bin:/bin,PBS_O_SHELL=/bin/bash
    comment = Job run at Sun Nov 15 at 16:00 on (node7:ncpus=4)
    array_id = 1234[].pbs01
    array_index = 7

Job Id: 1234[].pbs01
    Job_Name = wfabcd-100
    Job_Owner = me@login1
    job_state = B
    array = True
    array_indices_submitted = 1-1000

Job Id: 1235.pbs01
    Job_Name = STDIN
    Job_Owner = me@login1
    job_state = Q
    Resource_List.ncpus = 1
    comment = Not Running: Insufficient amount of resource: ncpus
\t (R: 4 A: 0 T: 64)

Job Id: 1236.pbs01
    Job_Name = wfefgh-5
    job_state = H

Job Id: 1237.pbs01
    Job_Name = wfefgh-5
    job_state = F
"""

TORQUE = """\
Job Id: 88[3].server.example.org
    Job_Name = wfabcd-100-3
    Job_Owner = me@login
    job_state = R
    Resource_List.nodes = 1:ppn=8
    start_time = Sun Nov 15 16:00:00 2026

Job Id: 89.server.example.org
    Job_Name = wfefgh-5
    job_state = C
"""


def test_qstat_of_openpbs() -> None:
    first, second, held, ended = pbs.listed(printed(OPENPBS))
    assert first == Listed("1234[7].pbs01", "abcd-106", RUNNING, "Job run at Sun Nov 15 at 16:00 on (node7:ncpus=4)",
                           1794758400, 4)
    assert (second.nonce, second.state) == ("", QUEUED) and second.reason.endswith("ncpus(R: 4 A: 0 T: 64)")
    assert (held.state, ended.state) == (HELD, ENDED)


def test_qstat_of_torque() -> None:
    first, ended = pbs.listed(printed(TORQUE))
    assert first == Listed("88[3].server.example.org", "abcd-102", RUNNING, "", 1794758400, 8)
    assert ended.state == ENDED


def test_jobs_that_ended_while_pbs_was_asked() -> None:
    gone = "qstat: Unknown Job Id 1230.pbs01\nqstat: 1231.pbs01 Job has finished, use -x or -H to obtain historical job"
    assert len(pbs.listed(printed(OPENPBS, 35, gone))) == 4
    with pytest.raises(SiteUnreachable):
        pbs.listed(printed(OPENPBS, 255, "qstat: cannot connect to server pbs01 (errno=15010)"))
    with pytest.raises(SiteError):
        pbs.listed(printed("", 1))


@pytest.mark.parametrize(("err", "kind"), [
    ("qsub: would exceed queue generic's per-user limit of jobs in 'Q' state", text.LIMIT),
    ("qsub: Maximum number of jobs already in queue MSG=total number of current user's jobs exceeds the queue limit",
     text.LIMIT),
    ("qsub: Job violates queue and/or server resource limits", text.SHAPE),
    ("qsub: Job exceeds queue and/or server resource limits", text.SHAPE),
    ("qsub: Unknown queue", text.QUEUE),
    ("qsub: Unknown queue MSG=requested queue not found", text.QUEUE),
    ("qsub: Unauthorized Request  MSG=user not authorized", text.DENIED),
    ("qsub: Array job exceeds server or queue size limit", text.ARRAY),
    ("qsub: Invalid account", text.ACCOUNT),
])  # fmt: skip
def test_refusals_of_pbs_are_classified(err: str, kind: str) -> None:
    with pytest.raises(SiteRefused) as refused:
        pbs.submitted(printed("", 1, err))
    assert refused.value.kind == kind


def test_the_id_of_a_pbs_job() -> None:
    assert pbs.submitted(printed("1234[].pbs01\n")) == "1234[].pbs01"
    assert pbs.submitted(printed("hello\n1234.server.example.org\n")) == "1234.server.example.org"


def test_nodes_and_queues_of_pbs() -> None:
    nodes = ("node1\n     state = free\n     resources_available.ncpus = 64\n     resources_assigned.ncpus = 60\n\n"
             "node2\n     state = down,offline\n     resources_available.ncpus = 64\n\n"
             "node3\n     state = job-exclusive\n     np = 8\n     jobs = 0/1.s, 1/2.s\n")
    queues = "Queue: workq\n    state_count = Transit:0 Queued:17 Held:1 Waiting:0 Running:3 Exiting:0 Begun:0\n"
    assert pbs.roomed(printed(f"{nodes}\n--\n{queues}")) == Room(10, 72, 17)


# --- LSF: written after the documentation ----------------------------------------------------------------------

BJOBS = """\
501|7|RUN|4|Nov 15 16:00:00 2026|-|wfabcd-100[7]
501|8|PEND|-|-|Job slot limit reached;Load information unavailable|wfabcd-100[8]
502|0|PSUSP|-|-|The job was suspended by the user while pending|wfefgh-5
503|0|EXIT|1|Nov 15 15:00:00 2026|-|wfefgh-5
504|0|USUSP|1|Nov 15 15:00:00 2026|-|a|b
"""


def test_output_of_bjobs_is_parsed() -> None:
    assert lsf.listed(printed(BJOBS)) == [
        Listed("501[7]", "abcd-106", RUNNING, "", 1794758400, 4),
        Listed("501[8]", "abcd-107", QUEUED, "Job slot limit reached;Load information unavailable"),
        Listed("502", "efgh-5", HELD, "The job was suspended by the user while pending"),
        Listed("503", "efgh-5", ENDED, "EXIT", 1794754800, 1),
        Listed("504", "", RUNNING, "", 1794754800, 1)]
    assert lsf.listed(printed("", 255, "No job found")) == []
    with pytest.raises(SiteUnreachable):
        lsf.listed(printed("", 255, "LSF is down. Please wait ...\nCannot connect to LSF. Please wait ..."))


def test_output_of_bsub_gives_the_job_id() -> None:
    assert lsf.submitted(printed("Job <501> is submitted to queue <normal>.\n")) == "501"
    assert lsf.submitted(printed("Job <502> is submitted to default queue <normal>.\n")) == "502"


@pytest.mark.parametrize(("err", "kind"), [
    ("User <me>: Pending job threshold reached. Retrying in 60 seconds...", text.LIMIT),
    ("nonsense: No such queue. Job not submitted.", text.QUEUE),
    ("normal: Queue has been closed. Job not submitted.", text.QUEUE),
    ("RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.", text.SHAPE),
    ("Bad resource requirement syntax. Job not submitted.", text.SHAPE),
    ("User cannot use the queue. Job not submitted.", text.DENIED),
])  # fmt: skip
def test_refusals_of_lsf_are_classified(err: str, kind: str) -> None:
    with pytest.raises(SiteRefused) as refused:
        lsf.submitted(printed("", 255, err))
    assert refused.value.kind == kind


def test_hosts_and_queues_of_lsf() -> None:
    assert lsf.roomed(printed("ok|64|60\nclosed_Full|64|64\nunavail|-|0\n--\n12\n5\n")) == Room(4, 128, 17)


# --- no batch system -------------------------------------------------------------------------------------------


def test_a_listing_without_its_end_is_none() -> None:
    assert bare.listed(printed("end\n")) == []
    assert bare.listed(printed("abcd-7|R|1794758400\nabcd-8|E|\nlog|R|\nend\n")) == [
        Listed("abcd-7", "abcd-7", RUNNING, "", 1794758400), Listed("abcd-8", "abcd-8", ENDED)]
    for cut in ("", "abcd-7|R|1794758400\n"):
        with pytest.raises(SiteError):
            bare.listed(printed(cut))


# --- whatever is printed ---------------------------------------------------------------------------------------

SEEDS = {
    "slurm": "12_7|R|1|4|None|wfabcd-100\n", "gridengine": QSTAT_XML, "pbs": OPENPBS, "torque": TORQUE, "lsf": BJOBS,
    "htcondor": '[{"ClusterId": 3, "ProcId": 0, "JobStatus": 2}]', "ssh": "abcd-7|R|1\nend\n", "local": "end\n",
}


@st.composite
def mangled(draw: st.DrawFn) -> tuple[str, Answer]:
    """Any text, or a real one with a piece cut out, doubled, or replaced."""
    named = draw(st.sampled_from(sorted(DIALECTS)))
    seed = SEEDS[named]
    low, high = sorted(draw(st.tuples(*[st.integers(0, len(seed))] * 2)))
    piece = draw(st.one_of(st.just(""), st.text(max_size=40), st.just(seed[low:high] * 2), st.just("9" * 400),
                           st.just("\0"), st.just("|" * 50), st.just("[" * 2000)))
    out = draw(st.one_of(st.text(max_size=200), st.just(seed[:low] + piece + seed[high:])))
    return named, Answer(draw(st.sampled_from([0, 0, 0, 1, 127, 153, -9])), out, draw(st.text(max_size=80)))


@given(mangled())
def test_parsers_take_anything(case: tuple[str, Answer]) -> None:
    """Parsers return valid records, or raise one of Windfall's errors."""
    named, answer = case
    speaker = dialect(named)
    try:
        jobs = speaker.listed(answer)
    except SiteError:
        jobs = []
    for job in jobs:
        assert job.state in (QUEUED, RUNNING, HELD, ENDED) and len(job.nonce) <= 20 and len(job.reason) <= 200
        assert job.start is None or isinstance(job.start, int)
        assert "\n" not in job.id + job.reason + job.nonce
        assert list(speaker.cancel([job.id])), "what was listed can be cancelled"
    try:
        assert speaker.submitted(answer)
    except SiteError as error:
        assert "\n" not in error.message and len(error.message) < 400
    assert isinstance(speaker.roomed(answer), Room)
    try:
        assert all(isinstance(each, Balance) for each in speaker.balanced(answer))
    except SiteError:
        pass
    try:
        speaker.cancelled(answer)
    except SiteError:
        pass


@given(st.text(max_size=300))
def test_plain_text_is_one_printable_line(hostile: str) -> None:
    line = text.plain(hostile, 50)
    assert len(line) <= 50 and line.isprintable() or not line.strip() or all(ord(char) > 31 for char in line)
    assert "\n" not in line and "\x1b" not in line and "\u202e" not in line
