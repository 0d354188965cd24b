"""The hosts: each as [libvirt] and [compute] say, and as its own section says otherwise."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from millpond.config.options import COMPUTE, DEFAULT, HOST_PREFIX, LIBVIRT, register_named
from millpond.config.reader import (
    Reader,
    parse_image_formats,
    parse_mapping,
    parse_pool_by_disk_name,
    parse_pool_name,
    parse_pool_paths,
    parse_ratio,
    parse_text,
    parse_uri,
    parse_virt_type,
)
from millpond.config.settings import (
    LOCAL,
    ComputeSettings,
    DirectoryPool,
    HostSettings,
    LibvirtSettings,
    PoolSettings,
    RbdSettings,
    VirtTypeOption,
)
from millpond.disks.selection import ImagesType, Selection, parse_images_type
from millpond.errors import BadInput, BadOption
from millpond.model.formats import Backend
from millpond.model.names import check_name
from millpond.model.sizes import MiB
from millpond.model.volume import Clearing, ClearMethod
from millpond.scheduling.providers import CapacitySettings, Ratio

_ENABLED = "enabled_hosts"


def hosts(reader: Reader) -> Mapping[str, HostSettings]:
    sections = register_named(reader.conf, HOST_PREFIX)
    names: list[str] = reader.take(DEFAULT, _ENABLED, list, [])
    if not names:
        return {LOCAL: _host(reader)}
    _check_names(reader, names, sections)
    found = {
        name: _read_named(reader.of_host(f"{HOST_PREFIX}{name}"), name)
        for name in names
        if f"{HOST_PREFIX}{name}" in sections  # of the others enough was said
    }
    _check_uris(reader, found)
    return found or {LOCAL: _host(reader)}


def only_host(reader: Reader) -> Mapping[str, HostSettings]:
    """Of a program on the host itself."""
    return {LOCAL: _host(reader)}


def _check_names(reader: Reader, names: Sequence[str], sections: Sequence[str]) -> None:
    for name in names:
        try:
            check_name("a host", name)
        except BadInput as error:
            reader.complain(DEFAULT, _ENABLED, str(error), error.advice)
        section = f"{HOST_PREFIX}{name}"
        if section not in sections:
            reason = f"there is no section [{section}]"
            reader.complain(DEFAULT, _ENABLED, reason, "add it, with connection_uri")
    for name in sorted({each for each in names if names.count(each) > 1}):
        reader.complain(DEFAULT, _ENABLED, f"{name!r} stands there more than once")


def _check_uris(reader: Reader, found: Mapping[str, HostSettings]) -> None:
    """One host under two names would be given twice what it has."""
    by_uri: dict[str, str] = {}
    for name, host in found.items():
        other = by_uri.setdefault(host.libvirt.connection_uri, name)
        if other != name:
            reason = f"it is the one of host {other!r}"
            section = reader.of_host(f"{HOST_PREFIX}{name}")
            section.complain(LIBVIRT, "connection_uri", reason, "each host has its own")


def _read_named(reader: Reader, name: str) -> HostSettings:
    if name != LOCAL and not reader.is_set(LIBVIRT, "connection_uri"):
        reason = f"host {name!r} has none"
        reader.complain(LIBVIRT, "connection_uri", reason, f"set it in [{HOST_PREFIX}{name}]")
    return _host(reader)


def _host(reader: Reader) -> HostSettings:
    return HostSettings(
        libvirt=_libvirt(reader),
        compute=_compute(reader),
        capacity=_capacity(reader),
        **_migration(reader),
    )


def _migration(reader: Reader) -> Mapping[str, Any]:
    """Only of a host that has a section of its own."""
    taken = (("migration_uri", _parse_migration_uri, ""), ("migration_tls", bool, False))
    return {
        name: reader.take(DEFAULT, name, parse, default)
        for name, parse, default in taken
        if reader.is_set(DEFAULT, name)
    }


def _parse_migration_uri(value: str | None) -> str:
    uri = parse_text(value)
    if uri and not (urlsplit(uri).scheme == "tcp" or urlsplit(uri).scheme.startswith("qemu")):
        reason = f"{uri!r} is neither tcp://ADDRESS nor a URI of libvirt's"
        raise BadOption("migration_uri", reason, "such as tcp://10.0.0.2")
    if uri.startswith("tcp:") and not urlsplit(uri).hostname:
        raise BadOption("migration_uri", f"{uri!r} has no address", "such as tcp://10.0.0.2")
    return uri


def _capacity(reader: Reader) -> CapacitySettings:
    def ratio(kind: str) -> Ratio:
        name = f"{kind}_allocation_ratio"
        return Ratio(
            stated=reader.take(DEFAULT, name, parse_ratio, None),
            initial=reader.take(DEFAULT, f"initial_{name}", parse_ratio, None) or 1.0,
        )

    return CapacitySettings(
        cpu_allocation_ratio=ratio("cpu"),
        ram_allocation_ratio=ratio("ram"),
        disk_allocation_ratio=ratio("disk"),
        reserved_host_cpus=reader.take(DEFAULT, "reserved_host_cpus", int, 0),
        reserved_host_memory_mb=reader.take(DEFAULT, "reserved_host_memory_mb", int, 0),
        reserved_host_disk_mb=reader.take(DEFAULT, "reserved_host_disk_mb", int, 0),
    )


def _libvirt(reader: Reader) -> LibvirtSettings:
    selection = _selection(reader)
    settings = LibvirtSettings(
        connection_uri=reader.take(LIBVIRT, "connection_uri", parse_uri, ""),
        connection_timeout=reader.take(LIBVIRT, "connection_timeout", int, 0),
        virt_type=reader.take(LIBVIRT, "virt_type", parse_virt_type, VirtTypeOption.AUTO),
        selection=selection,
        use_storage_pools=reader.take(LIBVIRT, "use_storage_pools", bool, True),
        pools=_pools(reader),
        volume_group=reader.take(LIBVIRT, "images_volume_group", parse_text, ""),
        clearing=_clearing(reader),
        rbd=_rbd(reader, selection),
    )
    _check_backends(reader, settings)
    return settings


def _selection(reader: Reader) -> Selection:
    return Selection(
        images_type=reader.take(LIBVIRT, "images_type", parse_images_type, ImagesType.DEFAULT),
        mapping=reader.take(LIBVIRT, "images_type_mapping", parse_mapping, {}),
        use_cow_images=reader.take(DEFAULT, "use_cow_images", bool, True),
        force_raw_images=reader.take(DEFAULT, "force_raw_images", bool, True),
    )


def _clearing(reader: Reader) -> Clearing:
    return Clearing(
        method=reader.take(LIBVIRT, "volume_clear", ClearMethod, ClearMethod.ZERO),
        size=reader.take(LIBVIRT, "volume_clear_size", int, 0) * MiB,
    )


def _rbd(reader: Reader, selection: Selection) -> RbdSettings | None:
    """Nova's own definition of the pool has a default, which says nothing where no rbd is used."""
    pool = reader.take(LIBVIRT, "images_rbd_pool", parse_text, "")
    ceph_conf = reader.take(LIBVIRT, "images_rbd_ceph_conf", parse_text, "")
    settings = RbdSettings(
        pool=pool,
        ceph_conf=Path(ceph_conf) if ceph_conf else None,
        user=reader.take(LIBVIRT, "rbd_user", parse_text, ""),
        secret_uuid=reader.take(LIBVIRT, "rbd_secret_uuid", parse_text, ""),
    )
    is_meant = reader.is_set(LIBVIRT, "images_rbd_pool") or Backend.RBD in selection.backends()
    return settings if pool and is_meant else None


def _check_backends(reader: Reader, settings: LibvirtSettings) -> None:
    """What images_type or a mapping leads to must be configured (B9)."""
    backends = settings.selection.backends()
    if Backend.LVM in backends and not settings.volume_group:
        reason = "the lvm backend is asked for and has no volume group"
        reader.complain(LIBVIRT, "images_volume_group", reason, "name the volume group")
    if Backend.RBD in backends and settings.rbd is None:
        reason = "the rbd backend is asked for and has no Ceph pool"
        reader.complain(LIBVIRT, "images_rbd_pool", reason, "name the pool; Nova's is 'rbd'")
    if settings.rbd and bool(settings.rbd.user) != bool(settings.rbd.secret_uuid):
        reason = "rbd_user and rbd_secret_uuid belong together: who, and the secret with their key"
        reader.complain(LIBVIRT, "rbd_secret_uuid", reason, "set both, or none without cephx")
    if settings.selection.images_type.pools_only and not settings.use_storage_pools:
        reason = "images_type = libvirt-storage allows no disks outside of storage pools"
        reader.complain(LIBVIRT, "use_storage_pools", reason)


def _pools(reader: Reader) -> PoolSettings:
    base = _directory_pool(reader, "base_images_pool")
    disks = _directory_pool(reader, "disks_pool")
    others = _pools_by_disk_name(reader, disks)
    settings = PoolSettings(
        base_images=base,
        disks=disks,
        lvm=reader.take(LIBVIRT, "disks_pool_lvm", parse_pool_name, "lvm"),
        rbd=reader.take(LIBVIRT, "disks_pool_rbd", parse_pool_name, "rbd"),
        by_disk_name=others,
    )
    _check_distinct(reader, settings)
    return settings


def _directory_pool(reader: Reader, name: str) -> DirectoryPool:
    return DirectoryPool(
        name=reader.take(LIBVIRT, name, parse_pool_name, name),
        path=reader.path(LIBVIRT, f"{name}_path"),
    )


def _pools_by_disk_name(reader: Reader, disks: DirectoryPool) -> Mapping[str, DirectoryPool]:
    names = reader.take(LIBVIRT, "pool_by_disk_name", parse_pool_by_disk_name, None)
    given = reader.take(LIBVIRT, "pool_paths", parse_pool_paths, None)
    if names is None or given is None:
        return {}
    paths = {disks.name: disks.path, **given}
    for pool in sorted(set(names.values()) - set(paths)):
        reason = f"pool {pool!r} has no directory"
        reader.complain(LIBVIRT, "pool_by_disk_name", reason, f"pool_paths = {pool}:/directory")
    for pool in sorted(set(given) - set(names.values())):
        reader.complain(LIBVIRT, "pool_paths", f"pool_by_disk_name does not name pool {pool!r}")
    return {
        role: DirectoryPool(name=pool, path=paths[pool])
        for role, pool in names.items()
        if pool in paths
    }


def _check_distinct(reader: Reader, pools: PoolSettings) -> None:
    """libvirt has one pool of a name, and we want one pool at a place."""
    directories = {pools.base_images, pools.disks, *pools.by_disk_name.values()}
    names = [*(each.name for each in directories), pools.lvm, pools.rbd]
    paths = [str(each.path) for each in directories if each.path.is_absolute()]
    for kind, values in (("name", names), ("directory", paths)):
        for value in sorted({each for each in values if values.count(each) > 1}):
            reason = f"two pools have the {kind} {value!r}"
            reader.problems.append(BadOption("[libvirt] storage pools", reason))


def _compute(reader: Reader) -> ComputeSettings:
    return ComputeSettings(
        image_type_exclude_list=reader.take(
            COMPUTE, "image_type_exclude_list", parse_image_formats, frozenset()
        ),
        report_converted_image_types=reader.take(
            COMPUTE, "report_converted_image_types", bool, True
        ),
    )
