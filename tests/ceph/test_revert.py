"""A resize of a disk in the cluster that is confirmed, or reverted."""

import subprocess
import time

import pytest

from millpond.model.sizes import MiB
from tests.ceph.conftest import rbd_options
from tests.support.millpond import COMMAND
from tests.support.revertable import MOMENTS, Revertable, check_killed, check_starting_points
from tests.support.waiting import wait_for


@pytest.fixture
def pond(millpond, micro_guest, ceph, rbd_pool):
    def read(volume):
        path = millpond.directory / "read.raw"
        path.unlink(missing_ok=True)
        ceph.rbd("export", "--no-progress", f"{rbd_pool.name}/{volume}", str(path))
        return path.read_bytes()

    def names():
        """But for the template's."""
        id = millpond.server("web").id
        images = ceph.rbd("ls", rbd_pool.name).split()
        return [
            *(each for each in images if each.startswith(id)),
            *(each.name for each in millpond.disks.iterdir()),
        ]

    millpond.configure("\n".join(["images_type = rbd", *rbd_options(ceph, rbd_pool)]))
    return Revertable(millpond=millpond, read=read, names=names, size=4).create(micro_guest)


@pytest.mark.full
def test_each_revert_gives_the_bytes_of_its_own_starting_point(pond):
    check_starting_points(pond)


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
def test_killed_it_has_one_disk_or_the_other(pond, verb, step, moment):
    check_killed(pond, verb, step, moment)


@pytest.fixture
def image(pond, ceph, rbd_pool):
    """Of its root disk, with 256 MiB that are not its template's."""
    pond.resize("--disk", "300M")
    name = f"{rbd_pool.name}/{pond.millpond.server('web').get_disk().volume}"
    words = ("qemu-io", "-f", "raw", "-c", "write -P 7 8M 256M")
    subprocess.run(
        [*words, f"rbd:{name}:id=admin:conf={ceph.conf}"], check=True, capture_output=True
    )
    return name


@pytest.mark.full
def test_what_is_kept_has_the_template_in_common(pond, ceph, image):
    """And nothing of the disk itself is copied back."""
    written, start = ceph.bytes_written(), pond.root()
    pond.resize("--disk", "400M", "--revertable")
    assert 256 * MiB <= ceph.bytes_written() - written < 280 * MiB
    saved = pond.millpond.server("web").disks[-1].volume
    assert "parent:" in ceph.rbd("info", f"{image.partition('/')[0]}/{saved}")
    written = ceph.bytes_written()
    pond.resize("--revert")
    assert ceph.bytes_written() - written < MiB
    assert pond.root() == start


@pytest.mark.full
def test_killed_in_the_middle_of_the_copy_and_of_its_removal_it_has_its_disk(pond, ceph, image):
    """Ceph removes what a dead process had open after half a minute: doctor waits for that."""
    written, start = ceph.bytes_written(), pond.root()
    with begun(pond, "server", "resize", "web", "--disk", "400M", "--revertable") as process:
        wait_for(lambda: ceph.bytes_written() - written > 16 * MiB, 60)
        process.kill()
    assert f"{image}.rebuilt".partition("/")[2] in pond.names()
    with begun(pond, "doctor", "--repair") as process:
        time.sleep(3)
        process.kill()
    pond.millpond.ok("doctor", "--repair")
    assert (pond.root(), len(pond.volumes())) == (start, 2)
    assert "no problem" in pond.millpond.ok("doctor")


def begun(pond, *words):
    told = [COMMAND, "--config-file", pond.millpond.config, *words]
    return subprocess.Popen([*map(str, told)], stdout=subprocess.DEVNULL)
