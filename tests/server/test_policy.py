"""Policies over HTTP: one's own bags only, checked again by the server, kept over its end."""

import pytest
from server_tools import Client, Pilot, sweep

USUAL = {"replicate": "tail-safe"}


def ruled(n=3, **policy):
    return {**sweep(n), "policy": policy}


def test_shown_changed_and_obeyed(client):
    bag = client.submit(ruled(requirements="Host.Cores > 64", rank="2"))
    pilot = Pilot(client)
    assert pilot.get(want=1, wait=0) == []
    shown = client.call("GET", f"/v1/bags/{bag}/policy").body
    assert shown["policy"] == {"requirements": "Host.Cores > 64", "rank": "2", **USUAL}
    assert (shown["match"], shown["hosts"]) == (0, 1) and "Host.Cores > 64 is false" in shown["why"]
    changed = client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"requirements": ""}}).body
    assert changed["policy"] == {"rank": "2", **USUAL} and (changed["match"], changed["why"]) == (1, "")
    assert len(pilot.get(want=1)) == 1


@pytest.mark.parametrize(("body", "status"), [
    ({"policy": {"requirements": "Host.Memry > 1"}}, 400),
    ({"policy": {"rank": "random()"}}, 400),
    ({"policy": {"rank": "1+" * 5_000 + "1"}}, 413),
    ({"policy": {"rank": "(" * 4_000}}, 400),
    ({"policy": {"per-host": "true"}}, 400),
    ({"policy": {"per-hosts": "1"}}, 400),
    ({"policy": {"per-host": "0"}}, 400),
    ({"policy": {"attempt-deadline": "0"}}, 400),
    ({"policy": {"attempt-deadline": "0 s"}}, 400),
    ({"policy": {str(n): "1" for n in range(99)}}, 400),
    ({"policy": {"x" * 1_000: "1"}}, 400),
    ({"policy": {"rank": 7}}, 400),
    ({"policy": None}, 400),
    ({"polizy": {}}, 400),
])  # fmt: skip
def test_nonsense_is_refused_and_changes_nothing(client, body, status):
    bag = client.submit(ruled(rank="2"))
    reply = client.call("POST", f"/v1/bags/{bag}/policy", body)
    assert reply.status == status and reply.body["error"]["message"]
    assert client.call("GET", f"/v1/bags/{bag}/policy").body["policy"] == {"rank": "2", **USUAL}


def test_a_duration_is_understood(client):
    bag = client.submit(ruled(rank="2"))
    changed = client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"attempt-deadline": "2 h"}}).body
    assert changed["policy"] == {"rank": "2", "attempt-deadline": "7200", **USUAL}


def test_a_duration_is_taken_wherever_a_bag_comes_from(client):
    bag = client.submit(ruled(attempt_deadline="2 h", replicate="Tail-Fast"))
    assert client.call("GET", f"/v1/bags/{bag}/policy").body["policy"] == {
        "attempt-deadline": "7200", "replicate": "tail-fast"}


@pytest.mark.parametrize("policy", [{"rank": "time()"}, {"requirements": "1"}, {"sites": "Host.Cores > 1"},
                                    {"per_host": "0"}, {"attempt_deadline": "0"}, {"attempt_deadline": "2 x"}])
def test_a_bag_with_a_bad_one_is_refused(client, policy):
    reply = client.call("POST", "/v1/bags", ruled(**policy))
    assert reply.status == 400 and next(iter(policy)).replace("_", "-") in reply.body["error"]["message"]


def test_tasks_of_batches_never_run_twice(client):
    bag = client.submit(ruled(batch=3))
    for policy in ({"replicate": "tail-fast"}, {"attempt-deadline": "60"}):
        reply = client.call("POST", f"/v1/bags/{bag}/policy", {"policy": policy})
        assert reply.status == 400 and "go together in batches never run twice" in reply.body["error"]["message"]
    none = client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"replicate": "none", "rank": "2"}})
    assert none.status == 200 and none.body["policy"]["rank"] == "2"


def test_policies_are_shown_as_they_are_in_force(client):
    for more in ({"batch": 3}, {"replicate": "none"}):
        bag = client.submit(ruled(**more))
        assert client.call("GET", f"/v1/bags/{bag}/policy").body["policy"] == {"replicate": "none"}


def test_attempts_in_play_are_shown(client):
    bag, pilot = client.submit(ruled(1)), Pilot(client)
    ((attempt, _),) = pilot.get(want=1)
    (held,) = client.call("GET", f"/v1/bags/{bag}/tasks/0").body["in_play"]
    assert (held["attempt"], held["state"], held["host"], held["started"]) == (attempt, "granted", "host", None)
    pilot.exchange(started=[attempt])
    (held,) = client.call("GET", f"/v1/bags/{bag}/tasks/0").body["in_play"]
    assert held["state"] == "started" and held["started"] and held["expected"] is None


def test_policy_of_another_users_bag_is_hidden(client):
    bag = client.submit(ruled(rank="2"))
    ann = client.token_for("user", user="ann")["token"]
    for method, body in (("GET", None), ("POST", {"policy": {"rank": "9"}})):
        assert client.call(method, f"/v1/bags/{bag}/policy", body, token=ann).status == 404


def test_changed_policy_survives_a_kill(start):
    server = start()
    client = Client(server.profile)
    bag = client.submit(ruled(requirements="Host.Cores > 64"))
    client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"rank": "Host.Speed"}})
    server.kill()
    policy = Client(start().profile).call("GET", f"/v1/bags/{bag}/policy").body["policy"]
    assert policy == {"requirements": "Host.Cores > 64", "rank": "Host.Speed", **USUAL}


# --- hosts as expressions see them ------------------------------------------------------------------------------------


def test_hosts_publish_ads_and_a_bag_says_what_it_makes_of_them(client):
    Pilot(client)
    (found,) = client.call("GET", "/v1/hosts").body["hosts"]
    host, site = found["ad"]["Host"], found["ad"]["Site"]
    assert host["Cores"] >= 1 and host["Running"] == 0 and host["ErrorRate"] is None and host["Site"] == site["Name"]
    assert "match" not in found
    bag = client.submit(ruled(requirements="Host.Cores > 64", rank="Host.Cores"))
    (found,) = client.call("GET", f"/v1/bags/{bag}/hosts").body["hosts"]
    assert not found["match"] and "Host.Cores > 64 is false" in found["why"] and found["rank"] == host["Cores"]
    client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"requirements": "", "rank": "1 / Host.ErrorRate",
                                                              "per-host": "2 * Host.ErrorRate"}})
    (found,) = client.call("GET", f"/v1/bags/{bag}/hosts").body["hosts"]
    assert found["match"] and (found["rank"], found["per_host"]) == (0, None)
    assert "rank counts as 0: 1 / Host.ErrorRate is undefined" in found["why"]
    assert "per-host is no limit: 2 * Host.ErrorRate is undefined" in found["why"]


def test_hosts_come_in_pages_and_are_ones_own(client):
    for nonce in "abc":
        Pilot(client, nonce=nonce)
    first = client.call("GET", "/v1/hosts?limit=2").body
    rest = client.call("GET", f"/v1/hosts?limit=2&after={first['next']}").body
    assert [len(first["hosts"]), len(rest["hosts"]), rest["next"]] == [2, 1, None]
    assert client.call("GET", "/v1/hosts?limit=x").status == 400
    ann = client.token_for("user", user="ann")["token"]
    assert client.call("GET", "/v1/hosts", token=ann).body["hosts"] == []
    bag = client.submit(ruled(rank="2"))
    assert client.call("GET", f"/v1/bags/{bag}/hosts", token=ann).status == 404
