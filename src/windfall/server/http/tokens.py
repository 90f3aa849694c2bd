"""Tokens: how the server makes them, and the hash under which it stores them."""

from __future__ import annotations

import base64
import hashlib
import os

PREFIX = "wf_"


def new_token() -> str:
    return PREFIX + base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
