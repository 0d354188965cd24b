"""How a server is reached: its addresses, as the host's DHCP, its ARP table and the guest know
them."""

import json
import re
import sys

import pytest

from tests.support.waiting import wait_for

BOOTED = 240
"""Seconds: emulated, on a machine that is busy with other tests."""


@pytest.fixture
def linux(networked, linux_guest):
    networked.ok("image", "add", linux_guest, "--name", "linux", "--disk-format", "raw")
    networked.define_network("net1", "192.168.150.0/24")
    return networked


def create(networked, name, *networks, options=()):
    words = ("server", "create", name, "--image", "linux", "--memory", "96M", *options)
    chosen = (word for each in networks for word in ("--network", each))
    return networked.json(*words, *chosen)


def address_in(networked, server, nic="eth0"):
    """That the guest itself says it has."""
    said = re.compile(rf"ADDRESS: {nic} ([\d.]+)")
    wait_for(lambda: said.search(networked.console(server["id"])), BOOTED)
    return said.search(networked.console(server["id"]))[1]


def fetch(networked, url):
    """From the host."""
    script = (
        f"from urllib.request import urlopen; print(urlopen({url!r}, timeout=60).read().decode())"
    )
    return networked.libvirtd.run(sys.executable, "-c", script).stdout.strip()


def addresses(networked, name):
    """As they are shown to somebody who is on the host, with its ARP table."""
    shown = json.loads(networked.run_there("server", "show", name, "--json").stdout)
    return [each["addresses"] for each in shown["networks"]]


@pytest.mark.timeout(600)
def test_the_address_of_a_running_server_is_listed(linux):
    linux.define_network("other", "192.168.151.0/24")
    made = create(linux, "web", "net1", "bridge:vbrother", "user")
    leased, bridged = address_in(linux, made), address_in(linux, made, "eth1")
    assert fetch(linux, f"http://{bridged}/marker") == "millpond-linux"  # by ARP
    assert addresses(linux, "web") == [[leased], [bridged], []]
    assert f"{leased}, {bridged}" in linux.run_there("server", "list").stdout
    shown = linux.run_there("server", "show", "web").stdout
    first, second, third = (each["mac"] for each in made["networks"])
    assert re.search(rf"NIC 0 +net1, {first}, {leased}\n", shown)
    assert re.search(rf"NIC 1 +bridge:vbrother, {second}, {bridged}\n", shown)
    assert re.search(rf"NIC 2 +user, {third}\n", shown)
    (network, *_) = linux.json("network", "list")
    assert (first, leased) in [(each["mac"], each["address"]) for each in network["leases"]]
    linux.ok("server", "stop", "web", "--force")
    assert addresses(linux, "web") == [[], [], []]
