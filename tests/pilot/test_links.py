"""Large inputs: linked where nobody can write through the link, else copied."""

import hashlib
import os
import shutil
import tempfile
import traceback

import pytest

from windfall.pilot.files import links, staging

NOBODY = 65534
DATA = b"x" * links.LEAST
DIGEST = hashlib.sha256(DATA).hexdigest()


class Source:
    """A server that has one blob."""

    closing = staticmethod(lambda: False)
    fetched = 0

    def fetch(self, digest, size, path, attempt):
        self.fetched += 1
        with open(path, "wb") as file:
            file.write(DATA)


class Host:
    """A pilot's cache, on a file system that does not clone."""

    def __init__(self, folder):
        self.folder, self.source = folder, Source()
        self.cache = staging.Cache(os.path.join(folder, "cache"))
        self.cache.clones = False

    def stage(self, task, mode=0o644, **fields):
        """Put the input into a task's directory; return its path there."""
        folder = os.path.join(self.folder, task)
        fields["inputs"] = [["in.dat", DIGEST, len(DATA), mode]]
        staging.stage_in(folder, fields.get, self.cache, self.source, 1)
        return os.path.join(folder, "in.dat")


def run_as_plain_user(function):
    """Call `function(host)` as a user whom modes of files stop: in a child process, where this is root's."""
    folder = tempfile.mkdtemp()
    try:
        if os.geteuid():
            function(Host(folder))
            return
        os.chmod(folder, 0o777)
        child = os.fork()
        if not child:
            failed = 1
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                function(Host(folder))
                failed = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0, "the child's traceback is above"
    finally:
        shutil.rmtree(folder)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def test_tasks_share_a_large_input_and_cannot_write_to_it():
    def check(host):
        one, other = host.stage("1"), host.stage("2")
        assert os.path.samefile(one, other) and host.source.fetched == 1
        with pytest.raises(PermissionError):
            open(one, "r+b").close()
        os.unlink(one)  # a task may replace it
        with open(one, "wb") as file:
            file.write(b"mine")
        assert content(other) == content(host.stage("3")) == DATA and host.source.fetched == 1

    run_as_plain_user(check)


@pytest.mark.parametrize("key", ["outputs", "checkpoint"])
def test_task_gets_a_copy_of_an_input_that_it_brings_home(key):
    def check(host):
        one, other = host.stage("1", **{key: ["./in.dat"]}), host.stage("2")
        with open(one, "r+b") as file:
            file.write(b"changed")
        assert content(other) == content(host.stage("3")) == DATA and host.source.fetched == 1

    run_as_plain_user(check)


def test_program_and_data_with_one_content_keep_their_modes():
    def check(host):
        program, data = host.stage("1", mode=0o755), host.stage("2", mode=0o644)
        assert os.access(program, os.X_OK) and not os.access(data, os.X_OK)
        assert os.path.samefile(program, host.stage("3", mode=0o755))

    run_as_plain_user(check)


def test_input_that_a_task_has_forced_open_is_fetched_again():
    def check(host):
        forced = host.stage("1")
        os.chmod(forced, 0o644)
        with open(forced, "r+b") as file:
            file.write(b"changed")
        assert content(host.stage("2")) == DATA and host.source.fetched == 2

    run_as_plain_user(check)


def test_cached_file_of_an_older_pilot_is_kept_if_its_content_is_right():
    def check(host):
        path = host.stage("1")
        shutil.rmtree(os.path.dirname(path))
        os.utime(os.path.join(host.cache.folder, DIGEST), None)
        assert content(host.stage("2")) == DATA and host.source.fetched == 1

    run_as_plain_user(check)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_gets_copies_because_no_mode_stops_it(tmp_path):
    host = Host(str(tmp_path))
    one = host.stage("1")
    with open(one, "r+b") as file:
        file.write(b"changed")
    assert content(host.stage("2")) == DATA and host.source.fetched == 1
