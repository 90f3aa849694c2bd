"""Why a site refuses an SSH login, as far as the user's own keys tell.  SSH servers give no reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import asyncssh

from windfall.sites.dialects.text import plain

_USER = 1  # a certificate for users, in OpenSSH's numbers


def explain(host: str, user: str = "", port: int = 0) -> tuple[str, str]:
    """Return what may be wrong with the keys for that host, and what to do."""
    try:
        keys = _keys(host, user, port)
    except (OSError, ValueError, asyncssh.Error) as error:
        return f"one of your SSH keys cannot be read: {plain(error)}", "`ssh -v` to that host tells more"
    for key in keys:
        if wrong := _certificate(key):
            return wrong, "get a new one from the site, as you got the old one"
    if keys or os.environ.get("SSH_AUTH_SOCK"):
        shown = ", ".join(filter(None, map(_name, keys))) or "those of your agent"
        return f"it accepts none of your keys ({shown})", f"add one there: ssh-copy-id {_login(host, user, port)}"
    return _no_key(_login(host, user, port))


def _keys(host: str, user: str, port: int) -> list[Any]:
    """Return the keys without passphrase that asyncssh would use for a host."""
    options = asyncssh.SSHClientConnectionOptions(
        config=(), host=host, **({"username": user} if user else {}), **({"port": port} if port else {}))
    return list(options.client_keys or ())


def _no_key(login: str) -> tuple[str, str]:
    locked = [path.name for path in sorted(Path("~/.ssh").expanduser().glob("id_*")) if path.suffix != ".pub"]
    if locked:
        return f"your key {locked[0]} has a passphrase, and no agent knows it", "run ssh-add, then try again"
    return "you have no SSH key", f"make one and copy it there: ssh-keygen, then ssh-copy-id {login}"


def _certificate(key: Any) -> str:
    """Return what is wrong with a key's certificate; "" if it is valid, or the key has none."""
    certificate = getattr(key, "_cert", None)
    try:
        if certificate is not None:
            certificate.validate(_USER, None)
    except (AttributeError, TypeError):
        return ""  # a certificate of another kind
    except ValueError as error:
        return f"the SSH certificate {_name(key)} cannot be used: {plain(error).lower()}"
    return ""


def _name(key: Any) -> str:
    name = getattr(key, "_filename", None) or b""
    return plain(os.fsdecode(name).rpartition("/")[2], 60)


def _login(host: str, user: str, port: int) -> str:
    return (f"-p {port} " if port else "") + (f"{user}@" if user else "") + host
