"""A site that asks for a one-time code, used for an hour after one login: `python -m tests.provision.hour [MINUTES]`

Every half a minute a bag of small tasks, for which pilots come and go; commands, files and the relay all go over the
one connection.  The code was good for one login, so a second connection could not be made.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.live.real import until
from tests.provision import test_login as login
from tests.testbed.codes import Codes

PAUSE_S = 30.0


def main(minutes: float) -> None:
    site = Codes(login.CODE)
    try:
        with tempfile.TemporaryDirectory() as folder, login.user_of(Path(folder), site) as person:
            person.serve()
            until((person.home / "provision.sock").exists)
            code, said = login.type_in(person, login.CODE, "login", "far")
            assert code == 0, said
            begun, bags = time.monotonic(), 0
            while time.monotonic() - begun < minutes * 60:
                bag = person.bag("sleep 0.1; echo {n}", 20)
                assert person.client.wait(bag)["counts"]["succeeded"] == 20
                bags += 1
                assert site.tried == [login.CODE], site.tried
                time.sleep(PAUSE_S)
            print(f"{(time.monotonic() - begun) / 60:.1f} minutes after one login: {bags} bags, "
                  f"{len(person.client.pilots())} pilots known, {site.accepted} login, the code said once")
            assert site.accepted == 1
    finally:
        site.stop()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
