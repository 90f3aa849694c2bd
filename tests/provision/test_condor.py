"""HTCondor whose nodes do not see the folder: what a pilot needs is sent along with its job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.real import until
from tests.provision import rig
from tests.provision.everywhere import Place
from tests.provision.rig import NAME
from tests.sites.systems import Here
from tests.testbed.base import USER, require
from tests.testbed.condor import Condor
from tests.testbed.login import Login

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


def test_files_go_with_the_job_where_nothing_is_shared(tmp_path: Path) -> None:
    require()
    with rig.started(lambda: Condor(f"n{NAME}", extra="MOUNT_UNDER_SCRATCH = $(LOCAL_DIR)/home")) as pool:
        login = Login(pool.inside / "home", {}, enter=pool.chroot(USER), inside=pool.home)
        with rig.started(lambda: login), rig.user(tmp_path) as person:
            place = Place("pool", "htcondor", Here(pool.chroot(USER)), login)
            person.knows(login, "pool")
            person.site("pool", "htcondor", 'host = "pool"\nmax-pilots = 3\n'
                        'directives = ["should_transfer_files = YES"]\n')
            person.serve()
            bag = person.bag(f"ls {pool.home}; pwd; echo {{n}}", 12)
            assert person.client.wait(bag)["counts"]["succeeded"] == 12
            said = b"".join(person.client.log(bag, 7)).split()
            assert said[-1] == b"8" and b"windfall" not in said, "its home is not to be seen there"
            until(lambda: not place.listed(), 90)
