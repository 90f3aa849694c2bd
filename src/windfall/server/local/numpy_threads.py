"""Loading NumPy without its linear algebra's threads.

OpenBLAS starts a thread per core when it is loaded, which on a login node is a hundred; nothing here multiplies
matrices.  The variable that prevents it must not reach the tasks, so it is there for the moment of loading only.
"""

from __future__ import annotations

import os
from importlib import import_module

_VARIABLE = "OPENBLAS_NUM_THREADS"


def load() -> None:
    """To be called before anything else imports NumPy."""
    already = os.environ.get(_VARIABLE)
    os.environ.setdefault(_VARIABLE, "1")
    try:
        import_module("numpy")
    finally:
        if already is None:
            del os.environ[_VARIABLE]
