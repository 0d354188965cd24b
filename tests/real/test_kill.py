"""kill -9 at every named step: nothing lost, nothing that lies, doctor mends what is left."""

import os

import libvirt
import pytest
from lxml import etree

from millpond.errors import ConnectionLost, HostUnreachable, StateNotWritable, VolumeExists
from millpond.hosts.cache import list_templates
from millpond.hosts.deployment import Deployment
from millpond.model.formats import DiskFormat
from millpond.model.names import template_name
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from millpond.servers import data_disks, delete, power
from millpond.servers.across_hosts import statuses
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from millpond.servers.recover import recover
from millpond.templates.downloading import DownloadingTemplateImagehandler
from millpond.templates.handler import HandlerContext
from millpond.templates.store import LocalTemplates
from tests.support.guest_ticks import chains, wait_for_ticks
from tests.support.killer import kill_at
from tests.support.millpond import converted
from tests.support.unwritable import unwritable
from tests.support.verbs import steps_of


def moments(verb):
    """Every step of a verb, just after it was written down and just after it was done."""
    return [(step, moment) for step in steps_of(verb) for moment in StepMoment]


def moments_here(verb):
    """Without those that do nothing where there is one host: tests/real/test_hosts_killed.py."""
    return [each for each in moments(verb) if each[0] not in ("claim", "release")]


def moments_of_a_preparation():
    nothing = HandlerContext(store=_NoStore(), images=None, users=None)
    verb = DownloadingTemplateImagehandler(nothing).verb()
    return [(step, moment) for step in verb.step_names for moment in StepMoment]


class _NoStore:
    pass


@pytest.fixture
def vmdk(millpond, micro_guest, workdir):
    """Its template is converted: every step of a preparation has something to do."""
    millpond.ok("image", "add", converted(micro_guest, "vmdk", workdir), "--name", "vmdk")
    return "vmdk"


def create(millpond, name, image):
    host = millpond.host()
    request = ServerRequest(
        name=name, image=host.shared.catalogue.get(image), flavor=Flavor(memory=32 * MiB)
    )
    return create_server(host, request)


def listed(millpond):
    """What ``server list`` says."""
    host = millpond.host()
    servers = host.records.all()
    states = statuses(servers, host.records, host.domains)
    return {each.name: states[each.id] for each in servers}


def leftovers(millpond, connection):
    """Everything in the world that belongs to no server of the list."""
    known = {each.id for each in millpond.host().records.all()}
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    pool.refresh()
    return {
        "volumes": [each for each in pool.listVolumes() if each.split("_")[0] not in known],
        "domains": [
            each.name() for each in connection.listAllDomains() if each.UUIDString() not in known
        ],
        "directories": [
            each.name
            for each in (millpond.state / "instances").iterdir()
            if len(each.name) == 36 and each.name not in known
        ],
        "incoming": LocalTemplates(millpond.host().pools.base).unfinished(),
    }


NOTHING = {"volumes": [], "domains": [], "directories": [], "incoming": []}


RUNS = ("start", StepMoment.END)
"""Nobody was told of the server, but somebody may use it."""
UNDONE = [each for each in moments_here("create") if each != RUNS]


def test_a_server_that_runs_when_its_create_is_killed_stays(millpond, vmdk, connection):
    kill_at(millpond, "create", *RUNS, "create", "victim", vmdk)
    domain = connection.lookupByName("victim")
    number = domain.ID()
    assert "create was finished" in millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"victim": "running"}
    assert domain.ID() == number  # the same QEMU
    millpond.wait_for_console(domain.UUIDString(), "READY")
    assert leftovers(millpond, connection) == NOTHING


@pytest.mark.parametrize(("step", "moment"), UNDONE)
def test_killed_in_create(millpond, vmdk, connection, step, moment):
    create(millpond, "before", vmdk)
    kill_at(millpond, "create", step, moment, "create", "victim", vmdk)
    assert listed(millpond) == {"before": "running", "victim": f"interrupted (create: {step})"}
    create(millpond, "after", vmdk)
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"before": "running", "after": "running"}
    assert leftovers(millpond, connection) == NOTHING
    create(millpond, "victim", vmdk)


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(*each, marks=() if each == ("disks", StepMoment.END) else pytest.mark.full)
        for each in UNDONE
    ],
)
def test_killed_in_create_with_a_kernel(millpond, linux_ami, connection, step, moment):
    millpond.ok("image", "add", linux_ami.with_suffix(".aki"), "--name", "kernel")
    millpond.ok("image", "add", linux_ami, "--name", "ami", "--property", "kernel_id=kernel")
    kill_at(millpond, "create", step, moment, "create", "victim", "ami")
    assert listed(millpond) == {"victim": f"interrupted (create: {step})"}
    code, message = millpond.fails("image", "remove", "kernel", "ami")
    assert (code, "is needed by victim" in message) == (4, True)
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {}
    assert leftovers(millpond, connection) == NOTHING
    create(millpond, "victim", "ami")


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(*each, marks=() if each[1] is StepMoment.END else pytest.mark.full)
        for each in moments_here("create")
    ],
)
def test_killed_in_create_and_deleted_without_mending(millpond, vmdk, connection, step, moment):
    kill_at(millpond, "create", step, moment, "create", "victim", vmdk)
    host = millpond.host()
    delete.delete(host, host.shared.server("victim"))
    assert listed(millpond) == {}
    assert leftovers(millpond, connection) == NOTHING


@pytest.mark.parametrize(("step", "moment"), moments_here("delete"))
def test_killed_in_delete(millpond, vmdk, connection, step, moment):
    create(millpond, "other", vmdk)
    create(millpond, "victim", vmdk)
    kill_at(millpond, "delete", step, moment, "delete", "victim")
    assert listed(millpond) == {"other": "running", "victim": f"interrupted (delete: {step})"}
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"other": "running"}
    assert leftovers(millpond, connection) == NOTHING


@pytest.mark.parametrize(
    ("verb", "step", "moment"),
    [
        *(("reboot", *each) for each in moments("reboot")),
        *(("start", *each) for each in moments("start")),
    ],
)
def test_killed_in_start_and_reboot(millpond, vmdk, connection, micro_guest, verb, step, moment):
    made = create(millpond, "victim", vmdk)
    millpond.wait_for_console(made.id, "READY")
    if verb == "start":
        power.stop(millpond.host(), made, patience=0)
    kill_at(millpond, verb, step, moment, verb, "victim")
    assert listed(millpond) == {"victim": f"interrupted ({verb}: {step})"}
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"victim": "running"}
    stayed_on = (verb, step, moment) == ("reboot", "stop", StepMoment.BEGIN)  # no plug is pulled
    millpond.wait_for_console(made.id, "BOOTS 0001" if stayed_on else "BOOTS 0002")


@pytest.mark.parametrize(("step", "moment"), moments_of_a_preparation())
def test_killed_in_the_preparation_of_a_template(
    millpond, vmdk, connection, micro_guest, step, moment
):
    kill_at(millpond, "prepare", step, moment, "create", "victim", vmdk)
    assert listed(millpond) == {"victim": "interrupted (create: template)"}
    recorded = list(LocalTemplates(millpond.host().pools.base).all())
    assert len(recorded) == (1 if (step, moment) == ("record", StepMoment.END) else 0)
    made = create(millpond, "after", vmdk)
    assert micro_guest.marker in millpond.wait_for_console(made.id, "READY")
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"after": "running"}
    assert leftovers(millpond, connection) == NOTHING
    assert len(os.listdir(millpond.bases)) == 1


@pytest.mark.parametrize(("step", "moment"), moments_of_a_preparation())
def test_doctor_alone_clears_a_preparation_away(millpond, vmdk, connection, step, moment):
    kill_at(millpond, "prepare", step, moment, "create", "victim", vmdk)
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {}
    assert leftovers(millpond, connection) == NOTHING
    published = step in ("refresh", "record") or (step, moment) == ("publish", StepMoment.END)
    assert len(os.listdir(millpond.bases)) == (1 if published else 0)
    assert len(list(list_templates(millpond.host()))) == (1 if published else 0)


def capacity(connection, volume):
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    pool.refresh()
    return pool.storageVolLookupByName(volume).info()[1]


@pytest.mark.parametrize(("step", "moment"), moments_here("grow"))
def test_killed_while_a_disk_grows(millpond, vmdk, connection, step, moment):
    made = create(millpond, "victim", vmdk)
    power.stop(millpond.host(), made, patience=0)
    kill_at(millpond, "grow", step, moment, "grow", "victim", 8 * MiB)
    assert listed(millpond) == {"victim": f"interrupted (grow: {step})"}
    millpond.ok("doctor", "--mend")
    disk = millpond.server("victim").disks[0]
    assert disk.size == 8 * MiB == capacity(connection, disk.volume)
    power.start(millpond.host(), millpond.server("victim"))
    millpond.wait_for_console(made.id, "READY")


@pytest.mark.parametrize(("step", "moment"), moments_here("disk add"))
@pytest.mark.parametrize("running", [True, False], ids=["running", "off"])
def test_killed_while_a_disk_comes(millpond, vmdk, connection, step, moment, running):
    """Who repairs rolls forward: the guest may have the disk already, and write to it."""
    made = create(millpond, "victim", vmdk)
    millpond.wait_for_console(made.id, "READY")
    if not running:
        power.stop(millpond.host(), made, patience=0)
    kill_at(millpond, "disk add", step, moment, "add", "victim", 4 * MiB)
    assert listed(millpond) == {"victim": f"interrupted (disk add: {step})"}
    millpond.ok("doctor", "--mend")
    assert [disk.role for disk in millpond.server("victim").disks] == ["disk", "disk.data0"]
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        xml = etree.fromstring(connection.lookupByName("victim").XMLDesc(flags))
        assert len(xml.findall("devices/disk")) == 2
    assert len(os.listdir(millpond.disks)) == 2


def test_a_disk_that_came_stays_when_its_recovery_fails(millpond, vmdk, connection):
    """The guest has it, and may have written to it for days."""
    made = create(millpond, "victim", vmdk)
    millpond.wait_for_console(made.id, "READY")
    kill_at(millpond, "disk add", "attach", StepMoment.END, "add", "victim", 4 * MiB)
    server = millpond.server("victim")
    with (millpond.disks / server.disks[1].volume).open("r+b") as file:
        file.seek(2 * MiB)
        file.write(b"written by the guest")
    with pytest.raises(StateNotWritable):
        recover(unwritable(millpond, millpond.host()), server)
    assert b"written by the guest" in (millpond.disks / server.disks[1].volume).read_bytes()
    assert (
        len(etree.fromstring(connection.lookupByName("victim").XMLDesc()).findall(".//disk")) == 2
    )
    assert "disk add was finished" in millpond.ok("doctor", "--mend")
    assert b"written by the guest" in (millpond.disks / server.disks[1].volume).read_bytes()


@pytest.mark.parametrize(("step", "moment"), moments_here("disk remove"))
def test_killed_while_a_disk_goes(millpond, vmdk, connection, step, moment):
    made = create(millpond, "victim", vmdk)
    power.stop(millpond.host(), made, patience=0)
    data_disks.add(millpond.host(), millpond.server("victim"), 4 * MiB)
    kill_at(millpond, "disk remove", step, moment, "remove", "victim", "disk.data0")
    assert listed(millpond) == {"victim": f"interrupted (disk remove: {step})"}
    millpond.ok("doctor", "--mend")
    assert [disk.role for disk in millpond.server("victim").disks] == ["disk"]
    assert len(os.listdir(millpond.disks)) == 1
    power.start(millpond.host(), millpond.server("victim"))


@pytest.mark.parametrize(("step", "moment"), moments("snapshot"))
def test_killed_while_a_running_server_becomes_an_image(millpond, vmdk, connection, step, moment):
    made = create(millpond, "victim", vmdk)
    millpond.wait_for_console(made.id, "TICK 0001")
    domain = connection.lookupByName("victim")
    before, number = chains(domain), domain.ID()
    kill_at(millpond, "snapshot", step, moment, "snapshot", "victim", "snap")
    assert listed(millpond) == {"victim": f"interrupted (snapshot: {step})"}
    wait_for_ticks(millpond, made.id)
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"victim": "running"}
    assert (chains(domain), domain.ID()) == (before, number)
    assert os.listdir(millpond.disks) == [made.disks[0].volume]
    assert [each.name for each in millpond.host().shared.catalogue.all()] == [vmdk]
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
    wait_for_ticks(millpond, made.id)


def test_libvirtd_dies_in_the_middle_of_a_create(millpond, vmdk, libvirtd, connection):
    """What cannot be undone without libvirt stays written down, and is undone afterwards."""
    create(millpond, "before", vmdk)

    def watch(verb, step, moment):
        if (verb, step, moment) == ("create", "domain", StepMoment.BEGIN):
            libvirtd.kill()

    host = Deployment.load([millpond.config], watch).host()
    request = ServerRequest(
        name="victim", image=host.shared.catalogue.get(vmdk), flavor=Flavor(memory=32 * MiB)
    )
    with pytest.raises((ConnectionLost, HostUnreachable)):
        create_server(host, request)
    libvirtd.start()
    assert listed(millpond) == {"before": "running", "victim": "interrupted (create: domain)"}
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"before": "running"}
    with libvirtd.connect() as again:
        assert leftovers(millpond, again) == NOTHING


@pytest.mark.full
@pytest.mark.parametrize("moment", list(StepMoment))
@pytest.mark.parametrize("step", ["format", "publish", "refresh", "record"])
def test_killed_in_the_preparation_of_a_swap_template(millpond, vmdk, connection, step, moment):
    create(millpond, "before", vmdk)  # so that the image's own template is there already
    kill_at(millpond, "prepare", step, moment, "create", "victim", vmdk, 8 * MiB)
    millpond.ok("doctor", "--mend")
    assert listed(millpond) == {"before": "running"}
    assert leftovers(millpond, connection) == NOTHING
    words = ("--image", vmdk, "--memory", "32M", "--swap", "8M", "--no-start")
    millpond.ok("server", "create", "after", *words)


def test_killed_while_a_template_is_removed(millpond, vmdk, connection):
    """Its record is gone, its file is not: the workspace proves that it is ours."""
    millpond.configure("[image_cache]\nremove_unused_original_minimum_age_seconds = 0\n")
    create(millpond, "web", vmdk)
    host = millpond.host()
    delete.delete(host, host.shared.server("web"))
    kill_at(millpond, "remove", "file", StepMoment.BEGIN, "prune")
    assert list(list_templates(host)) == []
    assert len(os.listdir(millpond.bases)) == 1
    millpond.ok("doctor", "--mend")
    assert os.listdir(millpond.bases) == []
    create(millpond, "again", vmdk)


@pytest.mark.parametrize("tidy", [("doctor", "--mend"), ("cache", "prune")], ids=" ".join)
@pytest.mark.parametrize("step", ["receive", "publish", "record"])
def test_a_base_that_nova_made_after_a_kill_stays(millpond, vmdk, step, tidy):
    """Its own driver on another host of a shared directory, say, or here before the upgrade."""
    kill_at(millpond, "prepare", step, StepMoment.BEGIN, "create", "victim", vmdk)
    image = millpond.host().images.get(vmdk)
    base = millpond.bases / template_name(image.id, DiskFormat.RAW)
    made = base.with_name("made-by-nova")
    made.write_bytes(b"made by Nova")
    made.rename(base)
    for words in (tidy, ("doctor", "--mend"), ("cache", "prune", "--all-unused")):
        millpond.ok(*words)
        assert base.read_bytes() == b"made by Nova"
    with pytest.raises(VolumeExists):
        create(millpond, "after", vmdk)
    assert base.read_bytes() == b"made by Nova"
