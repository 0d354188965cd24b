"""The options, under nova.conf's names where Nova has them, and their registration."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from oslo_config import cfg

DEFAULT = "DEFAULT"
LIBVIRT = "libvirt"
IMAGE_CACHE = "image_cache"
SCHEDULER = "scheduler"
COMPUTE = "compute"
HTTP = "http"
GLANCE = "glance"
CINDER = "cinder"
FLAVOR_PREFIX = "flavor:"

_DEFAULT_OPTIONS = (
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
        "nothing where the image is a volume of Cinder's or lies in Ceph. Plug-ins can add more.",
    ),
    cfg.StrOpt(
        "default_ephemeral_format",
        default="ext4",
        choices=["ext2", "ext3", "ext4", "xfs", "vfat"],
        help="File system that ephemeral disks are made with.",
    ),
)

_LIBVIRT_OPTIONS = (
    cfg.StrOpt(
        "connection_uri",
        default="",
        help="The libvirt host. Empty means qemu:///system.",
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
        "disk.dataNAME, kernel, ramdisk; a * at the end stands for any ending. "
        "Example: disk.swap:fast, disk.eph*:fast",
    ),
    cfg.StrOpt(
        "pool_paths",
        default="",
        help="Directory of each pool that pool_by_disk_name names: pool:directory, "
        "comma-separated. Example: fast:/srv/fast",
    ),
)

_IMAGE_CACHE_OPTIONS = (
    cfg.IntOpt(
        "manager_interval",
        default=2400,
        min=-1,
        deprecated_group=DEFAULT,
        deprecated_name="image_cache_manager_interval",
        help="Seconds between two runs of the cache manager; 0 means every minute, -1 never.",
    ),
    cfg.StrOpt(
        "subdirectory_name",
        default="_base",
        deprecated_group=DEFAULT,
        deprecated_name="image_cache_subdirectory_name",
        help="Name of the templates' directory below instances_path.",
    ),
    cfg.BoolOpt(
        "remove_unused_base_images",
        default=True,
        deprecated_group=DEFAULT,
        help="The cache manager removes templates that nothing uses.",
    ),
    cfg.IntOpt(
        "remove_unused_original_minimum_age_seconds",
        default=24 * 3600,
        min=0,
        deprecated_group=DEFAULT,
        help="How long a template stays after its last use.",
    ),
    cfg.IntOpt(
        "host_lease_seconds",
        default=30 * 24 * 3600,
        min=60,
        help="How long what another host uses counts in a cache that it shares with this one, "
        "after it was last heard of.",
    ),
    cfg.IntOpt(
        "precache_concurrency",
        default=1,
        min=1,
        help="How many images are fetched at once ahead of use.",
    ),
    cfg.StrOpt(
        "max_bytes",
        default="0",
        help="Size that templates may take together, such as 200G: the least recently used that "
        "nothing uses go first; 0 sets no bound.",
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

_HTTP_OPTIONS = (
    cfg.IntOpt(
        "connect_timeout",
        default=10,
        min=1,
        help="Seconds that a server of images has to accept a connection.",
    ),
    cfg.IntOpt(
        "read_timeout",
        default=60,
        min=1,
        help="Seconds that it has to answer, and to send each further 256 KiB.",
    ),
    cfg.IntOpt(
        "retries",
        default=3,
        min=0,
        help="How often a download that broke off is gone on with or begun again.",
    ),
)

CLOUD_AUTH = (
    "auth_url",
    "username",
    "password",
    "project_name",
    "project_id",
    "user_domain_name",
    "user_domain_id",
    "project_domain_name",
    "project_domain_id",
)
"""By keystoneauth's names, as in nova.conf."""


def _cloud_options(service: str, others: str = "") -> tuple[cfg.Opt, ...]:
    """Where a service is, and who asks; ``others`` tells what rules where nothing is said."""
    return (
        cfg.StrOpt("cloud", default="", help=f"Name of a cloud in clouds.yaml. {others}"),
        cfg.StrOpt(
            "auth_type",
            default="",
            help="How to prove who we are, such as password; none asks no Keystone and needs "
            f"{service}'s URL.",
        ),
        *(
            cfg.StrOpt(
                name,
                default="",
                secret=name == "password",
                help=f"Keystone's {name.replace('_', ' ')}, for auth_type = password.",
            )
            for name in CLOUD_AUTH
        ),
        cfg.StrOpt(
            "cafile", default="", help="File of the certificates to trust; empty: usual ones."
        ),
        cfg.BoolOpt("insecure", default=False, help="Do not verify certificates."),
    )


_GLANCE_OPTIONS = (
    *_cloud_options(
        "Glance",
        "Without it, without auth_type and without endpoint_override the environment rules "
        "(OS_CLOUD, OS_AUTH_URL, ...).",
    ),
    cfg.StrOpt(
        "endpoint_override",
        default="",
        help="Glance's URL; empty asks Keystone's catalogue.",
    ),
    cfg.StrOpt("region_name", default="", help="Region of the cloud."),
    cfg.IntOpt(
        "num_retries",
        default=3,
        min=0,
        help="How often a download from Glance that broke off is gone on with.",
    ),
    cfg.BoolOpt(
        "verify_glance_signatures",
        default=False,
        help="Only signed images are taken. Needs millpond[signatures], and the certificates in "
        "the key manager that [key_manager] and [barbican] lead to.",
    ),
    cfg.BoolOpt(
        "enable_certificate_validation",
        default=False,
        help="Only images are taken that are signed with a certificate of today that leads to a "
        "trusted one.",
    ),
    cfg.ListOpt(
        "default_trusted_certificate_ids",
        default=[],
        help="Ids in the key manager of the certificates that are trusted: issuers, up to a root.",
    ),
)

_CINDER_OPTIONS = (
    *_cloud_options("Cinder", "Without it and without auth_type, [glance] says who asks."),
    cfg.StrOpt(
        "endpoint_template",
        default="",
        help="Cinder's URL, in which %(project_id)s may stand; empty asks Keystone's catalogue.",
    ),
    cfg.StrOpt("os_region_name", default="", help="Region of the cloud."),
    cfg.IntOpt(
        "http_retries",
        default=3,
        min=0,
        help="How often a question to Cinder that was not answered is asked again.",
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
)

OPTIONS: Mapping[str, Sequence[cfg.Opt]] = {
    DEFAULT: _DEFAULT_OPTIONS,
    LIBVIRT: _LIBVIRT_OPTIONS,
    IMAGE_CACHE: _IMAGE_CACHE_OPTIONS,
    SCHEDULER: _SCHEDULER_OPTIONS,
    COMPUTE: _COMPUTE_OPTIONS,
    HTTP: _HTTP_OPTIONS,
    GLANCE: _GLANCE_OPTIONS,
    CINDER: _CINDER_OPTIONS,
}


def register(conf: cfg.ConfigOpts) -> None:
    """Add what is not there yet: under Nova, Nova's own definition of an option stands."""
    for group, options in OPTIONS.items():
        _register(conf, group, options)


def register_flavors(conf: cfg.ConfigOpts) -> Sequence[str]:
    """Define the options of each ``[flavor:NAME]`` that the files have; answers the groups."""
    groups = [name for name in conf.list_all_sections() if name.startswith(FLAVOR_PREFIX)]
    for group in groups:
        _register(conf, group, FLAVOR_OPTIONS)
    return groups


def _register(conf: cfg.ConfigOpts, group: str, options: Sequence[cfg.Opt]) -> None:
    for option in options:
        with suppress(cfg.DuplicateOptError):
            conf.register_opt(option, group=None if group == DEFAULT else group)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """What oslo-config-generator asks for."""
    return [(group, list(options)) for group, options in all_options().items()]


def all_options() -> Mapping[str, Sequence[cfg.Opt]]:
    """Every group, with one for the flavours, whose names the operator chooses."""
    return {**OPTIONS, f"{FLAVOR_PREFIX}NAME": FLAVOR_OPTIONS}
