"""An OpenSSH server that asks for a one-time code after the key, by PAM, as sites do."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.sshd import Sshd

_RULES = """\
auth required pam_exec.so expose_authtok quiet {check}
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
"""
_CHECK = """\
#!/bin/sh
code=$(tr -cd 0-9)
echo "$code" >>{folder}/tried
[ -n "$code" ] && mv {folder}/good/"$code" {folder}/used/
"""
_FIRST = """\
UsePAM yes
KbdInteractiveAuthentication yes
AuthenticationMethods publickey,keyboard-interactive:pam
MaxAuthTries 6
"""


class Codes:
    def __init__(self, *codes: str, extra: str = "", address: str = "127.0.0.1", prefix: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="windfall-codes-"))
        for name in ("good", "used"):
            (self.folder / name).mkdir()
        for code in codes:
            self.add(code)
        check = self.folder / "check"
        check.write_text(_CHECK.format(folder=self.folder))
        check.chmod(0o700)
        # sshd asks PAM under the name by which it was started.
        self.service = Path(f"/etc/pam.d/wfsshd{os.getpid()}{os.urandom(2).hex()}")
        self.service.write_text(_RULES.format(check=check))
        program = self.folder / self.service.name
        program.symlink_to("/usr/sbin/sshd")
        try:
            self.sshd = Sshd(extra, address=address, prefix=prefix, first=_FIRST, program=str(program))
        except BaseException:
            self._remove()
            raise

    def add(self, code: str) -> None:
        (self.folder / "good" / code).touch()

    @property
    def tried(self) -> list[str]:
        """Return the codes that users tried, in order."""
        path = self.folder / "tried"
        return path.read_text().split() if path.exists() else []

    @property
    def accepted(self) -> int:
        """Return how many logins succeeded."""
        return (self.sshd.bed.root / "daemons.log").read_text().count("Accepted keyboard-interactive")

    @property
    def calls(self) -> int:
        """Return how many logins came as far as the code, successful or not."""
        return (self.sshd.bed.root / "daemons.log").read_text().count("Partial publickey ")

    def _remove(self) -> None:
        self.service.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        self.sshd.stop()
        self._remove()
