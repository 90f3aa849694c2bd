"""Sites: places where pilots can be started.

A *dialect* (a row of `dialects/table.py`) builds a batch system's commands and parses its output, and does nothing
else.  A *channel* (`here`, `ssh`) runs commands, on this machine or over SSH.  Neither
decides anything: the core decides how many pilots to start where, and a tender carries that out through these two.
"""
