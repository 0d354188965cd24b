"""Servers on a host whose files cannot be opened here: everything goes through libvirt."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millpond.errors import ConnectionLost, HostUnreachable, NoSpace
from millpond.libvirt.pool import send_file
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec
from millpond.records.journal import StepMoment
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from millpond.system.libvirtd import Libvirtd
from millpond.templates.remote import RemoteTemplates
from tests.contract.template_store import TemplateStoreContract
from tests.real.test_kill import RUNS, listed, moments, moments_of_a_preparation
from tests.support.guest_ticks import chains, last_tick, tick_on_disk, wait_for_ticks
from tests.support.image_files import raw_file
from tests.support.killer import kill_at
from tests.support.millpond import COMMAND, converted
from tests.support.two_faced import two_faced
from tests.support.waiting import wait_for


@pytest.fixture(params=["qcow2", pytest.param("raw", marks=pytest.mark.full), "vmdk"])
def image(request, remote, micro_guest):
    return add(remote, micro_guest, request.param)


@pytest.fixture
def vmdk(remote, micro_guest):
    return add(remote, micro_guest, "vmdk")


@pytest.fixture
def qcow2(remote, micro_guest):
    return add(remote, micro_guest, "qcow2")


@pytest.fixture
def raw(remote, micro_guest):
    return add(remote, micro_guest, "raw")


def add(remote, guest, format):
    path = guest.path if format == "raw" else converted(guest, format, remote.directory)
    remote.ok("image", "add", path, "--name", format)
    return format


def create(remote, name, image, **flavor):
    host = remote.host()
    size = Flavor(memory=32 * MiB, **flavor)
    request = ServerRequest(name=name, image=host.images.get(image), flavor=size)
    return create_server(host, request)


def test_files_are_looked_for_and_not_found(remote):
    host = remote.host()
    assert not host.probe_local_files()
    assert remote.libvirtd.run("ls", str(remote.bases)).stdout == ""
    assert not remote.bases.exists()
    assert remote.files() == []


def test_files_are_found_where_they_are_here(millpond):
    host = millpond.host()
    assert host.probe_local_files()
    assert os.listdir(millpond.bases) == []


def test_a_marker_that_a_killed_process_left_is_swept(remote):
    base = remote.host().pools.base
    base.create(empty(f"millpond-marker-1700000000-{'0' * 32}"))
    assert not remote.host().probe_local_files()
    assert base.names() == []


def empty(name):
    return VolumeSpec(name=name, format=DiskFormat.RAW, capacity=1)


def test_two_that_look_at_once_do_not_mislead_each_other(millpond):
    answers = []

    def look():
        for _ in range(10):
            host = millpond.host()
            answers.append(host.probe_local_files())

    threads = [threading.Thread(target=look) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == [True] * 30
    assert millpond.host().pools.base.local
    assert os.listdir(millpond.bases) == []


def test_a_server_lives_and_goes_there(remote, image, micro_guest):
    made = create(remote, "web", image, disk=8 * MiB, swap=4 * MiB)
    assert micro_guest.marker in remote.wait_for_console(made.id, "READY")
    remote.ok("server", "reboot", "web", "--hard")
    remote.wait_for_console(made.id, "BOOTS 0002")
    assert not remote.bases.exists()
    assert "no problem" in remote.ok("doctor")
    remote.ok("server", "delete", "web")
    remote.ok("cache", "prune", "--all-unused")
    assert remote.files() == []


def test_a_template_is_roots_and_read_only_and_its_record_lies_beside_it(remote, qcow2):
    create(remote, "web", qcow2)
    (name,) = remote.files(remote.bases)
    assert (
        remote.libvirtd.run("stat", "-c", "%a %U", f"{remote.bases}/{name}").stdout == "444 root\n"
    )
    assert remote.files(remote.bases.with_name("_base.millpond")) == [f"{name}.json"]
    (shown,) = remote.json("cache", "list")["templates"]
    assert (shown["template"]["prepared"], shown["users"]) == ("upload", ["web"])


def test_a_cache_of_another_state_directory_is_left_alone(remote, qcow2):
    remote.ok("cache", "fetch", qcow2)
    before = remote.files()
    (remote.state / "owner.json").unlink()
    code, message = remote.fails("cache", "fetch", qcow2)
    assert (code, "another host or state directory" in message) == (6, True)
    assert remote.files() == before


def test_templates_are_fetched_pinned_verified_and_pruned(remote, vmdk):
    remote.ok("cache", "fetch", vmdk)
    (name,) = remote.files(remote.bases)
    remote.ok("cache", "pin", vmdk)
    remote.ok("cache", "prune", "--all-unused")
    assert [each["outcome"] for each in remote.json("cache", "verify", "--all")] == ["recorded"]
    assert [each["outcome"] for each in remote.json("cache", "verify", "--all")] == ["intact"]
    words = ("dd", "if=/dev/urandom", f"of={remote.bases}/{name}", "bs=512", "count=1")
    remote.libvirtd.run(*words, "conv=notrunc")
    done = remote.run("cache", "verify", "--all")
    assert (done.returncode, "wrong" in done.stdout) == (1, True)
    (kept,) = (remote.state / "hosts/local/templates/quarantine").iterdir()
    assert kept.stat().st_size == MiB
    assert (
        remote.files(remote.bases) == []
    )  # nothing stood on it, and it is made again when needed
    create(remote, "web", vmdk)
    remote.ok("server", "delete", "web")
    remote.ok("cache", "unpin", vmdk)
    remote.ok("cache", "prune", "--all-unused")
    assert remote.files() == []


def test_a_template_that_is_wrong_beneath_a_disk_stays_and_is_told_of(remote, qcow2):
    create(remote, "web", qcow2)
    (name,) = remote.files(remote.bases)
    words = (
        "dd",
        "if=/dev/urandom",
        f"of={remote.bases}/{name}",
        "bs=1",
        "count=8",
        "seek=300000",
    )
    remote.libvirtd.run(*words, "conv=notrunc")
    done = remote.run("cache", "verify", "--all")
    assert done.returncode == 1
    assert "used by web" in done.stdout
    assert "replacing template" in done.stdout
    assert remote.files(remote.bases) == [name]


@pytest.mark.full
@pytest.mark.parametrize("image", ["qcow2", "raw"], indirect=True)
def test_disks_come_grow_and_go(remote, image):
    made = create(remote, "web", image)
    remote.wait_for_console(made.id, "READY")
    remote.ok("server", "disk", "add", "web", "--size", "4M")
    remote.ok("server", "disk", "grow", "web", "disk", "--size", "8M")
    remote.ok("server", "stop", "web", "--force")
    remote.ok("server", "disk", "grow", "web", "disk", "--size", "16M")
    remote.ok("server", "disk", "grow", "web", "disk.data0", "--size", "8M")
    assert [each.size for each in remote.server("web").disks] == [16 * MiB, 8 * MiB]
    remote.ok("server", "start", "web")
    remote.wait_for_console(made.id, "BOOTS 0002")
    remote.ok("server", "stop", "web", "--force")
    remote.ok("server", "disk", "remove", "web", "disk.data0")
    assert len(remote.files(remote.disks)) == 1


@pytest.mark.parametrize(
    "image", [pytest.param("qcow2", marks=pytest.mark.full), "raw"], indirect=True
)
@pytest.mark.parametrize(
    "options",
    [
        (),
        *(
            pytest.param(each, marks=pytest.mark.full)
            for each in (("--format", "raw"), ("--compress",))
        ),
    ],
    ids=str,
)
def test_a_server_that_is_off_becomes_an_image(remote, image, options):
    made = create(remote, "web", image)
    remote.wait_for_console(made.id, "READY")
    remote.ok("server", "stop", "web", "--force")
    remote.ok("server", "snapshot", "web", "snap", *options)
    assert remote.files(remote.disks) == [made.disks[0].volume]
    remote.ok("server", "delete", "web")
    again = create(remote, "again", "snap")
    remote.wait_for_console(again.id, "BOOTS 0002")


@pytest.mark.parametrize(
    "image", ["qcow2", pytest.param("raw", marks=pytest.mark.full)], indirect=True
)
def test_a_server_that_runs_becomes_an_image_and_runs_on(remote, image):
    made = create(remote, "web", image)
    remote.wait_for_console(made.id, "TICK 0001")
    with remote.libvirtd.connect() as connection:
        domain = connection.lookupByName("web")
        before = chains(domain)
        remote.ok("server", "snapshot", "web", "snap")
        assert chains(domain) == before
    wait_for_ticks(remote, made.id)
    assert remote.files(remote.disks) == [made.disks[0].volume]
    again = create(remote, "again", "snap")
    remote.wait_for_console(again.id, "BOOTS 0002")


def test_what_a_guest_wrote_that_went_off_meanwhile_is_not_lost(remote, qcow2):
    """libvirt merges only disks of a domain that runs: it is woken for that, and does nothing."""
    made = create(remote, "web", qcow2)
    remote.wait_for_console(made.id, "TICK 0001")
    kill_at(remote, "snapshot", "extract", StepMoment.BEGIN, "snapshot", "web", "snap")
    wait_for_ticks(remote, made.id)
    with remote.libvirtd.connect() as connection:
        connection.lookupByName("web").destroy()
    tick = last_tick(remote, made.id)
    remote.ok("doctor", "--mend")
    remote.wait_for_console(made.id, "BOOTS 0002")  # it should run
    remote.ok("server", "stop", "web", "--force")
    assert remote.files(remote.disks) == sorted(each.volume for each in made.disks)
    assert tick_on_disk(remote, "web") >= tick


def test_a_guest_that_writes_a_header_gets_no_file_of_the_host(remote, raw, micro_guest):
    """Its disk is fetched byte by byte: nobody asks what it is."""
    remote.libvirtd.run("sh", "-c", f"echo TOP-SECRET > {remote.place}/secret")
    made = create(remote, "web", raw, disk=MiB)
    remote.wait_for_console(made.id, "READY")
    remote.ok("server", "stop", "web", "--force")
    disk = remote.directory / "disk"
    disk.write_bytes(two_faced(micro_guest, f"{remote.place}/secret"))
    pool = remote.host().pools.for_disk(Backend.RAW)
    send_file(pool, made.disks[0].volume, disk)
    pool.refresh()
    assert pool.get(made.disks[0].volume).reported_format == "qcow2"
    remote.ok("server", "snapshot", "web", "snap")
    remote.ok("image", "save", "snap", remote.directory / "saved")
    flat = subprocess.run(
        [
            "qemu-img",
            "dd",
            "-f",
            "qcow2",
            "-O",
            "raw",
            f"if={remote.directory}/saved",
            "of=/dev/stdout",
        ],
        capture_output=True,
    )
    assert b"TOP-SECRET" not in (remote.directory / "saved").read_bytes() + flat.stdout
    code, message = remote.fails("server", "disk", "grow", "web", "disk", "--size", "8M")
    assert (code, "cannot be opened here" in message) == (5, True)


def test_an_image_that_is_two_things_makes_no_raw_disk(remote, micro_guest):
    """libvirt would follow the header, and here it cannot be told what the template is."""
    content = remote.directory / "content"
    content.write_bytes(two_faced(micro_guest, "/etc/passwd"))
    path = remote.directory / "outer.qcow2"
    subprocess.run(
        ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(content), str(path)], check=True
    )
    remote.configure("images_type = raw")
    remote.ok("image", "add", path, "--name", "outer")
    code, message = remote.fails(
        "server", "create", "web", "--image", "outer", "--network", "none"
    )
    assert (code, "libvirt takes the template for something else" in message) == (5, True)
    assert remote.files(remote.disks) == []
    assert remote.json("server", "list") == []


def test_the_console_is_opened_there(remote, qcow2):
    made = create(remote, "web", qcow2)
    remote.wait_for_console(made.id, "READY")
    stream = remote.host().domains.open_console(made.id)
    heard = b""
    for content in stream.receive():
        heard += content
        if b"TICK" in heard:
            break
    stream.close()
    done = remote.run("server", "console", "web", "--log")
    assert "READY" in done.stdout


def test_a_log_that_nobody_wrote_is_said(remote, qcow2):
    remote.ok("server", "create", "web", "--image", qcow2, "--memory", "32M", "--no-start")
    code, message = remote.fails("server", "console", "web", "--log")
    assert (code, "has no console to show: its log on the host" in message) == (3, True)


def test_doctor_says_what_it_did_not_look_at_and_why(remote, qcow2):
    create(remote, "web", qcow2)
    found = {each["check"]: each for each in remote.json("doctor")}
    for check in ("apparmor", "permissions", "directories", "legacy"):
        reason = "not looked at: the files of the host cannot be opened here"
        assert found[check]["what"] == reason
    assert "libvirt has no KVM there" in found["kvm"]["what"]
    assert "2 GiB" in remote.ok("doctor")


def test_strays_are_seen_there(remote, qcow2):
    create(remote, "web", qcow2)
    host = remote.host()
    for pool in (host.pools.base, host.pools.for_disk(Backend.RAW)):
        pool.create(empty("stray"))
    found = [each["what"] for each in remote.json("doctor") if each["check"] == "volumes"]
    assert len([each for each in found if "stray" in each]) == 2


# Killed


def nothing_is_left(remote):
    known = {each.id for each in remote.host().records.all()}
    strays = [each for each in remote.files(remote.disks) if each[:36] not in known]
    logs = [
        each for each in remote.files(Path(f"{remote.disks}.consoles")) if each[:36] not in known
    ]
    with remote.libvirtd.connect() as connection:
        domains = [each.UUIDString() for each in connection.listAllDomains()]
    unfinished = remote.host().template_store.unfinished()
    return (strays, logs, set(domains) - known, unfinished) == ([], [], set(), [])


def some(every, ordinary):
    return [
        pytest.param(*each, marks=() if each in ordinary else pytest.mark.full) for each in every
    ]


@pytest.mark.parametrize(
    ("step", "moment"),
    some(moments("create"), [("start", StepMoment.END)]),
)
def test_killed_in_create(remote, vmdk, step, moment):
    kill_at(remote, "create", step, moment, "create", "victim", vmdk)
    assert listed(remote) == {"victim": f"interrupted (create: {step})"}
    create(remote, "after", vmdk)
    remote.ok("doctor", "--mend")
    stays = {"victim": "running"} if (step, moment) == RUNS else {}
    assert listed(remote) == {"after": "running", **stays}
    assert nothing_is_left(remote)
    if not stays:
        create(remote, "victim", vmdk)


PREPARATION_ENDS = [("publish", StepMoment.END), ("record", StepMoment.BEGIN)]


@pytest.mark.parametrize(("step", "moment"), some(moments_of_a_preparation(), PREPARATION_ENDS))
def test_killed_in_the_preparation_of_a_template(remote, vmdk, micro_guest, step, moment):
    kill_at(remote, "prepare", step, moment, "create", "victim", vmdk)
    recorded = list(remote.host().template_store.all())
    assert len(recorded) == (1 if (step, moment) == ("record", StepMoment.END) else 0)
    made = create(remote, "after", vmdk)
    assert micro_guest.marker in remote.wait_for_console(made.id, "READY")
    remote.ok("doctor", "--mend")
    assert nothing_is_left(remote)
    assert len(remote.files(remote.bases)) == 1


@pytest.mark.parametrize(
    ("step", "moment"), some(moments_of_a_preparation(), PREPARATION_ENDS[:1])
)
def test_doctor_alone_clears_a_preparation_away(remote, vmdk, step, moment):
    kill_at(remote, "prepare", step, moment, "create", "victim", vmdk)
    remote.ok("doctor", "--mend")
    assert nothing_is_left(remote)
    published = step in ("refresh", "record") or (step, moment) == ("publish", StepMoment.END)
    assert len(remote.files(remote.bases)) == (1 if published else 0)
    assert len(remote.files(remote.bases.with_name("_base.millpond"))) == (1 if published else 0)


@pytest.mark.parametrize(
    ("step", "moment"), some(moments("snapshot"), [("extract", StepMoment.END)])
)
@pytest.mark.parametrize(
    "running", [pytest.param(True, marks=pytest.mark.full), False], ids=["running", "off"]
)
def test_killed_while_a_server_becomes_an_image(remote, qcow2, step, moment, running):
    made = create(remote, "victim", qcow2)
    remote.wait_for_console(made.id, "READY")
    if not running:
        remote.ok("server", "stop", "victim", "--force")
    kill_at(remote, "snapshot", step, moment, "snapshot", "victim", "snap")
    remote.ok("doctor", "--mend")
    assert listed(remote) == {"victim": "running" if running else "stopped"}
    assert remote.files(remote.disks) == [made.disks[0].volume]
    assert [each.name for each in remote.host().shared.catalogue.all()] == [qcow2]
    assert list((remote.state / "images" / "incoming").iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("verb", "step", "moment"),
    [
        (verb, *each)
        for verb in ("delete", "reboot", "grow", "disk add", "disk remove")
        for each in moments(verb)
    ],
)
def test_killed_in_the_rest_of_its_life(remote, vmdk, verb, step, moment):
    made = create(remote, "victim", vmdk)
    remote.wait_for_console(made.id, "READY")
    if verb not in ("delete", "reboot"):
        remote.ok("server", "stop", "victim", "--force")
    if verb == "disk remove":
        remote.ok("server", "disk", "add", "victim", "--size", "4M")
    words = {
        "grow": ("grow", "victim", 8 * MiB),
        "disk add": ("add", "victim", 4 * MiB),
        "disk remove": ("remove", "victim", "disk.data0"),
    }
    kill_at(remote, verb, step, moment, *words.get(verb, (verb, "victim")))
    remote.ok("doctor", "--mend")
    assert nothing_is_left(remote)
    state = {"delete": {}, "reboot": {"victim": "running"}}
    assert listed(remote) == state.get(verb, {"victim": "stopped"})


# Transfers


def large(remote, size=48 * MiB):
    path = raw_file(remote.directory, size)
    with path.open("r+b") as file:
        file.seek(MiB)
        file.write(os.urandom(size - 2 * MiB))
    remote.ok("image", "add", path, "--name", "large")
    return remote.host().images.get("large")


def test_killed_in_the_middle_of_an_upload(remote):
    image = large(remote)
    words = [
        sys.executable,
        "-c",
        "import os, sys; from tests.support.uploading import die; die(*sys.argv[1:])",
        str(remote.config),
        "large",
    ]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (half,) = remote.files(remote.bases)
    host = remote.host()
    assert list(host.template_store.all()) == []
    assert host.template_store.unfinished() == [half]
    remote.ok("doctor", "--mend")
    assert remote.files() == []
    template = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert remote.json("cache", "verify", "--all")[0]["outcome"] == "intact"
    assert template.size == image.size


def test_a_connection_lost_in_the_middle_of_an_upload(remote):
    image = large(remote)
    told = []

    def progress(count):
        told.append(count)
        if len(told) == 20:
            remote.libvirtd.kill()

    host = remote.host()
    try:
        with pytest.raises((ConnectionLost, HostUnreachable)):
            host.handlers.chosen.fetch_image(image, DiskFormat.RAW, progress)
    finally:
        remote.libvirtd.start()
    assert sum(told) < image.size
    assert list(remote.host().template_store.all()) == []
    remote.ok("doctor", "--mend")
    assert remote.files() == []
    told.clear()
    remote.host().handlers.chosen.fetch_image(image, DiskFormat.RAW, lambda n: told.append(n))
    assert sum(told) == image.size


def test_a_full_pool_is_said_and_leaves_nothing(remote):
    remote.libvirtd.run("mount", "-o", "remount,size=16m", str(remote.place))
    image = large(remote)
    host = remote.host()
    with pytest.raises(NoSpace, match="no space left in pool nova-base-images-pool"):
        host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert remote.files() == []
    assert host.template_store.unfinished() == []


def test_two_processes_fetch_one_template_once(remote):
    image = large(remote)
    words = [
        str(COMMAND),
        "--config-file",
        str(remote.config),
        "cache",
        "fetch",
        "large",
        "--json",
    ]
    running = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [each.communicate(timeout=100) for each in running]
    assert [each.returncode for each in running] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(remote.files(remote.bases)) == 1
    assert str(image.size) in answers[0][0]


def test_holes_stay_holes_on_the_way(remote):
    path = raw_file(remote.directory, 64 * MiB)
    remote.ok("image", "add", path, "--name", "sparse")
    remote.ok("cache", "fetch", "sparse")
    (name,) = remote.files(remote.bases)
    blocks = int(remote.libvirtd.run("stat", "-c", "%b", f"{remote.bases}/{name}").stdout)
    assert blocks * 512 < 4 * MiB


# Hosts that do not answer


@pytest.mark.parametrize(
    ("uri", "reason", "hint"),
    [
        ("qemu+tcp://no-such-host.invalid/system", "resolve", "check the host's name"),
        ("qemu+tcp://127.0.0.1:1/system", "refused", "let it listen"),
        ("qemu+ssh://root@127.0.0.1:1/system", "refused", "let it listen"),
        ("qemu+tls://127.0.0.1:1/system", "certificate", "tlscerts"),
    ],
)
def test_a_host_that_cannot_be_reached_is_told_in_one_sentence(remote, uri, reason, hint):
    remote.config.write_text(
        re.sub("connection_uri = .*", f"connection_uri = {uri}", remote.config.read_text())
    )
    code, message = remote.fails("pool", "list")
    assert (code, reason in message, hint in message) == (6, True, True), message
    assert len(message.splitlines()) == 2


def test_a_host_that_does_not_answer_holds_nobody_for_long(remote):
    os.kill(remote.libvirtd.pid, signal.SIGSTOP)
    try:
        with pytest.raises(HostUnreachable, match=r"did not answer within 0\.5 s") as raised:
            Libvirtd(remote.uri, patience=0.5).versions()
    finally:
        os.kill(remote.libvirtd.pid, signal.SIGCONT)
    assert "firewall" in raised.value.advice


@pytest.mark.full
def test_a_host_that_falls_silent_is_given_up(remote):
    """By keepalive: TCP alone would wait for a quarter of an hour."""
    host = Libvirtd(remote.uri)
    host.versions()
    remote.libvirtd.run("ip", "link", "set", "eth0", "down")
    try:
        with pytest.raises(ConnectionLost), host.calling("looking") as connection:
            connection.listAllStoragePools()
    finally:
        remote.libvirtd.run("ip", "link", "set", "eth0", "up")
    wait_for(lambda: bool(host.versions()), 60)


# The same contract as that of local files


class TestFarTemplates(TemplateStoreContract):
    @pytest.fixture
    def store(self, remote, tmp_path):
        pools = remote.host().pools
        self.records = pools.records
        return RemoteTemplates(pools.base, pools.records, tmp_path / "sidecar")

    def damage(self, name):
        self.records.upload(f"{name}.json", b"?")
