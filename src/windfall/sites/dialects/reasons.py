"""The reason codes of batch systems, and a plain sentence for each.

A batch system explains a waiting, held or ended job by a code.  `slurm`, `gridengine` and `htcondor` return the code
followed by its sentence, for example "Priority: jobs with a higher priority go first".  PBS and LSF write sentences
themselves.
"""

from __future__ import annotations

import re

# --- Slurm: the reasons of squeue's column `%r` ----------------------------------------------------------------

SLURM: dict[str, str] = {
    "AccountNotAllowed": "the partition does not admit your account",
    "AccountingPolicy": "a limit of your account or quality of service is reached",
    "AssociationJobLimit": "your account has as many jobs as it may have",
    "AssociationResourceLimit": "your account has reached the limit of some resource",
    "AssociationTimeLimit": "your account has used up its time",
    "BadConstraints": "no node of the partition has what the job asks for",
    "BeginTime": "the job's earliest start time has not come yet",
    "BurstBufferOperation": "an operation on the job's burst buffer failed",
    "BurstBufferResources": "the burst buffer has no free space",
    "BurstBufferStageIn": "the job's files are being copied into the burst buffer",
    "Cleaning": "the nodes are cleaning up after the job's previous run",
    "Constraints": "no node of the partition has what the job asks for",
    "DeadLine": "the job could not end before its deadline",
    "Dependency": "the job waits for another job",
    "DependencyNeverSatisfied": "the job waits for another job that failed",
    "FedJobLock": "the clusters of the federation are choosing one for the job",
    "FrontEndDown": "no front-end node is up",
    "InactiveLimit": "the job was inactive for longer than the site allows",
    "InvalidAccount": "the account does not exist, or you may not charge it",
    "InvalidQOS": "the quality of service does not exist, or you may not use it",
    "JobArrayTaskLimit": "as many jobs of the array run as may run at once",
    "JobHeldAdmin": "an administrator of the site holds the job",
    "JobHeldUser": "the job was submitted on hold, or you have held it",
    "JobHoldMaxRequeue": "the job was started too often without success, and is held",
    "JobLaunchFailure": "a node could not start the job",
    "Licenses": "the job waits for a licence",
    "MaxMemPerLimit": "the job asks for more memory than the partition allows per node or core",
    "NodeDown": "a node that the job needs is down",
    "NonZeroExitCode": "the job's script ended with an error",
    "OutOfMemory": "the job used more memory than it had",
    "PartitionConfig": "the job's size or time does not fit the partition",
    "PartitionDown": "the site has stopped the partition",
    "PartitionInactive": "the partition starts no jobs now",
    "PartitionNodeLimit": "the job asks for more nodes than the partition has or allows, or they are down",
    "PartitionTimeLimit": "the job asks for more wall time than the partition allows",
    "PowerNotAvail": "the site has not enough electrical power now",
    "PowerReserved": "the site keeps its electrical power for other jobs",
    "Priority": "jobs with a higher priority go first",
    "Prolog": "the site's script that prepares the nodes is still running",
    "QOSJobLimit": "your quality of service has as many jobs as it may have",
    "QOSNotAllowed": "the partition or account does not admit your quality of service",
    "QOSResourceLimit": "your quality of service has reached the limit of some resource",
    "QOSTimeLimit": "your quality of service has used up its time",
    "QOSUsageThreshold": "your use is above the threshold of your quality of service",
    "RaisedSignal": "a signal ended the job",
    "ReqNodeNotAvail": "nodes that the job needs are down, drained or reserved",
    "Reservation": "the job waits for its reservation to begin",
    "ReservationDeleted": "the job's reservation was deleted",
    "ReservationInvalid": "the job's reservation does not exist, or you may not use it",
    "Resources": "the job waits for free nodes",
    "SchedDefer": "the site starts no jobs at once at submission",
    "SystemFailure": "the batch system, a file system or the network failed",
    "TimeLimit": "the job reached its wall time",
    "WaitingForScheduling": "the scheduler has not looked at the job yet",
    "launch failed requeued held": "a node could not start the job, and the job is held",
}

_SLURM_LIMIT = re.compile(
    r"(Assoc|QOS)?(Grp|Max|Min)(CPU|Cpu|Node|Mem|Memory|GRES|Energy|License|BB|Billing|Unknown|Jobs|SubmitJobs?"
    r"|Wall|WallDuration)((?:Run)?Minutes)?(PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)
"""The codes of limits are made of whose limit it is, its kind, the resource, and what it bounds."""

_OWNERS = {"Assoc": "account", "QOS": "quality of service", None: "quality of service"}
_RESOURCES = {  # the amount, and the amount multiplied by time
    "cpu": ("cores", "core-minutes"), "node": ("nodes", "node-minutes"), "mem": ("memory", "memory-minutes"),
    "memory": ("memory", "memory-minutes"), "gres": ("GPUs or other devices", "device-minutes"),
    "energy": ("energy", "energy"), "license": ("licences", "licence-minutes"),
    "bb": ("burst buffer", "burst-buffer-minutes"), "billing": ("billed units", "billed unit-minutes"),
    "unknown": ("of some resource", "of some resource over time"), "jobs": ("jobs", "jobs"),
    "submitjob": ("submitted jobs", "submitted jobs"), "submitjobs": ("submitted jobs", "submitted jobs"),
    "wall": ("wall time", "wall time"), "wallduration": ("wall time", "wall time"),
}
_BOUNDED = {"PerUser": " per user", "PerAccount": " per account", "PerJob": " per job", "PerNode": " per node"}


def slurm(reason: str) -> str:
    """Return Slurm's reason with a sentence; words after a comma, such as the names of nodes, stay in it."""
    code = reason.partition(",")[0].strip()
    sentence = SLURM.get(code) or _slurm_limit(code)
    return f"{reason}: {sentence}" if sentence else reason


def _slurm_limit(code: str) -> str:
    """Return the sentence of a limit's code, such as QOSMaxJobsPerUserLimit; "" for any other code."""
    found = _SLURM_LIMIT.fullmatch(code)
    if not found:
        return ""
    owner, kind, resource, time, bounded = found.groups()
    noun, what = f"your {_OWNERS[owner]}", _RESOURCES[resource.lower()][bool(time)]
    if kind == "Min":
        return f"{noun} demands more {what} than the job asks for"
    if kind == "Grp":
        return f"{noun} allows no more {what} for all its jobs together"
    if bounded in ("PerJob", "PerNode"):
        return f"the job asks for more {what} than {noun} allows{_BOUNDED[bounded]}"
    return f"{noun} allows no more {what}{_BOUNDED.get(bounded, '')}"


SLURM_ENDS: dict[str, str] = {
    "BF": "a node failed to boot",
    "CA": "the job was cancelled",
    "CD": "the job's script ended without an error",
    "DL": "the job reached its deadline",
    "F": "the job's script ended with an error",
    "NF": "a node of the job failed",
    "OOM": "the job used more memory than it had",
    "PR": "the job was preempted",
    "RV": "the job was given to another cluster of the federation",
    "TO": "the job reached its wall time",
}


def slurm_end(state: str, reason: str) -> str:
    """Return how a job of Slurm ended: the code of its state with a sentence, and the reason if there is one."""
    end = f"{state}: {SLURM_ENDS[state]}" if state in SLURM_ENDS else state
    if not reason:
        return end
    same = SLURM.get(reason) == SLURM_ENDS.get(state)
    return f"{end} ({reason if same else slurm(reason)})"


# --- Grid Engine: the letters of qstat's column `state` --------------------------------------------------------

GRIDENGINE: dict[str, str] = {
    "E": "the job's start failed: qstat -j tells why",
    "h": "the job is held: you, an operator or another job that it waits for must release it",
    "d": "the job is being deleted",
    "s": "the job is suspended",
    "S": "the job is suspended with its queue",
    "T": "the job is suspended, since a load threshold is exceeded",
    "P": "the job is preempted",
    "R": "the job was started again",
}  # q, w, r and t, for a job that waits, runs or is transferred, need no sentence


def gridengine(state: str) -> str:
    """Return a job's state with sentences for its letters; "" if none of them needs one."""
    sentences = list(dict.fromkeys(sentence for letter, sentence in GRIDENGINE.items() if letter in state))
    return f"{state}: {'; '.join(sentences)}" if sentences else ""


# --- HTCondor: HoldReasonCode, and LastRejMatchReason ----------------------------------------------------------

HTCONDOR_HOLDS: dict[int, str] = {
    1: "you, or an administrator, held the job",
    3: "the job's own rule (periodic_hold or on_exit_hold) held it",
    4: "the job's credentials are invalid",
    5: "a rule of the job could not be evaluated",
    6: "the machine could not start the job's script",
    7: "the machine could not open the job's log",
    8: "the machine could not open the job's input",
    9: "the machine could not open the job's output stream",
    10: "the machine could not open the job's input stream",
    11: "the transfer of the job's files failed",
    12: "a machine could not receive the job's files",
    13: "a machine could not send the job's files",
    14: "the machine could not use the job's working directory",
    15: "the job was submitted on hold",
    16: "the job's input files are being spooled",
    18: "the transfer of the job's files failed",
    19: "the machine's script that prepares jobs failed",
    20: "the job missed its start time",
    21: "the machine held the job",
    22: "HTCondor could not open the job's event log",
    23: "the machine has no account for you",
    24: "HTCondor has no program that can supervise the job",
    25: "the job's schedule is invalid",
    26: "a rule of the site held the job",
    27: "a rule of the site could not be evaluated",
    32: "the job's input files are larger than the site allows",
    33: "the job's output files are larger than the site allows",
    34: "the job used more memory, disk or cores than it asked for",
    35: "the container image cannot be used",
    36: "the job could not be checkpointed",
    43: "the script before the job failed",
    44: "the script after the job failed",
    45: "the machine's test of Singularity failed",
    46: "the job reached its longest time (allowed_job_duration)",
    47: "the job reached its longest time on a machine (allowed_execute_duration)",
}

HTCONDOR_REJECTIONS: dict[str, str] = {
    "no match found": "no free machine meets the job's requirements",
    "insufficient priority": "the free machines go to users with a better priority",
    "PREEMPTION_REQUIREMENTS == False": "the site does not take machines away from running jobs for yours",
    "submitter limit exceeded": "your share of the pool is in use",
    "concurrency limit": "as many jobs run under this concurrency limit as may run",
    "network bandwidth not available": "the network has no free capacity for the job's files",
}


def htcondor_hold(code: int | None, reason: str) -> str:
    """Return why a job is held: the number of the reason with its sentence, and HTCondor's own words."""
    if code not in HTCONDOR_HOLDS:
        return reason
    words = f"HoldReasonCode {code}: {HTCONDOR_HOLDS[code]}"
    return f"{words} ({reason})" if reason else words


def htcondor_rejection(reason: str) -> str:
    """Return HTCondor's words about a job without a machine, with a sentence."""
    sentence = next((text for words, text in HTCONDOR_REJECTIONS.items() if reason.startswith(words)), "")
    return f"{reason}: {sentence}" if sentence else reason
