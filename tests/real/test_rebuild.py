"""Servers whose root disk is made again."""

import re
import shutil
import subprocess

import pytest

from millpond.records.journal import StepMoment
from millpond.servers.config_drive import read_drive
from tests.support.image_files import iso_file
from tests.support.killer import kill_at
from tests.support.millpond import converted
from tests.support.verbs import steps_of
from tests.support.waiting import wait_for

ROOM = ("--memory", "32M", "--network", "none", "--disk", "4M")
TELLING = (("volumes", "end"), ("domain", "end"), ("start", "end"), ("remove", "begin"))
MOMENTS = [
    pytest.param(step, moment, marks=() if (step, moment) in TELLING else pytest.mark.full)
    for step in steps_of("rebuild")
    for moment in StepMoment
]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFVXf4gkGGYh5o0VZJ7UBrWh0nIjR2d4q6ZQ3CbO8b1N somebody"


@pytest.fixture
def pond(millpond, micro_guest, workdir):
    """A server that was made from a raw image and runs; and a qcow2 image."""
    millpond.configure("images_type_mapping = raw:raw, qcow2:qcow2")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    other = converted(micro_guest, "qcow2", workdir)
    millpond.ok("image", "add", other, "--name", "other")
    (workdir / "key.pub").write_text(KEY)
    words = ("--image", "guest", *ROOM, "--ssh-key", workdir / "key.pub")
    made = millpond.json("server", "create", "web", *words)
    millpond.wait_for_console(made["id"], "BOOTS 0001")
    return millpond


def volumes(millpond):
    """Those in the pool are those of the records."""
    found = sorted(each.name for each in millpond.disks.iterdir())
    assert found == sorted(each.volume for each in millpond.server("web").disks)
    return found


def boot(millpond):
    """Once more; what it says of its boots then."""
    id = millpond.server("web").id
    before = millpond.console(id).count("READY")
    millpond.ok("server", "reboot", "--hard", "web")
    wait_for(lambda: millpond.console(id).count("READY") > before, 30)
    return int(re.findall(r"BOOTS (\d{4})", millpond.console(id))[-1])


def wait_for_first_boot(millpond, times):
    id = millpond.server("web").id
    wait_for(lambda: millpond.console(id).count("BOOTS 0001") >= times, 30)


def test_another_image_and_another_backend(pond):
    before = pond.server("web")
    pond.ok("server", "disk", "add", "web", "--size", "1M")
    data = pond.server("web").get_disk("disk.data0")
    pond.ok("server", "stop", "web", "--force")
    path = pond.disks / data.volume
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write -P 7 0 4k", path], check=True)
    held = path.read_bytes()
    pond.ok("server", "start", "web")
    said = pond.ok("server", "rebuild", "web", "--image", "other", "--force")
    assert said == f"rebuilt web ({before.id[:8]}) from other\n"
    after = pond.server("web")
    root, drive = after.get_disk(), after.get_disk("disk.config")
    assert (after.id, after.image.name, after.networks) == (before.id, "other", before.networks)
    assert (root.backend, root.size, root.overlay) == ("qcow2", 4 * 1024**2, True)
    assert root.volume == f"{before.id}_disk.rebuilt"
    told = read_drive((pond.disks / drive.volume).read_bytes())
    assert told.keys == (KEY,)
    assert path.read_bytes() == held
    volumes(pond)
    wait_for_first_boot(pond, 2)
    # And once more, from the image that it has now: the first name is free again.
    again = pond.json("server", "rebuild", "web", "--force")
    assert (again["state"], again["image"]["name"]) == ("running", "other")
    assert again["disks"][0]["volume"] == f"{before.id}_disk"
    wait_for_first_boot(pond, 3)
    assert boot(pond) == 2
    assert "no problem" in pond.ok("doctor")


def test_from_a_snapshot_of_itself_it_is_rolled_back(pond):
    assert boot(pond) == 2
    pond.ok("server", "snapshot", "web", "before")
    assert [boot(pond), boot(pond)] == [3, 4]
    pond.ok("server", "stop", "web", "--force")
    assert pond.json("server", "rebuild", "web", "--image", "before")["state"] == "stopped"
    assert boot(pond) == 3
    assert "no problem" in pond.ok("doctor")


def test_what_cannot_be_is_refused_and_nothing_changes(pond, workdir, micro_guest):
    pond.ok("image", "add", iso_file(workdir), "--name", "disc")
    large = workdir / "large.raw"
    shutil.copy(micro_guest.path, large)
    with large.open("r+b") as file:
        file.truncate(8 * 1024**2)
    pond.ok("image", "add", large, "--name", "large")
    for name, asks in (("efi", "hw_firmware_type=uefi"), ("ide", "hw_disk_bus=ide")):
        pond.ok("image", "add", micro_guest.path, "--name", name, "--property", asks)
    pond.ok("server", "pause", "web")
    before = pond.server("web"), volumes(pond)
    for status, said, *words in (
        (3, "there is no image 'nosuch'", "web", "--image", "nosuch"),
        (3, "there is no server 'nosuch'", "nosuch", "--image", "other"),
        (5, "it is an ISO image", "web", "--image", "disc"),
        (5, "--disk 8M", "web", "--image", "large"),
        (5, "hw_firmware_type uefi, and the server has bios", "web", "--image", "efi"),
        (5, "hw_disk_bus ide, and the server has virtio", "web", "--image", "ide"),
        (4, "it is paused", "web", "--image", "other"),
    ):
        code, message = pond.fails("server", "rebuild", *words)
        assert (code, said in message) == (status, True), message
        assert (pond.server("web"), volumes(pond)) == before
    assert pond.json("server", "show", "web")["state"] == "paused"


@pytest.mark.parametrize(("step", "moment"), MOMENTS)
def test_killed_it_has_one_disk_or_the_other(pond, step, moment):
    assert boot(pond) == 2
    kill_at(pond, "rebuild", step, moment, "rebuild", "web", "other")
    pond.ok("doctor", "--repair")
    server = pond.server("web")
    assert server.operation is None
    volumes(pond)
    finished = server.image.name == "other"
    began = [steps_of("rebuild").index(each) for each in (step, "start")]
    assert finished == (began[0] >= began[1])
    assert pond.json("server", "show", "web")["state"] == "running"
    if finished:
        wait_for_first_boot(pond, 2)
    assert boot(pond) == 2 if finished else boot(pond) > 2
    assert "no problem" in pond.ok("doctor")


def test_an_image_that_its_host_does_not_take_is_refused(multi_host, micro_guest, workdir):
    excluded = "image_type_exclude_list = qcow2"
    filters = "[scheduler]\nfilter_hosts_by_image_type_support = true"
    multi_host.configure({"alder": excluded}, rest=filters)
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    multi_host.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "other")
    words = ("--image", "guest", *ROOM, "--no-start", "--host", "alder")
    made = multi_host.json("server", "create", "web", *words)
    code, message = multi_host.fails("server", "rebuild", "web", "--image", "other")
    assert (code, "COMPUTE_IMAGE_TYPE_QCOW2" in message) == (6, True)
    multi_host.ok("server", "rebuild", "web", "--image", "guest")
    placed = multi_host.deployment().scheduler.placement.allocations.of(made["id"])
    assert sorted(each["DISK_GB"] for each in placed.held.values() if "DISK_GB" in each) == [1]
    assert multi_host.ok("doctor", "--placement").endswith("no problem\n")
