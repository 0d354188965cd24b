"""What may become of a server whose snapshot died halfway, until doctor comes: no byte is lost."""

import libvirt
import pytest
from lxml import etree

from millpond.errors import StateNotWritable
from millpond.records.journal import StepMoment
from millpond.servers import delete
from tests.support.guest_ticks import chains, disks, last_tick, tick_on_disk, wait_for_ticks
from tests.support.killer import kill_at
from tests.support.millpond import converted
from tests.support.unwritable import unwritable
from tests.support.waiting import wait_for

INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
COMMIT = libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE | libvirt.VIR_DOMAIN_BLOCK_COMMIT_SHALLOW

both_kinds = pytest.mark.parametrize(
    "kind", ["qcow2", pytest.param("raw", marks=pytest.mark.full)]
)


class Left:
    """A server on the overlay that a dead process left it on, with bytes in it."""

    def __init__(self, millpond, id, domain, before):
        self.millpond = millpond
        self.id = id
        self.domain = domain
        self.before = before

    @property
    def overlay(self):
        return self.millpond.disks / f"{self.id}_disk.snapshot"

    def begin_commit(self):
        self.domain.blockCommit("vda", None, str(self.overlay), 0, COMMIT)
        wait_for(lambda: 'ready="yes"' in disks(self.domain)[0], 30)
        wait_for_ticks(self.millpond, self.id)

    def repair(self):
        self.millpond.ok("doctor", "--mend")
        assert self.millpond.server("web").operation is None
        left = {each.name for each in self.millpond.disks.iterdir()}
        assert left == {f"{self.id}_disk", f"{self.id}_disk.config"}
        assert disks(self.domain, INACTIVE) == self.before[1]

    def check_that_it_runs(self):
        assert self.millpond.json("server", "show", "web")["state"] == "running"
        assert chains(self.domain) == self.before
        wait_for_ticks(self.millpond, self.id)
        self.domain.destroy()
        self.check_its_bytes()

    def check_its_bytes(self):
        self.millpond.ok("server", "stop", "web", "--force")
        assert tick_on_disk(self.millpond, "web") >= last_tick(self.millpond, self.id)


@pytest.fixture
def left(millpond, micro_guest, workdir, connection):
    def leave(kind="qcow2", step="extract", moment=StepMoment.END):
        millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
        path = converted(micro_guest, "qcow2", workdir) if kind == "qcow2" else micro_guest.path
        millpond.ok("image", "add", path, "--name", "guest")
        words = ("--image", "guest", "--memory", "32M", "--network", "none")
        id = millpond.json("server", "create", "web", *words)["id"]
        millpond.wait_for_console(id, "TICK 0001")
        domain = connection.lookupByName("web")
        before = chains(domain)
        kill_at(millpond, "snapshot", step, moment, "snapshot", "web", "snap")
        wait_for_ticks(millpond, id)
        return Left(millpond, id, domain, before)

    return leave


def test_a_delete_that_could_not_begin_leaves_the_snapshot_to_be_undone(left, millpond):
    """Its record would forget the overlay, and the next start what the guest wrote there."""
    found = left()
    host = unwritable(millpond, millpond.host())
    with pytest.raises(StateNotWritable):
        delete.delete(host, millpond.server("web"))
    assert millpond.server("web").operation.verb == "snapshot"
    wait_for_ticks(millpond, found.id)
    found.repair()
    found.check_that_it_runs()


@both_kinds
def test_the_guest_goes_off(left, kind):
    found = left(kind)
    found.domain.destroy()
    found.repair()
    found.check_its_bytes()


def test_the_host_goes_down_and_starts_the_server_again(left):
    """From the definition, which names the overlay and all that lies below it."""
    found = left("raw")
    found.domain.destroy()
    found.domain.create()
    found.millpond.wait_for_console(found.id, "BOOTS 0002")
    found.repair()
    assert chains(found.domain) == found.before
    found.millpond.ok("server", "reboot", "web", "--hard")
    found.millpond.wait_for_console(found.id, "BOOTS 0003")


@both_kinds
def test_the_overlay_is_being_written_back(left, kind):
    found = left(kind)
    found.begin_commit()
    found.repair()
    found.check_that_it_runs()


@both_kinds
def test_the_guest_goes_off_while_the_overlay_is_being_written_back(left, kind):
    found = left(kind)
    found.begin_commit()
    found.domain.destroy()
    found.repair()
    found.check_its_bytes()


@pytest.mark.full
def test_libvirtd_is_restarted_while_the_overlay_is_being_written_back(left, libvirtd):
    found = left()
    found.begin_commit()
    libvirtd.restart()
    with libvirtd.connect() as again:
        found.domain = again.lookupByName("web")
        found.repair()
        found.check_that_it_runs()


@both_kinds
def test_an_overlay_that_was_written_back_already_is_not_written_again(left, kind):
    """The disk is newer by now."""
    found = left(kind, "thaw")
    found.domain.destroy()
    found.repair()
    found.check_its_bytes()


@pytest.mark.full
def test_a_definition_that_still_names_the_overlay_follows_the_running_server(left, connection):
    """As libvirtd would leave it if it died in the middle of the pivot."""
    found = left("raw")
    xml = etree.fromstring(found.domain.XMLDesc(INACTIVE))
    found.begin_commit()
    found.domain.blockJobAbort("vda", libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
    connection.defineXML(etree.tostring(xml, encoding="unicode"))
    wait_for_ticks(found.millpond, found.id)
    found.repair()
    found.check_that_it_runs()


def test_a_guest_that_was_left_paused_goes_on(left):
    """Its process died in the moment of the pivot."""
    found = left()
    found.begin_commit()
    found.domain.suspend()
    found.repair()
    found.check_that_it_runs()


def test_the_state_directory_is_lost(left):
    """The domain's own copy of the record tells of the overlay."""
    found = left()
    (found.millpond.state / "servers" / f"{found.id}.json").unlink()
    found.millpond.ok("doctor", "--adopt")
    code, message = found.millpond.fails("server", "reboot", "web", "--hard")
    assert (code, "in the middle of 'snapshot'" in message) == (4, True)
    found.repair()
    found.check_that_it_runs()


@pytest.mark.full
def test_the_domain_is_gone(left, connection):
    """Whether the overlay is newer than the disk is not known any more: nothing is removed."""
    found = left()
    xml = found.domain.XMLDesc(INACTIVE)
    found.domain.destroy()
    found.domain.undefine()
    done = found.millpond.run("doctor", "--mend")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert found.overlay.exists()
    found.domain = connection.defineXML(xml)
    found.repair()
    found.check_its_bytes()


def test_nobody_else_works_on_it_and_doctor_knows_the_overlay(left):
    found = left()
    for words in (("stop", "web"), ("start", "web"), ("reboot", "web"), ("snapshot", "web", "b")):
        code, message = found.millpond.fails("server", *words)
        assert (code, "in the middle of 'snapshot'" in message) == (4, True)
    said = found.millpond.run("doctor").stdout
    assert "that no record names" not in said
    assert "server 'web' was left in the middle of 'snapshot'" in said


def test_deleting_it_removes_the_overlay(left):
    found = left()
    found.millpond.ok("server", "delete", "web")
    assert list(found.millpond.disks.iterdir()) == []
    assert "that no record names" not in found.millpond.run("doctor").stdout


@pytest.mark.full
def test_killed_while_it_is_deleted(left):
    """The one who finishes knows of the overlay, too."""
    found = left()
    kill_at(found.millpond, "delete", "domain", StepMoment.END, "delete", "web")
    found.millpond.ok("doctor", "--mend")
    assert list(found.millpond.disks.iterdir()) == []
