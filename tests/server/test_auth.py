"""Authorisation: tokens, scopes, and the separation of users."""

import time

import pytest
from server_tools import SWEEP, Client, Pilot


@pytest.mark.parametrize("token", ["", "wf_wrong", "x" * 2000])
def test_request_without_a_valid_token_gets_401(client, token):
    reply = client.call("GET", "/v1/bags", token=token) if token else Client(client.profile, "").call("GET", "/v1/bags")
    assert reply.status == 401 and reply.code == "unauthorised"


def test_failures_are_alike(client):
    made = client.token_for("user")
    client.call("DELETE", f"/v1/tokens/{made['id']}")
    revoked = client.call("GET", "/v1/bags", token=made["token"])
    unknown = client.call("GET", "/v1/bags", token="wf_unknown")
    malformed = client.call("GET", "/v1/bags", token=made["token"], Authorization="Basic abc")
    assert revoked.raw == unknown.raw == malformed.raw and revoked.status == 401


def test_a_token_expires(server, client):
    made = client.token_for("user", days=1)
    assert client.call("GET", "/v1/bags", token=made["token"]).status == 200
    server._runtime.writer.clock._base += 86_400_001
    assert client.call("GET", "/v1/bags", token=made["token"]).status == 401


def test_token_of_the_wrong_scope_gets_403(client):
    user = client.token_for("user")["token"]
    pilot = Pilot(client)
    for token, method, path, status in (
        (user, "GET", "/metrics", 403), (user, "POST", "/v1/exchange", 403), (user, "POST", "/v1/enrol", 403),
        (pilot.me["token"], "GET", "/v1/bags", 403), (pilot.me["token"], "POST", "/v1/tokens", 403),
        (user, "GET", "/v1/bags", 200),
    ):
        assert client.call(method, path, {} if method == "POST" else None, token=token).status == status, path


def test_a_user_makes_no_admin_and_no_one_else(client):
    user = client.token_for("user", user="ann")["token"]
    assert client.call("POST", "/v1/tokens", {"scope": "admin"}, token=user).status == 403
    assert client.call("POST", "/v1/tokens", {"scope": "user", "user": "bob"}, token=user).status == 403
    made = client.call("POST", "/v1/tokens", {"scope": "user"}, token=user)
    assert made.status == 201
    listed = client.call("GET", "/v1/tokens", token=user).body["tokens"]
    assert {each["user"] for each in listed} == {"ann"} and all("token" not in each for each in listed)


@pytest.mark.parametrize("name", ["../root", "a/b", ".", "..", "-o", "two words", "a\nb", "\x1b[2J", "\u202eadmin",
                                  "ä" * 40])
def test_name_that_could_mislead_is_no_users_name(client, name):
    refused = client.call("POST", "/v1/tokens", {"scope": "user", "user": name})
    assert refused.status == 400 and refused.body["error"]["hint"], refused.raw


def test_user_may_have_a_name_of_any_script(client):
    for name in ("ann", "ann@example.org", "J.Müller", "李"):
        assert client.token_for("user", user=name)["token"]


def test_bags_and_tokens_of_another_user_look_absent(client):
    number = client.submit(SWEEP)
    ann = client.token_for("user", user="ann")["token"]
    absent = client.call("GET", "/v1/bags/999", token=ann)
    for method, path in (("GET", ""), ("GET", "/spec"), ("GET", "/results"), ("GET", "/tasks/0"), ("GET", "/watch"),
                         ("POST", "/cancel"), ("POST", "/pause"), ("POST", "/remove"), ("GET", "/explain")):
        reply = client.call(method, f"/v1/bags/{number}{path}", {} if method == "POST" else None, token=ann)
        assert reply.status == 404 == absent.status
        assert reply.raw.replace(b" %d\"" % number, b" 999\"") == absent.raw
    assert client.call("GET", "/v1/bags", token=ann).body["bags"] == []
    own = client.token_for("user")["id"]
    assert client.call("DELETE", f"/v1/tokens/{own}", token=ann).status == 404
    assert client.call("POST", "/v1/tokens", {"scope": "enrol", "site": "local"}, token=ann).status == 404


def test_failures_are_limited_and_valid_tokens_are_not(client):
    codes = [client.call("GET", "/v1/bags", token=f"wf_{i}").status for i in range(70)]
    assert 429 in codes
    reply = client.call("GET", "/v1/bags", token="wf_again")
    assert reply.status in (429, 401)
    if reply.status == 429:
        assert int(reply.headers["Retry-After"]) > 0
    assert client.call("GET", "/v1/bags").status == 200


def test_an_enrolment_token_is_for_its_site(client):
    assert client.call("POST", "/v1/sites", {"name": "far", "kind": "ssh"}).status == 201
    pilot = Pilot(client, site="far")
    assert client.call("GET", "/v1/pilots").body["pilots"][0]["site"] == "far"
    ticket = client.token_for("enrol", site="far")["token"]
    host = {"id": "h", "name": "h", "cores": 1, "memory": 1}
    reply = client.call("POST", "/v1/enrol", {"v": 1, "site": "local", "nonce": "m", "host": host,
                                              "shape": {"cores": 1, "memory": 1}}, token=ticket)
    assert reply.status == 200
    assert {p["site"] for p in client.call("GET", "/v1/pilots").body["pilots"]} == {"far"}
    assert pilot.me["pilot"] != reply.body["pilot"]


def test_files_are_private_and_hold_no_token_but_their_own(server, client, tmp_path):
    user = client.token_for("user")["token"]
    Pilot(client)
    home = tmp_path / "home"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "server.json").stat().st_mode & 0o777 == 0o600
    assert (home / "socket").stat().st_mode & 0o777 == 0o600
    time.sleep(0.2)
    for path in home.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path
            assert user.encode() not in path.read_bytes(), path


def test_tokens_of_pilots_are_their_owners_to_revoke(client):
    pilot = Pilot(client)
    ann = client.token_for("user", user="ann")["token"]
    mine = client.token_for("user")["token"]
    listed = [t for t in client.call("GET", "/v1/tokens", token=mine).body["tokens"] if t["scope"] == "pilot"]
    assert [(t["site"], "token" in t) for t in listed] == [("local", False)]
    assert not any(t["scope"] == "pilot" for t in client.call("GET", "/v1/tokens", token=ann).body["tokens"])
    assert client.call("DELETE", f"/v1/tokens/{listed[0]['id']}", token=ann).status == 404
    assert pilot.client.call("POST", "/v1/exchange", pilot.message()).status == 200
    assert client.call("DELETE", f"/v1/tokens/{listed[0]['id']}", token=mine).status == 200
    assert pilot.client.call("POST", "/v1/exchange", pilot.message()).status == 401


def test_sharing_a_site_needs_an_admin(client):
    """The owner of a shared site gets the tasks of its users, so no user may share his site by himself."""
    mallory = client.token_for("user", user="mallory")["token"]
    wanted = {"name": "evil", "kind": "ssh", "shared": ["ann"]}
    assert client.call("POST", "/v1/sites", wanted, token=mallory).status == 403
    assert client.call("POST", "/v1/sites", {**wanted, "shared": []}, token=mallory).status == 201
    assert client.call("POST", "/v1/sites", {**wanted, "name": "lab"}).status == 201


def test_an_admin_lets_others_use_a_site(client):
    mallory, ann = (client.token_for("user", user=name)["token"] for name in ("mallory", "ann"))
    client.call("POST", "/v1/sites", {"name": "lab", "kind": "ssh"}, token=ann)
    wanted = {"add": ["mallory"]}
    assert client.call("POST", "/v1/sites/lab/share", wanted, token=mallory).status == 403
    assert client.call("POST", "/v1/sites/lab/share", wanted, token=ann).status == 403
    assert client.call("POST", "/v1/sites/lab/share", {"add": ["nobody"]}).status == 404
    assert client.call("POST", "/v1/sites/none/share", wanted).status == 404
    assert client.call("POST", "/v1/sites/lab/share", wanted).body["shared"] == ["mallory"]
    assert client.call("GET", "/v1/sites/lab", token=mallory).status == 200
    assert client.call("GET", "/v1/sites/lab", token=ann).body["history"][0]["kind"] == "shared"
    assert client.call("POST", "/v1/sites/lab/share", {"remove": ["mallory"]}).body["shared"] == []
    assert client.call("GET", "/v1/sites/lab", token=mallory).status == 404


def test_history_of_a_shared_site_is_shown_to_its_owner_only(client):
    """A user of a shared site sees that it exists; for all others it is absent."""
    client.token_for("user", user="ann")
    mallory, ann = (client.token_for("user", user=name)["token"] for name in ("mallory", "ann"))
    assert client.call("POST", "/v1/sites", {"name": "lab", "kind": "ssh", "shared": ["ann"]}).status == 201
    mine = client.call("GET", "/v1/sites/lab").body
    assert mine["history"] == [] and mine["waits"] == [] and mine["suspect"] is None and mine["intents"]["running"] == 0
    shared = client.call("GET", "/v1/sites/lab", token=ann)
    assert shared.status == 200 and "history" not in shared.body
    assert client.call("GET", "/v1/sites/lab", token=mallory).status == 404
    assert client.call("GET", "/v1/sites/none").status == 404


def test_a_token_makes_none_that_outlives_it(client):
    parent = client.token_for("user", days=1)
    child = client.call("POST", "/v1/tokens", {"scope": "user", "days": 3650}, token=parent["token"]).body
    assert child["expires"] == parent["expires"]


def test_numbers_that_only_look_like_numbers(client):
    assert client.call("GET", "/v1/bags/%C2%B2").status == 404
    assert client.call("POST", "/v1/pilots/%C2%B2/gone", {}).status == 404
