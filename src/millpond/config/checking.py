"""From options to settings: every value is parsed, and everything that is wrong said at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from oslo_config import cfg

from millpond.backends.selection import ImagesType, Selection, parse_images_type
from millpond.config import clouds
from millpond.config.files import DEFAULT_FILE, origin, read
from millpond.config.options import (
    COMPUTE,
    DEFAULT,
    FLAVOR_PREFIX,
    HTTP,
    IMAGE_CACHE,
    LIBVIRT,
    SCHEDULER,
    register,
    register_flavors,
)
from millpond.config.parsing import (
    parse_handler,
    parse_image_formats,
    parse_mapping,
    parse_pool_name,
    parse_pool_paths,
    parse_text,
    parse_uri,
    parse_virt_type,
)
from millpond.config.pools import DirectoryPool, PoolSettings, parse_pool_by_disk_name
from millpond.config.reader import Reader
from millpond.config.settings import (
    ComputeSettings,
    ImageCacheSettings,
    ImageSourceOption,
    LibvirtSettings,
    RbdSettings,
    SchedulerSettings,
    Settings,
    VirtTypeOption,
)
from millpond.config.unread import mistyped
from millpond.errors import BadInput, BadOption
from millpond.model.flavor import SMALL, Flavor
from millpond.model.formats import Backend
from millpond.model.names import checked_name
from millpond.model.sizes import parse_size


def load(config_files: Sequence[Path] | None = None, default: Path = DEFAULT_FILE) -> Settings:
    return own_settings(read(config_files, default))


def own_settings(conf: cfg.ConfigOpts) -> Settings:
    """The settings of a program of ours: its files are searched for typing errors too."""
    reader = Reader(conf)
    reader.problems.extend(mistyped(conf))
    settings = _settings(reader)
    if not settings.libvirt.use_storage_pools:
        reader.complain(
            LIBVIRT,
            "use_storage_pools",
            "by itself Millpond makes no disks outside of storage pools",
            "leave it out; only under Nova can it be off",
        )
    clouds.check_signatures(reader, settings)
    reader.raise_problems()
    return settings


def settings_from(conf: cfg.ConfigOpts) -> Settings:
    """The settings from a ConfigOpts that somebody else has filled, such as Nova's."""
    register(conf)
    reader = Reader(conf)
    settings = _settings(reader)
    reader.raise_problems()
    return settings


def _settings(reader: Reader) -> Settings:
    glance = clouds.glance(reader)
    return Settings(
        state_path=reader.path(DEFAULT, "state_path"),
        instances_path=reader.path(DEFAULT, "instances_path"),
        template_image_handler=reader.take(DEFAULT, "template_image_handler", parse_handler, ""),
        default_ephemeral_format=reader.take(DEFAULT, "default_ephemeral_format", parse_text, "")
        or "ext4",  # Nova defines it without a default
        libvirt=_libvirt(reader),
        image_cache=_image_cache(reader),
        scheduler=_scheduler(reader),
        compute=_compute(reader),
        http=clouds.patience(reader, HTTP, "retries"),
        image_source=reader.take(
            DEFAULT, "image_source", ImageSourceOption, ImageSourceOption.CATALOGUE
        ),
        glance=glance,
        cinder=clouds.cinder(reader, glance),
        signatures=clouds.signatures(reader),
        flavors=_flavors(reader),
    )


def _libvirt(reader: Reader) -> LibvirtSettings:
    settings = LibvirtSettings(
        connection_uri=reader.take(LIBVIRT, "connection_uri", parse_uri, ""),
        virt_type=reader.take(LIBVIRT, "virt_type", parse_virt_type, VirtTypeOption.AUTO),
        selection=_selection(reader),
        use_storage_pools=reader.take(LIBVIRT, "use_storage_pools", bool, True),
        pools=_pools(reader),
        volume_group=reader.take(LIBVIRT, "images_volume_group", parse_text, ""),
        rbd=_rbd(reader),
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


def _rbd(reader: Reader) -> RbdSettings | None:
    pool = reader.take(LIBVIRT, "images_rbd_pool", parse_text, "")
    ceph_conf = reader.take(LIBVIRT, "images_rbd_ceph_conf", parse_text, "")
    settings = RbdSettings(
        pool=pool,
        ceph_conf=Path(ceph_conf) if ceph_conf else None,
        user=reader.take(LIBVIRT, "rbd_user", parse_text, ""),
        secret_uuid=reader.take(LIBVIRT, "rbd_secret_uuid", parse_text, ""),
    )
    return settings if pool else None


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


def _image_cache(reader: Reader) -> ImageCacheSettings:
    age = "remove_unused_original_minimum_age_seconds"
    return ImageCacheSettings(
        manager_interval=reader.take(IMAGE_CACHE, "manager_interval", int, 0),
        remove_unused_base_images=reader.take(
            IMAGE_CACHE, "remove_unused_base_images", bool, True
        ),
        remove_unused_original_minimum_age_seconds=reader.take(IMAGE_CACHE, age, int, 0),
        host_lease_seconds=reader.take(IMAGE_CACHE, "host_lease_seconds", int, 60),
        precache_concurrency=reader.take(IMAGE_CACHE, "precache_concurrency", int, 1),
        max_bytes=reader.take(IMAGE_CACHE, "max_bytes", parse_size, 0),
    )


def _scheduler(reader: Reader) -> SchedulerSettings:
    """One switch under two names, the specification's and Nova's (B33)."""
    names = ("filter_hosts_by_image_type_support", "query_placement_for_image_type_support")
    values = {name: reader.take(SCHEDULER, name, bool, False) for name in names}
    given = {values[name] for name in names if origin(reader.conf, SCHEDULER, name)}
    if len(given) > 1:
        reader.complain(SCHEDULER, names[0], f"{names[1]} says the opposite", "set one of them")
    return SchedulerSettings(filter_hosts_by_image_type_support=any(values.values()))


def _compute(reader: Reader) -> ComputeSettings:
    return ComputeSettings(
        image_type_exclude_list=reader.take(
            COMPUTE, "image_type_exclude_list", parse_image_formats, frozenset()
        ),
        report_converted_image_types=reader.take(
            COMPUTE, "report_converted_image_types", bool, True
        ),
    )


def _flavors(reader: Reader) -> Mapping[str, Flavor]:
    groups = register_flavors(reader.conf)
    named = [_flavor(reader, group) for group in groups]
    return {SMALL.name: SMALL, **{flavor.name: flavor for flavor in named}}


def _flavor(reader: Reader, group: str) -> Flavor:
    def size(name: str, unit: str) -> int:
        return reader.take(group, name, lambda text: parse_size(text, unit=unit), 1)

    flavor = Flavor(
        name=_flavor_name(reader, group),
        vcpus=reader.take(group, "vcpus", int, 1),
        memory=size("memory", "m"),
        disk=size("disk", "g"),
        ephemeral=size("ephemeral", "g"),
        swap=size("swap", "m"),
    )
    if flavor.memory == 0:
        reader.complain(group, "memory", "a server cannot run without memory")
    return flavor


def _flavor_name(reader: Reader, group: str) -> str:
    name = group.removeprefix(FLAVOR_PREFIX).strip()
    try:
        return checked_name("a flavour", name)
    except BadInput as error:
        reader.problems.append(BadOption(f"[{group}]", str(error), error.advice))
        return name
