"""An HTCondor pool in its own Debian and its own namespaces: when their first process ends, all others end with it,
jobs included, and the mounts disappear.  The folder must be a mount point, or HTCondor holds every job."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.testbed.base import CHROOT, USER, Bed, eventually, free_ports

_CONF = """\
LOCAL_DIR = {folder}
RELEASE_DIR = /usr
LIBEXEC = /usr/libexec/condor
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LOG = {folder}/log
SPOOL = {folder}/spool
EXECUTE = {folder}/execute
LOCK = {folder}/lock
RUN = {folder}/run
use security:recommended_v9_0
use ROLE: CentralManager
use ROLE: Submit
use ROLE: Execute
NETWORK_INTERFACE = 127.0.0.1
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:{port}
SHARED_PORT_PORT = {port}
COLLECTOR_NAME = {name}
SCHEDD_NAME = {name}
STARTD_NAME = {name}
UID_DOMAIN = windfall.test
FILESYSTEM_DOMAIN = windfall.test
TRUST_UID_DOMAIN = True
ENABLE_IPV6 = False
NUM_CPUS = {cpus}
MEMORY = 4000
START = TRUE
SUSPEND = FALSE
PREEMPT = FALSE
KILL = FALSE
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = TRUE
NUM_SLOTS_TYPE_1 = 1
MOUNT_PRIVATE_DEV_SHM = False
SCHEDD_INTERVAL = 2
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_MIN_INTERVAL = 1
UPDATE_INTERVAL = 5
PERIODIC_EXPR_INTERVAL = 2
MAX_PERIODIC_EXPR_INTERVAL = 4
RUNBENCHMARKS = 0
SEC_PASSWORD_DIRECTORY = {folder}/passwords.d
SEC_TOKEN_SYSTEM_DIRECTORY = {folder}/tokens.d
ALLOW_WRITE = *
ALLOW_READ = *
ALLOW_DAEMON = condor@$(UID_DOMAIN)
ALLOW_NEGOTIATOR = condor@$(UID_DOMAIN)
ALLOW_ADMINISTRATOR = root@$(UID_DOMAIN) condor@$(UID_DOMAIN)
{extra}
"""


class Condor:
    def __init__(self, name: str, cpus: int = 8, extra: str = "") -> None:
        self.bed = Bed(f"condor-{name}")
        self.folder = f"/pools/{self.bed.root.name}"
        self.inside = CHROOT / self.folder.lstrip("/")
        self.env = {"CONDOR_CONFIG": f"{self.folder}/condor_config"}
        self.home = f"{self.folder}/home"
        try:
            self._files(name, cpus, extra)
            inside = " && ".join((f"mount --bind {CHROOT} {CHROOT}", f"mount -t proc proc {CHROOT}/proc",
                                  f"mount --bind /dev {CHROOT}/dev"))
            self.bed.start(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                            f'{inside} && {{ "$@" & wait; }}', "sh", *self.chroot(), "condor_master", "-f"],
                           death="KILL")
            eventually(self.ready, "the pool comes up", 60)
        except BaseException:
            print(self.said())
            self.stop()
            raise

    def chroot(self, user: str = "") -> list[str]:
        who = [f"--userspec={user}:{user}"] if user else []
        return ["chroot", *who, str(CHROOT), "env", "-C", self.home if user else "/", f"HOME={self.home}",
                f"USER={user or 'root'}", *(f"{key}={value}" for key, value in self.env.items())]

    def _files(self, name: str, cpus: int, extra: str) -> None:
        for each in ("log", "spool", "execute", "lock", "run", "tokens.d", "passwords.d", "home"):
            (self.inside / each).mkdir(parents=True)
        (CHROOT / "etc/hosts").write_text(Path("/etc/hosts").read_text())
        text = _CONF.format(folder=self.folder, name=name, port=free_ports(1)[0], cpus=cpus, extra=extra)
        (self.inside / "condor_config").write_text(text)
        self.bed.run(["chroot", str(CHROOT), "chown", "-R", "condor:", self.folder])
        self.bed.run(["chroot", str(CHROOT), "chown", f"{USER}:", self.home])

    def ready(self) -> bool:
        slots = subprocess.run([*self.chroot(), "condor_status", "-af", "Name"], capture_output=True, text=True)
        return "slot" in slots.stdout

    def said(self) -> str:
        logs = sorted((self.inside / "log").glob("*Log")) if self.inside.exists() else []
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in logs)

    def stop(self) -> None:
        for daemon in self.bed.daemons:
            daemon.kill()
        self.bed.stop()
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.inside)], check=False)
