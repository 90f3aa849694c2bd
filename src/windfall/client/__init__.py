"""What talks to a server: `Client` for people's programs, `http` below it."""

from __future__ import annotations

from windfall.client.client import Client

__all__ = ["Client"]
