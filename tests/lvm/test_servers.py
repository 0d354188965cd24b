"""Servers whose disks are logical volumes, next to others that are files."""

import hashlib
import subprocess

import pytest

from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from tests.lvm.volume_group import EXTENT
from tests.support.guest_ticks import chains, last_tick, tick_on_disk
from tests.support.killer import kill_at
from tests.support.millpond import converted
from tests.support.snapshots import at, take
from tests.support.two_faced import two_faced
from tests.support.waiting import wait_for

SECONDS = 90
"""A guest within a guest takes its time."""


@pytest.fixture
def mapped(millpond, volume_group, micro_guest, workdir):
    millpond.configure(
        "images_type = default\nimages_type_mapping = raw:lvm, qcow2:qcow2\n"
        f"images_volume_group = {volume_group.name}"
    )
    millpond.ok("image", "add", micro_guest.path, "--name", "raw")
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "qcow2")
    return millpond


def create(millpond, name, image, *options):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, *words, *options)


def test_raw_on_lvm_and_qcow2_in_files_side_by_side(mapped, volume_group, micro_guest):
    on_lvm, in_file = create(mapped, "a", "raw"), create(mapped, "b", "qcow2")
    for made in (on_lvm, in_file):
        assert micro_guest.marker in mapped.wait_for_console(made["id"], "READY", SECONDS)
    (disk, _) = on_lvm["disks"]
    assert (disk["backend"], disk["pool"], disk["format"]) == ("lvm", "nova-disks-pool-lvm", "raw")
    assert disk["size"] == EXTENT  # 1 MiB was asked for: the record has what became of it
    assert volume_group.volumes() == {f"{on_lvm['id']}_disk": EXTENT}
    assert in_file["disks"][0]["pool"] == "nova-disks-pool"
    mapped.ok("server", "reboot", "a", "--hard")
    mapped.wait_for_console(on_lvm["id"], "BOOTS 0002", SECONDS)
    mapped.ok("server", "delete", "a", "b")
    assert volume_group.volumes() == {}


def test_a_disk_holds_nothing_of_the_one_that_was_there_before(mapped, volume_group):
    """The tail behind the image, a disk that begins empty, and what a disk grows by."""
    old = volume_group.create("old", 64 * MiB)
    with open(old, "wb") as device:
        device.write(b"SECRET!!" * (64 * MiB // 8))
    volume_group.clear()
    made = create(mapped, "a", "raw", "--disk", "16M", "--no-start")
    mapped.configure(f"images_type = lvm\nimages_volume_group = {volume_group.name}")
    mapped.ok("server", "disk", "add", "a", "--size", "16M")
    mapped.ok("server", "resize", "a", "--disk", "32M")
    for volume in (f"{made['id']}_disk", f"{made['id']}_disk.data0"):
        with open(volume_group.path(volume), "rb") as device:
            assert b"SECRET" not in device.read()
    assert volume_group.volumes()[f"{made['id']}_disk"] == 32 * MiB


def test_each_revert_of_a_resize_gives_the_bytes_of_before(mapped, volume_group):
    """The logical volume of before is kept as another one."""
    made = create(mapped, "a", "raw", "--disk", "8M", "--no-start")

    def content():
        with open(volume_group.path(mapped.server("a").get_disk().volume), "rb") as device:
            return hashlib.sha256(device.read()).digest()

    for count in (1, 2):
        before = content()
        mapped.ok("server", "resize", "a", "--disk", "16M", "--revertable")
        assert sorted(volume_group.volumes().values()) == [8 * MiB, 16 * MiB]
        mapped.ok("server", "start", "a")
        wait_for(lambda n=count: mapped.console(made["id"]).count("READY") == n, SECONDS)
        mapped.ok("server", "stop", "a", "--force")
        mapped.ok("server", "resize", "a", "--revert")
        assert content() == before
        assert list(volume_group.volumes().values()) == [8 * MiB]
    assert made["id"] not in mapped.run("doctor").stdout  # nothing of it is left anywhere


@pytest.mark.full
def test_a_rescue_keeps_what_a_disk_holds_and_a_rebuild_does_not(mapped, volume_group):
    create(mapped, "a", "raw", "--disk", "8M", "--no-start")
    own = mapped.server("a").get_disk().volume
    with open(volume_group.path(own), "r+b") as device:
        device.seek(EXTENT)
        device.write(b"written by the guest")
    mapped.ok("server", "rescue", "a", "--force")
    assert len(volume_group.volumes()) == 2
    mapped.ok("server", "unrescue", "a", "--force")
    assert volume_group.volumes() == {own: 2 * EXTENT}
    assert volume_group.read(own).find(b"written by the guest") == EXTENT
    mapped.ok("server", "rebuild", "a", "--yes", "--force")
    (rebuilt,) = volume_group.volumes()
    assert b"written by the guest" not in volume_group.read(rebuilt)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("", 0),
        ("volume_clear_size = 4", 4 * MiB),
        ("volume_clear = shred", 0),
        ("volume_clear = none", 8 * MiB),
    ],
)
def test_a_deleted_disk_is_wiped_as_volume_clear_says(mapped, volume_group, options, left):
    """Who gets its extents next, behind our back, does not wipe them."""
    made = create(mapped, "a", "raw", "--disk", "8M", "--no-start")
    with open(volume_group.path(f"{made['id']}_disk"), "wb") as device:
        device.write(b"SECRET!!" * (MiB))
    mapped.configure(f"images_volume_group = {volume_group.name}\n{options}")
    mapped.ok("server", "delete", "a")
    with open(volume_group.create("next", 8 * MiB), "rb") as device:
        content = device.read()
    assert content.count(b"SECRET!!") in range(left // 8 - 1024, left // 8 + 1)
    volume_group.clear()
    mapped.ok("server", "list")


def test_a_disk_that_was_removed_behind_libvirts_back_is_deleted(mapped, volume_group):
    create(mapped, "a", "raw", "--no-start")
    volume_group.clear()
    mapped.ok("server", "delete", "a")
    assert mapped.json("server", "list") == []


def test_an_image_whose_content_looks_like_another_format_is_copied_as_what_it_is(
    millpond, volume_group, micro_guest, workdir
):
    """As raw its template would be taken for qcow2 by libvirt, with the file of the host that it
    names (trap 2)."""
    secret = b"the content of a file of the host"
    decoy = workdir / "decoy"
    decoy.write_bytes(secret.ljust(64, b"!") * (MiB // 64))
    (workdir / "content").write_bytes(two_faced(micro_guest, str(decoy)))
    image = workdir / "image.qcow2"
    words = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", workdir / "content", image]
    subprocess.run(words, check=True)
    millpond.configure(
        f"images_type_mapping = qcow2:lvm\nimages_volume_group = {volume_group.name}"
    )
    millpond.ok("image", "add", image, "--name", "evil")
    made = create(millpond, "web", "evil", "--disk", "9M", "--no-start")
    with open(volume_group.path(f"{made['id']}_disk"), "rb") as device:
        content = device.read()
    assert secret not in content
    assert content[:MiB] == (workdir / "content").read_bytes()
    assert content[MiB:].count(0) == len(content) - MiB > 0
    millpond.ok("server", "start", "web")
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY", SECONDS)


def test_what_a_disk_grew_by_in_other_hands_is_kept(mapped, volume_group):
    made = create(mapped, "a", "raw", "--no-start")
    volume = f"{made['id']}_disk"
    volume_group.extend(volume, 4 * EXTENT)
    with open(volume_group.path(volume), "r+b") as device:
        device.seek(2 * EXTENT)
        device.write(b"written by the guest")
    code, message = mapped.fails("server", "resize", "a", "--disk", "8M")
    assert (code, "it has 16 MiB" in message) == (5, True)
    mapped.ok("server", "resize", "a", "--disk", "24M")
    with open(volume_group.path(volume), "rb") as device:
        device.seek(2 * EXTENT)
        assert device.read(20) == b"written by the guest"


def test_what_a_guest_wrote_before_its_interrupted_growth_was_resumed_is_kept(
    mapped, volume_group
):
    """Somebody may start the domain without us, and it shows the larger disk."""
    made = create(mapped, "a", "raw", "--no-start")
    volume = f"{made['id']}_disk"
    kill_at(mapped, "grow", "extend", StepMoment.END, "grow", "a", 4 * EXTENT)
    assert volume_group.volumes() == {volume: 4 * EXTENT}
    with open(volume_group.path(volume), "r+b") as device:
        device.seek(2 * EXTENT)
        device.write(b"written by the guest")
    assert "grow was finished" in mapped.run("doctor", "--mend").stdout
    assert mapped.json("server", "show", "a")["disks"][0]["size"] == 4 * EXTENT
    with open(volume_group.path(volume), "rb") as device:
        device.seek(2 * EXTENT)
        assert device.read(20) == b"written by the guest"


def test_a_single_disk_grows_after_an_attempt_that_was_interrupted(mapped, volume_group):
    """The extents that were not wiped yet are a volume of their own, and never the disk's."""
    create(mapped, "a", "raw", "--no-start")
    host = mapped.host()
    disk = mapped.server("a").disks[0]
    left = volume_group.create(f"{disk.volume}.grown", 4 * EXTENT)
    with open(left, "wb") as device:
        device.write(b"SECRET!!" * (4 * EXTENT // 8))
    host.pools.ensure(disk.pool).refresh()
    disks = host.disks
    assert disks.grow(disk, 4 * EXTENT).size == 4 * EXTENT
    assert disks.grow(disk, 4 * EXTENT).size == 4 * EXTENT  # its record was not written yet
    assert volume_group.volumes() == {disk.volume: 4 * EXTENT}
    with open(volume_group.path(disk.volume), "rb") as device:
        assert b"SECRET" not in device.read()


def test_a_disk_grows_while_the_server_runs(mapped, volume_group):
    made = create(mapped, "a", "raw")
    mapped.wait_for_console(made["id"], "READY", SECONDS)
    mapped.ok("server", "resize", "a", "--disk", "13M")
    assert mapped.json("server", "show", "a")["disks"][0]["size"] == 4 * EXTENT
    assert volume_group.volumes()[f"{made['id']}_disk"] == 4 * EXTENT


def test_a_snapshot_while_the_server_runs(mapped, volume_group, connection):
    """Its overlay is a file: the group holds no layers."""
    made = create(mapped, "web", "raw")
    mapped.wait_for_console(made["id"], "TICK 0001", SECONDS)
    domain = connection.lookupByName("web")
    before = chains(domain)

    def go_on():
        overlay = f"{made['id']}_disk.snapshot"
        assert overlay in [each.name for each in mapped.disks.iterdir()]
        assert list(volume_group.volumes()) == [f"{made['id']}_disk"]
        mapped.wait_for_console(made["id"], "TICK 0004", SECONDS)

    take(mapped, at("extract", StepMoment.BEGIN, go_on))
    assert chains(domain) == before
    assert [each.name for each in mapped.disks.iterdir()] == [f"{made['id']}_disk.config"]
    domain.destroy()
    assert tick_on_disk(mapped, "web") >= last_tick(mapped, made["id"])
    again = create(mapped, "again", "snap")
    mapped.wait_for_console(again["id"], "BOOTS 0002", SECONDS)


def test_a_guest_on_lvm_that_goes_off_during_a_snapshot_loses_nothing(
    mapped, volume_group, connection
):
    made = create(mapped, "web", "raw")
    mapped.wait_for_console(made["id"], "TICK 0001", SECONDS)

    def go_off():
        mapped.wait_for_console(made["id"], "TICK 0004", SECONDS)
        connection.lookupByName("web").destroy()

    take(mapped, at("extract", StepMoment.BEGIN, go_off))
    assert [each.name for each in mapped.disks.iterdir()] == [f"{made['id']}_disk.config"]
    assert tick_on_disk(mapped, "web") >= last_tick(mapped, made["id"])
    mapped.ok("server", "start", "web")
    mapped.wait_for_console(made["id"], "BOOTS 0002", SECONDS)


def test_a_full_volume_group_is_one_sentence_and_changes_nothing(mapped, volume_group):
    create(mapped, "a", "raw", "--no-start")
    before = volume_group.volumes()
    code, message = mapped.fails("server", "create", "b", "--image", "raw", "--disk", "50G")
    assert code == 6
    assert "no space left in pool nova-disks-pool-lvm" in message
    code, message = mapped.fails("server", "resize", "a", "--disk", "50G")
    assert code == 6
    assert "no space left" in message
    assert volume_group.volumes() == before
    shown = mapped.json("server", "list")
    assert [(each["name"], each["state"]) for each in shown] == [("a", "stopped")]


def test_a_changed_mapping_leaves_the_disk_where_it_is(mapped, volume_group):
    """B13: also when the configuration knows no volume group any more."""
    made = create(mapped, "a", "raw", "--no-start")
    mapped.configure("")
    mapped.ok("server", "start", "a")
    mapped.wait_for_console(made["id"], "READY", SECONDS)
    mapped.ok("server", "delete", "a")
    assert volume_group.volumes() == {}


def test_a_running_server_on_lvm_and_files_is_cloned_and_imported(mapped, volume_group, workdir):
    made = create(mapped, "a", "raw")
    mapped.wait_for_console(made["id"], "TICK 0001", SECONDS)
    mapped.ok("server", "disk", "add", "a", "--size", "4M")
    twin = mapped.json("server", "clone", "a", "twin")
    mapped.ok("server", "export", "a", workdir / "a.tar")
    again = mapped.json("server", "import", workdir / "a.tar", "--name", "again")
    for each in (twin, again):
        assert each["disks"][0]["backend"] == "lvm"
        mapped.wait_for_console(each["id"], "BOOTS 0002", SECONDS)
    mapped.ok("server", "delete", "a", "twin", "again", "--yes")
    assert volume_group.volumes() == {}
