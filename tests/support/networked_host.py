"""A host with a network namespace of its own, in which libvirt makes bridges and starts dnsmasq
without touching the machine's. A plugin (tests/conftest.py)."""

import ipaddress
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import COMMAND, Millpond

_NETWORK = """\
<network>
  <name>{name}</name>
  {forward}
  <bridge name='{bridge}'/>
  <ip address='{gateway}' netmask='{netmask}'>{dhcp}</ip>
</network>
"""
_OPEN = "<forward mode='open'/>"  # without rules for the firewall, which take a second


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkedMillpond(Millpond):
    """Its files are local; its networks are not."""

    libvirtd: PrivateLibvirtd

    def define_network(
        self, name: str, subnet: str, *, active: bool = True, dhcp: bool = True
    ) -> None:
        network = ipaddress.ip_network(subnet)
        gateway, *rest = network.hosts()
        bounds = f"<dhcp><range start='{rest[8]}' end='{rest[-1]}'/></dhcp>" if dhcp else ""
        xml = _NETWORK.format(
            name=name,
            forward=_OPEN,
            bridge=f"vbr{name}",
            gateway=gateway,
            netmask=network.netmask,
            dhcp=bounds,
        )
        with self.libvirtd.connect() as connection:
            made = connection.networkDefineXML(xml)
            if active:
                made.create()

    def network_xml(self, name: str, flags: int = 0) -> str:
        with self.libvirtd.connect() as connection:
            found: str = connection.networkLookupByName(name).XMLDesc(flags)
        return found

    def stop_network(self, name: str) -> None:
        with self.libvirtd.connect() as connection:
            connection.networkLookupByName(name).destroy()

    def run_there(self, *words: object, seconds: float = 100) -> subprocess.CompletedProcess[str]:
        """The command in the host's own network."""
        told = [str(COMMAND), "--config-file", str(self.config), *map(str, words)]
        return subprocess.run(
            self.libvirtd.command(*told),
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )


@pytest.fixture
def networked(remote_libvirtd: PrivateLibvirtd, workdir: Path) -> Iterator[NetworkedMillpond]:
    """A fresh state directory on a host that may have networks."""
    made = NetworkedMillpond(directory=workdir, uri=remote_libvirtd.uri, libvirtd=remote_libvirtd)
    made.configure()
    yield made
    remote_libvirtd.clear()
