"""A Grid Engine cell: its master, and this machine as its only host."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from itertools import count
from pathlib import Path

from tests.testbed.base import USER, Bed, eventually, free_ports, slot

ROOT = Path("/var/lib/gridengine")
CELLS = 4  # at a time, per process of tests
_cells = count()
_BOOTSTRAP = """\
admin_user              sgeadmin
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {root}/spooldb
binary_path             /usr/sbin
qmaster_spool_dir       {root}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
_HOST = {"hostname": "localhost", **dict.fromkeys((
    "load_scaling", "complex_values", "user_lists", "xuser_lists", "projects", "xprojects", "usage_scaling",
    "report_variables"), "NONE")}
_ENVIRONMENT = {
    "pe_name": "smp", "slots": "999", "user_lists": "NONE", "xuser_lists": "NONE", "start_proc_args": "NONE",
    "stop_proc_args": "NONE", "allocation_rule": "$pe_slots", "control_slaves": "FALSE", "job_is_first_task": "TRUE",
    "urgency_slots": "min", "accounting_summary": "FALSE", "qsort_args": "NONE"}
_QUEUE = {
    "qname": "main.q", "hostlist": "@allhosts", "seq_no": "0", "load_thresholds": "NONE", "suspend_thresholds": "NONE",
    "nsuspend": "1", "suspend_interval": "00:05:00", "priority": "0", "min_cpu_interval": "00:05:00",
    "processors": "UNDEFINED", "qtype": "BATCH INTERACTIVE", "ckpt_list": "NONE", "pe_list": "smp", "rerun": "TRUE",
    "slots": "8", "tmpdir": "/tmp", "shell": "/bin/sh", "shell_start_mode": "unix_behavior", "notify": "00:00:05",
    "initial_state": "default",
    **dict.fromkeys(("prolog", "epilog", "starter_method", "suspend_method", "resume_method", "terminate_method",
                     "owner_list", "user_lists", "xuser_lists", "subordinate_list", "complex_values", "projects",
                     "xprojects", "calendar"), "NONE"),
    **{f"{kind}_{what}": "INFINITY" for what in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
       for kind in ("s", "h")}}


class GridEngine:
    def __init__(self, name: str, slots: int = 8, limit: int = 0) -> None:
        """Start a cell; `limit`: how many jobs a user may have."""
        self.bed = Bed(f"gridengine-{name}")
        self.cell = f"wf{os.getpid()}{name}"
        self.common = ROOT / self.cell / "common"
        ports = free_ports(2)
        self.env = {"SGE_ROOT": str(ROOT), "SGE_CELL": self.cell, "SGE_QMASTER_PORT": str(ports[0]),
                    "SGE_EXECD_PORT": str(ports[1]), "SGE_ND": "1"}
        try:
            self._files()
            self.bed.start(["sge_qmaster"], self.env)
            eventually(lambda: self._ask("-sh"), "the master comes up", 60)
            self._configure(slots, limit)
            self.bed.start(["sge_execd"], self.env)
            eventually(self.ready, "the host comes up", 60)
        except BaseException:
            print(self.bed.said())
            self.stop()
            raise

    def _files(self) -> None:
        self.common.mkdir(parents=True)
        for name in ("qmaster/job_scripts", "execd", "spooldb"):
            self.bed.folder(name)
        (self.common / "bootstrap").write_text(_BOOTSTRAP.format(root=self.bed.root))
        (self.common / "act_qmaster").write_text("localhost\n")
        (self.common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
        owned = (self.common.parent, *(self.bed.root / name for name in ("qmaster", "execd", "spooldb")))
        self.bed.run(["chown", "-R", "sgeadmin:", *map(str, owned)])
        self.bed.run(["runuser", "-u", "sgeadmin", "--", "sh", "/usr/share/gridengine/scripts/init_cluster", str(ROOT),
                      self.cell, str(self.bed.root / "spooldb"), "sgeadmin"])

    def _ask(self, *arguments: str) -> str:
        done = subprocess.run(["qconf", *arguments], capture_output=True, text=True, env={**os.environ, **self.env})
        return done.stdout if done.returncode == 0 else ""

    def _tell(self, option: str, name: str, fields: dict[str, str]) -> None:
        path = self.bed.write(f"conf/{name}", "".join(f"{key} {value}\n" for key, value in fields.items()))
        self.bed.run(["qconf", option, str(path)], self.env)

    def _changed(self, show: str, change: str, name: str, **values: str) -> None:
        fields = dict(line.split(None, 1) for line in self._ask(show).replace("\\\n", " ").splitlines()
                      if line.strip() and not line.startswith("#"))
        self._tell(change, name, {key: value.strip() for key, value in {**fields, **values}.items()})

    def _configure(self, slots: int, limit: int) -> None:
        group = 20_000 + 100 * (slot() * CELLS + next(_cells) % CELLS)  # group ids that tell its jobs apart
        self._changed("-sconf", "-Mconf", "global", execd_spool_dir=f"{self.bed.root}/execd", max_u_jobs=str(limit),
                      gid_range=f"{group}-{group + 99}", max_aj_tasks="2000", reschedule_unknown="00:00:00")
        self.bed.run(["qconf", "-as", "localhost"], self.env)
        self._tell("-Ae", "host", _HOST)
        self._tell("-Ahgrp", "group", {"group_name": "@allhosts", "hostlist": "localhost"})
        self._tell("-Ap", "pe", _ENVIRONMENT)
        self._tell("-Aq", "queue", {**_QUEUE, "slots": str(slots)})
        self._changed("-ssconf", "-Msconf", "scheduler", schedule_interval="0:0:1", flush_submit_sec="1",
                      flush_finish_sec="1")

    def ready(self) -> bool:
        hosts = subprocess.run(["qhost"], capture_output=True, text=True, env={**os.environ, **self.env})
        return "lx-amd64" in hosts.stdout

    def stop(self) -> None:
        for words in (["qdel", "-f", "-u", USER], ["qconf", "-kej"], ["qconf", "-km"]):
            subprocess.run(words, capture_output=True, timeout=30, env={**os.environ, **self.env})
        self.bed.stop()
        shutil.rmtree(self.common.parent, ignore_errors=True)
