"""Real batch systems for tests, on one machine, on loopback: Slurm clusters, Grid Engine cells, an HTCondor pool in a
small Debian of its own, PBS's commands over Slurm, OpenSSH servers; several of each if a test needs them.

`install` beside this file installs them (root, Debian 12).  Every daemon stays in the foreground as a child of the
test that started it and is ended by its process id.  Without root or packages the tests are skipped and say why;
where WINDFALL_TESTBED=1 is set, they fail.
"""
