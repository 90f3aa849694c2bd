"""A Slurm cluster: its own munge daemon, one controller, and nodes that are all this machine."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from tests.testbed.base import USER, Bed, end, eventually, free_ports
from tests.testbed.network import Network, inside

_CONF = """\
ClusterName={name}
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters={scheduler}
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=3
MinJobAge=120
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
MaxArraySize=2001
JobRequeue=1
{extra}
"""


class Slurm:
    def __init__(self, name: str, nodes: int = 2, cpus: int = 4, extra: str = "", scheduler: str = "",
                 network: Network | None = None) -> None:
        """Start on loopback, or with the controller on the network's head node and the nodes on its nodes."""
        self.network = network
        self.head = inside(network.head_name) if network else ()
        nodes = len(network.nodes) if network else nodes
        self.bed = Bed(f"slurm-{name}")
        self.name, self.nodes = name, [f"{name}{number}" for number in range(nodes)]
        self._conf(cpus, extra, scheduler)
        self.env = {"SLURM_CONF": str(self.conf)}
        self.controller: subprocess.Popen[bytes]
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._munge()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            eventually(self.ready, f"Slurm {name} comes up", 60)
        except BaseException:
            print(self.bed.said())
            self.stop()
            raise

    def _conf(self, cpus: int, extra: str, scheduler: str) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(1 + len(self.nodes))
        quick = "sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=10000"
        text = _CONF.format(name=self.name, host=host, port=ports[0], root=self.bed.root, extra=extra,
                            address=self.network.inner if self.network else "127.0.0.1",
                            scheduler=",".join(filter(None, (quick, scheduler))))
        places = self.network.nodes if self.network else ["127.0.0.1"] * len(self.nodes)
        for node, port, place in zip(self.nodes, ports[1:], places, strict=True):
            text += f"NodeName={node} NodeHostname={host} NodeAddr={place} Port={port} CPUs={cpus} RealMemory=2000\n"
        text += "PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP\n"
        text += "PartitionName=short Nodes=ALL MaxTime=5 DefaultTime=5 State=UP\n"
        self.conf = self.bed.write("slurm.conf", text)
        self.bed.folder("state", mode=0o700)

    def _munge(self) -> None:
        folder = self.bed.folder("munge")
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.bed.start(["munged", "--foreground", "--force", f"--socket={folder}/socket", f"--key-file={key}",
                        f"--log-file={folder}/munged.log", f"--pid-file={folder}/pid", f"--seed-file={folder}/seed"])
        eventually((folder / "socket").exists, "munge comes up", 20)

    def start_controller(self) -> None:
        self.controller = self.bed.start([*self.head, "slurmctld", "-D"], self.env)

    def start_node(self, node: str) -> None:
        where = inside(self.network.node_names[self.nodes.index(node)]) if self.network else ()
        self.workers[node] = self.bed.start([*where, "slurmd", "-D", "-N", node], self.env)

    def ask(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.head, *argv], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **self.env})

    def ready(self) -> bool:
        states = self.ask("sinfo", "-h", "-N", "-p", "normal", "-o", "%T")
        return states.returncode == 0 and states.stdout.split() == ["idle"] * len(self.nodes)

    def said(self) -> str:
        return self.bed.said()

    def answers(self) -> bool:
        asked = self.ask("scontrol", "ping")
        return asked.returncode == 0 and " is UP" in asked.stdout

    def stop_controller(self) -> None:
        end(self.controller)

    def stop(self) -> None:
        """End the jobs first, for their processes are not children of this one."""
        self.ask("scancel", "-u", USER, "-s", "KILL")
        self.ask("scancel", "-u", USER)
        try:
            eventually(self._empty, "jobs end", 20)
        except (AssertionError, subprocess.SubprocessError):
            pass
        self.bed.stop()

    def _empty(self) -> bool:
        listed = self.ask("squeue", "-h", "-t", "R,CG,PD")
        return listed.returncode != 0 or not listed.stdout.strip()


def torque_bin(bed: Bed, installed: Path) -> Path:
    """Return a folder with PBS's commands over Slurm and all other commands, but for those of Grid Engine with the
    same names."""
    folder = bed.folder("torque")
    for source in Path("/usr/bin").iterdir():
        if not source.name.startswith("q"):
            (folder / source.name).symlink_to(source)
    for source in (installed / "torque/usr/bin").iterdir():  # copies find Slurm's commands
        (folder / source.name).write_bytes(source.read_bytes())
        (folder / source.name).chmod(0o755)
    return folder
