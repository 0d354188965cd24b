"""The config drive: what a guest's cloud-init reads of its server, as OpenStack lays it out."""

import base64
import io
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException, PyCdlibInvalidInput

from millpond.errors import Unsupported
from millpond.model.server import Network, Server
from millpond.model.sizes import KiB, MiB

_LABEL = "config-2"  # cloud-init looks for a file system of this label
_SEED = 512  # bytes for the guest's random generator, as many as Nova gives
_ROOM = 512 * KiB  # for the file system, and what the record says
_LONGEST_LABEL = 63  # of a host name (RFC 1123)

_NEW_MACHINE = """\
last=$(cat /var/lib/cloud/data/previous-instance-id 2>/dev/null)
case "$last" in ""|NO_PREVIOUS_INSTANCE_ID) exit 0 ;; esac
rm -f /etc/machine-id && systemd-machine-id-setup || exit 0
if systemctl --quiet is-active systemd-networkd; then systemctl restart systemd-networkd; fi
"""
"""For a guest whose disk was another server's: DHCP would give it that one's address, because
systemd-networkd is known by its machine id."""
_VENDOR_DATA = {
    "cloud-init": "#cloud-config\n"
    + json.dumps(
        {"bootcmd": [["cloud-init-per", "instance", "millpond-machine", "sh", "-c", _NEW_MACHINE]]}
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestConfiguration:
    """What people say of the guest; the rest its record says."""

    hostname: str = ""
    """Empty: made from the server's name."""
    keys: tuple[str, ...] = ()
    """Public ones, for ssh."""
    user_data: bytes = b""

    @property
    def drive_size(self) -> int:
        """Room for the drive of whatever server, and for more to be said later."""
        said = sum(map(len, self.keys)) + len(self.user_data)
        return -(-(said + _ROOM) // MiB) * MiB

    def drive(self, server: Server) -> bytes:
        """An ISO 9660 image with Rock Ridge and Joliet names, which fills its disk."""
        disc = pycdlib.PyCdlib()
        disc.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=_LABEL)
        for parent in ("openstack", "openstack/latest"):
            _add_directory(disc, parent)
        for name, content in self._files(server).items():
            _add_file(disc, f"openstack/latest/{name}", content)
        target = io.BytesIO()
        disc.write_fp(target)
        disc.close()
        return target.getvalue().ljust(self.drive_size, b"\0")

    def _files(self, server: Server) -> Mapping[str, bytes]:
        found = {
            "meta_data.json": _encode(self._meta_data(server)),
            "network_data.json": _encode(_network_data(server)),
            "vendor_data.json": _encode(_VENDOR_DATA),
        }
        return {**found, "user_data": self.user_data} if self.user_data else found

    def _meta_data(self, server: Server) -> Mapping[str, Any]:
        """By the uuid a guest knows that it is another server than the one its disk comes from."""
        named = {f"key{number}": key for number, key in enumerate(self.keys)}
        return {
            "uuid": server.id,
            "name": server.name,
            "hostname": self.hostname or host_name(server.name),
            "launch_index": 0,
            "public_keys": named,
            "keys": [{"name": name, "type": "ssh", "data": key} for name, key in named.items()],
            "random_seed": base64.b64encode(os.urandom(_SEED)).decode(),
        }


def read_drive(content: bytes) -> GuestConfiguration:
    """What people said of the guest whose drive it is. Raises Unsupported for one that is not as
    we write it."""
    disc, found = pycdlib.PyCdlib(), {}
    try:
        disc.open_fp(io.BytesIO(content))
        for name in ("meta_data.json", "user_data"):
            with suppress(PyCdlibInvalidInput):
                target = io.BytesIO()
                disc.get_file_from_iso_fp(target, joliet_path=f"/openstack/latest/{name}")
                found[name] = target.getvalue()
        said = json.loads(found["meta_data.json"])
        return GuestConfiguration(
            hostname=str(said["hostname"]),
            keys=tuple(str(each) for each in said.get("public_keys", {}).values()),
            user_data=found.get("user_data", b""),
        )
    except (PyCdlibException, ValueError, KeyError, AttributeError) as error:
        reason = f"what is on it cannot be read: {error}"
        raise Unsupported("copying the config drive", reason) from error


def host_name(name: str) -> str:
    """A server's name as far as it can be a host's: letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", name.lower())
    return plain[:_LONGEST_LABEL].strip(".-") or "server"


def _network_data(server: Server) -> Mapping[str, Any]:
    """Each interface is known by its MAC, and asks for its address unless that is fixed."""
    links = {f"nic{number}": each for number, each in enumerate(server.networks)}
    named = dict.fromkeys(name for each in server.networks for name in each.nameservers)
    return {
        "links": [
            {
                "id": name,
                "type": "phy",
                "ethernet_mac_address": each.mac,
                "vif_id": name,
                "mtu": None,
            }
            for name, each in links.items()
        ],
        "networks": [
            {"id": f"network-{name}", "link": name, "network_id": name, **_address(each)}
            for name, each in links.items()
        ],
        "services": [{"type": "dns", "address": each} for each in named],
    }


def _address(network: Network) -> Mapping[str, Any]:
    if not network.address:
        return {"type": "ipv4_dhcp"}
    fixed = IPv4Interface(network.address)
    everywhere = {"network": "0.0.0.0", "netmask": "0.0.0.0"}
    return {
        "type": "ipv4",
        "ip_address": str(fixed.ip),
        "netmask": str(fixed.netmask),
        "routes": [{**everywhere, "gateway": network.gateway}] if network.gateway else [],
    }


def _encode(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def _add_directory(disc: pycdlib.PyCdlib, path: str) -> None:
    name = path.rpartition("/")[2]
    disc.add_directory(f"/{_plain(path)}", rr_name=name, joliet_path=f"/{path}")


def _add_file(disc: pycdlib.PyCdlib, path: str, content: bytes) -> None:
    name = path.rpartition("/")[2]
    plain = f"/{_plain(path)}.;1" if "." not in name else f"/{_plain(path)};1"
    disc.add_fp(io.BytesIO(content), len(content), plain, rr_name=name, joliet_path=f"/{path}")


def _plain(path: str) -> str:
    """ISO 9660's own names know only capitals, digits and underscores; nobody reads them."""
    return path.upper().replace("-", "_")
