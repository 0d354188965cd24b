"""All disks of a server as images of one moment, and a server that has them again."""

import contextlib
import json

import libvirt
import libvirt_qemu
import pytest

from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from tests.support import own_init, server_with_data
from tests.support.guest_ticks import chains, wait_for_ticks
from tests.support.killer import kill_at
from tests.support.server_with_data import PATTERN, read
from tests.support.waiting import wait_for

COUNTER = """\
disks=$(cd /sys/block; for role in disk.data0 disk.data1; do
  for each in vd?; do [ "$(cat $each/serial)" = $role ] && echo $each; done
done)
i=0
while :; do
  i=$((i+1))
  for each in $disks; do printf '%08d\\n' $i | dd of=/dev/$each conv=fsync 2>/dev/null; done
  [ $((i % 50)) = 0 ] && echo "COUNTED $i"
done
"""
"""A Linux that writes a number to one disk, and then to the other."""


@pytest.fixture(params=["qcow2", "raw"])
def web(request, millpond, micro_guest, workdir):
    return server_with_data.make(millpond, micro_guest, workdir, request.param)


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_server_of_them_has_all_disks_again(millpond, web, workdir, connection, state):
    if state == "stopped":
        millpond.ok("server", "stop", "web", "--force")
    before = chains(connection.lookupByName("web"))
    made = millpond.json("server", "snapshot", "web", "snap", "--all-disks")
    assert [each["name"] for each in made["images"]] == ["snap", "snap-data0"]
    assert made["consistency"] == ("crash-consistent" if state == "running" else "stopped")
    assert chains(connection.lookupByName("web")) == before
    assert len(list(millpond.disks.iterdir())) == 3  # nothing lies next to them
    if state == "running":
        wait_for_ticks(millpond, web)
    millpond.ok("server", "delete", "web", "--yes")
    words = ("--image", "snap", "--memory", "32M", "--network", "none")
    again = millpond.json("server", "create", "again", *words)
    millpond.wait_for_console(again["id"], "BOOTS 0002")
    disks = {each["role"]: each for each in again["disks"]}
    assert set(disks) == {"disk", "disk.data0", "disk.config"}
    data = disks["disk.data0"]
    assert (data["size"], data["content"]) == (8 * MiB, "data")
    millpond.ok("server", "stop", "again", "--force")
    assert read(millpond.disks / data["volume"], workdir)[: len(PATTERN)] == PATTERN
    millpond.ok("server", "disk", "remove", "again", "disk.data0", "--yes")


def test_images_that_belong_together_go_together(millpond, web):
    millpond.ok("server", "snapshot", "web", "snap", "--all-disks")
    code, message = millpond.fails("image", "remove", "snap-data0")
    assert (code, "is needed by image 'snap'" in message) == (4, True), message
    millpond.ok("image", "remove", "snap-data0", "snap")
    assert [each["name"] for each in millpond.json("image", "list")] == ["guest"]


def test_a_name_that_is_taken_is_refused_before_anything_is_copied(millpond, web, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "snap-data0")
    code, message = millpond.fails("server", "snapshot", "web", "snap", "--all-disks")
    assert (code, "already an image named 'snap-data0'" in message) == (4, True), message
    assert {each["name"] for each in millpond.json("image", "list")} == {"guest", "snap-data0"}
    assert list((millpond.state / "images" / "incoming").iterdir()) == []


def test_who_insists_on_an_agent_is_refused_without_one(millpond, web, connection):
    before = chains(connection.lookupByName("web"))
    code, message = millpond.fails("server", "snapshot", "web", "snap", "--quiesce")
    assert (code, "cannot be frozen: no guest agent" in message) == (4, True), message
    assert chains(connection.lookupByName("web")) == before
    assert [each["name"] for each in millpond.json("image", "list")] == ["guest"]


@pytest.mark.parametrize("web", ["qcow2"], indirect=True)
@pytest.mark.parametrize("moment", StepMoment)
@pytest.mark.parametrize(
    "step",
    [
        *("freeze", "extract"),
        *(pytest.param(each, marks=pytest.mark.full) for each in ("overlay", "thaw", "tidy")),
    ],
)
def test_killed_anywhere_it_leaves_nothing(millpond, web, connection, step, moment):
    domain = connection.lookupByName("web")
    before = chains(domain)
    kill_at(millpond, "snapshot", step, moment, "snapshot all", "web", "snap")
    wait_for_ticks(millpond, web)
    millpond.ok("doctor", "--repair")
    assert chains(domain) == before
    assert len(list(millpond.disks.iterdir())) == 3
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
    assert [each["name"] for each in millpond.json("image", "list")] == ["guest"]
    wait_for_ticks(millpond, web)


@pytest.mark.parametrize("web", ["qcow2"], indirect=True)
def test_killed_between_two_images_it_can_be_taken_again(millpond, web):
    def listed():
        return sorted(each["name"] for each in millpond.json("image", "list"))

    kill_at(millpond, "snapshot", "none", StepMoment.END, "snapshot half", "web", "snap")
    assert listed() == ["guest", "snap-data0"]
    assert "the one of the root disk is missing" in millpond.run("doctor").stdout
    millpond.ok("doctor", "--repair")
    assert listed() == ["guest"]
    millpond.ok("server", "snapshot", "web", "snap", "--all-disks")
    millpond.ok("image", "remove", "snap")
    assert listed() == ["guest", "snap-data0"]
    assert "no problem" in millpond.ok("doctor", "--repair")
    assert listed() == ["guest", "snap-data0"], "who removed the root disk's may need this one"


def test_all_disks_are_of_one_moment(millpond, linux_ami, workdir):
    """A guest writes to one disk and then to the other: never is the other ahead."""
    millpond.configure("images_type = qcow2")
    own_init.add_image(millpond, linux_ami, workdir, COUNTER)
    words = ("--image", "linux", "--memory", "128M", "--network", "none", "--no-start")
    id = millpond.json("server", "create", "lin", *words)["id"]
    for _ in range(2):
        millpond.ok("server", "disk", "add", "lin", "--size", "1M")
    millpond.ok("server", "start", "lin")
    millpond.wait_for_console(id, "COUNTED 50", 90)
    for number in range(3):
        millpond.ok("server", "snapshot", "lin", f"snap{number}", "--all-disks")
        first, second = (counted(millpond, f"snap{number}-data{each}", workdir) for each in (0, 1))
        assert 0 < second <= first <= second + 1, (first, second)


def counted(millpond, image, workdir):
    target = workdir / f"{image}.qcow2"
    millpond.ok("image", "save", image, target)
    return int(read(target, workdir)[:8])


def is_frozen(domain):
    answer = libvirt_qemu.qemuAgentCommand(domain, '{"execute": "guest-fsfreeze-status"}', 20, 0)
    return json.loads(answer)["return"] == "frozen"


def answers(domain):
    try:
        return not is_frozen(domain)
    except libvirt.libvirtError:
        return False


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_the_agent_of_a_real_guest_freezes_its_file_systems(millpond, cloud_image, connection):
    millpond.ok("image", "add", cloud_image, "--name", "debian")
    words = ("--image", "debian", "--memory", "512M", "--disk", "2G")
    millpond.json("server", "create", "web", *words)
    domain = connection.lookupByName("web")
    wait_for(lambda: answers(domain), 600)
    made = millpond.json("server", "snapshot", "web", "snap", "--quiesce")
    assert made["consistency"] == "quiesced"
    assert not is_frozen(domain)
    for step in ("quiesce", "freeze"):
        kill_at(millpond, "snapshot", step, StepMoment.END, "snapshot all", "web", "killed")
        assert is_frozen(domain)
        millpond.ok("doctor", "--repair")
        assert not is_frozen(domain)
    silence(domain)
    made = millpond.json("server", "snapshot", "web", "silent")
    assert made["consistency"] == "crash-consistent"
    code, message = millpond.fails("server", "snapshot", "web", "other", "--quiesce")
    assert (code, "cannot be frozen" in message) == (4, True), message
    assert millpond.json("server", "show", "web")["state"] == "running"


def silence(domain):
    """The agent has its channel open, and answers no more."""
    script = "kill -STOP $(pidof qemu-ga)"
    run = {"path": "/bin/sh", "arg": ["-c", script]}
    words = json.dumps({"execute": "guest-exec", "arguments": run})
    with contextlib.suppress(libvirt.libvirtError):
        libvirt_qemu.qemuAgentCommand(domain, words, 20, 0)
    wait_for(lambda: not answers(domain), 60)
