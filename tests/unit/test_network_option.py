"""What --network says of a NIC."""

import pytest

from millpond.errors import BadOption
from millpond.model.network_option import parse_network, publish_ports
from millpond.model.server import Network, NetworkKind, PortForward


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("none", None),
        ("user", Network(kind=NetworkKind.USER)),
        ("default", Network(kind=NetworkKind.NETWORK, source="default")),
        ("bridge:br0", Network(kind=NetworkKind.BRIDGE, source="br0")),
        (
            "user,mac=52:54:00:AB:cd:ef",
            Network(kind=NetworkKind.USER, mac="52:54:00:ab:cd:ef"),
        ),
        (
            "default,ip=192.168.122.50,mac=52:54:00:00:00:01",
            Network(
                kind=NetworkKind.NETWORK,
                source="default",
                mac="52:54:00:00:00:01",
                address="192.168.122.50",
            ),
        ),
        (
            "bridge:br0,ip=10.0.0.5/24,gateway=10.0.0.1,dns=10.0.0.1+10.0.0.2",
            Network(
                kind=NetworkKind.BRIDGE,
                source="br0",
                address="10.0.0.5/24",
                gateway="10.0.0.1",
                nameservers=("10.0.0.1", "10.0.0.2"),
            ),
        ),
    ],
)
def test_what_it_means(text, network):
    assert parse_network(text) == network


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bridge:", "'bridge:' is no network"),
        ("a\x01b", "is no network"),
        ("", "'' is no network"),
        ("default,", "'' says nothing of a NIC"),
        ("default,mac", "'mac' says nothing of a NIC"),
        ("default,vlan=5", "'vlan=5' says nothing of a NIC"),
        ("default,mac=52:54:00:00:00", "is no MAC address"),
        ("default,mac=00:00:00:00:00:00", "is no MAC address"),
        ("default,mac=01:54:00:00:00:01", "cannot be a NIC's MAC address"),
        ("default,mac=ff:ff:ff:ff:ff:ff", "cannot be a NIC's MAC address"),
        ("default,mac=fe:54:00:00:00:01", "cannot be a NIC's MAC address"),
        ("default,ip=300.1.1.1", "'300.1.1.1' is no IPv4 address"),
        ("default,ip=fd00::1", "'fd00::1' is no IPv4 address"),
        ("bridge:br0,ip=10.0.0.5/99", "'10.0.0.5/99' is no IPv4 address"),
        ("bridge:br0,ip=10.0.0.5/24,gateway=x", "'x' is no IPv4 address"),
        ("bridge:br0,gateway=10.0.0.1", "gateway= and dns= are for a fixed address"),
        ("default,ip=10.0.0.1,ip=10.0.0.2", "something is said twice"),
        ("user,ip=10.0.2.20", "addresses of the network 'user' are QEMU's"),
        ("none,mac=52:54:00:00:00:01", "nothing of it can be fixed"),
    ],
)
def test_what_means_nothing(text, sentence):
    with pytest.raises(BadOption) as refused:
        parse_network(text)
    assert sentence in str(refused.value)
    assert refused.value.advice


USER = Network(kind=NetworkKind.USER)
BRIDGE = Network(kind=NetworkKind.BRIDGE, source="br0")


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("2222:22", PortForward(address="127.0.0.1", port=2222, guest=22)),
        ("0.0.0.0:8080:80", PortForward(address="0.0.0.0", port=8080, guest=80)),
        ("5353:53/udp", PortForward(address="127.0.0.1", port=5353, guest=53, protocol="udp")),
    ],
)
def test_what_is_published(text, port):
    first, second, third = publish_ports([BRIDGE, USER, USER], [text])
    assert (first, second.ports, third.ports) == (BRIDGE, (port,), ())


@pytest.mark.parametrize(
    ("networks", "texts", "sentence"),
    [
        ([USER], ["22"], "'22' says no ports"),
        ([USER], ["2222:22:22:22"], "says no ports"),
        ([USER], ["2222:0"], "says no ports"),
        ([USER], ["70000:22"], "says no ports"),
        ([USER], ["2222:22/sctp"], "says no ports"),
        ([USER], ["::1:2222:22"], "says no ports"),
        ([USER], ["22:22"], "no port below 1024"),
        ([USER], ["300.0.0.1:2222:22"], "300.0.0.1 is no IPv4 address"),
        ([USER], ["2222:22", "0.0.0.0:2222:23"], "are one port"),
        ([BRIDGE], ["2222:22"], "the server is not in it"),
        ([], ["2222:22"], "the server is not in it"),
    ],
)
def test_what_cannot_be_published(networks, texts, sentence):
    with pytest.raises(BadOption) as refused:
        publish_ports(networks, texts)
    assert sentence in str(refused.value)
    assert refused.value.advice
