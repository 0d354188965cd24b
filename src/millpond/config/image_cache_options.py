"""The options of [image_cache]: Nova's own, and those of templates that stream."""

from oslo_config import cfg

IMAGE_CACHE_OPTIONS = (
    cfg.StrOpt(
        "subdirectory_name",
        default="_base",
        deprecated_group="DEFAULT",
        deprecated_name="image_cache_subdirectory_name",
        help="Name of the templates' directory below instances_path.",
    ),
    cfg.BoolOpt(
        "remove_unused_base_images",
        default=True,
        deprecated_group="DEFAULT",
        help="The cache manager removes templates that nothing uses.",
    ),
    cfg.IntOpt(
        "remove_unused_original_minimum_age_seconds",
        default=24 * 3600,
        min=0,
        deprecated_group="DEFAULT",
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
        "fill_rate",
        default="64M",
        help="Bytes a second, such as 64M, that the streaming handler fetches of each image ahead "
        "of need; what guests read comes as fast as it can. 0 sets no bound.",
    ),
    cfg.IntOpt(
        "fill_delay",
        default=10,
        min=0,
        help="Seconds in which it fetches only what guests read, for the first of them to boot.",
    ),
    cfg.BoolOpt(
        "trust_source",
        default=False,
        help="The streaming handler believes what Glance says of an image's parts. Whoever owns "
        "an image there can set that.",
    ),
    cfg.StrOpt(
        "sockets_path",
        default="/run/millpond",
        help="Directory of the sockets that QEMU reads templates from which are still arriving: "
        "the same on all hosts between which servers move.",
    ),
    cfg.StrOpt(
        "max_bytes",
        default="0",
        help="Size that templates may take together, such as 200G: the least recently used that "
        "nothing uses go first; 0 sets no bound.",
    ),
)
