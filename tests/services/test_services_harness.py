"""The services themselves: what every other test with them takes for granted."""

import hashlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openstack.exceptions import BadRequestException, HttpException, ResourceFailure

from tests.support.ceph import Ceph
from tests.support.loopback import accepts, listening
from tests.support.openstack import cinder as volume_types
from tests.support.openstack import glance as stores
from tests.support.openstack.cinder import Cinder
from tests.support.openstack.glance import Glance
from tests.support.openstack.iscsi import IscsiTarget
from tests.support.openstack.nfs import NfsExport
from tests.support.openstack.service import Service
from tests.support.session import remove_dead_sessions
from tests.support.waiting import wait_for

MIB = 1024**2


@pytest.fixture
def image(workdir: Path) -> Path:
    """A raw image of nothing that anybody knows."""
    path = workdir / "image.raw"
    path.write_bytes(os.urandom(MIB))
    return path


# Each is the others' like: of an ordinary run, the one that starts quickest will do.
@pytest.fixture(
    params=[
        "glance",
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in ("iscsi_target", "cinder", "glance_on_cinder")
        ),
    ]
)
def service(request: pytest.FixtureRequest) -> Service:
    asked: Service = request.getfixturevalue(request.param)
    return asked


def download(glance: Glance, image_id: str) -> bytes:
    return glance.api.download_image(image_id).content


def rbd_url(info: dict[str, Any], keyring: Path) -> str:
    host = f"{info['hosts'][0]}\\:{info['ports'][0]}"
    return f"rbd:{info['name']}:id={info['auth_username']}:mon_host={host}:keyring={keyring}"


def qemu_io(command: str, url: str) -> None:
    """As a guest reads and writes; reading another pattern than the command names raises."""
    subprocess.run(["qemu-io", "-f", "raw", "-c", command, url], check=True, capture_output=True)


@pytest.mark.full
def test_an_image_in_a_file_is_downloaded_as_it_was(glance: Glance, image: Path) -> None:
    content = image.read_bytes()
    made = glance.upload(image, "raw")
    assert (made.status, made.size, made.disk_format) == ("active", MIB, "raw")
    assert (made.hash_algo, made.hash_value) == ("sha512", hashlib.sha512(content).hexdigest())
    assert download(glance, made.id) == content
    url = (glance.files / made.id).as_uri()
    assert made.direct_url == url
    assert made.locations == [{"url": url, "metadata": {"store": stores.FILES}}]


@pytest.mark.full
def test_content_that_belies_its_format_is_refused(glance: Glance, image: Path) -> None:
    with pytest.raises(HttpException, match="415"):
        glance.upload(image, "qcow2")


def test_an_image_in_a_volume_is_downloaded_as_it_was(
    glance_on_cinder: Glance, cinder: Cinder, ceph: Ceph, image: Path
) -> None:
    made = glance_on_cinder.upload(image, "raw", stores.VOLUMES)
    [location] = made.locations
    assert location["metadata"] == {"store": stores.VOLUMES}
    volume_id = location["url"].removeprefix(f"cinder://{stores.VOLUMES}/")
    volume = cinder.api.get_volume(volume_id)
    assert (volume.name, volume.size, volume.status) == (f"image-{made.id}", 1, "available")
    assert volume.metadata["image_size"] == str(MIB)
    assert f"volume-{volume_id}" in ceph.rbd("ls", volume_types.POOL).splitlines()
    assert download(glance_on_cinder, made.id) == image.read_bytes()
    assert cinder.attachments(volume_id) == []


@pytest.mark.full
def test_an_image_in_ceph_is_downloaded_as_it_was(
    glance_on_cinder: Glance, ceph: Ceph, image: Path
) -> None:
    made = glance_on_cinder.upload(image, "raw", stores.RBD)
    [location] = made.locations
    assert location["url"].endswith(f"/{stores.POOL}/{made.id}/snap")
    assert made.id in ceph.rbd("ls", stores.POOL).splitlines()
    assert download(glance_on_cinder, made.id) == image.read_bytes()


def test_a_volume_of_a_shared_type_is_attached_twice_and_read_by_what_cinder_says(
    cinder: Cinder, ceph: Ceph, workdir: Path
) -> None:
    volume = cinder.make_volume(volume_types.SHARED_RBD)
    assert volume.is_multiattach
    first, second = cinder.attach(volume), cinder.attach(volume, mode="ro")
    assert {one.id for one in cinder.attachments(volume.id)} == {first.id, second.id}
    assert [first.connection_info["access_mode"], second.attach_mode] == ["rw", "ro"]
    info = second.connection_info
    print("connection_info:", info)
    assert info["driver_volume_type"] == "rbd"
    assert info["name"] == f"{volume_types.POOL}/volume-{volume.id}"
    assert list(zip(info["hosts"], map(int, info["ports"]), strict=True)) == list(ceph.monitors)
    cinder.allow_access_to_volumes(workdir)
    keyring = workdir / f"ceph.client.{info['auth_username']}.keyring"
    qemu_io("write -P 0x5a 0 4k", rbd_url(first.connection_info, keyring))
    qemu_io("read -P 0x5a 0 4k", rbd_url(info, keyring))
    cinder.detach(first)
    cinder.detach(second)
    assert cinder.attachments(volume.id) == []


@pytest.mark.full
@pytest.mark.parametrize("volume_type", [volume_types.RBD, volume_types.NFS])
def test_a_volume_of_another_type_is_attached_once(cinder: Cinder, volume_type: str) -> None:
    volume = cinder.make_volume(volume_type)
    attachment = cinder.attach(volume)
    with pytest.raises(BadRequestException, match="the current status is in-use"):
        cinder.attach(volume)
    cinder.detach(attachment)
    cinder.detach(cinder.attach(volume))


@pytest.mark.full
def test_a_volume_on_nfs_is_a_file_of_the_share(cinder: Cinder, nfs_export: NfsExport) -> None:
    volume = cinder.make_volume(volume_types.NFS)
    info = cinder.attach(volume).connection_info
    print("connection_info:", info)
    assert info["driver_volume_type"] == "nfs"
    assert (info["export"], info["format"]) == (nfs_export.share, "raw")
    assert (nfs_export.path / info["name"]).stat().st_size == 1024 * MIB


@pytest.mark.full
def test_nfs_has_no_volumes_that_are_attached_twice(cinder: Cinder) -> None:
    specs = {"volume_backend_name": "nfs", "multiattach": "<is> True"}
    cinder.api.create_type(name="nfs-multiattach", extra_specs=specs)
    with pytest.raises(ResourceFailure):
        cinder.make_volume("nfs-multiattach")


@pytest.mark.full
def test_an_image_in_a_volume_on_nfs_is_downloaded_as_often_as_one_asks(
    ceph: Ceph, nfs_export: NfsExport, workdir: Path, image: Path
) -> None:
    cinder = Cinder(workdir / "cinder", ceph=ceph, nfs=nfs_export, default_type=volume_types.NFS)
    with cinder, Glance(workdir / "glance", cinder=cinder) as glance:
        made = glance.upload(image, "raw", stores.VOLUMES)
        volume_id = made.locations[0]["url"].rpartition("/")[2]
        assert (nfs_export.path / f"volume-{volume_id}").stat().st_size == MIB
        for _ in range(2):  # it unmounts the share after each
            assert download(glance, made.id) == image.read_bytes()


@pytest.mark.full
def test_qemu_reads_a_lun_for_as_long_as_it_is_offered(
    iscsi_target: IscsiTarget, image: Path, workdir: Path
) -> None:
    def read(url: str) -> bytes:
        copy = workdir / "copy"
        words = ["qemu-img", "convert", "-f", "raw", "-O", "raw", url, str(copy)]
        subprocess.run(words, check=True, capture_output=True)
        return copy.read_bytes()

    with iscsi_target.offer(image) as url:
        assert read(url) == image.read_bytes()
        iscsi_target.stop()
        iscsi_target.start()
        assert read(url) == image.read_bytes()
    with pytest.raises(subprocess.CalledProcessError):
        read(url)


@pytest.mark.full
def test_a_service_listens_on_the_loopback_only(service: Service) -> None:
    assert listening([service.pid]) == {f"127.0.0.1:{service.port}"}


def test_a_stopped_service_leaves_no_process_and_no_socket(service: Service) -> None:
    family = service.pids
    assert service.pid in family
    service.stop()
    try:
        assert len(service.pids) == 1  # the one that holds the namespaces
        assert listening(family) == set()
        assert not accepts(service.port)
    finally:
        service.start()


@pytest.mark.full
def test_a_glance_that_was_killed_comes_back_with_its_images(glance: Glance, image: Path) -> None:
    made = glance.upload(image, "raw")
    os.kill(glance.pid, signal.SIGKILL)
    wait_for(lambda: not glance.is_running, 5)
    glance.start()
    assert download(glance, made.id) == image.read_bytes()


@pytest.mark.full
def test_a_cinder_stopped_while_it_waits_for_ceph_leaves_nothing_and_comes_back(
    cinder: Cinder, ceph: Ceph
) -> None:
    volume = cinder.make_volume(volume_types.RBD)
    family = cinder.pids
    ceph.stop()
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(cinder.attach, volume)
        wait_for(lambda: cinder.pids > family, 30)  # it asks by a process of its own
        cinder.stop()
        assert len(cinder.pids) == 1
        assert asked.exception()
    ceph.start()
    cinder.start()
    assert cinder.api.get_volume(volume.id).volume_type == volume_types.RBD
    cinder.detach(cinder.attach(cinder.make_volume(volume_types.RBD)))


@pytest.mark.full
def test_the_services_write_nowhere_else(cinder: Cinder, glance_on_cinder: Glance) -> None:
    names = ("cinder", "glance", "ceph", "nova", "nvme", "iscsi", "tgt", "tgtd")
    places = [f"{parent}/{name}" for parent in ("/etc", "/var/lib", "/run") for name in names]
    began = str(cinder.directory / "cinder.conf")
    newer = ["find", *filter(os.path.exists, places), "-newer", began]
    assert subprocess.run(newer, capture_output=True, text=True).stdout == ""


KILLED_SESSION = """
import os, pathlib, signal, sys
from tests.support.openstack.glance import Glance
from tests.support.openstack.iscsi import IscsiTarget
from tests.support.openstack.nfs import NfsExport
from tests.support.session import session_directory

with (
    session_directory(pathlib.Path(sys.argv[1])) as path,
    NfsExport(path / "nfs"),
    Glance(path / "glance") as glance,
    IscsiTarget(path / "iscsi") as target,
):
    print(path, glance.pid, target.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.full
@pytest.mark.usefixtures("services_directory")  # which skips where there can be none
def test_what_a_killed_session_left_is_gone_after_the_next_one_began(workdir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_SESSION, str(workdir)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    path, *pids = done.stdout.split()
    assert len(pids) == 2
    assert all(Path("/proc", pid).exists() for pid in pids)
    remove_dead_sessions(workdir)
    wait_for(lambda: not any(Path("/proc", pid).exists() for pid in pids), 5)
    assert not Path(path).exists()
