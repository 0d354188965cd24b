"""Doctor: each thing is broken for real, seen, put right as doctor says or by --mend, and gone."""

import json
import os
import pty
import pwd
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from millpond.cli.probe import ProbeResult, probe_kvm
from millpond.doctor.examination import examine_host
from millpond.doctor.finding import Level
from millpond.doctor.kvm import Access, access
from millpond.errors import BadOption, Unsupported
from millpond.images.intake import Intake
from millpond.model.server import Flavor, VirtType
from millpond.model.sizes import MiB
from millpond.servers import create
from millpond.servers.create import ServerRequest
from millpond.system.libvirtd import Libvirtd
from tests.support.guests import build_micro_guest
from tests.support.killer import kill_at
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import COMMAND, Millpond, converted
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
DISKS = "nova-disks-pool"
BASES = "nova-base-images-pool"


def worries(millpond, *, repair=False):
    """What is neither fine nor mended, as (check, level, what)."""
    found = examine_host(millpond.host(), repair=repair)
    return [
        (each.check, each.level.value, each.what)
        for each in found
        if each.level not in (Level.OK, Level.REPAIRED)
    ]


def only_worry(millpond):
    """The one finding that is not fine."""
    (found,) = [each for each in examine_host(millpond.host()) if each.level is not Level.OK]
    return found


def seen_in(millpond, check):
    return [each for each in examine_host(millpond.host()) if each.check == check]


@pytest.fixture
def server(millpond, micro_guest):
    """Off, with a qcow2 disk over a raw template."""
    host = millpond.host()
    image = Intake(host.shared.images_directory).add(micro_guest.path, name="micro")
    request = ServerRequest(name="web", image=image, flavor=Flavor(memory=32 * MiB))
    made = create.create(host, request, start=False)
    assert worries(millpond) == []
    return made


def in_another_world(script, *words):
    """Run a command where a script has changed the mounts for it alone."""
    alone = ["unshare", "--mount", "--propagation", "private"]
    return subprocess.run(
        [*alone, "sh", "-ec", f'{script}\nexec "$@"', "sh", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def doctor_in_another_world(millpond, script, check):
    """What doctor says of one thing there."""
    words = (COMMAND, "--config-file", millpond.config, "doctor", "--json")
    done = in_another_world(script, *words)
    assert done.stderr == ""
    (found,) = [each for each in json.loads(done.stdout) if each["check"] == check]
    return found


# The command


def test_a_host_that_nobody_has_used_yet_is_fine_and_is_not_changed_by_looking(
    millpond, connection
):
    done = millpond.run("doctor")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "no problem"
    assert {line.split()[0] for line in done.stdout.splitlines()[:-1]} == {"ok"}
    assert not millpond.state.exists()
    assert connection.listAllStoragePools() == []


def test_in_a_pipe_each_finding_is_a_line_of_plain_words_with_what_to_do_below(
    millpond, server, connection
):
    connection.storagePoolLookupByName(DISKS).destroy()
    done = millpond.run("doctor")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("problem")]
    assert re.match(r"problem +pools +storage pool 'nova-disks-pool' is defined", lines[at])
    assert re.match(r" +do: 'virsh pool-start nova-disks-pool'", lines[at + 1])
    assert lines[-1] == "1 problem, 6 not looked at"


def test_on_a_terminal_each_finding_has_its_mark(millpond, server, connection):
    connection.storagePoolLookupByName(DISKS).setAutostart(False)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "70", "LC_ALL": "C.UTF-8"}
    words = [COMMAND, "--config-file", millpond.config, "doctor"]
    done = subprocess.run(words, stdout=theirs, env=environment, check=False)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # how a terminal ends
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert done.returncode == 0
    assert "✔ libvirt " in text
    assert "! pools " in text
    assert re.search(r"\n {18}do: 'virsh pool-autostart nova-disks-pool',.*\r\n {22}\S", text)
    assert text.rstrip().endswith("no problem, 1 warning")


def test_mending_says_what_it_did_and_the_status_is_that_of_what_is_left(
    millpond, server, connection
):
    connection.storagePoolLookupByName(DISKS).destroy()
    found = millpond.json("doctor", "--mend")  # exit status 0
    (mended,) = [each for each in found if each["level"] == "repaired"]
    assert mended["check"] == "pools"
    assert mended["what"].endswith("is defined but not active: it was started")
    assert connection.storagePoolLookupByName(DISKS).isActive()


def test_what_cannot_be_mended_says_why_and_stays_a_problem(millpond, server, connection):
    connection.storagePoolLookupByName(DISKS).destroy()
    millpond.disks.rename(millpond.disks.with_name("moved"))
    done = millpond.run("doctor", "--mend", "--json")
    assert done.returncode == 1
    found = [each for each in json.loads(done.stdout) if each["level"] == "problem"]
    assert [each["check"] for each in found] == ["pools"]
    assert "the repair failed" in found[0]["what"]
    assert "No such file or directory" in found[0]["what"]


# Configuration, libvirt, versions


def test_a_configuration_that_is_not_valid_is_all_that_is_looked_at(millpond):
    millpond.configure("images_type = rubbish\nvirt_type = lxc")
    done = millpond.run("doctor", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    problems = [each for each in found if each["level"] == "problem"]
    assert {each["check"] for each in problems} == {"configuration"}
    told = " ".join(each["what"] for each in problems)
    assert f"[libvirt] images_type in {millpond.config}" in told
    assert "virt_type" in told
    others = [each for each in found if each["check"] != "configuration"]
    assert {each["what"] for each in others} == {"not looked at: the configuration is not valid"}
    millpond.configure()
    millpond.ok("doctor")


def test_an_option_that_nothing_reads_is_a_warning(millpond):
    millpond.configure("live_migration_downtime = 3")
    (found,) = [each for each in millpond.json("doctor") if each["level"] != "ok"]
    assert (found["check"], found["level"]) == ("configuration", "warning")
    assert "live_migration_downtime" in found["what"]


def test_without_libvirt_what_needs_it_is_one_line_each(millpond, server, libvirtd):
    libvirtd.stop()
    found = worries(millpond)
    ((check, _level, what),) = [each for each in found if each[1] == "problem"]
    assert check == "libvirt"
    assert "cannot reach libvirt" in what
    others = {what for _check, level, what in found if level == "unknown"}
    assert others == {"not looked at: libvirt is not reachable"}
    looked = {each.check for each in examine_host(millpond.host()) if each.level is Level.OK}
    assert looked == {"state", "space", "records", "operations", "images", "confinement"}
    libvirtd.start()
    assert worries(millpond) == []


def test_a_qemu_that_is_too_old_is_told_once(millpond, libvirtd):
    host = millpond.host()
    host.libvirtd = Libvirtd(libvirtd.uri, minimum_qemu=(99, 0, 0))
    found = [each for each in examine_host(host) if each.level is not Level.OK]
    problems = [each for each in found if each.level is Level.PROBLEM]
    assert [each.check for each in problems] == ["versions"]
    assert re.search(r"QEMU [\d.]+ is too old: Millpond needs 99", problems[0].what)
    assert {each.what for each in found[1:]} == {"not looked at: libvirt or QEMU is too old"}


# KVM and AppArmor, in a world of mounts where they are as we want them

NO_KVM = "mount -t tmpfs -o mode=0755 tmpfs /dev; mknod -m 0666 /dev/null c 1 3"
KVM = f"{NO_KVM}; mknod -m %s /dev/kvm c 10 232"


def test_no_kvm_means_plain_emulation_unless_the_configuration_insists(millpond):
    found = doctor_in_another_world(millpond, NO_KVM, "kvm")
    assert (found["level"], found["what"]) == (
        "ok",
        "there is no /dev/kvm: servers run under emulation (TCG), which is slow",
    )
    insisting = millpond.config.read_text().replace("virt_type = qemu", "virt_type = kvm")
    millpond.config.write_text(insisting)
    found = doctor_in_another_world(millpond, NO_KVM, "kvm")
    assert found["level"] == "problem"
    assert "servers cannot start" in found["what"]


def test_a_kvm_that_qemus_user_cannot_open_is_a_problem_until_it_can(millpond):
    found = doctor_in_another_world(millpond, KVM % "0600", "kvm")
    assert found["level"] == "problem"
    assert "48 s" in found["what"]
    remedy = found["do"].partition(", and add")[0]
    assert remedy == "chgrp kvm /dev/kvm && chmod 0660 /dev/kvm"
    if remedy == found["do"]:
        mended = doctor_in_another_world(millpond, f"{KVM % '0600'}; {remedy}", "kvm")
        assert mended["level"] == "ok"
    open_to_all = doctor_in_another_world(millpond, KVM % "0666", "kvm")
    assert open_to_all["level"] == "ok"


def test_apparmor_needs_a_rule_for_every_pool(millpond, libvirtd, workdir):
    if tuple(map(int, Libvirtd(libvirtd.uri).versions()[0].split(".")[:2])) >= (9, 9):
        pytest.skip("libvirt 9.9 and newer tells AppArmor itself: run this on Debian 12")
    millpond.configure("pool_by_disk_name = disk.swap:fast\npool_paths = fast:/srv/fast")
    shutil.copytree("/etc", workdir / "etc", symlinks=True)
    enabled = f"""
        mount --bind {workdir}/etc /etc
        mount -t tmpfs tmpfs /sys/module
        mkdir -p /sys/module/apparmor/parameters /etc/apparmor.d/local/abstractions
        echo Y > /sys/module/apparmor/parameters/enabled"""
    rules = "/etc/apparmor.d/local/abstractions/libvirt-qemu"
    found = doctor_in_another_world(millpond, f"{enabled}; rm -f {rules}", "apparmor")
    assert found["level"] == "problem"
    where, *lines = found["do"].splitlines()
    assert where == f"add to {rules}:"
    assert [line.strip() for line in lines] == [
        f'"{millpond.bases}/**" rk,',
        f'"{millpond.disks}/**" rwk,',
        '"/srv/fast/**" rwk,',
    ]
    added = f"{enabled}\ncat > {rules} <<'RULES'\n{chr(10).join(lines)}\nRULES"
    assert doctor_in_another_world(millpond, added, "apparmor")["level"] == "ok"
    less = doctor_in_another_world(millpond, f"{added}\nsed -i '/fast/d' {rules}", "apparmor")
    assert [line.strip() for line in less["do"].splitlines()[1:]] == ['"/srv/fast/**" rwk,']


def test_without_apparmor_no_rule_is_needed(millpond):
    found = doctor_in_another_world(millpond, "mount -t tmpfs tmpfs /sys/module", "apparmor")
    assert (found["level"], found["what"]) == ("ok", "AppArmor is not enabled in this kernel")


# The state directory, space, records


def test_a_state_directory_that_cannot_be_written_to(libvirtd, make_filesystem):
    # Root may write anywhere but to a file system that is mounted read-only.
    place = make_filesystem("ext4", 4096 * MiB).path
    millpond = Millpond(directory=place, uri=libvirtd.uri)
    millpond.configure()
    millpond.state.mkdir(mode=0o711)
    assert worries(millpond) == []
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    found = only_worry(millpond)
    assert (found.check, found.level) == ("state", Level.PROBLEM)
    assert f"{millpond.state} belongs to root, mode 0711" in found.what
    subprocess.run(["mount", "-o", "remount,rw", place], check=True)
    assert worries(millpond) == []


def test_space_that_runs_out_is_first_a_warning_and_then_a_problem(libvirtd, make_filesystem):
    place = make_filesystem("ext4", 4096 * MiB).path
    millpond = Millpond(directory=place, uri=libvirtd.uri)
    millpond.configure()
    assert worries(millpond) == []
    images = millpond.state / "images"
    images.mkdir(parents=True)
    ballast = images / "ballast"
    free = shutil.disk_usage(place).free

    def leave(size):
        ballast.unlink(missing_ok=True)
        subprocess.run(["fallocate", "-l", str(free - size), ballast], check=True)

    leave(900 * MiB)
    found = only_worry(millpond)
    assert (found.check, found.level) == ("space", Level.WARNING)
    assert re.search(r"taken by images: 2\.\d GiB", found.do)
    leave(90 * MiB)
    assert only_worry(millpond).level is Level.PROBLEM
    ballast.unlink()
    assert worries(millpond) == []


def test_a_damaged_record_is_rebuilt_from_its_domain(millpond, server):
    record = millpond.state / "servers" / f"{server.id}.json"
    record.write_text(record.read_text()[:100])
    found = worries(millpond)
    problems = [each for each in found if each[1] == "problem"]
    assert [each[0] for each in problems] == ["records"]
    assert {what for _check, level, what in found if level == "unknown"} == {
        "not looked at: a record has a problem"
    }
    (advice,) = [each.do for each in seen_in(millpond, "records") if each.do]
    move = advice.partition(";")[0]
    subprocess.run(move.split(), check=True)
    assert "web" in millpond.ok("doctor", "--adopt")
    assert worries(millpond) == []
    assert millpond.server("web") == server


def test_a_state_directory_of_another_machine(millpond, server):
    path = millpond.state / "owner.json"
    owner = json.loads(path.read_text())
    path.write_text(json.dumps({**owner, "machine": "another"}))
    ((check, level, what), *_rest) = worries(millpond)
    assert (check, level) == ("records", "problem")
    assert "made on another machine" in what
    path.write_text(json.dumps(owner))
    assert worries(millpond) == []


# Pools and permissions


def test_a_pool_that_is_not_active_is_started(millpond, server, connection):
    for name in (BASES, DISKS):
        connection.storagePoolLookupByName(name).destroy()
    pools = [each for each in seen_in(millpond, "pools") if each.level is Level.PROBLEM]
    assert len(pools) == 2
    assert worries(millpond, repair=True) == []
    assert worries(millpond) == []


def test_a_pool_that_does_not_start_with_the_host(millpond, server, connection):
    connection.storagePoolLookupByName(BASES).setAutostart(False)
    found = only_worry(millpond)
    assert (found.check, found.level) == ("pools", Level.WARNING)
    assert worries(millpond, repair=True) == []
    assert connection.storagePoolLookupByName(BASES).autostart()


def test_a_pool_elsewhere_and_a_pool_of_another_type(millpond, connection, workdir):
    def define(xml):
        connection.storagePoolDefineXML(f"<pool type={xml}</target></pool>")

    define(f"'dir'><name>{DISKS}</name><target><path>{workdir}</path>")
    define(
        f"'netfs'><name>{BASES}</name><source><host name='h'/><dir path='/d'/></source>"
        f"<target><path>{millpond.bases}</path>"
    )
    found = [each[2] for each in worries(millpond) if each[1] == "problem"]
    assert found == [
        f"storage pool '{BASES}' is of type 'netfs', not 'dir'",
        f"storage pool '{DISKS}' is at {workdir}, not at {millpond.disks}",
    ]
    for name in (BASES, DISKS):
        connection.storagePoolLookupByName(name).undefine()
    assert worries(millpond) == []


def test_a_pool_whose_directory_is_missing(millpond, server):
    away = millpond.disks.rename(millpond.disks.with_name("away"))
    found = [each for each in worries(millpond) if each[1] == "problem"]
    assert [each[0] for each in found] == ["pools"]
    assert f"its directory {millpond.disks} is missing" in found[0][2]
    away.rename(millpond.disks)
    assert worries(millpond) == []


def test_a_directory_that_qemus_user_cannot_walk_through(millpond, server):
    instances = millpond.state / "instances"
    instances.chmod(0o700)
    found = only_worry(millpond)
    assert (found.check, found.level) == ("permissions", Level.PROBLEM)
    assert f"cannot walk through {instances} " in found.what
    subprocess.run(found.do.split(), check=True)
    assert worries(millpond) == []


def test_a_base_that_became_qemus_is_roots_again(millpond, server):
    (base,) = millpond.bases.iterdir()
    os.chown(base, pwd.getpwnam("libvirt-qemu").pw_uid, -1)
    base.chmod(0o644)
    found = only_worry(millpond)
    assert (found.check, found.level) == ("permissions", Level.PROBLEM)
    assert str(base) in found.what
    assert worries(millpond, repair=True) == []
    assert (base.stat().st_uid, base.stat().st_mode & 0o777) == (0, 0o444)


# What interrupted operations left


def test_an_interrupted_server_is_undone_and_one_that_is_worked_on_is_not_touched(
    millpond, server, connection
):
    kill_at(millpond, "create", "domain", "end", "create", "half", "micro")
    found = only_worry(millpond)
    assert (found.check, found.level) == ("operations", Level.PROBLEM)
    assert "'half' was left in the middle of 'create'" in found.what
    host = millpond.host()
    with host.records.lock(host.shared.server("half")):
        assert worries(millpond) == []
        assert worries(millpond, repair=True) == []
    assert [each.name for each in millpond.host().records.all()] == ["half", "web"]
    assert worries(millpond, repair=True) == []
    assert [each.name for each in millpond.host().records.all()] == ["web"]
    assert [each.name() for each in connection.listAllDomains()] == ["web"]


def test_what_killed_processes_left_of_records_notes_and_locks_is_removed(millpond, server):
    (name,) = os.listdir(millpond.bases)
    beside = millpond.bases.with_name("_base.millpond")
    for directory in (millpond.state / "servers", beside / "records", beside / "uses"):
        left = directory / f".{name}.json.4711.0123abcd"
        left.write_text("{")
        os.utime(left, (0, 0))
    assert worries(millpond) == [
        ("records", "warning", "killed processes left 1 half-written record"),
        ("templates", "warning", "killed processes left 2 half-written notes"),
    ]
    locks = [millpond.state / "locks" / "server%3A1", beside / "locks" / "template%3A1"]
    for each in locks:
        each.touch()
    assert worries(millpond, repair=True) == []
    assert list(millpond.state.rglob(".*")) == []
    assert not any(map(Path.exists, locks))


def test_an_interrupted_preparation_of_a_template(millpond, server, micro_guest, workdir):
    millpond.ok("image", "add", converted(micro_guest, "vmdk", workdir), "--name", "vmdk")
    kill_at(millpond, "prepare", "publish", "end", "create", "half", "vmdk")
    before = worries(millpond)
    assert [each[:2] for each in before] == [("operations", "problem"), ("templates", "warning")]
    assert len(list(millpond.bases.iterdir())) == 2
    assert worries(millpond, repair=True) == []
    found = json.loads(millpond.ok("cache", "list", "--json"))["templates"]
    listed = {each["template"]["volume"] for each in found}
    assert listed == {each.name for each in millpond.bases.iterdir()}
    assert len(listed) == 2  # its bytes were complete: it became a template


def test_a_template_that_disks_stand_on_is_prepared_anew(millpond, server, connection):
    (base,) = millpond.bases.iterdir()
    content = base.read_bytes()
    base.unlink()
    connection.storagePoolLookupByName(BASES).refresh()
    found = only_worry(millpond)
    assert (found.check, found.level) == ("templates", Level.PROBLEM)
    assert found.what.endswith("is missing or damaged, and disks are backed by it: web")
    assert worries(millpond, repair=True) == []
    assert base.read_bytes() == content
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(server.id, "READY")


def test_a_template_that_cannot_be_prepared_anew(millpond, server):
    millpond.host().shared.catalogue.remove(millpond.host().shared.catalogue.get("micro"))
    (base,) = millpond.bases.iterdir()
    away = base.rename(base.with_suffix(".away"))
    problems = [each for each in worries(millpond, repair=True) if each[1] == "problem"]
    assert [each[0] for each in problems] == ["templates"]
    away.rename(base)
    assert worries(millpond) == []


def test_images_without_content_and_content_without_an_image(millpond, server):
    words = [COMMAND, "--config-file", millpond.config, "image", "add", "-", "--name", "half"]
    adding = subprocess.Popen([*words, "--disk-format", "raw"], stdin=subprocess.PIPE)
    incoming = millpond.state / "images" / "incoming"
    adding.stdin.write(bytes(MiB))
    adding.stdin.flush()
    wait_for(lambda: list(incoming.iterdir()), 20)
    assert worries(millpond) == []
    adding.kill()
    adding.wait()
    adding.stdin.close()
    found = only_worry(millpond)
    assert (found.check, found.level) == ("images", Level.WARNING)
    assert "left 1 file of" in found.what
    assert worries(millpond, repair=True) == []
    assert list(incoming.iterdir()) == []
    (blob,) = (millpond.state / "images" / "blobs").iterdir()
    away = blob.rename(millpond.state / "away")
    found = only_worry(millpond)
    assert (found.check, found.level) == ("images", Level.PROBLEM)
    assert "the content of image 'micro' is gone" in found.what
    away.rename(blob)
    assert worries(millpond) == []


def test_a_server_without_a_domain_gets_it_again(millpond, server, connection):
    connection.lookupByName("web").undefine()
    found = only_worry(millpond)
    assert (found.check, found.level) == ("domains", Level.PROBLEM)
    assert worries(millpond, repair=True) == []
    assert connection.lookupByName("web").UUIDString() == server.id
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(server.id, "READY")


def test_a_server_whose_records_were_lost_is_adopted(millpond, server):
    shutil.rmtree(millpond.state / "servers")
    found = worries(millpond)
    assert ("domains", "problem") in [each[:2] for each in found]
    assert "server 'web'" not in str(found)
    (stray,) = [each[2] for each in found if each[0] == "volumes"]
    assert f"{server.id}_disk (named like disk 'disk' of domain 'web')" in stray
    assert millpond.json("doctor", "--adopt")[0]["name"] == "web"
    assert worries(millpond) == []
    assert "nothing to adopt" in millpond.ok("doctor", "--adopt")


def test_a_disk_that_is_gone_is_lost_and_the_server_can_be_deleted(millpond, server, connection):
    pool = connection.storagePoolLookupByName(DISKS)
    pool.storageVolLookupByName(f"{server.id}_disk").delete()
    found = only_worry(millpond)
    assert (found.check, found.level, found.repair) == ("disks", Level.PROBLEM, None)
    assert "what was on it is lost" in found.what
    assert "millpond server delete web" in found.do
    millpond.ok("server", "delete", "web")
    assert worries(millpond) == []


def test_a_disk_that_libvirt_does_not_see_is_looked_for_again(millpond, server, connection):
    disk = millpond.disks / f"{server.id}_disk"
    away = disk.rename(millpond.state / "away")
    connection.storagePoolLookupByName(DISKS).refresh()
    away.rename(disk)
    found = only_worry(millpond)
    assert (found.check, found.level) == ("disks", Level.PROBLEM)
    assert "libvirt does not see" in found.what
    assert worries(millpond, repair=True) == []
    millpond.ok("server", "start", "web")


def test_a_pool_that_was_undefined_is_defined_again_with_its_disks(millpond, server, connection):
    pool = connection.storagePoolLookupByName(DISKS)
    pool.destroy()
    pool.undefine()
    found = only_worry(millpond)
    assert (found.check, found.level) == ("disks", Level.PROBLEM)
    assert f"in pool '{DISKS}', which is not there" in found.what
    assert worries(millpond, repair=True) == []
    assert connection.storagePoolLookupByName(DISKS).listVolumes() == [f"{server.id}_disk"]


# What is not ours


def test_strange_volumes_are_reported_and_never_removed(millpond, server, connection):
    pool = connection.storagePoolLookupByName(DISKS)
    stranger = uuid.uuid4()
    names = ["strange", f"{stranger}_disk", f"{server.id}_disk.old"]
    for name in names:
        pool.createXML(
            f"<volume><name>{name}</name><capacity>1</capacity><allocation>0</allocation></volume>"
        )
    bases = [millpond.bases / name for name in ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "x")]
    for path in bases:
        path.touch()
    disks, base = worries(millpond, repair=True)
    assert disks[:2] == base[:2] == ("volumes", "warning")
    assert "3 volumes" in disks[2]
    assert "strange (no name of Millpond's)" in disks[2]
    assert f"{stranger}_disk (named like disk 'disk' of server {stranger}, which is n" in disks[2]
    assert f"{server.id}_disk.old (named like disk 'disk.old' of server 'web')" in disks[2]
    assert "80709 (named like the base of an image that is not here)" in base[2]
    assert "x (no name of Millpond's)" in base[2]
    for name in names:
        pool.storageVolLookupByName(name).delete()
    for path in bases:
        path.unlink()
    assert worries(millpond) == []


def test_a_template_whose_record_is_lost_is_told_by_its_image(millpond, server):
    record = next((millpond.state / "instances" / "_base.millpond" / "records").iterdir())
    millpond.ok("server", "delete", "web")
    away = record.rename(millpond.state / "away")
    found = only_worry(millpond)
    assert "named like the template of image 'micro'" in found.what
    away.rename(record)
    assert worries(millpond) == []


def test_a_directory_of_a_server_that_is_gone(millpond, server):
    ours, theirs = (millpond.state / "instances" / str(uuid.uuid4()) for _ in range(2))
    for directory in (ours, theirs):
        directory.mkdir()
        (directory / "console.log").write_text("hello")
    (theirs / "notes").touch()
    found = only_worry(millpond)
    assert (found.check, found.level) == ("directories", Level.WARNING)
    assert ours.name in found.what
    assert theirs.name not in found.what
    assert worries(millpond, repair=True)
    shutil.rmtree(ours)
    assert worries(millpond) == []


# --probe-kvm


@pytest.fixture
def speaking_guest(workdir):
    return build_micro_guest(workdir / "speaking.raw", marker="MARKER: micro").path


def probing(millpond, script, guest):
    words = ("doctor", "--probe-kvm", "--guest", guest)
    return in_another_world(script, COMMAND, "--config-file", millpond.config, *words)


def no_trace_of_a_probe(connection):
    return not connection.listAllDomains() and not list(Path("/var/tmp").glob("millpond-probe-*"))


def test_kvm_that_does_not_run_the_guest_is_left(millpond, connection, speaking_guest):
    """The private libvirtd has no KVM, whatever the machine has."""
    text = "# keep me\n" + millpond.config.read_text().replace("e = qemu", "e = auto") + "#end"
    millpond.config.write_text(text)
    done = probing(millpond, KVM % "0666", speaking_guest)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("KVM is not usable: ")
    assert second == f"will set [libvirt] virt_type = qemu in {millpond.config} (was auto)"
    assert millpond.config.read_text() == text.replace("e = auto", "e = qemu")
    assert no_trace_of_a_probe(connection)
    again = probing(millpond, KVM % "0666", speaking_guest)
    assert again.stdout.splitlines()[1] == "virt_type is qemu already; nothing is changed"


@pytest.mark.parametrize(
    ("script", "said"),
    [(NO_KVM, "there is no /dev/kvm"), (KVM % "0600", "QEMU's user cannot open /dev/kvm")],
)
def test_kvm_that_is_absent_or_closed_is_not_probed(millpond, speaking_guest, script, said):
    before = millpond.config.read_text()
    done = probing(millpond, script, speaking_guest)
    assert done.returncode == 0
    assert done.stdout.startswith(said)
    assert "nothing is changed" in done.stdout
    assert millpond.config.read_text() == before


def test_a_guest_that_is_not_there(millpond):
    done = probing(millpond, KVM % "0666", "/nowhere/linux.raw")
    assert done.returncode == BadOption.exit_code
    assert "there is no guest /nowhere/linux.raw" in done.stderr
    assert "make guests" in done.stderr


@pytest.fixture
def libvirtd_with_kvm(session_directory):
    """Another private libvirtd, which has the machine's KVM."""
    if not Path("/dev/kvm").exists():
        pytest.skip("this machine has no /dev/kvm: modprobe kvm_intel or kvm_amd")
    with PrivateLibvirtd(session_directory / "kvm", name="kvm") as daemon:
        daemon.run("mknod", "-m", "0666", "/dev/kvm", "c", "10", "232")
        daemon.restart()
        host = Libvirtd(daemon.uri)
        if access(host) is Access.CLOSED:
            pytest.skip("QEMU's user cannot open /dev/kvm: make setup")
        yield host
        host.close()


def test_kvm_of_this_machine_gets_a_verdict_and_nothing_is_left(libvirtd_with_kvm, speaking_guest):
    found = probe_kvm(libvirtd_with_kvm, speaking_guest)
    assert found.verdict in (ProbeResult.USABLE, ProbeResult.UNUSABLE)
    assert bool(found.reason) == (found.verdict is ProbeResult.UNUSABLE)
    with libvirtd_with_kvm.calling("listing domains") as connection:
        assert no_trace_of_a_probe(connection)


def test_a_guest_that_never_speaks_proves_nothing_about_kvm(libvirtd_with_kvm, workdir):
    guest = workdir / "dumb.raw"
    guest.write_bytes(bytes(MiB))
    with pytest.raises(Unsupported, match="without KVM either"):
        probe_kvm(libvirtd_with_kvm, guest, {VirtType.KVM: 1, VirtType.QEMU: 3})
    with libvirtd_with_kvm.calling("listing domains") as connection:
        assert no_trace_of_a_probe(connection)


def test_a_pool_whose_directory_was_never_made_is_built(millpond, connection):
    """Killed between defining a pool and building it."""
    where = f"<target><path>{millpond.disks}</path></target>"
    connection.storagePoolDefineXML(f"<pool type='dir'><name>{DISKS}</name>{where}</pool>")
    (found,) = [each for each in worries(millpond) if each[0] == "pools"]
    assert "not active" in found[2]
    worries(millpond, repair=True)
    assert connection.storagePoolLookupByName(DISKS).isActive()
    assert millpond.disks.is_dir()
