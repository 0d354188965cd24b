"""What tempest.conf says of the tests' small cloud; what is off stands with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.openstack.keystone import Keystone

Options = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """By the cloud's administrator; all by ids."""

    image: str
    other_image: str
    flavor: str
    larger_flavor: str


# There are no network agents: servers have no network, and nobody can log in to them.
_NO_NETWORK: Options = {
    "service_available": {"neutron": False, "swift": False, "horizon": False},
    "validation": {"run_validation": False},
}

_COMPUTE_FEATURES: Mapping[str, object] = {
    "resize": True,
    "rescue": True,
    "stable_rescue": True,
    "volume_backed_live_migration": True,
    "hostname_fqdn_sanitization": True,
    # Both hosts have one directory of instances, where there is nothing to copy.
    "block_migration_for_live_migration": False,
    # Without a network.
    "interface_attach": False,
    "metadata_service": False,
    # Cinder has no key manager, and its NFS driver no volumes for several servers.
    "attach_encrypted_volume": False,
    "volume_multiattach": False,
    # Needs a guest that reads and writes while Cinder swaps its volume; and Cinder's migration.
    "swap_volume": False,
    # No console proxies run.
    "vnc_console": False,
    "spice_console": False,
    "serial_console": False,
    # Nova's libvirt driver injects no files.
    "personality": False,
}


def tempest_conf(keystone: Keystone, offered: Offered, directory: Path) -> Options:
    return {
        **_NO_NETWORK,
        "DEFAULT": {"log_dir": directory, "log_file": "tempest.log"},
        "oslo_concurrency": {"lock_path": directory / "locks"},
        "identity": {"auth_version": "v3", "uri_v3": keystone.url, "region": "RegionOne"},
        "auth": {**keystone.administrator(), "create_isolated_networks": False},
        "compute": {
            "image_ref": offered.image,
            "image_ref_alt": offered.other_image,
            "flavor_ref": offered.flavor,
            "flavor_ref_alt": offered.larger_flavor,
            "min_compute_nodes": 2,
            "max_microversion": "latest",
        },
        "compute-feature-enabled": _COMPUTE_FEATURES,
        # The NFS driver makes no snapshots of volumes here, and no backup service runs.
        "volume-feature-enabled": {"snapshot": False, "clone": False, "backup": False},
        "volume": {"storage_protocol": "nfs", "max_microversion": "latest"},
    }
