"""Make a real interpreter with parts of its library taken out, as distributions ship it.

`strip` copies the binary and links the standard library beside it, entry by entry.  The copy takes the new place for
its home, so that `sys.executable`, `sys.prefix` and the modules are those of a smaller installation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


def strip(place: Path, without: tuple[str, ...]) -> Path | None:
    """Make the interpreter under `place`; return its path, or None if this interpreter cannot be moved."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    stdlib = Path(sysconfig.get_path("stdlib"))
    library, program = place / "lib" / version, place / "bin" / version
    (library / "site-packages").mkdir(parents=True)
    program.parent.mkdir()
    shutil.copy2(os.path.realpath(sys.executable), program)
    for entry in stdlib.iterdir():
        if entry.name not in (*without, "site-packages", "dist-packages", "EXTERNALLY-MANAGED"):
            (library / entry.name).symlink_to(entry)
    return program if _works(program, without) else None


def give_pip(program: Path, requirement: str = "pip") -> None:
    """Install pip for a stripped interpreter, with the pip of this one."""
    asked = [program, "-I", "-c", "import site; print(site.getsitepackages()[0])"]  # Debian's is another
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    site.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(site), requirement], check=True)


def _works(program: Path, without: tuple[str, ...]) -> bool:
    code = f"import ssl, sys; sys.exit(sys.prefix != {str(program.parent.parent)!r})"
    if subprocess.run([program, "-I", "-c", code], capture_output=True).returncode:
        return False
    absent = [subprocess.run([program, "-I", "-c", f"import {name}"], capture_output=True) for name in without]
    return all(each.returncode for each in absent)
