"""Windfall: one queue in front of every machine you can log in to.

Nothing is imported before it is used: the command line starts in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client as Client
    from .errors import WindfallError as WindfallError

__version__ = "0.1.0"
__all__ = ["Client", "WindfallError", "__version__"]

_HOMES = {"Client": "client", "WindfallError": "errors"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
