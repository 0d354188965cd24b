"""From options to settings: every value is parsed, and everything that is wrong said at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from oslo_config import cfg

from millpond.config.cloud_options import CINDER, CLOUD_AUTH, GLANCE, HTTP, PLACEMENT
from millpond.config.hosts import hosts, only_host
from millpond.config.options import (
    DEFAULT,
    FILTER_SCHEDULER,
    FLAVOR_PREFIX,
    IMAGE_CACHE,
    LIBVIRT,
    NAMED_SECTIONS,
    OPTIONS,
    SCHEDULER,
    register,
    register_named,
)
from millpond.config.reader import (
    DEFAULT_FILE,
    Reader,
    files_of,
    parse_extra_specs,
    parse_handler,
    parse_text,
    read,
    same_section,
    sections_of,
)
from millpond.config.settings import (
    HostSettings,
    ImageCacheSettings,
    ImageSourceOption,
    SchedulerSettings,
    Settings,
)
from millpond.errors import BadInput, BadOption
from millpond.model.cloud import CloudAccess, SignaturePolicy
from millpond.model.names import check_name
from millpond.model.server import SMALL, Flavor
from millpond.model.sizes import parse_size
from millpond.model.transfer import Patience
from millpond.scheduling.weigh import Multipliers

_NEAR = 0.9
_NOVAS = {("glance", "rbd_user")}  # and of ours in another section
_CASTELLANS = frozenset({"key_manager", "barbican", "barbican_service_user", "vault"})
_NEAR_SECTION = 0.8  # sections are short, and no section of Nova's is nearer than 0.72


def find_mistyped(conf: cfg.ConfigOpts) -> Iterator[BadOption]:
    """Every section or option that was surely meant to be another one."""
    for path, section, name in _unread(conf):
        reason = _mistake(section, name)
        if reason:
            label = f"[{section}] {name}".rstrip()
            yield BadOption(f"{label} in {path}", "nothing reads it", reason)


def unread(conf: cfg.ConfigOpts) -> Iterator[str]:
    """The other options without a reader, in files that are ours: a nova.conf would fill the
    screen. That has sections besides ours, or names Nova's driver."""
    foreign = {path for path, _, name in _unread(conf) if name in ("", "compute_driver")}
    for path, section, name in _unread(conf):
        if path not in foreign and not _mistake(section, name):
            yield f"[{section}] {name} in {path} is not read"


def _unread(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, str, str]]:
    """File, section and option; no option where the whole section is not ours."""
    for path in files_of(conf):
        for section, options in sections_of(path).items():
            known = _options_of(section)
            if section.lower() in _CASTELLANS:
                continue
            if not known:
                yield path, section, ""
            else:
                yield from ((path, section, name) for name in options if name not in known)


def _mistake(section: str, name: str) -> str:
    """What was probably meant, or nothing."""
    if not name:
        return _mistaken_section(section)
    known = _options_of(section)
    near = get_close_matches(name.lower(), known, 1, _NEAR)
    if near:
        return f"did you mean {near[0]}?"
    if prefix := _prefix(section):
        return f"options of a {prefix.rstrip(':')}: {', '.join(known)}"
    if (section.lower(), name) in _NOVAS:
        return ""
    home = next((group for group in OPTIONS if name in _options_of(group)), "")
    return f"it belongs in the section [{home}]" if home else ""


def _mistaken_section(section: str) -> str:
    stem, _, rest = section.partition(":")
    sections = {each.lower(): each for each in OPTIONS}
    sections |= {each.rstrip(":"): f"{each}{rest or 'NAME'}" for each in NAMED_SECTIONS}
    near = get_close_matches(stem.lower(), sections, 1, _NEAR_SECTION)
    return f"did you mean the section [{sections[near[0]]}]?" if near else ""


def _options_of(section: str) -> list[str]:
    """The names that are read in a section; none if the section is not ours."""
    if prefix := _prefix(section):
        return [option.name for option in NAMED_SECTIONS[prefix]]
    known = []
    for group, options in OPTIONS.items():
        for option in options:
            if same_section(group, section):
                known.append(option.name)
            known.extend(
                old.name or option.name
                for old in option.deprecated_opts
                if same_section(old.group or group, section)
            )
    return known


def _prefix(section: str) -> str:
    """Of a section that the operator has named."""
    return next((each for each in NAMED_SECTIONS if section.startswith(each)), "")


def load(config_files: Sequence[Path] | None = None, default: Path = DEFAULT_FILE) -> Settings:
    return own_settings(read(config_files, default))


def own_settings(conf: cfg.ConfigOpts) -> Settings:
    """The settings of a program of ours: its files are searched for typing errors too."""
    reader = Reader(conf)
    reader.problems.extend(find_mistyped(conf))
    settings = _settings(reader, hosts(reader), _placement(reader))
    if not all(each.libvirt.use_storage_pools for each in settings.hosts.values()):
        reader.complain(
            LIBVIRT,
            "use_storage_pools",
            "by itself Millpond makes no disks outside of storage pools",
            "leave it out; only under Nova can it be off",
        )
    _check_signatures(reader, settings)
    reader.raise_problems()
    return settings


def settings_from(conf: cfg.ConfigOpts) -> Settings:
    """The settings from a ConfigOpts that somebody else has filled, such as Nova's. It has one
    host, the one that it is on, and a client of Placement's of its own."""
    register(conf, [group for group in OPTIONS if group != PLACEMENT])
    reader = Reader(conf)
    settings = _settings(reader, only_host(reader), None)
    reader.raise_problems()
    return settings


def _settings(
    reader: Reader, hosts: Mapping[str, HostSettings], placement: CloudAccess | None
) -> Settings:
    glance = _glance(reader)
    return Settings(
        state_path=reader.path(DEFAULT, "state_path"),
        instances_path=reader.path(DEFAULT, "instances_path"),
        template_image_handler=reader.take(DEFAULT, "template_image_handler", parse_handler, ""),
        default_ephemeral_format=reader.take(DEFAULT, "default_ephemeral_format", parse_text, "")
        or "ext4",  # Nova defines it without a default
        hosts=hosts,
        image_cache=_image_cache(reader),
        scheduler=_scheduler(reader),
        http=_patience(reader, HTTP, "retries"),
        image_source=reader.take(
            DEFAULT, "image_source", ImageSourceOption, ImageSourceOption.CATALOGUE
        ),
        glance=glance,
        cinder=_cinder(reader, glance),
        image_volume_project_id=reader.take(CINDER, "image_volume_project_id", parse_text, ""),
        placement=placement,
        signatures=_signatures(reader),
        flavors=_flavors(reader),
        config_files=tuple(files_of(reader.conf)),
    )


def _image_cache(reader: Reader) -> ImageCacheSettings:
    age = "remove_unused_original_minimum_age_seconds"
    return ImageCacheSettings(
        remove_unused_base_images=reader.take(
            IMAGE_CACHE, "remove_unused_base_images", bool, True
        ),
        remove_unused_original_minimum_age_seconds=reader.take(IMAGE_CACHE, age, int, 0),
        host_lease_seconds=reader.take(IMAGE_CACHE, "host_lease_seconds", int, 60),
        precache_concurrency=reader.take(IMAGE_CACHE, "precache_concurrency", int, 1),
        max_bytes=reader.take(IMAGE_CACHE, "max_bytes", parse_size, 0),
        fill_rate=reader.take(IMAGE_CACHE, "fill_rate", parse_size, 0),
        fill_delay=reader.take(IMAGE_CACHE, "fill_delay", int, 0),
        trust_source=reader.take(IMAGE_CACHE, "trust_source", bool, False),
        sockets_path=reader.path(IMAGE_CACHE, "sockets_path"),
    )


def _scheduler(reader: Reader) -> SchedulerSettings:
    """One switch under two names, the specification's and Nova's (B33)."""
    names = ("filter_hosts_by_image_type_support", "query_placement_for_image_type_support")
    values = {name: reader.take(SCHEDULER, name, bool, False) for name in names}
    given = {values[name] for name in names if reader.is_set(SCHEDULER, name)}
    if len(given) > 1:
        reader.complain(SCHEDULER, names[0], f"{names[1]} says the opposite", "set one of them")

    def weight(name: str) -> float:
        return reader.take(FILTER_SCHEDULER, f"{name}_weight_multiplier", float, 0.0)

    return SchedulerSettings(
        filter_hosts_by_image_type_support=any(values.values()),
        report_interval=reader.take(SCHEDULER, "report_interval", int, 0),
        multipliers=Multipliers(
            native=weight("native_format"),
            cached=weight("cached_template"),
            disk=weight("disk"),
            memory=weight("ram"),
        ),
    )


def _flavors(reader: Reader) -> Mapping[str, Flavor]:
    groups = register_named(reader.conf, FLAVOR_PREFIX)
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
        extra_specs=reader.take(group, "extra_specs", parse_extra_specs, {}),
    )
    if flavor.memory == 0:
        reader.complain(group, "memory", "a server cannot run without memory")
    return flavor


def _flavor_name(reader: Reader, group: str) -> str:
    name = group.removeprefix(FLAVOR_PREFIX).strip()
    try:
        return check_name("a flavour", name)
    except BadInput as error:
        reader.problems.append(BadOption(f"[{group}]", str(error), error.advice))
        return name


@dataclass(frozen=True, slots=True)
class _CloudNames:
    """Nova has another name for the same in each group."""

    url: str
    region: str
    retries: str
    service: str


def _glance(reader: Reader) -> CloudAccess:
    return _cloud(
        reader, GLANCE, _CloudNames("endpoint_override", "region_name", "num_retries", "Glance")
    )


def _cinder(reader: Reader, glances: CloudAccess) -> CloudAccess:
    """Where nothing is said of it, in the cloud that has Glance."""
    names = _CloudNames("endpoint_template", "os_region_name", "http_retries", "Cinder")
    access = _cloud(reader, CINDER, names)
    if access.cloud or access.auth_type:
        return access
    return replace(
        glances,
        endpoint_override=access.endpoint_override,
        region_name=access.region_name or glances.region_name,
        cafile=access.cafile or glances.cafile,
        insecure=access.insecure or glances.insecure,
        patience=access.patience,
    )


def _placement(reader: Reader) -> CloudAccess | None:
    """None where it is not said where one is: it is embedded then."""
    names = _CloudNames("endpoint_override", "region_name", "connect_retries", "Placement")
    access = _cloud(reader, PLACEMENT, names)
    return access if access.cloud or access.is_stated else None


def _cloud(reader: Reader, group: str, names: _CloudNames) -> CloudAccess:
    def text(name: str) -> str:
        return reader.take(group, name, parse_text, "")

    access = CloudAccess(
        cloud=text("cloud"),
        auth_type=text("auth_type"),
        auth={name: value for name in CLOUD_AUTH if (value := text(name))},
        endpoint_override=text(names.url),
        region_name=text(names.region),
        cafile=text("cafile"),
        insecure=reader.take(group, "insecure", bool, False),
        patience=_patience(reader, group, names.retries),
    )
    if access.cloud and (access.auth_type or access.endpoint_override):
        reason = f"auth_type and {names.url} say where {names.service} is, too"
        reader.complain(group, "cloud", reason, "set either cloud or these")
    return access


def _patience(reader: Reader, group: str, retries: str) -> Patience:
    return Patience(
        connect_seconds=reader.take(HTTP, "connect_timeout", int, 1),
        read_seconds=reader.take(HTTP, "read_timeout", int, 1),
        retries=reader.take(group, retries, int, 0),
    )


def _signatures(reader: Reader) -> SignaturePolicy:
    """As Nova reads them: ids count where they are asked for, and then they are enough."""
    validates = reader.take(GLANCE, "enable_certificate_validation", bool, False)
    ids = reader.take(GLANCE, "default_trusted_certificate_ids", tuple, ())
    verifies = reader.take(GLANCE, "verify_glance_signatures", bool, False)
    return SignaturePolicy(
        trusted=ids if validates else (),
        key_manager=reader.conf,
        of_every_image=verifies or bool(validates and ids),
        seconds=reader.take(HTTP, "read_timeout", int, 1),
    )


def _check_signatures(reader: Reader, settings: Settings) -> None:
    uses_glance = settings.image_source is ImageSourceOption.GLANCE
    if not settings.signatures.of_every_image or not uses_glance:
        return
    if not all(find_spec(each) for each in ("castellan", "cursive")):
        reason = "what verifies signatures is not installed"
        advised = "pip install 'millpond[signatures]'"
        reader.complain(GLANCE, "verify_glance_signatures", reason, advised)
    validates = reader.take(GLANCE, "enable_certificate_validation", bool, False)
    if validates and not settings.signatures.trusted:
        reason = "enable_certificate_validation is on, and no certificate is trusted"
        advised = "name some, or leave enable_certificate_validation out"
        reader.complain(GLANCE, "default_trusted_certificate_ids", reason, advised)
