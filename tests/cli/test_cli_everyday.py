"""login, user, rm by age, notify, completion, manual pages."""

import json
import os
import pty
import select
import shutil
import socket
import stat
import subprocess
import sys
import threading
from email import message_from_bytes
from email.policy import default
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.live.real import CommandLine, environment, free_port, serving
from windfall.cli.commands.bags.rm import chosen
from windfall.cli.commands.completion import _plain, candidates

# --- login and user -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("remote") / "home", "--listen", f"127.0.0.1:{free_port()}") as server:
        yield server


@pytest.fixture
def admin(remote, tmp_path):
    return CommandLine(remote.home, tmp_path)


def typed(line, text, *arguments):
    command = [sys.executable, "-m", "windfall", *map(str, arguments)]
    return subprocess.run(command, cwd=line.folder, env=environment(line.home), input=text, text=True, timeout=60,
                          capture_output=True, check=False)


def test_login_with_fingerprint_and_token_from_the_input(admin, alone):
    made = admin.json("user", "add", "ada")
    url, mark = made["server"], made["fingerprint"]
    done = typed(alone, made["token"] + "\n", "login", url, "--fingerprint", mark)
    assert (done.returncode, made["token"] in done.stdout + done.stderr) == (0, False), done.stderr
    assert stat.S_IMODE((alone.home / "login.json").stat().st_mode) == 0o600
    assert alone("submit", "true", "--name", "hers").returncode == 0
    assert alone.json("ls")[0]["name"] == "hers"
    assert [row["name"] for row in admin.json("ls")].count("hers") == 0
    assert alone("login", "--out").returncode == 0
    assert alone.json("ls") == []


def test_login_by_a_file(admin, alone):
    assert admin("user", "add", "bob", "-o", alone.folder / "bob.json").returncode == 0
    assert stat.S_IMODE((alone.folder / "bob.json").stat().st_mode) == 0o600
    assert alone("login", "--profile", "bob.json").returncode == 0
    assert alone.json("ls") == []
    listed = {row["user"]: row for row in admin.json("user", "ls")}
    assert listed["bob"]["tokens"] == 1 and not listed["bob"]["admin"]
    assert admin.json("user", "rm", "bob")["revoked"] == 1
    assert alone("ls").returncode == 3
    assert admin("user", "rm", "bob").returncode == 2


def test_login_refuses_another_certificate_before_it_reads_the_token(admin, alone):
    url = admin.json("user", "add", "eve")["server"]
    done = typed(alone, "", "login", url, "--fingerprint", "00" * 32)
    assert (done.returncode, "another certificate" in done.stderr) == (3, True), done.stderr
    done = typed(alone, "", "login", url)
    assert (done.returncode, "nobody can be asked" in done.stderr) == (2, True)
    assert not (alone.home / "login.json").exists()


def test_a_wrong_token_is_not_saved(admin, alone):
    made = admin.json("user", "add", "joe")
    (alone.folder / "t").write_text("nonsense\n")
    (alone.folder / "t").chmod(0o644)
    done = alone("login", made["server"], "--fingerprint", made["fingerprint"], "--token-file", "t")
    assert (done.returncode, "chmod 600" in done.stderr) == (3, True), done.stderr
    (alone.folder / "t").chmod(0o600)
    alone.home.mkdir(exist_ok=True)
    alone.home.chmod(0o777)
    done = alone("ls")
    assert (done.returncode, "chmod go-w" in done.stderr) == (3, True), done.stderr
    alone.home.chmod(0o700)
    done = alone("login", made["server"], "--fingerprint", made["fingerprint"], "--token-file", "t")
    assert done.returncode == 3 and not (alone.home / "login.json").exists()


@pytest.mark.parametrize("arguments", ["login", "login https://x:1 --out", "user add", "user ls x"])
def test_login_and_user_refuse_wrong_arguments(alone, arguments):
    assert alone(*arguments.split()).returncode == 2


# --- retention ----------------------------------------------------------------------------------------------


def test_bags_are_chosen_by_age_and_state():
    bags = [{"bag": n, "state": state, "ended": ended} for n, (state, ended) in enumerate(
        [("succeeded", 100), ("failed", 100), ("succeeded", 900), ("active", None), ("cancelled", 500)])]
    assert [bag["bag"] for bag in chosen(bags, 500, "", 1000)] == [0, 1, 4]
    assert [bag["bag"] for bag in chosen(bags, 0, "succeeded", 1000)] == [0, 2]


def test_rm_without_server_frees_files_and_says_how_much(alone):
    (alone.folder / "in").write_bytes(bytes(3_000_000))
    for name in ("a", "b"):
        command = f"head -c 2000000 in > out; echo {name} >> out"
        assert alone("run", command, "-q", "--input", "in", "--output", "out", "--name", name).returncode == 0
    assert "2 MB" in alone("rm", "a", "--dry-run").stdout.splitlines()[-1]
    assert alone("rm", "a").stdout == "bag 1 is removed; 2 MB freed\n"
    assert alone("rm", "b").stdout == "bag 2 is removed; 5 MB freed\n"
    assert not [path for path in (alone.home / "blobs").rglob("*") if path.is_file()]


def test_rm_of_several_and_by_age(alone):
    for n in range(3):
        assert alone("run", "true", "-q", "--name", f"n{n}").returncode == 0
    assert alone.json("rm", "--older", "1d") == {"bags": [], "removed": True, "freed": 0}
    assert alone("rm", "--older", "9d", "-n").stdout == "no bag to remove\n"
    assert alone.json("rm", "--state", "succeeded", "--dry-run") == {"bags": [1, 2, 3], "removed": False}
    assert alone.json("rm", "n0", "2")["bags"] == [1, 2]
    assert alone.json("rm", "--older", "0s")["bags"] == [3]
    assert alone("rm").returncode == 2 and alone("rm", "1", "--older", "1d").returncode == 2


# --- show ---------------------------------------------------------------------------------------------------


def test_show_prints_attempts_and_times_of_a_bag(windfall):
    assert windfall("run", "exit {x}", "-s", "x=0,0,3", "--retries", "1", "--name", "took").returncode == 1
    done = windfall("show", "took")
    assert done.returncode == 0, done.stderr
    assert "attempts 4, queued " in done.stdout and "speed-up " in done.stdout
    assert "failed attempts: exit 2" in done.stdout and "\nlocal" in done.stdout
    assert windfall.json("show", "took")["statistics"]["accepted"] == 2


# --- notify -------------------------------------------------------------------------------------------------


def test_notify_runs_a_command_with_the_facts_of_the_bag(windfall):
    script = windfall.folder / "tell"
    script.write_text('#!/bin/sh\nprintf "%s|" "$@" > told\ncat > facts\n')
    script.chmod(0o755)
    done = windfall("run", "true", "--name", "a; b 'c", "--notify", f"command:{script} {{name}} {{state}}")
    assert done.returncode == 0, done.stderr
    assert (windfall.folder / "told").read_text() == "a; b 'c|succeeded|"
    assert json.loads((windfall.folder / "facts").read_text())["succeeded"] == 1


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_notify_posts_to_a_web_address_from_a_file(windfall):
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        server.got = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        windfall.write("whom", f"http://127.0.0.1:{server.server_port}/secret\n")
        done = windfall("run", "exit 3", "--retries", "0", "--notify", "@whom")
        server.shutdown()
    assert (done.returncode, server.got[0]["failed"], "secret" in done.stderr) == (1, 1, False)


def test_unreachable_web_address_changes_no_exit_code(windfall):
    done = windfall("run", "true", "--notify", f"http://127.0.0.1:{free_port()}/secret")
    assert (done.returncode, "could not notify by http" in done.stderr, "secret" in done.stderr) == (0, True, False)


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 500 no\r\n\r\n", b"HTTP/1.1 99999 x\r\n\r\n"])
def test_web_address_that_answers_nonsense_changes_no_exit_code(windfall, answer):
    def serve():
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        whom = f"http://127.0.0.1:{listening.getsockname()[1]}/secret"
        done = windfall("run", "true", "--notify", whom)
    assert (done.returncode, "could not notify by http" in done.stderr, "secret" in done.stderr) == (0, True, False)


def test_notify_sends_a_mail(windfall):
    sendmail = windfall.folder / "bin" / "sendmail"
    sendmail.parent.mkdir()
    sendmail.write_text('#!/bin/sh\nprintf "%s|" "$@" > words\ncat > mail\n')
    sendmail.chmod(0o755)
    path = f"{sendmail.parent}:{os.environ['PATH']}"
    done = windfall("run", "exit {x}", "-s", "x=0,0,3", "--retries", "0", "--name", "für alle",
                    "--notify", "mailto:me@example.org", PATH=path)
    assert (done.returncode, "could not notify" in done.stderr) == (1, False), done.stderr
    assert (windfall.folder / "words").read_text() == "-i|--|me@example.org|"
    mail = message_from_bytes((windfall.folder / "mail").read_bytes(), policy=default)
    assert mail["To"] == "me@example.org" and mail["Subject"].startswith("windfall: bag ")
    assert mail["Subject"].endswith(" 'für alle' failed")
    assert mail.get_content() == "3 tasks: 2 succeeded, 1 failed, 0 cancelled\n"


def test_failing_mail_program_changes_no_exit_code(windfall):
    windfall.write("sendmail", "#!/bin/sh\nexit 75\n")
    (windfall.folder / "sendmail").chmod(0o755)
    path = f"{windfall.folder}:{os.environ['PATH']}"
    done = windfall("run", "true", "--notify", "mailto:me@example.org", PATH=path)
    assert (done.returncode, "exit code 75" in done.stderr) == (0, True)


@pytest.mark.parametrize("whom", ["nonsense", "mailto:", "mailto:a b@c", "command:{what}", "command:'", "@/no/file"])
def test_wrong_notify_address_is_refused_before_anything_runs(alone, whom):
    assert alone("run", "true", "--notify", whom).returncode == 2


# --- completion ---------------------------------------------------------------------------------------------


def test_completion_offers_commands_options_and_choices():
    assert set(candidates([], "ca")) == {"cancel"}
    assert "--parquet" in candidates(["results", "7"], "--p")
    assert set(candidates(["results", "7", "--state"], "f")) == {"failed"}
    assert set(candidates(["token"], "")) == {"add", "ls", "rm"}
    assert [name for name in ("a-b_1", "-rf", "--all", "a b", "a;b") if _plain(name)] == ["a-b_1"]
    assert list(candidates(["nonsense"], "")) == [] and list(candidates(["run", "--", "x"], "")) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_read_their_scripts(alone, shell):
    script = alone("completion", shell).stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, check=False).returncode == 0


@pytest.fixture
def surroundings(windfall):
    """Submit a bag whose name can be completed; return the environment of a shell that finds `windfall`."""
    number = windfall.json("submit", "true", "--cores", "1000", "--name", "complete-me")["bag"]
    windfall("cancel", number)
    program = windfall.folder / "windfall"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m windfall "$@"\n')
    program.chmod(0o755)
    return {**environment(windfall.home), "PATH": f"{windfall.folder}:{os.environ['PATH']}", "TERM": "dumb"}


def test_bash_completes_bags(surroundings):
    code = """eval "$(windfall completion bash)"
    ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _windfall; echo "${COMPREPLY[*]}"; }
    ask windfall show comp; ask windfall retry 1 --w; ask windfall sho"""
    done = subprocess.run(["bash", "-c", code], env=surroundings, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["complete-me", "--why", "show"], done.stderr


def test_fish_completes_bags(surroundings, windfall):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    code = """windfall completion fish | source
    for line in "windfall show comp" "windfall retry 1 --w" "windfall sho"; complete -C $line; end"""
    done = subprocess.run(["fish", "--no-config", "-c", code], env={**surroundings, "HOME": str(windfall.folder)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.split() == ["complete-me", "--why", "show"], done.stderr


def test_zsh_completes_bags(surroundings, windfall):
    """The test types on a terminal, since zsh completes nowhere else."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(["zsh", "-f", "-i"], env={**surroundings, "HOME": str(windfall.folder)}, stdin=theirs,
                             stdout=theirs, stderr=theirs, start_new_session=True)  # fmt: skip
    os.close(theirs)
    seen = bytearray()

    def reads(text):
        while text not in seen:
            assert select.select([ours], [], [], 30)[0], bytes(seen)
            seen.extend(os.read(ours, 4096))
        seen.clear()

    try:
        os.write(ours, b"autoload -U compinit; compinit -u -D; eval \"$(windfall completion zsh)\"; echo re''ady\n")
        reads(b"ready")
        os.write(ours, b"windfall show comp\t")
        reads(b"lete-me")
        os.write(ours, b"\x15windfall retry 1 --w\t")
        reads(b"hy")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


# --- manual -------------------------------------------------------------------------------------------------


def test_the_manual_pages_are_clean():
    from tests.docs.test_docs import ROOT

    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in sorted((ROOT / "share" / "man" / "man1").glob("*.1")):
        command = ["groff", "-man", "-Tutf8", "-ww", "-z", page]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), page


# --- quotas -------------------------------------------------------------------------------------------------


def test_ls_show_and_user_tell_the_size_of_files_under_a_quota(tmp_path):
    with serving(tmp_path / "home", "--pilot", "--quota", "1MB"):
        line = CommandLine(tmp_path / "home", tmp_path)
        assert line("run", "head -c 2000 /dev/zero > o", "--output", "o", "--name", "q").returncode == 0
        (row,) = line.json("ls")
        assert (row["bytes"], row["used"], row["quota"]) == (2000, 2000, 1_000_000)
        assert "your files on the server take 2 kB of 1 MB" in line("ls").stderr
        assert "files of its results: 2 kB; your files on the server take 2 kB of 1 MB" in line("show", "q").stdout
        (user,) = line.json("user", "ls")
        assert (user["bytes"], user["quota"]) == (2000, 1_000_000)
        assert "quota" in line("user", "ls").stdout.splitlines()[0]


def test_messages_mention_no_quota_without_one(windfall):
    assert windfall("run", "echo > o", "--output", "o", "--name", "free").returncode == 0
    row = windfall.json("ls", "-n", "1")[0]
    assert row["bytes"] == 1 and "quota" not in row
    assert "take" not in windfall("ls").stderr
    assert "files of its results: 1 B\n" in windfall("show", "free").stdout
    assert "quota" not in windfall("user", "ls").stdout
