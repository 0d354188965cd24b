"""NICs of servers: fixed MACs and addresses, and NICs that come and go."""

import io
import json
from concurrent.futures import ThreadPoolExecutor

import libvirt
import pycdlib
import pytest

from millpond.records.journal import StepMoment
from tests.real.test_addresses import BOOTED, address_in, create, fetch, linux  # noqa: F401
from tests.support.killer import kill_at
from tests.support.verbs import steps_of

MAC = "52:54:00:00:00:50"
FIXED = f"net1,mac={MAC},ip=192.168.150.5"


@pytest.fixture
def guest(networked, micro_guest):
    networked.ok("image", "add", micro_guest.path, "--name", "guest")
    networked.make_pools()
    networked.define_network("net1", "192.168.150.0/24")
    return networked


def create_words(name, *networks, start="--no-start"):
    words = ("server", "create", name, "--image", "guest", "--memory", "16M", start)
    return (*words, *(word for each in networks for word in ("--network", each)))


def reserved(networked, address="192.168.150.5"):
    """Whether the address is, in the network as it is now and as it is kept."""
    texts = [networked.network_xml("net1", each) for each in (0, libvirt.VIR_NETWORK_XML_INACTIVE)]
    return [f"<host mac='{MAC}' ip='{address}'/>" in each for each in texts]


def interfaces(networked, name, flags=0):
    with networked.libvirtd.connect() as connection:
        return connection.lookupByName(name).XMLDesc(flags).count("<interface ")


def test_a_fixed_address_is_reserved_told_to_the_guest_and_freed(guest):
    made = guest.json(*create_words("web", FIXED))
    assert made["networks"] == [
        {
            "kind": "network",
            "source": "net1",
            "mac": MAC,
            "address": "192.168.150.5/24",
            "gateway": "192.168.150.1",
            "nameservers": ["192.168.150.1"],
            "ports": [],
            "addresses": [],
        }
    ]
    assert reserved(guest) == [True, True]
    (volume,) = (each["volume"] for each in made["disks"] if each["role"] == "disk.config")
    told = network_data(guest.disks / volume)
    assert told["links"][0]["ethernet_mac_address"] == MAC
    everywhere = {"network": "0.0.0.0", "netmask": "0.0.0.0"}
    (network,) = told["networks"]
    assert network | {"id": "", "link": "", "network_id": ""} == {
        "id": "",
        "link": "",
        "network_id": "",
        "type": "ipv4",
        "ip_address": "192.168.150.5",
        "netmask": "255.255.255.0",
        "routes": [{**everywhere, "gateway": "192.168.150.1"}],
    }
    assert told["services"] == [{"type": "dns", "address": "192.168.150.1"}]
    assert f" net1, {MAC}, 192.168.150.5\n" in guest.ok("server", "show", "web")
    guest.ok("server", "delete", "web")
    assert reserved(guest) == [False, False]


def network_data(drive):
    disc = pycdlib.PyCdlib()
    disc.open(str(drive))
    content = io.BytesIO()
    disc.get_file_from_iso_fp(content, rr_path="/openstack/latest/network_data.json")
    disc.close()
    return json.loads(content.getvalue())


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("net1,ip=192.168.151.5", "192.168.151.5 cannot be a guest's address in net1"),
        ("net1,ip=192.168.150.1", "192.168.150.1 cannot be a guest's address in net1"),
        ("net1,ip=192.168.150.255", "192.168.150.255 cannot be a guest's address in net1"),
        ("net1,ip=192.168.150.5", f"192.168.150.5 is {MAC}'s in net1"),
        (f"net1,mac={MAC}", f"{MAC} is server 'first''s"),
        ("bridge:vbrnet1,ip=192.168.150.9", "vbrnet1 does not say how long the prefix is"),
        ("bridge:vbrnet1,ip=10.0.0.5/24", "10.0.0.5 is server 'second''s"),
    ],
)
def test_what_cannot_be_fixed_is_refused(guest, network, sentence):
    guest.ok(*create_words("first", FIXED))
    guest.ok(*create_words("second", "bridge:vbrnet1,ip=10.0.0.5/24"))
    for words in (
        create_words("web", network),
        ("server", "nic", "add", "second", "--network", network),
    ):
        if "second" in words and "second" in sentence:
            continue
        code, message = guest.fails(*words)
        assert (code, sentence in message, "hint:" in message) == (2, True, True), message
    assert [each["name"] for each in guest.json("server", "list")] == ["first", "second"]
    assert len(guest.json("server", "nic", "list", "second")) == 1


def test_one_mac_is_given_to_one_of_two_that_ask_at_once(guest):
    with ThreadPoolExecutor() as threads:
        words = [create_words(name, FIXED) for name in ("one", "two")]
        done = list(threads.map(lambda each: guest.run(*each), words))
    assert sorted(each.returncode for each in done) == [0, 2], [each.stderr for each in done]
    assert len(guest.json("server", "list")) == 1
    assert reserved(guest) == [True, True]


def test_two_nics_with_one_mac_are_refused(guest):
    code, message = guest.fails(*create_words("web", f"user,mac={MAC}", f"net1,mac={MAC}"))
    assert (code, "two NICs have one mac" in message) == (2, True)


def test_nics_come_and_go_while_the_server_is_off(guest):
    guest.ok(*create_words("web", "none"))
    assert guest.ok("server", "nic", "add", "web", "--network", FIXED) == f"{MAC}\n"
    assert reserved(guest) == [True, True]
    assert interfaces(guest, "web") == 1
    assert [each["mac"] for each in guest.json("server", "nic", "list", "web")] == [MAC]
    assert MAC in guest.ok("server", "nic", "list", "web")
    code, message = guest.fails("server", "nic", "remove", "web", "52:54:00:00:00:99")
    assert (code, f"it has {MAC}" in message) == (3, True)
    guest.ok("server", "nic", "remove", "web", MAC.upper())
    assert reserved(guest) == [False, False]
    assert interfaces(guest, "web") == 0
    assert guest.server("web").networks == ()


@pytest.mark.parametrize(
    ("state", "verb", "step", "moment"),
    [
        (state, verb, step, moment)
        # The smallest guest lets no NIC go while it runs.
        for verb, states in {"nic add": ("running", "stopped"), "nic remove": ("stopped",)}.items()
        for state in states
        for step in steps_of(verb)
        for moment in StepMoment
    ],
)
def test_killed_in_between_doctor_finishes_it(guest, state, verb, step, moment):
    first = ("none",) if verb == "nic add" else (FIXED,)
    start = "--start" if state == "running" else "--no-start"
    made = guest.json(*create_words("web", *first, start=start))
    kill_at(guest, verb, step, moment, verb, "web", FIXED if verb == "nic add" else MAC)
    assert "interrupted" in guest.ok("server", "list")
    guest.ok("doctor", "--mend")
    count = 1 if verb == "nic add" else 0
    assert len(guest.server("web").networks) == interfaces(guest, "web") == count
    assert reserved(guest) == [bool(count)] * 2
    assert guest.json("server", "show", made["id"])["state"] == state


@pytest.mark.timeout(900)
def test_nics_come_and_go_while_the_guest_runs(linux):  # noqa: F811
    made = create(linux, "web", "none")
    linux.wait_for_console(made["id"], "TICK", BOOTED)
    linux.ok("server", "nic", "add", "web", "--network", FIXED)
    assert address_in(linux, made) == "192.168.150.5"
    assert fetch(linux, "http://192.168.150.5/marker") == "millpond-linux"
    assert interfaces(linux, "web", libvirt.VIR_DOMAIN_XML_INACTIVE) == 1
    linux.ok("server", "nic", "remove", "web", MAC)
    assert interfaces(linux, "web") == interfaces(linux, "web", 2) == 0
    assert reserved(linux) == [False, False]
    assert linux.server("web").networks == ()
