"""Configuration files to settings: real files, every error at once (B1, B9, B17, B33, B40)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg
from typer.testing import CliRunner, Result

from millpond import config
from millpond.cli.config import app
from millpond.cli.output import GlobalOptions
from millpond.config import (
    LOCAL,
    DirectoryPool,
    HostSettings,
    ImageSourceOption,
    Settings,
    VirtTypeOption,
)
from millpond.disks.selection import ImagesType
from millpond.errors import BadConfiguration, BadInput
from millpond.model.formats import Backend, ImageFormat
from millpond.model.server import Flavor
from millpond.model.sizes import GiB, MiB
from millpond.model.volume import Clearing, ClearMethod

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "millpond.conf") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def loaded(path: Path) -> Settings:
    return config.load([path])


def problems(path: Path) -> dict[str, str]:
    """Option to what is wrong with it; the file's name is left out."""
    with pytest.raises(BadConfiguration) as refusal:
        config.load([path])
    return {
        each.option.removesuffix(f" in {path}"): f"{each.reason} ({each.advice})"
        for each in refusal.value.problems
    }


def local(settings: Settings) -> HostSettings:
    return settings.hosts[LOCAL]


# Values


def test_b4_an_empty_file_leaves_every_default(write: Write) -> None:
    settings = loaded(write(""))
    libvirt = local(settings).libvirt
    assert settings.state_path == Path("/var/lib/millpond")
    assert settings.template_image_handler == "downloading"
    assert libvirt.connection_uri == "qemu:///system"
    assert libvirt.virt_type is VirtTypeOption.AUTO
    assert libvirt.selection.images_type is ImagesType.DEFAULT
    assert libvirt.selection.mapping == {}
    assert libvirt.use_storage_pools
    assert libvirt.rbd is None
    assert libvirt.pools.base_images == DirectoryPool(
        name="nova-base-images-pool", path=Path("/var/lib/millpond/instances/_base")
    )
    assert libvirt.pools.disks == DirectoryPool(
        name="nova-disks-pool", path=Path("/var/lib/millpond/instances/disks")
    )
    assert settings.image_cache.max_bytes == 0
    assert not settings.scheduler.filter_hosts_by_image_type_support
    assert local(settings).compute.report_converted_image_types


def test_what_the_file_says_reaches_the_settings(write: Write) -> None:
    settings = loaded(
        write("""
[DEFAULT]
use_cow_images = false
force_raw_images = no
[libvirt]
connection_uri = qemu+ssh://other/system
virt_type = qemu
images_type = lvm
images_type_mapping = qcow2:qcow2,
    RAW : flat
images_volume_group = vg0
volume_clear = shred
volume_clear_size = 64
connection_timeout = 7
[image_cache]
max_bytes = 1.5G
[compute]
image_type_exclude_list = vmdk, VHDX
report_converted_image_types = false
""")
    )
    selection = local(settings).libvirt.selection
    assert selection.images_type is ImagesType.LVM
    assert selection.mapping == {
        ImageFormat.QCOW2: Backend.QCOW2,
        ImageFormat.RAW: Backend.RAW,
    }
    assert not selection.use_cow_images
    assert not selection.force_raw_images
    assert local(settings).libvirt.connection_uri == "qemu+ssh://other/system"
    assert local(settings).libvirt.virt_type is VirtTypeOption.QEMU
    assert local(settings).libvirt.volume_group == "vg0"
    assert local(settings).libvirt.clearing == Clearing(method=ClearMethod.SHRED, size=64 * MiB)
    assert local(settings).libvirt.connection_timeout == 7
    assert settings.image_cache.max_bytes == 3 * GiB // 2
    assert local(settings).compute.image_type_exclude_list == {
        ImageFormat.VMDK,
        ImageFormat.VHDX,
    }
    assert not local(settings).compute.report_converted_image_types


def test_paths_follow_the_options_that_they_are_made_of(write: Write) -> None:
    settings = loaded(
        write("[DEFAULT]\nstate_path = /srv/m\n[image_cache]\nsubdirectory_name = base\n")
    )
    assert settings.instances_path == Path("/srv/m/instances")
    assert local(settings).libvirt.pools.base_images.path == Path("/srv/m/instances/base")
    assert local(settings).libvirt.pools.disks.path == Path("/srv/m/instances/disks")


def test_novas_old_places_of_options_are_read(write: Write) -> None:
    settings = loaded(write("[DEFAULT]\nimage_cache_subdirectory_name = base\n"))
    assert local(settings).libvirt.pools.base_images.path.name == "base"


def test_of_two_files_the_last_one_rules(write: Write) -> None:
    first = write("[libvirt]\nvirt_type = kvm\nimages_type = raw\n", "first.conf")
    second = write("[libvirt]\nvirt_type = qemu\n", "second.conf")
    settings = config.load([first, second])
    assert local(settings).libvirt.virt_type is VirtTypeOption.QEMU
    assert local(settings).libvirt.selection.images_type is ImagesType.RAW


def test_an_environment_variable_beats_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_LIBVIRT__VIRT_TYPE", "qemu")
    path = write("[libvirt]\nvirt_type = kvm\n")
    assert local(loaded(path)).libvirt.virt_type is VirtTypeOption.QEMU
    origins = {each.name: each.origin for each in config.list_options(config.read([path]))}
    assert origins["virt_type"] == "environment variable OS_LIBVIRT__VIRT_TYPE"


# The alias


@pytest.mark.parametrize(
    "name", ["filter_hosts_by_image_type_support", "query_placement_for_image_type_support"]
)
def test_b33_the_filter_has_two_names(write: Write, name: str) -> None:
    on = loaded(write(f"[scheduler]\n{name} = true\n")).scheduler
    assert on.filter_hosts_by_image_type_support


def test_b33_the_two_names_may_not_contradict_each_other(write: Write) -> None:
    found = problems(
        write(
            "[scheduler]\nfilter_hosts_by_image_type_support = false\n"
            "query_placement_for_image_type_support = true\n"
        )
    )
    assert "says the opposite" in found["[scheduler] filter_hosts_by_image_type_support"]


# Pools


def test_glance_is_found_as_in_nova_conf(write: Write) -> None:
    settings = loaded(
        write("""
[DEFAULT]
image_source = glance
[http]
read_timeout = 7
[glance]
auth_type = password
auth_url = http://keystone/
username = millpond
num_retries = 5
""")
    )
    assert settings.image_source is ImageSourceOption.GLANCE
    assert settings.glance.auth == {"auth_url": "http://keystone/", "username": "millpond"}
    assert (settings.glance.patience.read_seconds, settings.glance.patience.retries) == (7, 5)
    assert (settings.http.retries, settings.http.connect_seconds) == (3, 10)


def test_glance_is_in_one_place(write: Write) -> None:
    found = problems(write("[glance]\ncloud = mine\nendpoint_override = http://glance/\n"))
    assert list(found) == ["[glance] cloud"]


SIGNED = "[DEFAULT]\nimage_source = glance\n[glance]\n"
IDS = "default_trusted_certificate_ids = a, b\n"


@pytest.mark.parametrize(
    ("said", "trusted"),
    [
        ("", None),
        (IDS, None),
        ("verify_glance_signatures = true\n", ()),
        (f"verify_glance_signatures = true\n{IDS}", ()),
        (f"enable_certificate_validation = true\n{IDS}", ("a", "b")),
        ("enable_certificate_validation = true\n", None),
    ],
)
def test_signatures_are_asked_for_as_in_nova_conf(
    write: Write, said: str, trusted: tuple[str, ...] | None
) -> None:
    policy = loaded(write(SIGNED + said)).signatures
    assert (policy.trusted if policy.of_every_image else None) == trusted


def test_certificates_are_not_validated_against_none(write: Write) -> None:
    both = "verify_glance_signatures = true\nenable_certificate_validation = true\n"
    assert list(problems(write(SIGNED + both))) == ["[glance] default_trusted_certificate_ids"]


def test_b17_a_disks_name_chooses_its_pool_the_most_exact_first(write: Write) -> None:
    settings = loaded(
        write("""
[libvirt]
pool_by_disk_name = disk.*:slow, disk.data*:fast, disk.swap:fast, disk.config:nova-disks-pool
pool_paths = fast:/srv/fast, slow:/srv/slow
""")
    )
    pools = local(settings).libvirt.pools
    assert list(pools.by_disk_name) == ["disk.config", "disk.swap", "disk.data*", "disk.*"]
    assert pools.by_disk_name["disk.swap"] == DirectoryPool(name="fast", path=Path("/srv/fast"))
    assert pools.by_disk_name["disk.*"] == DirectoryPool(name="slow", path=Path("/srv/slow"))
    assert pools.by_disk_name["disk.config"] == pools.disks


@pytest.mark.parametrize(
    ("text", "option", "reason"),
    [
        ("pool_by_disk_name = disk.swop:x", "pool_by_disk_name", "'disk.swop' can never be"),
        ("pool_by_disk_name = swap*:x", "pool_by_disk_name", "'swap*' can never be"),
        ("pool_by_disk_name = disk.swap", "pool_by_disk_name", "'disk.swap' is not of the form"),
        ("pool_by_disk_name = disk:a, disk:b", "pool_by_disk_name", "both 'a' and 'b'"),
        ("pool_by_disk_name = disk:a,", "pool_by_disk_name", "'' is not of the form"),
        ("pool_by_disk_name = disk:a", "pool_by_disk_name", "pool 'a' has no directory"),
        ("pool_paths = a:/x", "pool_paths", "pool_by_disk_name does not name pool 'a'"),
        ("pool_paths = a:x", "pool_paths", "'x' is not an absolute path"),
        ("disks_pool = a/b", "disks_pool", "'a/b' cannot be the name of a storage pool"),
        ("disks_pool_path = x", "disks_pool_path", "'x' is not an absolute path"),
        ("disks_pool = nova-base-images-pool", "storage pools", "two pools have the name"),
        ("disks_pool_path = $base_images_pool_path", "storage pools", "have the directory"),
    ],
)
def test_b17_pools_that_cannot_be_meant(write: Write, text: str, option: str, reason: str) -> None:
    found = problems(write(f"[libvirt]\n{text}\n"))
    assert list(found) == [f"[libvirt] {option}"]
    assert reason in found[f"[libvirt] {option}"]


@pytest.mark.parametrize(
    "role",
    ["disk", "disk.local", "disk.eph0", "disk.swap", "disk.config", "disk.data-home", "kernel"],
)
def test_b17_every_name_of_a_disk_is_accepted(write: Write, role: str) -> None:
    text = f"[libvirt]\npool_by_disk_name = {role}:p\npool_paths = p:/p\n"
    assert list(local(loaded(write(text))).libvirt.pools.by_disk_name) == [role]


# Flavours


def test_flavours_are_groups_of_their_own(write: Write) -> None:
    flavors = loaded(
        write("""
[flavor:Large One]
vcpus = 4
memory = 8G
disk = 40
swap = 512
[flavor:tiny]
""")
    ).flavors
    assert flavors["Large One"] == Flavor(
        name="Large One", vcpus=4, memory=8 * GiB, disk=40 * GiB, swap=512 * MiB
    )
    assert flavors["tiny"] == Flavor(name="tiny")
    assert "small" in flavors


def test_a_flavour_of_the_file_replaces_the_built_in_one(write: Write) -> None:
    assert loaded(write("[flavor:small]\nvcpus = 2\n")).flavors["small"].vcpus == 2


@pytest.mark.parametrize(
    ("text", "option", "reason"),
    [
        ("[flavor:x]\nvcpus = 0", "[flavor:x] vcpus", "greater than or equal to 1"),
        ("[flavor:x]\nmemory = much", "[flavor:x] memory", "'much' is not a size"),
        ("[flavor:x]\nmemory = 0", "[flavor:x] memory", "without memory"),
        ("[flavor:x]\nram = 1G", "[flavor:x] ram", "vcpus, memory, disk, ephemeral, swap"),
        ("[flavor:a/b]", "[flavor:a/b]", "'a/b' cannot be the name of a flavour"),
    ],
)
def test_flavours_that_cannot_be_meant(write: Write, text: str, option: str, reason: str) -> None:
    assert reason in problems(write(f"{text}\n"))[option]


# Errors


def test_b9_every_error_is_reported_at_once_with_option_file_and_what_is_allowed(
    write: Write,
) -> None:
    path = write("""
[DEFAULT]
use_cow_images = maybe
template_image_handler = magic
[libvirt]
images_type = zfs
images_type_mapping = qcow2:zfs
virt_type = lxc
[image_cache]
max_bytes = much
[compute]
image_type_exclude_list = floppy
""")
    assert set(problems(path)) == {
        "[DEFAULT] use_cow_images",
        "[DEFAULT] template_image_handler",
        "[libvirt] images_type",
        "[libvirt] images_type_mapping",
        "[libvirt] virt_type",
        "[image_cache] max_bytes",
        "[compute] image_type_exclude_list",
    }
    with pytest.raises(BadConfiguration) as refusal:
        config.load([path])
    lines = str(refusal.value).splitlines()
    assert all(f" in {path}: " in line for line in lines)
    assert any("libvirt-storage" in line for line in lines if "images_type in" in line)
    assert any("backends: raw, qcow2" in line for line in lines)
    assert refusal.value.exit_code == 2


def test_b7_a_trailing_comma_in_a_file_is_an_error(write: Write) -> None:
    found = problems(write("[libvirt]\nimages_type_mapping = raw:raw,\n"))
    assert "empty entry" in found["[libvirt] images_type_mapping"]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("images_type = lvm", "images_volume_group"),
        ("images_type_mapping = raw:lvm", "images_volume_group"),
        ("images_type = rbd", "images_rbd_pool"),
        ("images_type_mapping = vmdk:rbd", "images_rbd_pool"),
    ],
)
def test_b9_a_backend_that_is_named_must_be_configured(
    write: Write, text: str, option: str
) -> None:
    assert list(problems(write(f"[libvirt]\n{text}\n"))) == [f"[libvirt] {option}"]
    assert loaded(write(f"[libvirt]\n{text}\n{option} = x\n"))


def test_b40_an_unknown_handler_is_refused_and_the_choices_are_listed(write: Write) -> None:
    found = problems(write("[DEFAULT]\ntemplate_image_handler = magic\n"))
    assert found == {
        "[DEFAULT] template_image_handler": "there is no handler 'magic' "
        "(handlers: downloading, streaming, volume-based-linking)"
    }


def test_alone_there_are_no_disks_outside_of_pools(write: Write) -> None:
    found = problems(write("[libvirt]\nuse_storage_pools = false\n"))
    assert "makes no disks outside of storage pools" in found["[libvirt] use_storage_pools"]


@pytest.mark.parametrize("value", ["$nowhere/x", "$instances_path/x", "$state_path"])
def test_a_dollar_that_leads_nowhere_is_reported_once(write: Write, value: str) -> None:
    found = problems(write(f"[DEFAULT]\nstate_path = {value}\n"))
    assert found == {"[DEFAULT] state_path": "a $name in it does not exist or leads back to it ()"}


def test_a_wrong_environment_variable_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_LIBVIRT__DISKS_POOL_PATH", "$nowhere")
    monkeypatch.setenv("OS_LIBVIRT__VIRT_TYPE", "lxc")
    assert list(problems(write("[libvirt]\nvirt_type = kvm\n"))) == [
        "[libvirt] virt_type in environment variable OS_LIBVIRT__VIRT_TYPE",
        "[libvirt] disks_pool_path in environment variable OS_LIBVIRT__DISKS_POOL_PATH",
    ]


def test_a_wrong_default_is_never_let_through() -> None:
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt("state_path", default="here"))
    conf([], default_config_files=[])
    with pytest.raises(BadConfiguration, match=r"\[DEFAULT\] state_path: 'here' is not"):
        config.settings_from(conf)


def test_a_relative_path_is_reported_where_it_was_set_and_nowhere_else(write: Write) -> None:
    found = problems(write("[DEFAULT]\nstate_path = here\n"))
    assert found == {"[DEFAULT] state_path": "'here' is not an absolute path ()"}


# Files


def test_a_named_file_that_is_missing_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"millpond.conf: cannot be read: No such file"):
        config.load([tmp_path / "millpond.conf"])


def test_a_directory_is_no_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        config.load([tmp_path])


def test_every_broken_file_is_named_with_its_line(write: Write, tmp_path: Path) -> None:
    first = write("[libvirt]\nimages_type\n", "first.conf")
    second = write("images_type = raw\n", "second.conf")
    third = tmp_path / "third.conf"
    third.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadConfiguration) as refusal:
        config.load([first, second, third])
    one, two, three = str(refusal.value).splitlines()
    assert one.startswith(f"configuration file {first}: line 2 is wrong")
    assert two.startswith(f"configuration file {second}: line 1 is wrong")
    assert three.startswith(f"configuration file {third}: is not text")


def test_without_a_file_the_default_one_is_read_if_it_exists(write: Write, tmp_path: Path) -> None:
    path = write("[libvirt]\nvirt_type = qemu\n")
    assert local(config.load(default=path)).libvirt.virt_type is VirtTypeOption.QEMU
    absent = config.load([], default=tmp_path / "absent.conf")
    assert local(absent).libvirt.virt_type is VirtTypeOption.AUTO


# Typing errors


@pytest.mark.parametrize(
    ("text", "option", "advice"),
    [
        (
            "[libvirt]\nimages_type_maping =",
            "[libvirt] images_type_maping",
            "images_type_mapping?",
        ),
        ("[libvirt]\nImages_Type = raw", "[libvirt] Images_Type", "images_type?"),
        ("[libvirt]\nuse_cow_images = no", "[libvirt] use_cow_images", "section [DEFAULT]"),
        ("[DEFAULT]\nimages_type = raw", "[DEFAULT] images_type", "section [libvirt]"),
        ("[libvrit]\nimages_type = raw", "[libvrit]", "[libvirt]?"),
        ("[default]\nuse_cow_images = no", "[default]", "[DEFAULT]?"),
        ("[flavour:big]\nvcpus = 2", "[flavour:big]", "[flavor:big]?"),
        ("[flavor]\nvcpus = 2", "[flavor]", "[flavor:NAME]?"),
    ],
)
def test_b48_a_typing_error_is_refused_with_what_was_meant(
    write: Write, text: str, option: str, advice: str
) -> None:
    found = problems(write(f"{text}\n"))
    assert list(found) == [option]
    assert advice in found[option]


NOVA_CONF = """
[DEFAULT]
compute_driver = libvirt.LibvirtDriver
transport_url = rabbit://user:password@host
instance_name_template = instance-%08x
[libvirt]
virt_type = qemu
live_migration_uri = qemu+ssh://%s/system
images_rbd_glance_store_name = rbd
hw_machine_type = x86_64=q35
[image_cache]
remove_unused_resized_minimum_age_seconds = 3600
[filter_scheduler]
weight_classes = all
[placement]
auth_url = http://keystone/
[glance]
api_servers = http://glance/
auth_type = password
project_domain_id = default
certfile = /etc/nova/certificate.pem
rbd_user = glance
rbd_connect_timeout = 5
verify_glance_signatures = true
default_trusted_certificate_ids = 1
service_type = image
valid_interfaces = internal
connect_retry_delay = 1
"""


def test_a_nova_conf_is_read_without_a_word_about_what_is_novas(write: Write) -> None:
    path = write(NOVA_CONF, "nova.conf")
    assert local(loaded(path)).libvirt.virt_type is VirtTypeOption.QEMU
    assert list(config.unread(config.read([path]))) == []


def test_the_sections_of_the_key_manager_are_read(write: Write) -> None:
    path = write("[barbican]\nbarbican_endpoint = http://b/\n[DEFAULT]\nmy_ip = a\n")
    assert list(config.unread(config.read([path]))) == [f"[DEFAULT] my_ip in {path} is not read"]


def test_the_interval_of_novas_cache_manager_is_noted_and_not_refused(write: Write) -> None:
    old = "[DEFAULT]\nimage_cache_manager_interval = 60\n[image_cache]\nmanager_interval = 60\n"
    path = write(old)
    assert loaded(path)
    assert list(config.unread(config.read([path]))) == [
        f"[DEFAULT] image_cache_manager_interval in {path} is not read",
        f"[image_cache] manager_interval in {path} is not read",
    ]


def test_what_nothing_reads_is_noted_in_a_file_of_ours(write: Write) -> None:
    path = write("[DEFAULT]\nmy_ip = 10.0.0.1\n")
    assert loaded(path)
    assert list(config.unread(config.read([path]))) == [f"[DEFAULT] my_ip in {path} is not read"]


# Under Nova


@pytest.fixture
def nova(write: Write) -> Callable[[str], cfg.ConfigOpts]:
    """A ConfigOpts on which Nova has registered options of its own (facts of Nova 34)."""

    def nova(text: str) -> cfg.ConfigOpts:
        types = ["raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default"]
        conf = cfg.ConfigOpts()
        conf.register_opts(
            [
                cfg.StrOpt("state_path", default="/var/lib/nova"),
                cfg.StrOpt("default_ephemeral_format"),
            ]
        )
        conf.register_opts(
            [
                cfg.StrOpt("images_type", default="default", choices=types),
                cfg.StrOpt("virt_type", default="kvm", choices=["kvm", "lxc", "qemu"]),
                cfg.StrOpt("images_rbd_pool", default="rbd"),
            ],
            group="libvirt",
        )
        conf.register_opts(
            [cfg.BoolOpt("query_placement_for_image_type_support", default=False)],
            group="scheduler",
        )
        conf([f"--config-file={write(text, 'nova.conf')}"], default_config_files=[])
        return conf

    return nova


def test_under_nova_its_definitions_stand(nova: Callable[[str], cfg.ConfigOpts]) -> None:
    conf = nova("[libvirt]\nimages_type_mapping = raw:rbd\n")
    config.register(conf)
    config.register(conf)
    settings = config.settings_from(conf)
    assert settings.state_path == Path("/var/lib/nova")
    assert local(settings).libvirt.virt_type is VirtTypeOption.KVM
    assert local(settings).libvirt.rbd is not None
    assert local(settings).libvirt.rbd.pool == "rbd"
    assert settings.default_ephemeral_format == "ext4"


def test_under_nova_a_ceph_pool_that_nobody_named_is_none(
    nova: Callable[[str], cfg.ConfigOpts],
) -> None:
    assert local(config.settings_from(nova(""))).libvirt.rbd is None
    named = local(config.settings_from(nova("[libvirt]\nimages_rbd_pool = vms\n"))).libvirt.rbd
    assert named is not None
    assert named.pool == "vms"


def test_novas_list_of_images_types_is_widened_by_ours(write: Write) -> None:
    option = cfg.StrOpt("images_type", default="default", choices=["raw", "default"])
    config.widen([cfg.StrOpt("virt_type", choices=["kvm"]), option])
    conf = cfg.ConfigOpts()
    conf.register_opt(option, group="libvirt")
    path = write("[libvirt]\nimages_type = libvirt-storage\n", "nova.conf")
    conf([f"--config-file={path}"], default_config_files=[])
    selection = local(config.settings_from(conf)).libvirt.selection
    assert selection.images_type is ImagesType.LIBVIRT_STORAGE


def test_under_nova_pools_may_be_off(nova: Callable[[str], cfg.ConfigOpts]) -> None:
    conf = nova("[libvirt]\nuse_storage_pools = false\n")
    assert not local(config.settings_from(conf)).libvirt.use_storage_pools


def test_b33_under_nova_its_name_of_the_filter_works(
    nova: Callable[[str], cfg.ConfigOpts],
) -> None:
    conf = nova("[scheduler]\nquery_placement_for_image_type_support = true\n")
    assert config.settings_from(conf).scheduler.filter_hosts_by_image_type_support


def test_under_nova_a_value_that_it_refuses_is_our_error_too(
    nova: Callable[[str], cfg.ConfigOpts],
) -> None:
    with pytest.raises(BadConfiguration, match=r"\[libvirt\] images_type in .*nova.conf"):
        config.settings_from(nova("[libvirt]\nimages_type = libvirt-storage\n"))
    with pytest.raises(BadConfiguration, match="no 'lxc' guests"):
        config.settings_from(nova("[libvirt]\nvirt_type = lxc\n"))


# What people see


def test_the_sample_changes_nothing_and_names_every_option(write: Write) -> None:
    sample = config.sample()
    assert loaded(write(sample)) == loaded(write(""))
    for group, options in config.list_opts():
        assert f"[{group}]" in sample
        for option in options:
            assert f"\n#{option.name} =" in sample


def test_the_sample_without_its_comment_signs_is_valid(write: Write) -> None:
    lines = [line.lstrip("#") for line in config.sample().splitlines()]
    options = [line.strip() for line in lines if not line.startswith(" ") or line[1:2] == "["]
    assert loaded(write("\n".join(options))) == loaded(write("[flavor:NAME]\n"))


def test_every_option_has_a_line_on_the_page_about_configuration() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    for group, options in config.list_opts():
        for option in options:
            assert f"`{option.name}`" in page, f"[{group}] {option.name}"


def test_secrets_are_masked(write: Write) -> None:
    path = write("[libvirt]\nrbd_secret_uuid = 5c0d2a6e-secret\n")
    shown = {each.name: each for each in config.list_options(config.read([path]))}
    assert shown["rbd_secret_uuid"].value == "****"
    assert shown["rbd_secret_uuid"].origin == str(path)


def run(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, list(words), obj=GlobalOptions(config_files=(path,)))


def test_config_check_says_what_the_configuration_comes_down_to(write: Write) -> None:
    path = write("[libvirt]\nimages_type_mapping = qcow2:qcow2, raw:flat\n[DEFAULT]\nx = y\n")
    result = run(path, "check")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"configuration is valid: {path}",
        "  host local at qemu:///system, virt_type auto",
        "  templates in nova-base-images-pool at /var/lib/millpond/instances/_base, "
        "disks in nova-disks-pool at /var/lib/millpond/instances/disks",
        "  images by format: qcow2:qcow2, raw:raw, others:qcow2",
        f"  note: [DEFAULT] x in {path} is not read",
    ]


def test_config_check_leaves_errors_to_the_program(write: Write) -> None:
    result = run(write("[libvirt]\nimages_type = zfs\n"), "check")
    assert isinstance(result.exception, BadConfiguration)
    assert result.stdout == ""


def test_config_show_shows_values_and_origins_even_of_a_wrong_file(write: Write) -> None:
    path = write("[libvirt]\nimages_type = zfs\nvirt_type = kvm\n[flavor:big]\nvcpus = 8\n")
    shown = {
        (each["group"], each["name"]): (each["value"], each["origin"])
        for each in json.loads(run(path, "show", "--json").stdout)
    }
    assert shown["libvirt", "virt_type"] == ("kvm", str(path))
    assert shown["libvirt", "images_type"] == ("not valid", str(path))
    assert shown["DEFAULT", "use_cow_images"] == ("true", "default")
    assert shown["flavor:big", "vcpus"] == ("8", str(path))
    assert "virt_type" in run(path, "show").stdout


def test_config_sample_prints_the_sample(write: Write) -> None:
    assert run(write(""), "sample").stdout == config.sample()


HOSTS = """
[DEFAULT]
enabled_hosts = alder, birch
ram_allocation_ratio = 1.5
[libvirt]
images_type_mapping = raw:raw
[host:alder]
connection_uri = qemu+tls://alder/system
images_type_mapping = raw:lvm
images_volume_group = vg0
reserved_host_memory_mb = 2048
[host:birch]
connection_uri = qemu+ssh://birch/system
image_type_exclude_list = vmdk
cpu_allocation_ratio = 2
"""


def test_each_host_has_its_own_values_and_those_of_all(write: Write) -> None:
    hosts = loaded(write(HOSTS)).hosts
    alder, birch = hosts["alder"], hosts["birch"]
    assert alder.libvirt.connection_uri == "qemu+tls://alder/system"
    assert alder.libvirt.selection.choose(ImageFormat.RAW).backend is Backend.LVM
    assert birch.libvirt.selection.choose(ImageFormat.RAW).backend is Backend.RAW
    assert birch.compute.image_type_exclude_list == {ImageFormat.VMDK}
    assert not alder.compute.image_type_exclude_list
    ratios = [each.capacity.cpu_allocation_ratio.apply(None) for each in (alder, birch)]
    assert ratios == [4.0, 2.0]
    assert alder.capacity.ram_allocation_ratio.apply(3.0) == 1.5
    assert alder.capacity.reserved_host_memory_mb == 2048


def test_without_enabled_hosts_there_is_one(write: Write) -> None:
    assert list(loaded(write("[host:alder]\nconnection_uri = qemu:///system")).hosts) == ["local"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[DEFAULT]\nenabled_hosts = oak", "there is no section [host:oak]"),
        ("[DEFAULT]\nenabled_hosts = a/b\n[host:a/b]", "'a/b' cannot be the name of a host"),
        (f"{HOSTS}[host:birch]\nconnection_uri = qemu+tls://alder/system", "of host 'alder'"),
        (f"{HOSTS}[DEFAULT]\nenabled_hosts = alder, alder", "more than once"),
        (f"{HOSTS}[host:birch]\nimages_type_mapping = raw:lvm", "has no volume group"),
        ("[DEFAULT]\nenabled_hosts = oak\n[host:oak]", "host 'oak' has none"),
        (f"{HOSTS}[host:birch]\nram_allocation_ratio = nan", "nan is not possible"),
        (f"{HOSTS}[host:birch]\ncpu_allocation_ratio = 1e300", "1e+300 is not possible"),
        (f"{HOSTS}[host:birch]\nimages_typ = raw", "did you mean images_type?"),
        (f"{HOSTS}[hosts:oak]\nvirt_type = qemu", "did you mean the section [host:oak]?"),
    ],
)
def test_hosts_that_cannot_be_meant(write: Write, text: str, complaint: str) -> None:
    with pytest.raises(BadConfiguration) as raised:
        loaded(write(text))
    assert complaint in str(raised.value) + raised.value.advice


def test_what_is_wrong_with_all_hosts_is_said_once(write: Write) -> None:
    with pytest.raises(BadConfiguration) as raised:
        loaded(write(f"{HOSTS}[libvirt]\ndisks_pool_path = here"))
    assert len(raised.value.problems) == 1


def test_placement_is_embedded_until_it_is_said_where_one_is(write: Write) -> None:
    assert loaded(write("")).placement is None
    access = loaded(write("[placement]\nauth_type = none\nendpoint_override = http://p")).placement
    assert access
    assert access.endpoint_override == "http://p"


def test_a_flavour_may_ask_for_traits(write: Write) -> None:
    text = "[flavor:f]\nextra_specs = trait:HW_CPU_X86_AVX2=required, trait:CUSTOM_X=forbidden"
    specs = loaded(write(text)).flavors["f"].extra_specs
    assert specs == {"trait:HW_CPU_X86_AVX2": "required", "trait:CUSTOM_X": "forbidden"}
    with pytest.raises(BadConfiguration, match="not of the form name=value"):
        loaded(write("[flavor:f]\nextra_specs = trait:HW_CPU_X86_AVX2"))
