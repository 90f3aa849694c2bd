"""Every decision Windfall takes.  Pure: no clock, no file, no socket, no randomness but what it is given.

Rules
  * `Core.step(now, events)` is the only way in; it returns facts, effects and the time it wants to be woken.
  * A decision makes facts; `apply` folds a fact into the state and decides nothing.  Replay is `apply` alone.
  * Iteration is over lists, dicts and arrays in a defined order, never over sets; ties go to the lower number.
  * Times are integers, milliseconds, and never run backwards: the driver sees to that.
"""
