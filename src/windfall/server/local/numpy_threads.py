"""Load NumPy without the threads of its linear algebra.

OpenBLAS starts a thread per core when it is loaded, a hundred on a login node, and the server multiplies no matrices.
A variable prevents the threads.  Tasks must not inherit the variable, so it is set only while NumPy loads.
"""

from __future__ import annotations

import os
from importlib import import_module

_VARIABLE = "OPENBLAS_NUM_THREADS"


def load() -> None:
    """Load NumPy; call this before any other module imports it."""
    already = os.environ.get(_VARIABLE)
    os.environ.setdefault(_VARIABLE, "1")
    try:
        import_module("numpy")
    finally:
        if already is None:
            del os.environ[_VARIABLE]
