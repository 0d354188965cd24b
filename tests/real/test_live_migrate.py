"""A server that runs moves to another host: its guest writes all the time, and nothing is lost."""

import shutil
import struct
import subprocess
from pathlib import Path

import libvirt
import pycdlib
import pytest

from millpond.disks.backend import ImageFile
from millpond.libvirt.migration import is_cpu_known
from millpond.model.formats import DiskFormat
from millpond.records.journal import StepMoment
from tests.real.test_kill import moments
from tests.support.guest_ticks import MovingGuest
from tests.support.killer import kill_at
from tests.support.millpond import COMMAND, converted
from tests.support.multi_host import filled
from tests.support.qemus import never_two_run
from tests.support.waiting import wait_for

MEMORY = ("--memory", "16M")
TICK = 3 * 512
"""Where the guest keeps the number of its last tick."""
LONGEST_PAUSE = 5
"""Seconds; it is a tenth of one, but the machine may be busy."""


@pytest.fixture
def images(multi_host, busy_guest, workdir):
    multi_host.ok("image", "add", busy_guest.path, "--name", "raw")
    multi_host.ok("image", "add", converted(busy_guest, "qcow2", workdir), "--name", "qcow2")
    return multi_host


def create(hosts, name, image, *words):
    hosts.ok("server", "create", name, "--image", image, *MEMORY, "--host", "alder", *words)
    guest = MovingGuest(hosts, hosts.deployment().server(name).id)
    guest.wait_for_ticks("alder", more=1)
    return guest


def tick_on_disk(hosts, name):
    host, server = hosts.deployment().find(name)
    path = hosts.directory / "off.raw"
    host.disks.extract(server.disks[0], ImageFile(path=path, format=DiskFormat.RAW))
    with open(path, "rb") as file:
        file.seek(TICK)
        return struct.unpack("<H", file.read(2))[0]


def check_only_on(hosts, name, host):
    server = hosts.deployment().server(name)
    assert (server.host, server.operation) == (host, None)
    for other in hosts.hosts:
        volumes = [each for each in hosts.volumes(other) if each.startswith(server.id)]
        domains = hosts.deployment().hosts[other].domains.names()
        assert bool(volumes) == (other == host), (other, volumes)
        assert (name in domains) == (other == host)
    assert hosts.taken_by() == {each.id for each in hosts.deployment().records.all()}
    told = hosts.run("doctor", "--placement").stdout
    assert told.endswith("no problem\n"), told
    assert hosts.json("server", "show", name)["state"] == "running"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("qcow2", ("--disk", "1G", "--config-drive")),
        ("raw", ("--disk", "64M", "--ephemeral", "64M", "--swap", "16M")),
    ],
)
def test_it_moves_with_all_its_disks_and_its_guest_notices_nothing(images, image, words):
    guest = create(images, "web", image, *words)
    images.ok("server", "disk", "add", "web", "--size", "64M")
    assert images.json("explain", "web", "--host", "birch")["live_obstacle"] == ""
    told = images.json("server", "migrate", "web", "--host", "birch", "--live", "--dry-run")
    assert (told["host"], images.where("web")) == ("birch", "alder")
    with never_two_run(images, "web"):
        told = images.json("server", "migrate", "web", "--host", "birch", "--live")
    assert (told["host"], told["source"]) == ("birch", "alder")
    assert 0 < told["pause"] < LONGEST_PAUSE
    print(f"the longest pause: {told['pause']} s")
    guest.check_gapless("alder", "birch")
    check_only_on(images, "web", "birch")
    images.ok("server", "stop", "web", "--force")
    guest.keep_log("birch")
    assert tick_on_disk(images, "web") in (last := guest.ticks("alder", "birch")[-1], last + 1)
    images.ok("server", "start", "web")
    images.ok("server", "delete", "web")
    assert [images.volumes(each) for each in images.hosts] == [[], [], []]


def fill(hosts, name, size="64M"):
    """So much in its root disk, an overlay, that is not in its template."""
    host, server = hosts.deployment().find(name)
    disk = server.disks[0]
    path = host.pools.ensure(disk.pool).get(disk.volume).path
    words = ("qemu-io", "-f", "qcow2", "-c", f"write -P 7 16M {size}", path)
    hosts.hosts[host.name].run(*words)
    return lambda at: int(hosts.hosts[at].run("du", "-B1", path).stdout.split()[0])


def test_only_the_overlays_own_bytes_travel(images):
    hosts = ("server", "create", "web", "--image", "qcow2", *MEMORY, "--host", "alder")
    images.ok(*hosts, "--disk", "3G", "--no-start")
    allocated = fill(images, "web")
    told = images.json("server", "migrate", "web", "--dry-run", "--host", "birch")
    images.ok("server", "start", "web")
    guest = MovingGuest(images, images.deployment().server("web").id)
    guest.wait_for_ticks("alder", more=1)
    before = allocated("alder")
    assert told["bytes"] == pytest.approx(before, rel=0.05)
    done = images.json("server", "migrate", "web", "--host", "birch", "--live")
    assert 64 * 1024**2 < allocated("birch") <= 1.05 * before
    assert done["moved"] <= 1.05 * before + 32 * 1024**2  # and its memory
    guest.check_gapless("alder", "birch")


def test_in_a_shared_pool_nothing_is_copied(sharing_hosts, busy_guest, workdir):
    shared = sharing_hosts
    shared.ok("image", "add", converted(busy_guest, "qcow2", workdir), "--name", "qcow2")
    shared.ok("host", "list", "--refresh")
    guest = create(shared, "web", "qcow2", "--config-drive")
    told = shared.json("server", "migrate", "web", "--host", "birch", "--live")
    assert (told["bytes"], {each["way"] for each in told["disks"]}) == (0, {"shared"})
    guest.check_gapless("birch")  # the log is one
    shared.ok("server", "migrate", "web", "--host", "alder", "--live")
    assert shared.ok("doctor", "--placement").endswith("no problem\n")
    shared.ok("server", "delete", "web")


def test_what_cannot_be_is_refused_and_nothing_has_changed(images):
    create(images, "web", "qcow2")
    images.ok("server", "create", "off", "--image", "raw", *MEMORY, "--no-start")
    for words, status, said in (
        (("web", "--live", "--host", "alder"), 2, "on host 'alder' already"),
        (("web", "--live", "--host", "elm"), 3, "there is no host 'elm'"),
        (("off", "--live"), 4, "is stopped; this needs it to be running"),
        (("web", "--live", "--stop"), 2, "does not go with --live"),
        (("web", "--abort", "--live"), 2, "does not go with --live"),
        (("web", "--live", "--force"), 2, "does not go with --live"),
        (("web", "--abort", "--dry-run"), 2, "does not go with --abort"),
        (("web", "--abort", "--host", "birch"), 2, "does not go with --abort"),
        (("web", "--post-copy"), 2, "add --live"),
        (("web", "--abort"), 4, "is not being migrated"),
        (("nobody", "--live"), 3, "nobody"),
    ):
        found, message = images.fails("server", "migrate", *words)
        assert (found, said in message) == (status, True), message
    assert "running" in images.json("explain", "off")["live_obstacle"]
    images.configure({"birch": "migration_uri = qemu+ssh://birch.example/system"})
    assert "names no address" in images.ok("explain", "web", "--host", "birch")
    status, message = images.fails("server", "migrate", "web", "--live", "--host", "birch")
    assert (status, "names no address" in message) == (6, True), message
    images.configure()
    images.ok("server", "delete", "off")
    images.ok("host", "list", "--refresh")
    check_only_on(images, "web", "alder")


@pytest.fixture
def slow_move(images):
    """A server whose migration takes a minute; the function begins it in another process."""
    words = ("server", "create", "web", "--image", "qcow2", *MEMORY, "--disk", "1G")
    images.ok(*words, "--host", "alder", "--no-start")
    fill(images, "web")
    images.ok("server", "start", "web")
    guest = MovingGuest(images, images.deployment().server("web").id)
    guest.wait_for_ticks("alder", more=1)
    with images.hosts["alder"].connect() as connection:
        connection.lookupByUUIDString(guest.id).migrateSetMaxSpeed(1)
    begun = []

    def begin(*options):
        words = [COMMAND, "--config-file", images.config, "server", "migrate", "web", "--live"]
        told = [*map(str, words), "--host", "birch", *options]
        process = subprocess.Popen(told, stderr=subprocess.PIPE, text=True)
        begun.append(process)
        wait_for(lambda: is_migrating(images, guest.id), 60)
        return process

    yield guest, begin
    for each in begun:
        each.kill()
        each.communicate()


def is_migrating(hosts, id):
    with hosts.hosts["alder"].connect() as connection:
        return connection.lookupByUUIDString(id).jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE


def listening():
    """The addresses at which QEMU waits for a migration, as the kernel writes them."""
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, port = local.split(":")
            if state == "0A" and int(port, 16) in range(49152, 49216):
                yield address


def check_stays(hosts, guest):
    guest.check_gapless("alder")
    check_only_on(hosts, "web", "alder")


def test_aborted_from_elsewhere_it_runs_on_at_the_source(images, slow_move):
    guest, begin = slow_move
    process = begin()
    wait_for(lambda: list(listening()), 60)
    assert set(listening()) == {"0100007F"}  # 127.0.0.1
    assert images.json("server", "show", "web")["state"] == "migrating"
    assert [each["state"] for each in images.json("server", "list")] == ["migrating"]
    code, said = images.fails("server", "migrate", "web", "--dry-run", "--live")
    assert (code, "another operation is under way on server 'web'" in said) == (4, True), said
    assert images.json("server", "migrate", "web", "--abort")["host"] == "alder"
    _, message = process.communicate(timeout=60)
    assert (process.returncode, "was aborted" in message) == (4, True), message
    check_stays(images, guest)


@pytest.mark.full
def test_given_up_after_its_time_it_runs_on_at_the_source(images, slow_move):
    guest, begin = slow_move
    process = begin("--timeout", "2")
    _, message = process.communicate(timeout=60)
    assert (process.returncode, "had not moved after 2 s" in message) == (6, True), message
    check_stays(images, guest)


@pytest.mark.parametrize("repaired", ["doctor", pytest.param("again", marks=pytest.mark.full)])
def test_killed_in_the_middle_it_runs_on_at_the_source(images, slow_move, repaired):
    guest, begin = slow_move
    process = begin()
    process.kill()
    process.wait()
    if repaired == "doctor":
        images.run("doctor", "--repair")
        check_stays(images, guest)
        return
    with images.hosts["alder"].connect() as connection:
        connection.lookupByUUIDString(guest.id).migrateSetMaxSpeed(1000)
    images.ok("server", "migrate", "web", "--live", "--host", "birch")
    guest.check_gapless("alder", "birch")
    check_only_on(images, "web", "birch")


@pytest.mark.parametrize("loses", ["libvirtd", pytest.param("power", marks=pytest.mark.full)])
def test_a_destination_that_dies_in_the_middle_leaves_it_at_the_source(
    images, slow_move, host_daemons, loses
):
    guest, begin = slow_move
    process = begin()
    birch = host_daemons["birch"]
    birch.kill() if loses == "libvirtd" else birch.lose_power()
    try:
        _, message = process.communicate(timeout=120)
        assert (process.returncode, host_daemons["birch"].uri in message) == (6, True), message
        guest.check_gapless("alder")
        assert images.where("web") == "alder"
    finally:
        host_daemons["birch"].start()
    images.run("doctor", "--repair")
    check_stays(images, guest)


@pytest.mark.full
def test_a_destination_that_becomes_full_in_the_middle_leaves_it_at_the_source(images, slow_move):
    guest, begin = slow_move
    process = begin()
    with filled(images, "birch"), images.hosts["alder"].connect() as connection:
        connection.lookupByUUIDString(guest.id).migrateSetMaxSpeed(1000)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 6
    assert "no space left on host 'birch' for the disks of server 'web'" in message
    check_stays(images, guest)


@pytest.mark.full
@pytest.mark.parametrize("restarted", ["killed", "stopped"])
def test_a_sources_libvirtd_that_dies_in_the_middle_leaves_it_there(
    images, slow_move, host_daemons, restarted
):
    guest, begin = slow_move
    process = begin()
    host_daemons["alder"].kill() if restarted == "killed" else host_daemons["alder"].stop()
    _, message = process.communicate(timeout=120)
    assert (process.returncode, host_daemons["alder"].uri in message) == (6, True), message
    host_daemons["alder"].start()
    images.run("doctor", "--repair")
    check_stays(images, guest)


KILLS = [
    pytest.param(step, moment, marks=pytest.mark.full, id=f"{step}-{moment}")
    for step, moment in moments("live migrate")
]
BEFORE = ("claim", "template", "copy", "verify")


@pytest.mark.parametrize(("step", "moment"), KILLS)
@pytest.mark.parametrize("repaired", ["doctor", "again"])
def test_killed_anywhere_it_runs_on_exactly_one_host(images, step, moment, repaired):
    guest = create(images, "web", "qcow2", "--config-drive")
    with never_two_run(images, "web"):
        kill_at(images, "live migrate", step, moment, "live", "web", "birch")
        if repaired == "doctor":
            images.run("doctor", "--repair")
        else:
            images.ok("server", "migrate", "web", "--host", "birch", "--live")
    stays = step in BEFORE or (step, moment) == ("migrate", StepMoment.BEGIN)
    logs = ["alder"] if stays else ["alder", "birch"]
    if repaired == "doctor":
        check_only_on(images, "web", logs[-1])
    else:
        logs = ["alder", "birch"]
        check_only_on(images, "web", "birch")
    guest.check_gapless(*logs)


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "moment"),
    [
        ("migrate", StepMoment.END),
        ("switch", StepMoment.END),
        ("domain", StepMoment.END),
        ("remove", StepMoment.BEGIN),
    ],
)
def test_a_source_that_loses_power_after_the_guest_has_left_leaves_it_whole_at_the_destination(
    images, host_daemons, step, moment
):
    """Its disks are copies. Nothing of it starts at the source when that is back."""
    guest = create(images, "web", "qcow2", "--config-drive")
    alder = host_daemons["alder"]
    with never_two_run(images, "web"):
        kill_at(images, "live migrate", step, moment, "live", "web", "birch")
        alder.lose_power()
        try:
            images.run("doctor", "--repair")
            server = images.deployment().server("web")
            assert (server.host, server.operation) == ("birch", None)
            assert images.json("server", "show", "web")["state"] == "running"
            assert images.deployment().hosts["birch"].domains.state(server.id) == "running"
        finally:
            alder.start()
        images.run("doctor", "--repair")
        check_only_on(images, "web", "birch")
    guest.check_gapless("alder", "birch")


@pytest.mark.full
def test_deleted_after_it_has_left_it_is_gone_there(images):
    create(images, "web", "qcow2")
    kill_at(images, "live migrate", "migrate", StepMoment.END, "live", "web", "birch")
    (server,) = images.deployment().records.all()
    images.ok("server", "delete", "web", "--yes")
    for host in images.deployment().hosts.values():
        assert "web" not in host.domains.names()
        assert not any(host.disks.exists(each) for each in server.disks)
    assert not images.taken_by()


def test_all_other_verbs_know_a_server_that_has_moved_and_still_runs(images):
    guest = create(images, "web", "qcow2", "--disk", "1G")
    images.ok("server", "disk", "add", "web", "--size", "64M")
    images.ok("server", "migrate", "web", "--host", "birch", "--live", "--auto-converge")
    images.ok("server", "disk", "grow", "web", "disk", "--size", "2G")
    images.ok("server", "snapshot", "web", "kept")
    assert "no problem" in images.ok("doctor")
    guest.check_gapless("alder", "birch")
    images.ok("server", "reboot", "web", "--hard")
    images.ok("server", "migrate", "web", "--host", "alder", "--live")
    with images.hosts["alder"].connect() as connection:
        connection.lookupByName("web").suspend()  # it answers nobody
    status, message = images.fails("server", "disk", "remove", "web", "disk.data0", "--yes")
    assert (status, "has not released disk" in message) == (4, True)
    images.ok("server", "stop", "web", "--force")
    images.run("doctor", "--repair")
    roles = [each["role"] for each in images.json("server", "disk", "list", "web")]
    assert "disk.data0" not in roles
    images.ok("server", "migrate", "web", "--host", "birch")
    images.ok("server", "start", "web")
    images.ok("server", "delete", "web")
    assert [images.volumes(each) for each in images.hosts] == [[], [], []]


ENDS = ("server", "client")


def make_certificates(directory):
    """Of an authority, and one for the loopback that it has signed, for both ends; their names."""
    names = directory / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout")
    authority = ("-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-CAcreateserial")
    for words in (
        ("req", "-x509", *key, "ca-key.pem", "-out", "ca-cert.pem", "-subj", "/CN=pond"),
        ("req", *key, "server-key.pem", "-out", "asked.pem", "-subj", "/CN=127.0.0.1"),
        ("x509", "-req", "-in", "asked.pem", *authority, "-out", "server-cert.pem"),
    ):
        more = ("-extfile", str(names)) if words[0] == "x509" else ()
        told = ["openssl", *words, *more]
        subprocess.run(told, cwd=directory, check=True, capture_output=True)
    for kind in ("cert", "key"):
        shutil.copy(directory / f"server-{kind}.pem", directory / f"client-{kind}.pem")
    return ("ca-cert.pem", *(f"{end}-{kind}.pem" for end in ENDS for kind in ("cert", "key")))


@pytest.mark.full
def test_encrypted_by_qemu_or_not_at_all(images, workdir, host_daemons):
    guest = create(images, "web", "qcow2")
    images.configure({"birch": "migration_tls = true"})
    status, message = images.fails("server", "migrate", "web", "--live", "--host", "birch")
    assert (status, "ca-cert.pem" in message) == (6, True), message
    names = make_certificates(workdir)
    own = [host_daemons[each].directory / "etc/pki" for each in ("alder", "birch")]
    try:
        for directory, name in ((each, name) for each in own for name in names):
            shutil.copy(workdir / name, directory / name)
            (directory / name).chmod(0o644)
        images.ok("server", "migrate", "web", "--live", "--host", "birch")
    finally:
        for directory, name in ((each, name) for each in own for name in names):
            (directory / name).unlink(missing_ok=True)
    guest.check_gapless("alder", "birch")


@pytest.mark.full
def test_through_libvirts_connection_where_nothing_may_listen(
    sharing_hosts, busy_guest, workdir, host_daemons
):
    shared = sharing_hosts
    shared.ok("image", "add", converted(busy_guest, "qcow2", workdir), "--name", "qcow2")
    own = f"disks_pool_path = {shared.directory}/shared/disks"
    peer = host_daemons["birch"].uri.replace("qemu://", "qemu+unix://")
    uris = {"birch": f"{own}\nmigration_uri = {peer}"}
    shared.configure({**dict.fromkeys(shared.hosts, own), **uris})
    shared.ok("host", "list", "--refresh")
    guest = create(shared, "web", "qcow2")
    shared.ok("server", "migrate", "web", "--host", "birch", "--live")
    guest.check_gapless("birch")
    shared.ok("server", "delete", "web")


@pytest.mark.full
def test_what_is_only_read_is_there_before_the_guest(images, workdir):
    """The medium in its drive, and a disk that was detached."""
    path = workdir / "disc.iso"
    iso = pycdlib.PyCdlib()
    iso.new()
    iso.write(str(path))
    iso.close()
    images.ok("image", "add", path, "--name", "disc")
    words = ("--iso", "disc", "--disk", "8M", *MEMORY, "--host", "alder")
    images.ok("server", "create", "new", *words)
    images.ok("server", "stop", "new", "--force")
    images.ok("server", "disk", "add", "new", "--size", "8M")
    images.ok("server", "disk", "detach", "new", "disk.data0")
    images.ok("server", "start", "new")
    told = images.json("server", "migrate", "new", "--host", "birch", "--live")
    assert {each["role"] for each in told["disks"]} >= {"disk", "cdrom", "disk.data0"}
    check_only_on(images, "new", "birch")
    images.ok("server", "cdrom", "eject", "new")
    images.ok("server", "delete", "new")
    assert [images.volumes(each) for each in images.hosts] == [[], [], []]


def test_a_destination_is_known_to_lack_what_the_cpu_of_a_guest_has(images):
    """By its libvirt, which knows QEMU: with TCG there is no AVX-512."""
    libvirtd = images.deployment().hosts["birch"].libvirtd
    lacks = "<feature policy='require' name='avx512f'/>"
    for feature, is_known in (("", True), (lacks, False)):
        cpu = f"<cpu mode='custom' match='exact'><model>qemu64</model>{feature}</cpu>"
        assert is_cpu_known(libvirtd, cpu, "pc", "qemu") is is_known
