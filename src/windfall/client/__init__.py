"""`Client`, for people's programs; `Api`, one method per request; `http`, the connection below them."""

from __future__ import annotations

from windfall.client.client import Client

__all__ = ["Client"]
