"""The options, under nova.conf's names where Nova has them, and their registration."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from oslo_config import cfg

from millpond.config.cloud_options import CLOUD_OPTIONS
from millpond.config.image_cache_options import IMAGE_CACHE_OPTIONS

DEFAULT = "DEFAULT"
LIBVIRT = "libvirt"
IMAGE_CACHE = "image_cache"
SCHEDULER = "scheduler"
COMPUTE = "compute"
FILTER_SCHEDULER = "filter_scheduler"
FLAVOR_PREFIX = "flavor:"
HOST_PREFIX = "host:"

_DEFAULT_OPTIONS = (
    cfg.ListOpt(
        "enabled_hosts",
        default=[],
        help="Names of the hosts, each with a section [host:NAME]. Empty: one host, which "
        "[libvirt] describes.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/millpond",
        help="Directory of everything that Millpond must remember.",
    ),
    cfg.StrOpt(
        "instances_path",
        default="$state_path/instances",
        help="Directory above the pools' directories and, under Nova, of the instances.",
    ),
    cfg.BoolOpt(
        "use_cow_images",
        default=True,
        help="What images_type = default stands for: on, qcow2 disks over a shared template; "
        "off, raw copies of it.",
    ),
    cfg.BoolOpt(
        "force_raw_images",
        default=True,
        help="Templates are raw whatever the image was, except where images_type_mapping has "
        "qcow2:qcow2.",
    ),
    cfg.StrOpt(
        "image_source",
        default="catalogue",
        choices=["catalogue", "glance"],
        help="Where servers' images come from: this machine's own catalogue, or Glance.",
    ),
    cfg.StrOpt(
        "template_image_handler",
        default="downloading",
        help="How an image becomes a template: downloading, or volume-based-linking, which copies "
        "nothing where the image is a volume of Cinder's or lies in Ceph, or streaming: servers "
        "start before all of the image is there. Plug-ins can add more.",
    ),
    cfg.StrOpt(
        "default_ephemeral_format",
        default="ext4",
        choices=["ext2", "ext3", "ext4", "xfs", "vfat"],
        help="File system that ephemeral disks are made with.",
    ),
)

_CAPACITY_OPTIONS = (
    cfg.FloatOpt(
        "cpu_allocation_ratio",
        min=0.0,
        help="How many virtual processors a processor may serve. Empty: initial_cpu_allocation_"
        "ratio.",
    ),
    cfg.FloatOpt(
        "ram_allocation_ratio",
        min=0.0,
        help="The same of memory. Empty: initial_ram_allocation_ratio.",
    ),
    cfg.FloatOpt(
        "disk_allocation_ratio",
        min=0.0,
        help="The same of each pool of disks. Empty: initial_disk_allocation_ratio.",
    ),
    cfg.FloatOpt("initial_cpu_allocation_ratio", default=4.0, min=0.0, help="Nova's default."),
    cfg.FloatOpt("initial_ram_allocation_ratio", default=1.0, min=0.0, help="Nova's default."),
    cfg.FloatOpt("initial_disk_allocation_ratio", default=1.0, min=0.0, help="Nova's default."),
    cfg.IntOpt("reserved_host_cpus", default=0, min=0, help="Processors that servers do not get."),
    cfg.IntOpt("reserved_host_memory_mb", default=512, min=0, help="MiB that servers do not get."),
    cfg.IntOpt(
        "reserved_host_disk_mb",
        default=0,
        min=0,
        help="MiB of each pool of disks that servers do not get.",
    ),
)

_LIBVIRT_OPTIONS = (
    cfg.StrOpt(
        "connection_uri",
        default="",
        help="The libvirt host. Empty means qemu:///system.",
    ),
    cfg.IntOpt(
        "connection_timeout",
        default=30,
        min=1,
        help="Seconds after which a libvirt host that does not answer is an error.",
    ),
    cfg.StrOpt(
        "virt_type",
        default="auto",
        choices=["auto", "kvm", "qemu", "parallels"],
        help="How guests run. auto is kvm where QEMU can use it and qemu elsewhere; parallels "
        "changes only which image types the host reports.",
    ),
    cfg.StrOpt(
        "images_type",
        default="default",
        choices=["raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default", "libvirt-storage"],
        ignore_case=True,
        help="Backend of every image that images_type_mapping does not list, and of swap and "
        "ephemeral disks. flat is raw; default follows use_cow_images; libvirt-storage is "
        "default on a host that has no legacy disks, so that none are looked for.",
    ),
    # Not a ListOpt: that drops a trailing comma, which has to be an error (B7).
    cfg.StrOpt(
        "images_type_mapping",
        default="",
        help="Backend by the image's format: source:backend, comma-separated. "
        "Sources: raw, qcow2, ploop, vmdk, vdi, vhd, vhdx, iso, ami. "
        "Backends: raw (or flat), qcow2, lvm, rbd, ploop. Example: qcow2:qcow2, raw:lvm",
    ),
    cfg.BoolOpt(
        "use_storage_pools",
        default=True,
        help="New disks are volumes of storage pools. Only under Nova can this be off.",
    ),
    cfg.StrOpt("images_volume_group", help="LVM volume group of the lvm backend."),
    cfg.StrOpt(
        "volume_clear",
        default="zero",
        choices=["zero", "shred", "none"],
        help="How a volume of the lvm backend is wiped when it is deleted: overwritten with "
        "zeros, three times with random bytes, or not at all.",
    ),
    cfg.IntOpt(
        "volume_clear_size",
        default=0,
        min=0,
        help="MiB from its beginning that are wiped; 0 means the whole volume.",
    ),
    cfg.StrOpt("images_rbd_pool", help="Ceph pool of the rbd backend."),
    cfg.StrOpt(
        "images_rbd_ceph_conf",
        default="",
        help="Ceph's configuration file. Empty leaves it to Ceph's own search.",
    ),
    cfg.StrOpt("rbd_user", help="Ceph user of the rbd backend."),
    cfg.StrOpt(
        "rbd_secret_uuid",
        secret=True,
        help="The libvirt secret that holds the Ceph user's key.",
    ),
    cfg.StrOpt(
        "base_images_pool",
        default="nova-base-images-pool",
        help="Storage pool of the templates.",
    ),
    cfg.StrOpt(
        "base_images_pool_path",
        default="$instances_path/$image_cache.subdirectory_name",
        help="Directory of the pool of templates.",
    ),
    cfg.StrOpt("disks_pool", default="nova-disks-pool", help="Directory pool of the disks."),
    cfg.StrOpt(
        "disks_pool_path",
        default="$instances_path/disks",
        help="Directory of the pool of disks.",
    ),
    cfg.StrOpt(
        "disks_pool_lvm",
        default="nova-disks-pool-lvm",
        help="Storage pool of the lvm backend's disks.",
    ),
    cfg.StrOpt(
        "disks_pool_rbd",
        default="nova-disks-pool-rbd",
        help="Storage pool of the rbd backend's disks.",
    ),
    cfg.StrOpt(
        "pool_by_disk_name",
        default="",
        help="Another directory pool for some disks: disk:pool, comma-separated. Disks: disk, "
        "disk.local, disk.eph0 (and so on), disk.swap, disk.config, disk.rescue, "
        "disk.dataNAME, kernel, ramdisk, nvram; a * at the end stands for any ending. "
        "Example: disk.swap:fast, disk.eph*:fast",
    ),
    cfg.StrOpt(
        "pool_paths",
        default="",
        help="Directory of each pool that pool_by_disk_name names: pool:directory, "
        "comma-separated. Example: fast:/srv/fast",
    ),
)

_SCHEDULER_OPTIONS = (
    cfg.BoolOpt(
        "filter_hosts_by_image_type_support",
        default=False,
        help="Servers go only to hosts that report support for their image's type.",
    ),
    # An option of its own, not a deprecated name: it also has to work where Nova defines it.
    cfg.BoolOpt(
        "query_placement_for_image_type_support",
        default=False,
        help="Nova's name for filter_hosts_by_image_type_support: set one of the two.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=60,
        min=0,
        help="Seconds after which a host is looked at again, and what it has reported, before a "
        "server is sent to one.",
    ),
)

_FILTER_SCHEDULER_OPTIONS = (
    cfg.FloatOpt(
        "native_format_weight_multiplier",
        default=10.0,
        help="How much a host counts that need not convert the image; 0 switches it off.",
    ),
    cfg.FloatOpt(
        "cached_template_weight_multiplier",
        default=3.0,
        help="How much a host counts that has the image's template already.",
    ),
    cfg.FloatOpt(
        "disk_weight_multiplier",
        default=1.0,
        help="How much free disk space counts; below 0, full hosts are filled first.",
    ),
    cfg.FloatOpt(
        "ram_weight_multiplier",
        default=1.0,
        help="How much free memory counts; below 0, full hosts are filled first.",
    ),
)

_COMPUTE_OPTIONS = (
    cfg.ListOpt(
        "image_type_exclude_list",
        default=[],
        help="Image formats that this host does not report, although it could use them.",
    ),
    cfg.BoolOpt(
        "report_converted_image_types",
        default=True,
        help="The host also reports the formats that it has to convert.",
    ),
)

FLAVOR_OPTIONS = (
    cfg.IntOpt("vcpus", default=1, min=1, help="Virtual processors."),
    cfg.StrOpt("memory", default="512M", help="Memory; a bare number counts MiB."),
    cfg.StrOpt(
        "disk",
        default="0",
        help="Root disk; a bare number counts GiB, 0 is as large as the image.",
    ),
    cfg.StrOpt("ephemeral", default="0", help="Ephemeral disk; a bare number counts GiB."),
    cfg.StrOpt("swap", default="0", help="Swap disk; a bare number counts MiB."),
    cfg.StrOpt(
        "extra_specs",
        default="",
        help="What a host must have, or must not, comma-separated. Example: "
        "trait:HW_CPU_X86_AVX2=required, trait:CUSTOM_SLOW=forbidden",
    ),
)

HOST_OPTIONS = (
    *_LIBVIRT_OPTIONS,
    cfg.StrOpt(
        "migration_uri",
        default="",
        help="How a server that runs comes here: tcp://ADDRESS where QEMU may listen, or the URI "
        "by which another libvirtd reaches this one. Empty: loopback on one machine, otherwise "
        "connection_uri.",
    ),
    cfg.BoolOpt(
        "migration_tls",
        default=False,
        help="QEMU encrypts what goes to its address in migration_uri, by its certificates.",
    ),
    *_COMPUTE_OPTIONS,
    *_CAPACITY_OPTIONS,
)
"""What may differ from host to host."""

OPTIONS: Mapping[str, Sequence[cfg.Opt]] = {
    DEFAULT: (*_DEFAULT_OPTIONS, *_CAPACITY_OPTIONS),
    LIBVIRT: _LIBVIRT_OPTIONS,
    IMAGE_CACHE: IMAGE_CACHE_OPTIONS,
    SCHEDULER: _SCHEDULER_OPTIONS,
    FILTER_SCHEDULER: _FILTER_SCHEDULER_OPTIONS,
    COMPUTE: _COMPUTE_OPTIONS,
    **CLOUD_OPTIONS,
}

NAMED_SECTIONS: Mapping[str, Sequence[cfg.Opt]] = {
    FLAVOR_PREFIX: FLAVOR_OPTIONS,
    HOST_PREFIX: HOST_OPTIONS,
}
"""Sections that the operator names, by what their names begin with."""


def register(conf: cfg.ConfigOpts, groups: Collection[str] = tuple(OPTIONS)) -> None:
    """Add what is not there yet: under Nova, Nova's own definition of an option stands."""
    for group in groups:
        _register(conf, group, OPTIONS[group])


def widen(options: Sequence[cfg.Opt]) -> None:
    """Let Nova's own options take what ours of the same name take: its list of images_type is
    closed. Before nova.conf is read."""
    wider = {option.name: option for option in _LIBVIRT_OPTIONS if option.name == "images_type"}
    for option in options:
        if option.name in wider:
            option.type = wider[option.name].type


def register_named(conf: cfg.ConfigOpts, prefix: str) -> Sequence[str]:
    """Define the options of each ``[prefix:NAME]`` that the files have; answers the groups."""
    groups = [name for name in conf.list_all_sections() if name.startswith(prefix)]
    for group in groups:
        _register(conf, group, NAMED_SECTIONS[prefix])
    return groups


def _register(conf: cfg.ConfigOpts, group: str, options: Sequence[cfg.Opt]) -> None:
    for option in options:
        with suppress(cfg.DuplicateOptError):
            conf.register_opt(option, group=None if group == DEFAULT else group)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """What oslo-config-generator asks for."""
    return [(group, list(options)) for group, options in all_options().items()]


def all_options() -> Mapping[str, Sequence[cfg.Opt]]:
    """Every group, with one for each kind whose names the operator chooses."""
    named = {f"{prefix}NAME": options for prefix, options in NAMED_SECTIONS.items()}
    return {**OPTIONS, **named}
