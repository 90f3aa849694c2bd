"""Small parts of the pilot: capture, slot, link, ticket, host, spawn without posix_spawn."""

import os
import socket
import threading

import pytest

from windfall.errors import BadInput, TrustError
from windfall.pilot import host, ticket
from windfall.pilot.files import staging
from windfall.pilot.main import parse
from windfall.pilot.net import lanes, link, routes
from windfall.pilot.run import slot, spawn
from windfall.pilot.run.capture import GAP, Capture


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, 39, 40, 41, 1000])
@pytest.mark.parametrize("piece", [1, 7, 500])
def test_capture_keeps_all_or_both_ends(size, piece):
    data = bytes(33 + i % 90 for i in range(size))
    capture = Capture(10)
    for start in range(0, size, piece):
        capture.add(data[start:start + piece])
    assert capture.size == size
    said = "" if size <= 20 else GAP.format(size - 20)
    assert capture.kept() == (data if size <= 20 else data[:10] + said.encode() + data[-10:])
    for offset, kept in capture.pieces():
        assert data[offset:offset + len(kept)] == kept


def test_capture_without_room_keeps_only_the_size():
    capture = Capture(0)
    capture.add(b"abc")
    capture.add(b"def")
    report = {}
    capture.describe(report, "out")
    assert report == {"out_size": 6, "out": GAP.format(6)}


def test_used_slot_is_emptied_or_replaced(tmp_path):
    made = slot.Slot(0, str(tmp_path / "s"))
    first = made.directory()
    made.tidy()
    assert made.directory() == first
    os.makedirs(first + "/a/b")
    os.chmod(first + "/a", 0)
    os.symlink("/", first + "/root")
    made.tidy()
    assert made.directory() == first and os.listdir(first) == [] and os.path.exists("/etc/passwd")
    os.chmod(first, 0o777)
    made.tidy()
    assert made.directory() != first and not os.path.exists(first)
    second = made.directory()
    os.rmdir(second)
    os.symlink(str(tmp_path), second)
    made.tidy()
    assert made.directory() not in (first, second) and os.path.isdir(str(tmp_path))


def test_deep_directories_are_removed_without_recursion(tmp_path):
    top = tmp_path / "t"
    for base in ("t", "t/moved-1"):
        (tmp_path / base).mkdir()
        here = os.open(str(tmp_path / base), os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d", dir_fd=here)
            os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=here))
            os.symlink("/", "l", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.fchmod(here, 0)
        os.close(here)
    assert slot.remove(str(top))
    assert os.listdir(str(tmp_path)) == [] and os.path.exists("/etc/passwd")


def test_usage_counts_the_bytes_of_a_directory(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x" * 100000)
    assert 100000 <= slot.usage(str(tmp_path)) < 200000


def serve_once(path, reply):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)

    def run():
        with listener, listener.accept()[0] as peer:
            while b"\r\n\r\n" not in peer.recv(65536):
                pass
            for piece in reply:
                peer.sendall(piece)

    threading.Thread(target=run, daemon=True).start()


@pytest.mark.parametrize("reply, body", [
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], b"hello"),
    ([b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nhe", b"llo"], b"hello"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"], b"hello"),
    ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], b""),
    ([b"HTTP/1.0 200 OK\r\n\r\nuntil", b" the end"], b"until the end"),
])
def test_link_reads_valid_replies(tmp_path, reply, body):
    path = str(tmp_path / "s")
    serve_once(path, reply)
    assert link.HttpLink(routes.Routes("unix:" + path)).call(link.HttpRequest("GET", "/")).body == body


@pytest.mark.parametrize("reply", [[b"nonsense\r\n\r\n"], [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"],
                                   [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
                                   [b"x" * 100000], []])
def test_link_refuses_malformed_replies(tmp_path, reply):
    path = str(tmp_path / "s")
    serve_once(path, reply)
    with pytest.raises(link.Broken):
        link.HttpLink(routes.Routes("unix:" + path)).call(link.HttpRequest("GET", "/"))


def test_poll_is_given_up_a_while_after_the_last_answer(tmp_path):
    given_up = []

    class Agent:
        def broken(self, request, error):
            given_up.append(request["seq"])

    lane = lanes.Lane(link.HttpLink(routes.Routes("unix:" + str(tmp_path / "none"))), Agent())
    lane.request = {"seq": 1, "wait": 20000}
    lane.heard(100.0)
    lane.check(149.0)
    lane.heard(140.0)
    lane.check(189.0)
    assert not given_up
    lane.check(191.0)
    assert given_up == [1] and lane.request is None


def test_server_addresses_are_parsed():
    assert routes.address("unix:/a/b") == ("unix", "/a/b")
    assert routes.address("https://host:80") == ("host", 80) and routes.address("https://[::1]:80/") == ("::1", 80)
    for wrong in ("http://host:80", "https://host", "host:80"):
        with pytest.raises(BadInput):
            routes.address(wrong)


def test_ticket_without_certificate_is_refused(tmp_path):
    path = tmp_path / "t"
    path.write_text('{"server": "https://h:1", "token": "t", "site": "s", "nonce": "n"}')
    path.chmod(0o600)
    with pytest.raises(TrustError):
        ticket.read(str(path))


def test_ticket_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "t").symlink_to("/etc/passwd")
    with pytest.raises(BadInput):
        ticket.read(str(tmp_path / "t"))


def test_ticket_does_not_show_its_token():
    assert "secret" not in repr(ticket.Ticket("unix:/s", token="secret"))


def test_options_are_parsed_or_refused():
    options = parse(["--ticket=t", "--cores", "3", "--idle", "1.5", "--quiet"])
    assert (options.ticket, options.cores, options.idle, options.quiet) == ("t", 3, 1.5, True)
    for wrong in ([], ["--ticket", "t", "--cores", "x"], ["--ticket", "t", "--cores", "0"], ["--ticket"],
                  ["--ticket", "t", "--memory", "-1"], ["t"]):
        with pytest.raises(BadInput):
            parse(wrong)


def test_host_without_machine_id_makes_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    real = host._read
    monkeypatch.setattr(host, "_read", lambda path: "" if "machine-id" in path else real(path))
    assert host.host_id() == host.host_id()
    assert (tmp_path / "windfall" / "host-id").stat().st_mode & 0o777 == 0o600


def test_gpus_by_environment_and_count(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert [gpu["id"] for gpu in host.gpus()] == ["GPU-a", "GPU-b"]
    assert [gpu["id"] for gpu in host.gpus(1)] == ["GPU-a"] and host.gpus(0) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [gpu["id"] for gpu in host.gpus(2)] == ["0", "1"]


@pytest.mark.parametrize("value, found", [("", []), ("-1", []), ("NoDevFiles", []), ("1,-1,0", ["1"])])
def test_hidden_gpus_are_not_the_pilots(monkeypatch, value, found):
    monkeypatch.setattr(host, "_nvidia", lambda: host.parse_smi("0, a, 1\n1, b, 1\n"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert [gpu["id"] for gpu in host.gpus()] == found
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [gpu["id"] for gpu in host.gpus()] == ["0", "1"]


def test_nvidia_smi_output_is_parsed():
    assert host.parse_smi("0, NVIDIA H200, 143771\nbroken\n") == [
        {"id": "0", "name": "NVIDIA H200", "memory": 143771 << 20}]


@pytest.mark.parametrize("way", ["fork", "posix_spawn"])
def test_process_starts_by_spawn_and_by_fork(way, monkeypatch, tmp_path):
    monkeypatch.setattr(spawn, "_can_spawn", way == "posix_spawn")
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    env = {"A": "b", "PATH": "/bin:/usr/bin"}
    look = "echo $A; cut -d' ' -f6 /proc/$$/stat; trap; exit 4"
    pid = spawn.start("/bin/sh", ["sh", "-c", look], env, (null, writer, writer))
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 4
    assert os.read(reader, 1000).split() == [b"b", str(pid).encode()]
    with pytest.raises(FileNotFoundError):
        spawn.start("/no/such", ["x"], {}, (null, writer, writer))
    with pytest.raises(PermissionError):
        spawn.start("/etc/passwd", ["x"], {}, (null, writer, writer))
    for fd in (reader, writer, null):
        os.close(fd)


def test_copy_keeps_modes_and_paths_stay_inside(tmp_path):
    (tmp_path / "a").write_bytes(b"data")
    staging.copy(str(tmp_path / "a"), str(tmp_path / "b"), 0o755)
    assert (tmp_path / "b").read_bytes() == b"data" and (tmp_path / "b").stat().st_mode & 0o777 == 0o755
    assert staging.inside("a/./b") == "a/b"
