"""What our driver does with disks, seen without a cloud."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import driver_alone
from tests.support.openstack.environment import (
    NOVA,
    OLDER_NOVA,
    python,
    python_path,
    reason_to_skip,
)
from tests.support.openstack.service import isolated

pytestmark = pytest.mark.timeout(300)

ENDED = "UnexpectedDeletingTaskStateError"

Found = dict[str, Any]


@pytest.fixture(scope="module", params=[NOVA, pytest.param(OLDER_NOVA, marks=pytest.mark.full)])
def release(request: pytest.FixtureRequest) -> int:
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    return int(request.param)


@pytest.fixture(scope="module")
def pond(session_directory: Path, release: int) -> Iterator[PrivateLibvirtd]:
    """One that is not cleared after each test."""
    with PrivateLibvirtd(session_directory / f"driver-alone-{release}", name="pond") as libvirtd:
        yield libvirtd


@pytest.fixture(scope="module")
def found(pond: PrivateLibvirtd, release: int) -> Found:
    """What came of each scenario on a host that has no disks from before."""
    scenarios = (
        "deleted_with_a_copy_from_before_its_disks",
        "deleted_before_its_disks_are_made",
        "deleted_while_a_disk_is_made",
        "deleted_without_any_record",
        "rescued_while_it_is_deleted",
        "moved_here",
        "moves",
        "evacuated",
        "one_bad_instance",
        "free_space",
        "asks_for_encryption",
        "ephemeral_formats",
        "disk_in_the_domain",
    )
    options = {"disk_cachemodes": "file=writethrough,block=none", "hw_disk_discard": "unmap"}
    return driver_alone.run(pond.directory, pond, scenarios, {"libvirt": options}, release=release)


class TestDeleting:
    def test_disks_go_that_are_newer_than_the_request(self, found: Found) -> None:
        came = found["deleted_with_a_copy_from_before_its_disks"]
        assert came == {"before": ["disk.eph0", "disk.swap"], "after": []}

    @pytest.mark.parametrize("when", ["before_its_disks_are_made", "while_a_disk_is_made"])
    def test_no_disk_is_made_of_a_server_that_is_being_deleted(
        self, found: Found, when: str
    ) -> None:
        came = found[f"deleted_{when}"]
        assert came["refused"].startswith(ENDED)
        assert came["after"] == []

    def test_volumes_go_that_no_record_names(self, found: Found) -> None:
        assert found["deleted_without_any_record"] == ["disk.eph0"]  # the other server's

    def test_a_server_that_is_being_deleted_is_not_rescued(self, found: Found) -> None:
        assert found["rescued_while_it_is_deleted"].startswith(ENDED)


class TestMoves:
    def test_a_server_with_a_disk_of_ours_goes_to_no_other_driver_and_no_other_cell(
        self, found: Found
    ) -> None:
        assert "does not run Millpond's driver" in found["moves"]["to another driver"]
        assert "into another cell" in found["moves"]["to another cell"]

    def test_a_server_from_before_does_not_come_to_a_host_without_files(
        self, found: Found
    ) -> None:
        assert "no disks outside of storage pools" in found["moves"]["from before"]
        assert "Nova's legacy layout" in found["moves"]["evacuated from before"]

    def test_a_server_without_a_disk_is_evacuated(self, found: Found) -> None:
        assert found["moves"]["evacuated without a disk"] == ""

    def test_a_disk_that_is_on_another_host_is_not_made_again(self, found: Found) -> None:
        came = found["moved_here"]
        assert "there is no volume" in came["refused"]
        assert came["after"] == []

    def test_the_host_that_comes_back_destroys_what_was_evacuated_and_no_more(
        self, found: Found
    ) -> None:
        came = found["evacuated"]
        assert came["supported"]
        assert came["done"] == {"volumes": [], "records": [False]}
        assert came["accepted"] == {"volumes": ["disk.swap"], "records": [True]}


def test_one_instance_does_not_end_what_the_host_does_for_all(found: Found) -> None:
    came = found["one_bad_instance"]
    assert came["counted"] > 0
    assert "swap_16" in came["bases"]


def test_free_space_is_that_of_the_file_system(found: Found) -> None:
    came = found["free_space"]
    assert came["used"] > 1024  # others write and remove meanwhile
    assert came["free"] < -1024
    assert came["total"] == 0


def test_who_asks_for_encrypted_disks_is_refused_by_every_way_in(found: Found) -> None:
    assert found["asks_for_encryption"]["backends of Nova that encrypt"] == []  # docs/nova.md
    came = found["asks_for_encryption"]["said"]
    assert came.pop("nobody")["rebuild"].startswith("NotImplementedError")  # Nova does it then
    asking = {"image": "it asks", "flavor": "flavor small asks", "device": "the server's list"}
    assert came.keys() == asking.keys()
    for who, said in asking.items():
        for way in ("rebuild", "spawn", "resize"):
            assert said in came[who][way], (who, way)
            assert "asks for encrypted disks, which Millpond does not make" in came[who][way]
        assert came[who]["rebuild"].startswith("rolled back")
        assert came[who]["resize"].startswith("rolled back")


def test_an_ephemeral_disk_has_the_file_system_that_was_asked_for(found: Found) -> None:
    came = found["ephemeral_formats"]
    assert came["made"] == {"None": "ext4", "ext3": "ext3", "xfs": "xfs", "vfat": "vfat"}
    assert came["ntfs"] is False  # by which Nova refuses the server


def test_cache_mode_and_discard_are_those_of_the_configuration(found: Found) -> None:
    driver = etree.fromstring(found["disk_in_the_domain"]).find("driver")
    assert (driver.get("cache"), driver.get("discard")) == ("writethrough", "unmap")


@pytest.mark.parametrize(
    ("images_type", "backend"),
    [pytest.param("qcow2", "Qcow2", marks=pytest.mark.full), ("lvm", "Lvm"), ("rbd", "Rbd")],
)
def test_a_disk_without_a_record_is_novas_whatever_its_storage(
    pond: PrivateLibvirtd, release: int, images_type: str, backend: str
) -> None:
    ceph = pond.directory / "ceph.conf"
    ceph.write_text("[global]\nmon_host = 127.0.0.1\n")
    options = {
        "images_type": images_type,
        "images_volume_group": "vg0",
        "images_rbd_ceph_conf": ceph,
        "rbd_user": "vms",
        "rbd_secret_uuid": "33a4e6e6-3d52-4a7e-8a39-7f9a3f29d4c7",
    }
    scenarios = ("server_from_before", "cleanup_of_a_server_from_before")
    came = driver_alone.run(pond.directory, pond, scenarios, {"libvirt": options}, release=release)
    assert came["server_from_before"] == {
        "disk": backend,
        "path": backend,
        "disk in rescue": backend,
        "disk.rescue": "VolumeImage",
        "disk in spawn": "VolumeImage",
        "kernel": "Flat",
        "path in spawn": backend,
        "shared": images_type == "rbd",
        "records": [],
    }
    asked = [] if images_type == "qcow2" else ["old", "new"]
    cleaned = {"with records": [], "deleted": asked, "after": []}
    assert came["cleanup_of_a_server_from_before"] == cleaned


def test_what_cannot_work_is_refused_at_the_start(pond: PrivateLibvirtd, release: int) -> None:
    wrong = {
        "libvirt": {"virt_type": "lxc", "inject_partition": -1},
        "ephemeral_storage_encryption": {"enabled": True},
    }
    program = driver_alone.PROGRAM
    done = driver_alone.start(pond.directory, pond, program, extra=wrong, release=release)
    assert done.returncode != 0
    for section, options in wrong.items():
        for option in options:
            assert f"[{section}] {option}: " in done.stderr


def test_nova_asks_cinder_as_itself(pond: PrivateLibvirtd, release: int) -> None:
    """Millpond reads the same options, and has read them before."""
    who = {"auth_type": "password", "auth_url": "http://127.0.0.1:1/v3", "username": "nova"}
    extra = {"cinder": {**who, "password": "x", "project_name": "services"}}
    scenario = "novas_own_requests"
    found = driver_alone.run(pond.directory, pond, (scenario,), extra, release=release)
    assert found[scenario] == ""


def test_eventlet_is_refused_at_the_start(pond: PrivateLibvirtd, release: int) -> None:
    words = ("-m", "millpond.nova.compute")
    extra = {"DEFAULT": {"concurrency_backend": "eventlet"}}
    eventlet = {"OS_NOVA_DISABLE_EVENTLET_PATCHING": "false"} if release == OLDER_NOVA else {}
    done = driver_alone.start(
        pond.directory, pond, *words, extra=extra, release=release, variables=eventlet
    )
    assert done.returncode == 2
    if release == OLDER_NOVA:  # which has no such option
        said = "OS_NOVA_DISABLE_EVENTLET_PATCHING: Millpond needs threads"
    else:
        said = "[DEFAULT] concurrency_backend: Millpond needs threads"
    assert said in done.stderr


@pytest.mark.parametrize("program", ["compute", "doctor", "transition_command"])
def test_another_release_of_nova_is_refused_at_the_start(
    pond: PrivateLibvirtd, release: int, tmp_path: Path, program: str
) -> None:
    """What is installed says by its metadata which one it is."""
    other = tmp_path / "nova-32.2.1.dist-info/METADATA"
    other.parent.mkdir()
    other.write_text("Metadata-Version: 2.1\nName: nova\nVersion: 32.2.1\n")
    words = ["-m", f"millpond.nova.{program}", *(["status"] if "command" in program else [])]
    done = driver_alone.start(pond.directory, pond, *words, release=release, before=str(tmp_path))
    assert done.returncode == 5
    assert "Millpond's driver with Nova 32.2.1 is not possible here" in done.stderr
    assert "releases 33 and 34" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_user_than_root_is_refused_at_the_start(release: int, tmp_path: Path) -> None:
    words = ("/usr/bin/unshare", "--user", python(release), "-m", "millpond.nova.compute")
    variables = {"PYTHONPATH": python_path(tmp_path), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"}
    command = isolated(tmp_path, *words, **variables)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 5
    assert "as another user than root is not possible here" in done.stderr
    assert "User=root" in done.stderr
