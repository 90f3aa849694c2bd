"""The routes to the server in a ticket, by the site's `reach`."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from windfall.errors import BadInput
from windfall.provision import routes
from windfall.provision.relay import Hello
from windfall.provision.server_link import ServerAddress
from windfall.sites import site_file
from windfall.sites.site_file import Site

OFFER = Hello("head", 4711, ("head", "10.0.0.1", "fd00::1"), "/home/me/relay")


def site(**fields: str) -> Site:
    lines = "".join(f'{key} = "{value}"\n' for key, value in fields.items())
    return site_file.parse(f'[site]\nname = "x"\ndialect = "slurm"\n{lines}[[shapes]]\nwalltime = "1h"\n')


def test_direct_route_has_the_address_of_file_or_server() -> None:
    address = ServerAddress("https://here:1", "PEM")
    assert routes.direct(site(), address).routes == [{"kind": "direct", "address": "https://here:1"}]
    assert routes.direct(site(server="https://there:2"), address).server == "https://there:2"
    with pytest.raises(BadInput, match="Unix socket only"):
        routes.direct(site(), ServerAddress("unix:/s", ""))


def test_routes_through_a_relay_follow_the_reach() -> None:
    assert routes.offered("relay", OFFER._replace(spool="")) == [
        {"kind": "relay", "address": f"https://{host}:4711"} for host in ("head", "10.0.0.1", "[fd00::1]")]
    assert routes.offered("spool", OFFER) == [{"kind": "spool", "address": "/home/me/relay"}]
    assert [each["kind"] for each in routes.offered("auto", OFFER)] == ["relay", "relay", "relay", "spool"]


@pytest.mark.parametrize(("fields", "words"), [
    ({"reach": "relay"}, ()), ({"reach": "spool"}, ("--spool", "--no-network")), ({"reach": "auto"}, ("--spool",)),
    ({"reach": "relay", "relay": "10.0.0.1"}, ("--listen", "10.0.0.1")),
])  # fmt: skip
def test_the_command_that_starts_it(fields: dict[str, str], words: tuple[str, ...]) -> None:
    assert routes.command(site(**fields), "/p.pyz", "/relay") == (
        "python3", "/p.pyz", "relay", "--folder", "/relay", *words)


def test_the_set_up_lines_are_the_relays_too_and_neither_read_nor_say_anything_in_its_name() -> None:
    """Python may be a module's there, and what goes in and out is the relay's alone."""
    setup = ("# modules", "if :; then", 'B="$A b"; cat', "echo hello; fi", "export B")
    there = replace(site(reach="relay"), variables={"A": "it's"}, setup=setup)
    words = (*routes.command(there, "-", "/relay")[:-1], 'exec sh -c \'echo "$A $B"; cat\'')
    done = subprocess.run(words, input=b"frames", capture_output=True)
    assert (done.stdout, done.stderr) == (b"it's it's b\nframes", b"hello\n")
