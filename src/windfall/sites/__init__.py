"""Sites: places where pilots can be started.

A *dialect* (`slurm`, `gridengine`, `htcondor`, `pbs`, `lsf`, `bare`) builds commands and parses text, and does nothing
else.  A *channel* (`here`, `secure`) runs commands, on this machine or over SSH.  Neither decides anything: who starts
how many pilots where is decided elsewhere, committed, and carried out through these.
"""
