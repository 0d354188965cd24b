"""Several who listen to the lives of a host's domains, by one connection."""

from contextlib import suppress

import libvirt
import pytest

from millpond.errors import ConnectionLost
from millpond.system.libvirt_migration import RESUMED, SUSPENDED
from millpond.system.libvirtd import Libvirtd
from tests.real.test_harness import domain_element, xml
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.waiting import wait_for


@pytest.fixture
def domain(connection: libvirt.virConnect, workdir) -> libvirt.virDomain:
    return connection.createXML(xml(domain_element("server", workdir / "log")))


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def __call__(self, domain: str, event: int) -> None:
        self.heard.append((domain, event))


def test_all_who_listen_hear_it_until_they_stop(
    libvirtd: PrivateLibvirtd, domain: libvirt.virDomain
) -> None:
    """As two live migrations from one host do, each for its own domain."""
    host, id = Libvirtd(libvirtd.uri), domain.UUIDString()
    first, second = Listener(), Listener()
    with host.lifecycle.heard_by(first):
        with host.lifecycle.heard_by(second):
            domain.suspend()
            wait_for(lambda: (id, SUSPENDED) in second.heard, 30)
        domain.resume()
        wait_for(lambda: (id, RESUMED) in first.heard, 30)
    assert (id, SUSPENDED) in first.heard
    assert (id, RESUMED) not in second.heard


def test_after_a_restart_of_libvirtd_whoever_listens_next_hears_it(
    libvirtd: PrivateLibvirtd, domain: libvirt.virDomain
) -> None:
    host, id, name = Libvirtd(libvirtd.uri), domain.UUIDString(), domain.name()
    before, after = Listener(), Listener()
    with host.lifecycle.heard_by(before):
        libvirtd.restart()
        with suppress(ConnectionLost), host.calling("noticing it", slow=True) as lost:
            lost.getLibVersion()
        with host.lifecycle.heard_by(after), libvirtd.connect() as connection:
            connection.lookupByName(name).suspend()
            wait_for(lambda: (id, SUSPENDED) in after.heard, 30)
