"""Windfall: one queue in front of every machine you can log in to.

Nothing is imported before it is used: the command line starts in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windfall.client import Client as Client
    from windfall.client.aio import AsyncClient as AsyncClient
    from windfall.client.functions.executor import Executor as Executor
    from windfall.client.functions.futures import as_completed as as_completed
    from windfall.errors import WindfallError as WindfallError

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "Executor", "WindfallError", "__version__", "as_completed"]

_HOMES = {
    "AsyncClient": "client.aio",
    "Client": "client",
    "Executor": "client.functions.executor",
    "WindfallError": "errors",
    "as_completed": "client.functions.futures",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
