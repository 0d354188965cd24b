"""From an image to a running server, and everything that it leaves in the world."""

import json
import os
import re
import stat
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest
from lxml import etree

from millpond.model.operation import Operation
from millpond.servers.recover import rebuild_records
from tests.real.test_harness import domain_element, xml
from tests.support.millpond import COMMAND, converted
from tests.support.timing import floor, timed


@pytest.fixture
def qcow2(millpond, micro_guest, workdir):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    return add(millpond, converted(micro_guest, "qcow2", workdir))


@pytest.fixture
def raw(millpond, micro_guest):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    return add(millpond, micro_guest.path)


@pytest.fixture
def vmdk(millpond, micro_guest, workdir):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    return add(millpond, converted(micro_guest, "vmdk", workdir))


def add(millpond, path):
    name = f"guest-{path.suffix[1:]}"
    millpond.ok("image", "add", path, "--name", name)
    return name


def create(millpond, name, image, *options):
    usual = ("--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, "--image", image, *usual, *options)


def volumes(connection, pool="nova-disks-pool"):
    return connection.storagePoolLookupByName(pool).listVolumes()


def disk_element(connection, name):
    return etree.fromstring(connection.lookupByName(name).XMLDesc()).find("devices/disk")


def boots(text):
    return [int(found, 16) for found in re.findall(r"BOOTS ([0-9A-F]+)", text)]


def test_a_server_on_a_native_qcow2_template_runs_on_its_own_overlay(
    millpond, qcow2, connection, micro_guest
):
    made = create(millpond, "web", qcow2, "--disk", "10M")
    assert made["state"] == "running"
    text = millpond.wait_for_console(made["id"], "READY")
    assert micro_guest.marker in text

    disk = disk_element(connection, "web")
    assert disk.get("type") == "volume"
    assert disk.find("driver").get("type") == "qcow2"
    assert disk.find("source").get("pool") == "nova-disks-pool"
    assert disk.find("source").get("volume") == f"{made['id']}_disk"
    base = disk.find("backingStore")
    assert (base.get("type"), base.find("format").get("type")) == ("volume", "qcow2")
    template = made["disks"][0]["template"]["volume"]
    assert base.find("source").get("volume") == template
    assert len(base.find("backingStore")) == 0

    assert set(volumes(connection)) == {f"{made['id']}_disk", f"{made['id']}_disk.config"}
    status = os.stat(millpond.bases / template)
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, 0o444)


def test_a_raw_image_becomes_a_raw_copy_that_keeps_holes(millpond, raw, connection, micro_guest):
    """B18, B30"""
    made = create(millpond, "db", raw, "--disk", "64M")
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    disk = disk_element(connection, "db")
    assert disk.find("driver").get("type") == "raw"
    assert len(disk.find("backingStore")) == 0
    status = os.stat(millpond.disks / f"{made['id']}_disk")
    assert status.st_size == 64 * 2**20
    assert status.st_blocks * 512 < 2 * 2**20


def test_a_vmdk_image_is_converted_once_into_its_template(millpond, vmdk, micro_guest):
    """Not in the mapping, so images_type decides; force_raw_images makes the base raw."""
    first, second = create(millpond, "a", vmdk), create(millpond, "b", vmdk)
    for made in (first, second):
        assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
        disk = made["disks"][0]
        assert (disk["backend"], disk["format"], disk["overlay"]) == ("qcow2", "qcow2", True)
        assert disk["template"]["format"] == "raw"
    assert len(list(millpond.bases.iterdir())) == 1


def test_the_template_of_a_catalogue_image_is_a_link_and_no_copy(millpond, qcow2):
    create(millpond, "web", qcow2, "--no-start")
    (template,) = millpond.bases.iterdir()
    (blob,) = (millpond.state / "images" / "blobs").iterdir()
    assert template.stat().st_ino == blob.stat().st_ino


def test_a_disk_keeps_what_the_guest_wrote_over_stop_start_and_reboot(millpond, qcow2):
    made = create(millpond, "web", qcow2)
    millpond.wait_for_console(made["id"], "READY")
    millpond.ok("server", "stop", "web", "--force")
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(made["id"], "BOOTS 0002")
    millpond.ok("server", "reboot", "web", "--hard")
    text = millpond.wait_for_console(made["id"], "BOOTS 0003")
    assert boots(text) == [1, 2, 3]
    log = millpond.ok("server", "console", "web", "--log")
    assert log.startswith(text.replace("\r\n", "\n"))  # the guest goes on meanwhile


def test_a_guest_that_powers_off_when_asked_is_not_cut_off(millpond, qcow2):
    made = create(millpond, "web", qcow2)
    millpond.wait_for_console(made["id"], "READY")
    done = millpond.run("server", "stop", "web", "--timeout", "20")
    assert (done.returncode, done.stderr) == (0, "")
    assert millpond.json("server", "show", "web")["state"] == "stopped"


def test_a_guest_that_does_not_follow_is_cut_off_only_by_force(millpond, workdir):
    (workdir / "empty.raw").write_bytes(bytes(2**20))  # the BIOS finds no system and waits
    create(millpond, "web", add(millpond, workdir / "empty.raw"))
    for verb, force in (("stop", "--force"), ("reboot", "--hard")):
        status, message = millpond.fails("server", verb, "web", "--timeout", "2")
        assert status == 4
        assert "waiting for the guest of web to power off, 2 s at the most" in message
        assert "has not powered off within 2 s" in message
        assert force in message
        assert millpond.json("server", "show", "web")["state"] == "running"
    assert millpond.fails("server", "stop", "web", "--timeout", "-1")[0] == 2
    millpond.ok("server", "stop", "web", "--force")
    assert millpond.json("server", "show", "web")["state"] == "stopped"


def test_deleting_leaves_nothing_of_the_server(millpond, qcow2, connection):
    made = create(millpond, "web", qcow2)
    millpond.wait_for_console(made["id"], "READY")
    millpond.ok("server", "delete", "web")
    assert volumes(connection) == []
    assert connection.listAllDomains() == []
    assert millpond.json("server", "list") == []
    assert not (millpond.state / "instances" / made["id"]).exists()
    assert list((millpond.state / "locks").iterdir()) == []


def test_a_domain_deleted_by_hand_is_missing_and_can_be_started_or_deleted(
    millpond, qcow2, connection
):
    create(millpond, "web", qcow2)
    domain = connection.lookupByName("web")
    domain.destroy()
    domain.undefine()
    assert millpond.json("server", "list")[0]["state"] == "missing"
    millpond.ok("server", "start", "web")
    assert millpond.json("server", "list")[0]["state"] == "running"
    connection.lookupByName("web").destroy()
    connection.lookupByName("web").undefine()
    millpond.ok("server", "delete", "web")
    assert volumes(connection) == []


def test_the_record_has_a_copy_in_the_domain_and_survives_its_loss(millpond, qcow2, connection):
    """A lost state directory is rebuilt from the domains."""
    made = create(millpond, "web", qcow2)
    before = millpond.server("web")
    (millpond.state / "servers" / f"{made['id']}.json").unlink()
    (millpond.state / "owner.json").unlink()
    assert millpond.json("server", "list") == []
    _, message = millpond.fails("server", "create", "other", "--image", qcow2)
    assert "another Millpond state directory" in message
    assert "doctor --adopt" in message
    rebuild_records(millpond.host())
    assert millpond.server("web") == before
    create(millpond, "other", qcow2, "--no-start")


def test_uefi_firmware_runs(millpond, qcow2, connection):
    made = create(millpond, "efi", qcow2, "--firmware", "uefi", "--memory", "128M")
    os_element = etree.fromstring(connection.lookupByName("efi").XMLDesc()).find("os")
    assert os_element.find("loader").get("type") == "pflash"
    millpond.wait_for_console(made["id"], "BdsDxe", 60)
    millpond.ok("server", "delete", "efi")
    assert connection.listAllDomains() == []


def test_image_properties_shape_the_machine(millpond, micro_guest, connection):
    words = (
        "--name",
        "scsi",
        "--property",
        "hw_disk_bus=scsi",
        "--property",
        "hw_vif_model=e1000",
    )
    millpond.ok("image", "add", micro_guest.path, *words)
    made = millpond.json("server", "create", "s", "--image", "scsi", "--memory", "32M")
    xml = etree.fromstring(connection.lookupByName("s").XMLDesc())
    assert xml.find("devices/disk/target").get("bus") == "scsi"
    assert xml.find("devices/interface").get("type") == "user"
    assert xml.find("devices/interface/model").get("type") == "e1000"
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")


def test_a_wrong_image_property_is_refused(millpond, micro_guest):
    words = ("image", "add", micro_guest.path, "--property", "hw_disk_bus=tape")
    code, message = millpond.fails(*words)
    assert code == 2
    assert "hw_disk_bus" in message
    assert "virtio" in message
    assert millpond.json("image", "list") == []


def test_a_changed_mapping_changes_no_existing_server(millpond, qcow2, raw):
    """B13"""
    create(millpond, "old", qcow2, "--no-start")
    millpond.configure("images_type_mapping = qcow2:raw, raw:raw")
    millpond.ok("server", "start", "old")
    made = create(millpond, "new", qcow2, "--no-start")
    assert millpond.json("server", "show", "old")["disks"][0]["backend"] == "qcow2"
    assert made["disks"][0]["backend"] == "raw"
    millpond.ok("server", "delete", "old", "new")
    assert list(millpond.disks.iterdir()) == []


def test_a_moved_pool_needs_no_change_of_domains(millpond, qcow2, connection):
    """B17: chains name pool and volume, not paths."""
    made = create(millpond, "web", qcow2)
    millpond.wait_for_console(made["id"], "READY")
    millpond.ok("server", "stop", "web", "--force")
    for name, path in (
        ("nova-disks-pool", millpond.disks),
        ("nova-base-images-pool", millpond.bases),
    ):
        moved = path.with_name(f"{path.name}-moved")
        pool = connection.storagePoolLookupByName(name)
        pool.destroy()
        pool.undefine()
        os.rename(path, moved)
        xml = f"<pool type='dir'><name>{name}</name><target><path>{moved}</path></target></pool>"
        connection.storagePoolDefineXML(xml).create()
    overlay = millpond.disks.with_name("disks-moved") / f"{made['id']}_disk"
    base = millpond.bases.with_name("_base-moved") / made["disks"][0]["template"]["volume"]
    connection.lookupByName("web").create()
    millpond.wait_for_console(made["id"], "BOOTS 0002")
    assert overlay.exists()
    assert base.exists()


# What people see


def test_pools_are_listed_with_what_is_in_them(millpond, qcow2):
    create(millpond, "web", qcow2)
    listed = {each["name"]: each for each in millpond.json("pool", "list")}
    assert listed["nova-disks-pool"]["volumes"] == 2
    assert listed["nova-base-images-pool"]["keeps"] == "templates"
    shown = millpond.json("pool", "show", "nova-disks-pool")
    assert shown["volumes"][0]["belongs_to"] == "server web"
    assert "web" in millpond.ok("pool", "show", "nova-disks-pool")


def test_lists_are_whole_in_a_pipe(millpond, qcow2):
    made = create(millpond, "web", qcow2)
    lines = millpond.ok("server", "list").splitlines()
    assert made["id"] in lines[-1]
    assert "running" in lines[-1]
    assert f"{made['id']}_disk" in millpond.ok("server", "show", "web")


def test_help_and_list_are_quick_and_load_nothing_that_they_do_not_need(millpond, qcow2):
    create(millpond, "web", qcow2, "--no-start")
    for words in (["--help"], ["server", "list"]):
        turns = [(floor(), timed(lambda: millpond.ok(*words))) for _ in range(7)]  # noqa: B023
        loading, answering = (min(each) for each in zip(*turns, strict=True))
        assert answering < 3 * loading, f"millpond {' '.join(words)}: {answering:.2f} s"
    trace = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            COMMAND,
            "--config-file",
            millpond.config,
            "server",
            "list",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    for module in ("placement", "openstack", "os_brick", "oslo_utils.imageutils", "requests"):
        assert not re.search(rf"\| +{module}\b", trace), f"{module} was loaded"


def test_a_start_that_fails_leaves_the_server_as_it_was(millpond, qcow2, connection):
    create(millpond, "web", qcow2, "--no-start")
    (millpond.bases / millpond.server("web").disks[0].template.volume).unlink()
    code, message = millpond.fails("server", "start", "web")
    assert code == 6
    assert "starting" in message
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    code, _ = millpond.fails("server", "reboot", "web")
    assert code == 6
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    millpond.ok("server", "delete", "web")


def test_removing_an_image_removes_its_templates(millpond, qcow2):
    create(millpond, "web", qcow2, "--no-start")
    millpond.ok("server", "delete", "web")
    assert len(list(millpond.bases.iterdir())) == 1
    millpond.ok("image", "remove", qcow2)
    assert list(millpond.bases.iterdir()) == []


def test_explain_says_what_then_happens(millpond, qcow2, vmdk):
    for image in (qcow2, vmdk):
        before = millpond.json("explain", image)["hosts"][0]
        assert not before["template_exists"]
        made = create(millpond, image, image, "--no-start")
        disk, _config_drive = made["disks"]
        assert before["backend"] == disk["backend"]
        assert before["template"] == disk["template"]["volume"]
        assert before["template_format"] == disk["template"]["format"]
        assert millpond.json("explain", image)["hosts"][0]["template_exists"]
    assert "images_type_mapping has qcow2:qcow2" in millpond.ok("explain", qcow2)
    assert "converted to raw" in millpond.ok("explain", vmdk)


def test_a_domain_that_somebody_cloned_is_not_taken_for_its_server(millpond, qcow2, connection):
    made = create(millpond, "web", qcow2, "--no-start")
    copy = etree.fromstring(connection.lookupByName("web").XMLDesc())
    copy.find("name").text = "copy"
    copy.remove(copy.find("uuid"))
    connection.defineXML(etree.tostring(copy, encoding="unicode"))
    millpond.ok("server", "disk", "add", "web", "--size", "4M")
    before = millpond.server("web")
    assert "somebody cloned it" in millpond.run("doctor").stdout
    assert millpond.json("doctor", "--adopt") == []
    assert millpond.server("web") == before
    millpond.ok("server", "delete", "web")
    assert millpond.json("doctor", "--adopt") == []
    assert millpond.json("server", "list") == []
    assert made["id"]


def test_names_in_any_script_work_or_are_refused_as_names(millpond, qcow2):
    create(millpond, "büro-日本", qcow2, "--no-start")
    millpond.ok("server", "start", "büro-日本")
    code, message = millpond.fails("server", "create", "日" * 90, "--image", qcow2)
    assert code == 2
    assert "cannot be the name" in message


def test_an_operation_of_a_later_version_is_said_and_can_be_deleted(millpond, qcow2):
    made = create(millpond, "web", qcow2, "--no-start")
    records = millpond.host().records
    server = records.find(made["id"])
    records.put(replace(server, operation=Operation(verb="teleport", step="x", started="now")))
    done = millpond.run("doctor", "--mend")
    assert done.returncode == 1
    assert "knows no operation 'teleport'" in done.stdout
    assert "Traceback" not in done.stderr
    millpond.ok("server", "delete", "web")


def test_a_server_in_a_pool_that_is_stopped_is_not_half_deleted(millpond, qcow2, connection):
    create(millpond, "web", qcow2, "--no-start")
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    pool.destroy()
    code, message = millpond.fails("server", "delete", "web")
    assert code == 6
    assert "is defined but not active" in message
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    pool.create()
    millpond.ok("server", "delete", "web")


def test_a_damaged_record_does_not_keep_others_from_being_found(millpond, qcow2):
    made = create(millpond, "web", qcow2, "--no-start")
    (millpond.state / "servers" / "11111111-1111-1111-1111-111111111111.json").write_text("{")
    (millpond.state / "servers" / "99.json").write_text('{"schema": 99}')
    for name in (made["id"], made["id"][:8], "web"):
        assert millpond.json("server", "show", name)["name"] == "web"
    listed = millpond.run("server", "list")
    assert "web" in listed.stdout
    for name in ("11111111-1111-1111-1111-111111111111.json", "99.json"):
        assert name in listed.stderr
    millpond.ok("cache", "prune", "--all-unused")  # what may be used stays
    (cached,) = millpond.json("cache", "list")["templates"]
    assert "perhaps server 99" in str(cached)
    (millpond.state / "images/records" / f"{uuid.uuid4()}.json").write_text('{"schema": 99}')
    (millpond.state / "instances/_base.millpond/records/newer.json").write_text("{")
    for words in (["image", "list"], ["cache", "list"], ["pool", "list"], ["host", "list"]):
        millpond.ok(*words)
    code, message = millpond.fails("server", "show", "mail")  # it may be the damaged one
    assert code == 8
    assert "11111111-1111-1111-1111-111111111111.json" in message


def test_a_server_whose_pool_is_gone_is_deleted_by_force(millpond, qcow2, connection):
    made = create(millpond, "web", qcow2, "--no-start")
    volume = made["disks"][0]["volume"]
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    pool.destroy()
    pool.undefine()
    millpond.configure(
        "disks_pool = other\ndisks_pool_path = " + str(millpond.directory / "other")
    )
    code, message = millpond.fails("server", "delete", "web")
    assert code == 3
    assert "there is no storage pool 'nova-disks-pool'" in message
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    done = millpond.run("server", "delete", "web", "--force")
    assert done.returncode == 0
    assert f"nova-disks-pool/{volume} stays behind" in done.stderr
    assert millpond.json("server", "list") == []
    assert (millpond.disks / volume).exists()


def machine_type(connection, name):
    return etree.fromstring(connection.lookupByName(name).XMLDesc()).find("os/type").get("machine")


def test_its_machine_type_is_recorded_with_its_version(millpond, qcow2, connection):
    recorded = create(millpond, "web", qcow2)["hardware"]["machine"]
    assert recorded == machine_type(connection, "web")
    assert re.fullmatch(r"[a-z0-9-]+-\d+\.\d+", recorded)
    assert recorded in millpond.ok("server", "show", "web")


def test_a_record_from_before_gets_the_machine_type_that_its_guest_knows(
    millpond, qcow2, connection
):
    """It says nothing of it, and QEMU has become newer since the domain was defined."""
    older = "pc-i440fx-6.2"
    made = create(millpond, "web", qcow2)
    millpond.ok("server", "stop", "web", "--force")
    record = millpond.state / "servers" / f"{made['id']}.json"
    content = json.loads(record.read_text())
    content["hardware"]["machine"] = ""
    record.write_text(json.dumps(content))
    domain = connection.lookupByName("web").XMLDesc()
    connection.defineXML(domain.replace(made["hardware"]["machine"], older))

    millpond.ok("server", "start", "web")

    assert machine_type(connection, "web") == older
    assert millpond.json("server", "show", "web")["hardware"]["machine"] == older


def test_a_domain_without_a_definition_hinders_nobody(millpond, raw, connection, workdir):
    """Somebody else's, or a guest that just arrives from another host."""
    create(millpond, "web", raw, "--no-start")
    connection.createXML(xml(domain_element("transient", workdir / "transient.log")))
    assert [each.record.owner for each in millpond.host().domain_records.all()]
    assert "no problem" in millpond.ok("doctor")
    create(millpond, "db", raw, "--no-start")
