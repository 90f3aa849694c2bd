"""The simulator: the core in virtual time, and models of what surrounds it.

`models/server.py` calls `Core.step`; `world.py` connects pilots and sites to it; `play.py` builds a world from a
scenario.
"""
