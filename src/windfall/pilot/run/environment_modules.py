"""Argument vectors for commands that need environment modules or a container.  This module starts nothing.

A shell loads the modules and then becomes the command, or the container's runtime.  Set-up lines and the command run
inside the container.  A runtime with a daemon (docker) does not die with the pilot: its containers have names, by which
the pilot removes them.
"""

import os

from windfall.errors import BadInput
from windfall.pilot.run import spawn
from windfall.pilot.run.job import VARIABLES

RUNTIMES = ("apptainer", "singularity", "podman", "docker")
DOCKER = "docker://"
NO_MODULES = 197             # exit codes of the shell lines below
NOT_LOADED = 198
_FIND = """\
if ! command -v module >/dev/null 2>&1; then
  for file in "$MODULESHOME/init/sh" "$LMOD_PKG/init/sh" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh \
/etc/profile.d/z00_lmod.sh "$(bash -lc 'echo "$MODULESHOME"' 2>/dev/null | tail -n 1)/init/sh"; do
    if [ -r "$file" ]; then . "$file" >/dev/null 2>&1; fi
    if command -v module >/dev/null 2>&1; then break; fi
  done
fi
if ! command -v module >/dev/null 2>&1; then
  exit {}
fi
""".replace("{}", str(NO_MODULES))


class CommandWrapper:
    """Wraps the commands of a spec that names modules or a container."""

    def __init__(self, plan, gpus, mark):
        spec = plan.spec
        self.modules = [str(name) for name in spec.get("modules") or ()]
        self.image = str(spec.get("container") or "")
        self.gpus = [str(gpu) for gpu in gpus or ()]
        self.passed = sorted({*VARIABLES, *(str(name) for name in spec.get("environment") or ())})
        self.mark = mark
        self.runtime = ""
        if self.image:
            self.runtime = self._find(plan.env.get("PATH", spawn.DEFAULT_PATH))
            self.image = _image(self.image, self.runtime)

    def _find(self, path):
        for name in RUNTIMES:
            for folder in path.split(":"):
                if os.access(os.path.join(folder or ".", name), os.X_OK):
                    return name
        raise BadInput("no container runtime on {} (looked for {})".format(os.uname().nodename, ", ".join(RUNTIMES)))

    def argv(self, command, setup, cwd, attempt):
        argv = spawn.argv_of(command, setup)
        if self.image:
            argv = self._container(cwd, attempt) + [self.image] + argv
        if self.modules:
            lines = [_FIND, 'for name in {}; do module load "$name" || exit {}; done'.format(
                " ".join(map(_quoted, self.modules)), NOT_LOADED)]
            argv = spawn.argv_of(argv, lines)
        return argv

    def _container(self, cwd, attempt):
        if self.runtime in ("apptainer", "singularity"):
            gpus = ["--nv"] if self.gpus else []
            return [self.runtime, "exec", "--bind", "{0}:{0}".format(cwd), "--pwd", cwd] + gpus
        argv = [self.runtime, "run", "--rm", "--name", self.name(attempt), "--volume", "{0}:{0}".format(cwd),
                "--workdir", cwd]
        if self.runtime == "docker":  # its daemon runs as root, and the task's files must not belong to root
            argv += ["--user", "{}:{}".format(os.getuid(), os.getgid())]
        for name in self.passed:  # by name alone: other users can read values in the list of processes
            argv += ["--env", name]
        return argv + self._gpus()

    def _gpus(self):
        if not self.gpus:
            return []
        if self.runtime == "podman":
            return [word for gpu in self.gpus for word in ("--device", "nvidia.com/gpu=" + gpu)]
        return ["--gpus", '"device={}"'.format(",".join(self.gpus))]

    def name(self, attempt):
        return "windfall-{}-{}".format(self.mark, attempt)

    def removal(self, attempt):
        """Return the command that removes a container, or None where the container dies with its process."""
        return [self.runtime, "rm", "-f", self.name(attempt)] if self.runtime in ("podman", "docker") else None

    def explain(self, code, last_line):
        """Return what an exit code of the shell lines means, or ""; `last_line` is the last of the standard error."""
        if not self.modules or code not in (NO_MODULES, NOT_LOADED):
            return ""
        if code == NO_MODULES:
            return "this host has no module command"
        return "the modules {} cannot be loaded{}".format(
            ", ".join(self.modules), ": " + last_line if last_line else "")


def _image(image, runtime):
    """Return an image as its runtime names it: apptainer takes docker:// before an image of a registry, others do not.

    Runtimes other than apptainer refuse a .sif file (BadInput)."""
    if runtime in ("apptainer", "singularity"):
        return image
    if image.endswith(".sif"):
        raise BadInput("the container image {} is for apptainer or singularity, and {} has only {}; name one of a "
                       "registry (docker://NAME)".format(image, os.uname().nodename, runtime))
    return image[len(DOCKER):] if image.startswith(DOCKER) else image


def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"
