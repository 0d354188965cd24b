"""What a host's networks say, where somebody does not answer."""

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

from millpond.errors import HostProblem
from millpond.libvirt.networks import Networks
from millpond.system import libvirtd

QUICK, HANGS = "quick", "hangs"
MACS = {QUICK: "52:54:00:00:00:01", HANGS: "52:54:00:00:00:02"}


class Host:
    """A libvirt in another network, whose ARP table knows nothing, and one of whose guests lets
    its agent hang."""

    uri = "qemu+tcp://elsewhere/system"

    def __init__(self):
        self.released = threading.Event()

    @contextmanager
    def calling(self, _doing, *, slow=False):
        assert slow  # the other connection stays free
        yield SimpleNamespace(lookupByUUIDString=self._domain)

    def _domain(self, id):
        def addresses(source, _flags):
            if source == libvirtd.FROM_ARP:
                raise HostProblem("wrong nlmsg len")
            if id == HANGS:
                self.released.wait(60)
            found = (
                "10.0.0.5",
                "127.0.0.1",
                "fe80::1",
                "0.0.0.0",
                "\x1b[2J",
                "fd00::5",
                "fd00::6%'$(reboot)",
            )
            return {
                "lo": {"hwaddr": None, "addrs": None},
                "eth0": {
                    "hwaddr": MACS[id].upper(),
                    "addrs": [{"addr": each, "prefix": 24, "type": 0} for each in found],
                },
            }

        return SimpleNamespace(interfaceAddresses=addresses)


def test_a_guest_that_does_not_answer_holds_nobody():
    host = Host()
    begun = time.monotonic()
    try:
        found = Networks(host, "there").heard({id: [mac] for id, mac in MACS.items()}, 1.0)
    finally:
        host.released.set()
    assert time.monotonic() - begun < 30
    assert found == {MACS[QUICK]: ("10.0.0.5", "fd00::5", "fd00::6")}
