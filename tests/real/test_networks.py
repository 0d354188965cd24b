"""Networks of libvirt and bridges of the host: looked up before anything is made."""

import json

import pytest

from tests.support.refusals import world


@pytest.fixture
def guest(networked, micro_guest):
    networked.ok("image", "add", micro_guest.path, "--name", "guest")
    networked.make_pools()
    return "guest"


def create(name, *networks, options=("--no-start",)):
    words = ("server", "create", name, "--image", "guest", "--memory", "16M", *options)
    return (*words, *(word for each in networks for word in ("--network", each)))


def refuse(networked, status, sentence, hint, *words):
    with networked.libvirtd.connect() as connection:
        before = world(networked, connection)
        code, message = networked.fails(*words)
        assert (code, sentence in message, hint in message) == (status, True, True), message
        assert world(networked, connection) == before


def test_an_unknown_network_or_bridge_is_refused_with_what_there_is(networked, guest):
    networked.define_network("net1", "192.168.150.0/24")
    networked.define_network("idle", "192.168.151.0/24", active=False)
    refuse(
        networked,
        3,
        "there is no libvirt network 'nosuch' on host 'local'",
        "there is idle, net1; 'millpond network list' shows more",
        *create("web", "nosuch"),
    )
    refuse(
        networked,
        3,
        "there is no bridge 'nobr'",
        "there is vbrnet1;",
        *create("web", "bridge:nobr"),
    )
    networked.ok(*create("web", "net1", "bridge:vbrnet1"))


def test_an_inactive_network_is_refused_before_anything_is_made(networked, guest):
    networked.define_network("idle", "192.168.151.0/24", active=False)
    refuse(
        networked,
        6,
        "libvirt network 'idle' on host 'local' is not active",
        "'millpond network start idle' starts it",
        *create("web", "idle"),
    )


def test_a_server_is_neither_started_nor_rebooted_while_its_network_is_inactive(networked, guest):
    networked.define_network("net1", "192.168.150.0/24")
    networked.ok(*create("web", "net1", options=("--start",)))
    networked.stop_network("net1")
    code, message = networked.fails("server", "reboot", "web", "--hard")
    assert (code, "network 'net1' on host 'local' is not active" in message) == (6, True)
    assert networked.json("server", "show", "web")["state"] == "running"
    networked.ok("server", "stop", "web", "--force")
    code, message = networked.fails("server", "start", "web")
    assert (code, "network 'net1' on host 'local' is not active" in message) == (6, True)
    assert networked.json("server", "show", "web")["operation"] is None


def test_a_server_goes_to_the_host_that_has_its_network(multi_host, micro_guest):
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    xml = "<network><name>net1</name><forward mode='bridge'/><bridge name='lo'/></network>"
    with multi_host.hosts["birch"].connect() as connection:
        connection.networkDefineXML(xml).create()
    multi_host.ok(*create("web", "net1"))
    assert multi_host.where("web") == "birch"
    code, message = multi_host.fails(*create("other", "nosuch"))
    assert code == 6
    assert "alder: there is no libvirt network 'nosuch' on host 'alder'" in message


def test_networks_are_listed_started_and_stopped(networked, guest):
    networked.define_network("net1", "192.168.150.0/24", active=False)
    networked.libvirtd.run("ip", "link", "add", "br7", "type", "bridge")
    try:
        listed = networked.json("network", "list")
        assert [(each["kind"], each["name"]) for each in listed] == [
            ("network", "net1"),
            ("bridge", "br7"),
        ]
        assert "bridge:br7" in networked.ok("network", "list")
    finally:
        networked.libvirtd.run("ip", "link", "delete", "br7")
    assert (listed[0]["active"], listed[0]["addresses"]) == (False, ["192.168.150.1/24"])
    assert networked.ok("network", "start", "net1") == "started net1\n"
    started = networked.json("network", "start", "net1", "--autostart")  # again: no error
    assert (started["active"], started["autostart"], started["leases"]) == (True, True, [])
    assert networked.ok("network", "stop", "net1") == "stopped net1\n"
    for verb in ("start", "stop"):
        code, message = networked.fails("network", verb, "nosuch")
        assert (code, "there is net1;" in message) == (3, True)


def test_a_network_that_running_servers_use_is_stopped_only_by_force(networked, guest):
    networked.define_network("net1", "192.168.150.0/24")
    networked.ok(*create("web", "net1", options=("--start",)))
    code, message = networked.fails("network", "stop", "net1")
    assert (code, "'net1' is in use by web" in message) == (4, True)
    assert networked.json("network", "list")[0]["active"]
    networked.ok("network", "stop", "net1", "--force")
    assert not networked.json("network", "list")[0]["active"]


def networks_in(networked, *options):
    """The levels and sentences of doctor's check; it answers 1 where there is a problem."""
    found = json.loads(networked.run("doctor", "--json", *options).stdout)
    return [(each["level"], each["what"]) for each in found if each["check"] == "networks"]


def test_doctor_finds_and_starts_networks(networked, guest):
    networked.define_network("net1", "192.168.150.0/24")
    networked.ok(*create("web", "net1"))
    assert networks_in(networked) == [
        ("warning", "libvirt network 'net1', used by web, will not start together with the host")
    ]
    networked.stop_network("net1")
    inactive = "libvirt network 'net1' on host 'local' is not active, used by web"
    assert networks_in(networked) == [("problem", inactive)]
    networks_in(networked, "--mend")
    networks_in(networked, "--mend")
    assert networks_in(networked) == [("ok", "each server's network is there")]
    with networked.libvirtd.connect() as connection:
        network = connection.networkLookupByName("net1")
        network.destroy()
        network.undefine()
    missing = "there is no libvirt network 'net1' on host 'local', used by web"
    assert networks_in(networked) == [("problem", missing)]
