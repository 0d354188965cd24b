"""A short, chosen portion of the kills of ``make test-chaos``; and that it sees what is wrong."""

import os

import pytest

from tests.chaos.inspection import Inspection, Violated, lists
from tests.chaos.model import ImageModel, Model, ServerModel
from tests.chaos.worker import Task, work_on
from tests.chaos.world import FORMATS, new_world

SECONDS = 16


@pytest.mark.timeout(300)
@pytest.mark.parametrize("worker", [0, 1], ids=["one file system", "pools apart"])
def test_nothing_is_lost_or_left_by_random_kills(libvirtd, session_directory, micro_guest, worker):
    task = Task(seed="ordinary", worker=worker, seconds=SECONDS)
    report = work_on(task, libvirtd, session_directory, micro_guest)
    assert report.violations == []
    assert report.kills.total() > 0


@pytest.fixture
def world(libvirtd, session_directory, micro_guest):
    with new_world(libvirtd, session_directory, micro_guest, 1, apart=False) as made:
        words = ("--image", "qcow2", "--memory", "32M", "--network", "none", "--no-start")
        made.millpond.ok("server", "create", "web", *words)
        yield made


def flip_a_byte(path):
    """In what is data in every format."""
    with path.open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_what_is_lost_and_what_is_left_is_seen(world, connection):
    contents = {each: world.files[each][0].content for each in FORMATS}
    model = Model(
        servers={"web": ServerModel(name="web", image="qcow2", disks={"disk": contents["qcow2"]})},
        images={each: ImageModel(name=each, content=contents[each]) for each in FORMATS},
    )
    inspection = Inspection(world, connection)

    def look():
        inspection.inspect(model, lists(world))

    look()
    (template,), (raw, *_) = world.bases.iterdir(), world.files["raw"]
    blob = world.state / "images" / "blobs" / raw.digest
    for file, seen in ((template, "bytes of disk of web are lost"), (blob, "image raw is wrong")):
        flip_a_byte(file)
        with pytest.raises(Violated, match=seen):
            look()
        flip_a_byte(file)
        look()
    left = world.state / "servers" / ".x.json.1.00000000"
    for path in (world.disks / "stray", world.bases / "stray", left):
        path.touch()
        os.utime(path, (0, 0))
        with pytest.raises(Violated, match="too many"):
            look()
        path.unlink()
    connection.lookupByName("web").undefine()
    with pytest.raises(Violated, match="web has no domain"):
        look()
