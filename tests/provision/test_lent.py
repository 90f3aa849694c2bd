"""`windfall site test` and `ls` where a site asks for a code: before and after somebody has said it."""

from __future__ import annotations

import json
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import until
from tests.provision.rig import User
from tests.provision.test_login import CODE, person, site, trouble, type_in
from tests.sites.test_trial import read_until
from tests.testbed.base import USER
from tests.testbed.codes import Codes

__all__ = ["person", "site"]
pytestmark = [pytest.mark.slow, pytest.mark.testbed]


def windfall(person: User, *words: str) -> tuple[int, Any]:
    done = subprocess.run([sys.executable, "-m", "windfall", "site", *words, "--json"], env=person.env, text=True,
                          capture_output=True, timeout=120, start_new_session=True)  # no terminal to ask on
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def state(person: User) -> str:
    return str({row["site"]: row["state"] for row in windfall(person, "ls")[1]}["far"])


def test_a_trial_uses_the_connection_that_is_there(person: User, site: Codes) -> None:
    person.serve()
    until(lambda: (person.home / "provision.sock").exists() and "asks for a code" in trouble(person))
    assert state(person) == "needs login"
    code, said = windfall(person, "test", "far")
    failed = [step for step in said["steps"] if not step["ok"]]
    assert code == 1 and [step["name"] for step in failed] == ["reach"]
    assert "asks for a code" in failed[0]["says"] and "windfall site login far" in failed[0]["hint"]

    assert type_in(person, CODE, "login", "far")[0] == 0
    until(lambda: state(person) == "ready")
    code, said = windfall(person, "test", "far")
    assert code == 0 and said["ok"], said
    assert site.tried == [CODE], "the code was said once"
    assert [step["name"] for step in said["steps"] if step["name"] in ("task", "clean")] == ["task", "clean"]

    _interrupted(person, site)


def _interrupted(person: User, site: Codes) -> None:
    """We hang up: whoever runs the trial ends it."""
    text = (person.home / "sites" / "far.toml").read_text()
    person.site("far", "ssh", text.partition("dialect")[2].partition("\n")[2].partition("[[")[0]
                + """setup = ['[ -z "$WINDFALL_NONCE" ] || sleep 300  # in the job, not where its relay is']""")
    until(lambda: "setup" in (person.home / "sites" / "far.toml").read_text() and state(person) == "ready")
    process = subprocess.Popen([sys.executable, "-m", "windfall", "site", "test", "far"], env=person.env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    begun = read_until(process, "start")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "removes its files" in err
    with person.client:
        until(lambda: not [token for token in person.client.tokens() if "trial" in token["user"]], 60)
    (nonce,) = re.findall(r"job (t[0-9a-f]{8}-1)", begun)
    there = Path(pwd.getpwnam(USER).pw_dir)
    assert not list(there.glob(f".windfall/jobs/*/{nonce}")) and not list(there.glob(f"windfall-login-*/*{nonce}*"))
