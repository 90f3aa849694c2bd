"""A site that several use, over HTTP: its slots are dealt by weight."""

from server_tools import Client, Pilot, sweep


def test_shared_site_is_divided_by_the_weights_an_admin_sets(client):
    ann = Client(client.profile, client.token_for("user", user="ann")["token"])
    assert client.call("POST", "/v1/sites", {"name": "lab", "kind": "ssh", "shared": ["ann"]}).status == 201
    rows = client.call("POST", "/v1/weights", {"user": "ann", "weight": 3}).body["allowances"]
    assert {row["user"]: row["weight"] for row in rows}["ann"] == 3
    assert ann.call("GET", "/v1/allowances").body["allowances"][0]["weight"] == 3
    mine, hers = client.submit(sweep(50)), ann.submit(sweep(50))
    pilot = Pilot(client, "lab", cores=8)
    assert len(pilot.get(want=8)) == 8
    held = [each.call("GET", f"/v1/bags/{bag}").body["counts"]["active"] for each, bag in ((client, mine), (ann, hers))]
    assert held == [2, 6]


def test_weights_need_an_admin_a_valid_number_and_a_known_user(client):
    ann = client.token_for("user", user="ann")["token"]
    assert client.call("POST", "/v1/weights", {"user": "ann", "weight": 9}, token=ann).status == 403
    for weight in (0, 1_001, "2", None):
        assert client.call("POST", "/v1/weights", {"user": "ann", "weight": weight}).status == 400
    assert client.call("POST", "/v1/weights", {"user": "nobody", "weight": 2}).status == 404
