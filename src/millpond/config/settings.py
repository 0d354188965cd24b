"""What the configuration says, as values that nothing changes any more."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from millpond.disks.selection import Selection
from millpond.model.cloud import CloudAccess, SignaturePolicy
from millpond.model.formats import ImageFormat
from millpond.model.server import Flavor
from millpond.model.transfer import Patience
from millpond.model.volume import Clearing
from millpond.scheduling.providers import CapacitySettings
from millpond.scheduling.weigh import Multipliers


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPool:
    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    base_images: DirectoryPool
    disks: DirectoryPool
    lvm: str = "nova-disks-pool-lvm"
    rbd: str = "nova-disks-pool-rbd"
    by_disk_name: Mapping[str, DirectoryPool] = field(default_factory=dict)
    """By the disk's name, which may end in ``*``; the most exact one stands first."""


class VirtTypeOption(StrEnum):
    """What virt_type may say; the host turns it into a VirtType."""

    AUTO = "auto"
    KVM = "kvm"
    QEMU = "qemu"
    PARALLELS = "parallels"


class ImageSourceOption(StrEnum):
    CATALOGUE = "catalogue"
    GLANCE = "glance"


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdSettings:
    pool: str
    ceph_conf: Path | None
    """None: Ceph looks in its usual places."""
    user: str
    secret_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtSettings:
    connection_uri: str
    connection_timeout: int
    """Seconds."""
    virt_type: VirtTypeOption
    selection: Selection
    """images_type, images_type_mapping, use_cow_images and force_raw_images."""
    use_storage_pools: bool
    pools: PoolSettings
    volume_group: str
    """Empty if the lvm backend is not configured."""
    clearing: Clearing
    rbd: RbdSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCacheSettings:
    remove_unused_base_images: bool
    remove_unused_original_minimum_age_seconds: int
    host_lease_seconds: int
    precache_concurrency: int
    max_bytes: int
    """0 sets no bound."""
    fill_rate: int
    """Bytes a second; 0 sets no bound."""
    fill_delay: int
    trust_source: bool
    sockets_path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    filter_hosts_by_image_type_support: bool
    report_interval: int
    """Seconds."""
    multipliers: Multipliers


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    image_type_exclude_list: frozenset[ImageFormat]
    report_converted_image_types: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """What may differ from host to host."""

    libvirt: LibvirtSettings
    compute: ComputeSettings
    capacity: CapacitySettings
    migration_uri: str = ""
    migration_tls: bool = False

    def digest(self) -> str:
        """The same in every process: sets have no order of their own."""
        plain = msgspec.json.encode(self, order="deterministic", enc_hook=str)
        return hashlib.sha256(plain).hexdigest()


LOCAL = "local"
"""The one host, where no others are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of the whole deployment."""

    state_path: Path
    instances_path: Path
    template_image_handler: str
    default_ephemeral_format: str
    hosts: Mapping[str, HostSettings]
    """At least one, by its name."""
    image_cache: ImageCacheSettings
    scheduler: SchedulerSettings
    http: Patience
    image_source: ImageSourceOption
    glance: CloudAccess
    cinder: CloudAccess
    image_volume_project_id: str
    placement: CloudAccess | None
    """None where it is a part of this program."""
    signatures: SignaturePolicy
    """Which images of Glance need one, and whose."""
    flavors: Mapping[str, Flavor]
    config_files: tuple[Path, ...] = ()
    """For programs that are started to go on with what was begun."""
    own_process: bool = True
    """Not an option: False for a program that is not ours, as nova-compute."""
