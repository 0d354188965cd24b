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
from tests.support.image_files import raw_file
from tests.support.killer import killed
from tests.support.millpond import COMMAND, converted
from tests.support.ticking import chains, last_tick, tick_on_disk, wait_for_ticks
from tests.support.two_faced import two_faced
from tests.support.waiting import wait_for


@pytest.fixture(params=["qcow2", pytest.param("raw", marks=pytest.mark.full), "vmdk"])
def image(request, far, micro_guest):
    return add(far, micro_guest, request.param)


@pytest.fixture
def vmdk(far, micro_guest):
    return add(far, micro_guest, "vmdk")


@pytest.fixture
def qcow2(far, micro_guest):
    return add(far, micro_guest, "qcow2")


@pytest.fixture
def raw(far, micro_guest):
    return add(far, micro_guest, "raw")


def add(far, guest, format):
    path = guest.path if format == "raw" else converted(guest, format, far.directory)
    far.ok("image", "add", path, "--name", format)
    return format


def create(far, name, image, **flavor):
    host = far.host()
    size = Flavor(memory=32 * MiB, **flavor)
    request = ServerRequest(name=name, image=host.images.get(image), flavor=size)
    return create_server(host, request)


def test_files_are_looked_for_and_not_found(far):
    host = far.host()
    assert not host.probe_local_files()
    assert far.host.run("ls", str(far.bases)).stdout == ""
    assert not far.bases.exists()
    assert far.files() == []


def test_files_are_found_where_they_are_here(millpond):
    host = millpond.host()
    assert host.probe_local_files()
    assert os.listdir(millpond.bases) == []


def test_a_marker_that_a_killed_process_left_is_swept(far):
    base = far.host().pools.base
    base.create(empty(f"millpond-marker-1700000000-{'0' * 32}"))
    assert not far.host().probe_local_files()
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


def test_a_server_lives_and_goes_there(far, image, micro_guest):
    made = create(far, "web", image, disk=8 * MiB, swap=4 * MiB)
    assert micro_guest.marker in far.wait_for_console(made.id, "READY")
    far.ok("server", "reboot", "web", "--timeout", "0")
    far.wait_for_console(made.id, "BOOTS 0002")
    assert not far.bases.exists()
    assert "no problem" in far.ok("doctor")
    far.ok("server", "delete", "web")
    far.ok("cache", "prune", "--all-unused")
    assert far.files() == []


def test_a_template_is_roots_and_read_only_and_its_record_lies_beside_it(far, qcow2):
    create(far, "web", qcow2)
    (name,) = far.files(far.bases)
    assert far.host.run("stat", "-c", "%a %U", f"{far.bases}/{name}").stdout == "444 root\n"
    assert far.files(far.bases.with_name("_base.millpond")) == [f"{name}.json"]
    (shown,) = far.json("cache", "list")["templates"]
    assert (shown["template"]["prepared"], shown["users"]) == ("upload", ["web"])


def test_a_cache_of_another_state_directory_is_left_alone(far, qcow2):
    far.ok("cache", "fetch", qcow2)
    before = far.files()
    (far.state / "owner.json").unlink()
    code, message = far.fails("cache", "fetch", qcow2)
    assert (code, "another host or state directory" in message) == (6, True)
    assert far.files() == before


def test_templates_are_fetched_pinned_verified_and_pruned(far, vmdk):
    far.ok("cache", "fetch", vmdk)
    (name,) = far.files(far.bases)
    far.ok("cache", "pin", vmdk)
    far.ok("cache", "prune", "--all-unused")
    assert [each["outcome"] for each in far.json("cache", "verify", "--all")] == ["recorded"]
    assert [each["outcome"] for each in far.json("cache", "verify", "--all")] == ["intact"]
    words = ("dd", "if=/dev/urandom", f"of={far.bases}/{name}", "bs=512", "count=1")
    far.host.run(*words, "conv=notrunc")
    done = far.run("cache", "verify", "--all")
    assert (done.returncode, "wrong" in done.stdout) == (1, True)
    (kept,) = (far.state / "hosts/local/templates/quarantine").iterdir()
    assert kept.stat().st_size == MiB
    assert far.files(far.bases) == []  # nothing stood on it, and it is made again when needed
    create(far, "web", vmdk)
    far.ok("server", "delete", "web")
    far.ok("cache", "unpin", vmdk)
    far.ok("cache", "prune", "--all-unused")
    assert far.files() == []


def test_a_template_that_is_wrong_beneath_a_disk_stays_and_is_told_of(far, qcow2):
    create(far, "web", qcow2)
    (name,) = far.files(far.bases)
    words = ("dd", "if=/dev/urandom", f"of={far.bases}/{name}", "bs=1", "count=8", "seek=300000")
    far.host.run(*words, "conv=notrunc")
    done = far.run("cache", "verify", "--all")
    assert done.returncode == 1
    assert "used by web" in done.stdout
    assert "replacing template" in done.stdout
    assert far.files(far.bases) == [name]


@pytest.mark.full
@pytest.mark.parametrize("image", ["qcow2", "raw"], indirect=True)
def test_disks_come_grow_and_go(far, image):
    made = create(far, "web", image)
    far.wait_for_console(made.id, "READY")
    far.ok("server", "disk", "add", "web", "--size", "4M")
    far.ok("server", "disk", "grow", "web", "disk", "--size", "8M")
    far.ok("server", "stop", "web", "--force")
    far.ok("server", "disk", "grow", "web", "disk", "--size", "16M")
    far.ok("server", "disk", "grow", "web", "disk.data0", "--size", "8M")
    assert [each.size for each in far.server("web").disks] == [16 * MiB, 8 * MiB]
    far.ok("server", "start", "web")
    far.wait_for_console(made.id, "BOOTS 0002")
    far.ok("server", "stop", "web", "--force")
    far.ok("server", "disk", "remove", "web", "disk.data0")
    assert len(far.files(far.disks)) == 1


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
def test_a_server_that_is_off_becomes_an_image(far, image, options):
    made = create(far, "web", image)
    far.wait_for_console(made.id, "READY")
    far.ok("server", "stop", "web", "--force")
    far.ok("server", "snapshot", "web", "snap", *options)
    assert far.files(far.disks) == [made.disks[0].volume]
    far.ok("server", "delete", "web")
    again = create(far, "again", "snap")
    far.wait_for_console(again.id, "BOOTS 0002")


@pytest.mark.parametrize(
    "image", ["qcow2", pytest.param("raw", marks=pytest.mark.full)], indirect=True
)
def test_a_server_that_runs_becomes_an_image_and_runs_on(far, image):
    made = create(far, "web", image)
    far.wait_for_console(made.id, "TICK 0001")
    with far.host.connect() as connection:
        domain = connection.lookupByName("web")
        before = chains(domain)
        far.ok("server", "snapshot", "web", "snap")
        assert chains(domain) == before
    wait_for_ticks(far, made.id)
    assert far.files(far.disks) == [made.disks[0].volume]
    again = create(far, "again", "snap")
    far.wait_for_console(again.id, "BOOTS 0002")


def test_what_a_guest_wrote_that_went_off_meanwhile_is_not_lost(far, qcow2):
    """libvirt merges only disks of a domain that runs: it is woken for that, and does nothing."""
    made = create(far, "web", qcow2)
    far.wait_for_console(made.id, "TICK 0001")
    killed(far, "snapshot", "extract", StepMoment.BEGIN, "snapshot", "web", "snap")
    wait_for_ticks(far, made.id)
    with far.host.connect() as connection:
        connection.lookupByName("web").destroy()
    tick = last_tick(far, made.id)
    far.ok("doctor", "--mend")
    assert listed(far) == {"web": "stopped"}
    assert far.files(far.disks) == [made.disks[0].volume]
    assert tick_on_disk(far, "web") >= tick
    far.ok("server", "start", "web")
    far.wait_for_console(made.id, "BOOTS 0002")


def test_a_guest_that_writes_a_header_gets_no_file_of_the_host(far, raw, micro_guest):
    """Its disk is fetched byte by byte: nobody asks what it is."""
    far.host.run("sh", "-c", f"echo TOP-SECRET > {far.place}/secret")
    made = create(far, "web", raw, disk=MiB)
    far.wait_for_console(made.id, "READY")
    far.ok("server", "stop", "web", "--force")
    disk = far.directory / "disk"
    disk.write_bytes(two_faced(micro_guest, f"{far.place}/secret"))
    pool = far.host().pools.for_disk(Backend.RAW)
    pool.send(made.disks[0].volume, disk)
    pool.refresh()
    assert pool.get(made.disks[0].volume).reported_format == "qcow2"
    far.ok("server", "snapshot", "web", "snap")
    far.ok("image", "save", "snap", far.directory / "saved")
    flat = subprocess.run(
        [
            "qemu-img",
            "dd",
            "-f",
            "qcow2",
            "-O",
            "raw",
            f"if={far.directory}/saved",
            "of=/dev/stdout",
        ],
        capture_output=True,
    )
    assert b"TOP-SECRET" not in (far.directory / "saved").read_bytes() + flat.stdout
    code, message = far.fails("server", "disk", "grow", "web", "disk", "--size", "8M")
    assert (code, "cannot be opened here" in message) == (5, True)


def test_an_image_that_is_two_things_makes_no_raw_disk(far, micro_guest):
    """libvirt would follow the header, and here it cannot be told what the template is."""
    content = far.directory / "content"
    content.write_bytes(two_faced(micro_guest, "/etc/passwd"))
    path = far.directory / "outer.qcow2"
    subprocess.run(
        ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(content), str(path)], check=True
    )
    far.configure("images_type = raw")
    far.ok("image", "add", path, "--name", "outer")
    code, message = far.fails("server", "create", "web", "--image", "outer", "--network", "none")
    assert (code, "libvirt takes the template for something else" in message) == (5, True)
    assert far.files(far.disks) == []
    assert far.json("server", "list") == []


def test_the_console_is_opened_there(far, qcow2):
    made = create(far, "web", qcow2)
    far.wait_for_console(made.id, "READY")
    stream = far.host().domains.open_console(made.id)
    heard = b""
    for content in stream.receive():
        heard += content
        if b"TICK" in heard:
            break
    stream.close()
    done = far.run("server", "console", "web", "--log")
    assert "READY" in done.stdout


def test_a_log_that_nobody_wrote_is_said(far, qcow2):
    far.ok("server", "create", "web", "--image", qcow2, "--memory", "32M", "--no-start")
    code, message = far.fails("server", "console", "web", "--log")
    assert (code, "has no console to show: its log on the host" in message) == (3, True)


def test_doctor_says_what_it_did_not_look_at_and_why(far, qcow2):
    create(far, "web", qcow2)
    found = {each["check"]: each for each in far.json("doctor")}
    for check in ("apparmor", "permissions", "directories", "legacy"):
        reason = "not looked at: the files of the host cannot be opened here"
        assert found[check]["what"] == reason
    assert "libvirt has no KVM there" in found["kvm"]["what"]
    assert "2 GiB" in far.ok("doctor")


def test_strays_are_seen_there(far, qcow2):
    create(far, "web", qcow2)
    host = far.host()
    for pool in (host.pools.base, host.pools.for_disk(Backend.RAW)):
        pool.create(empty("stray"))
    found = [each["what"] for each in far.json("doctor") if each["check"] == "volumes"]
    assert len([each for each in found if "stray" in each]) == 2


# Killed


def nothing_is_left(far):
    known = {each.id for each in far.host().records.all()}
    strays = [each for each in far.files(far.disks) if each[:36] not in known]
    logs = [each for each in far.files(Path(f"{far.disks}.consoles")) if each[:36] not in known]
    with far.host.connect() as connection:
        domains = [each.UUIDString() for each in connection.listAllDomains()]
    unfinished = far.host().template_store.unfinished()
    return (strays, logs, set(domains) - known, unfinished) == ([], [], set(), [])


def some(every, ordinary):
    return [
        pytest.param(*each, marks=() if each in ordinary else pytest.mark.full) for each in every
    ]


@pytest.mark.parametrize(
    ("step", "moment"),
    some(moments("create"), [("start", StepMoment.END)]),
)
def test_killed_in_create(far, vmdk, step, moment):
    killed(far, "create", step, moment, "create", "victim", vmdk)
    assert listed(far) == {"victim": f"interrupted (create: {step})"}
    create(far, "after", vmdk)
    far.ok("doctor", "--mend")
    stays = {"victim": "running"} if (step, moment) == RUNS else {}
    assert listed(far) == {"after": "running", **stays}
    assert nothing_is_left(far)
    if not stays:
        create(far, "victim", vmdk)


PREPARATION_ENDS = [("publish", StepMoment.END), ("record", StepMoment.BEGIN)]


@pytest.mark.parametrize(("step", "moment"), some(moments_of_a_preparation(), PREPARATION_ENDS))
def test_killed_in_the_preparation_of_a_template(far, vmdk, micro_guest, step, moment):
    killed(far, "prepare", step, moment, "create", "victim", vmdk)
    recorded = list(far.host().template_store.all())
    assert len(recorded) == (1 if (step, moment) == ("record", StepMoment.END) else 0)
    made = create(far, "after", vmdk)
    assert micro_guest.marker in far.wait_for_console(made.id, "READY")
    far.ok("doctor", "--mend")
    assert nothing_is_left(far)
    assert len(far.files(far.bases)) == 1


@pytest.mark.parametrize(
    ("step", "moment"), some(moments_of_a_preparation(), PREPARATION_ENDS[:1])
)
def test_doctor_alone_clears_a_preparation_away(far, vmdk, step, moment):
    killed(far, "prepare", step, moment, "create", "victim", vmdk)
    far.ok("doctor", "--mend")
    assert nothing_is_left(far)
    published = step in ("refresh", "record") or (step, moment) == ("publish", StepMoment.END)
    assert len(far.files(far.bases)) == (1 if published else 0)
    assert len(far.files(far.bases.with_name("_base.millpond"))) == (1 if published else 0)


@pytest.mark.parametrize(
    ("step", "moment"), some(moments("snapshot"), [("extract", StepMoment.END)])
)
@pytest.mark.parametrize(
    "running", [pytest.param(True, marks=pytest.mark.full), False], ids=["running", "off"]
)
def test_killed_while_a_server_becomes_an_image(far, qcow2, step, moment, running):
    made = create(far, "victim", qcow2)
    far.wait_for_console(made.id, "READY")
    if not running:
        far.ok("server", "stop", "victim", "--force")
    killed(far, "snapshot", step, moment, "snapshot", "victim", "snap")
    far.ok("doctor", "--mend")
    assert listed(far) == {"victim": "running" if running else "stopped"}
    assert far.files(far.disks) == [made.disks[0].volume]
    assert [each.name for each in far.host().shared.catalogue.all()] == [qcow2]
    assert list((far.state / "images" / "incoming").iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("verb", "step", "moment"),
    [
        (verb, *each)
        for verb in ("delete", "reboot", "grow", "disk add", "disk remove")
        for each in moments(verb)
    ],
)
def test_killed_in_the_rest_of_its_life(far, vmdk, verb, step, moment):
    made = create(far, "victim", vmdk)
    far.wait_for_console(made.id, "READY")
    if verb not in ("delete", "reboot"):
        far.ok("server", "stop", "victim", "--force")
    if verb == "disk remove":
        far.ok("server", "disk", "add", "victim", "--size", "4M")
    words = {
        "grow": ("grow", "victim", 8 * MiB),
        "disk add": ("add", "victim", 4 * MiB),
        "disk remove": ("remove", "victim", "disk.data0"),
    }
    killed(far, verb, step, moment, *words.get(verb, (verb, "victim")))
    far.ok("doctor", "--mend")
    assert nothing_is_left(far)
    state = {"delete": {}, "reboot": {"victim": "running"}}
    assert listed(far) == state.get(verb, {"victim": "stopped"})


# Transfers


def large(far, size=48 * MiB):
    path = raw_file(far.directory, size)
    with path.open("r+b") as file:
        file.seek(MiB)
        file.write(os.urandom(size - 2 * MiB))
    far.ok("image", "add", path, "--name", "large")
    return far.host().images.get("large")


def test_killed_in_the_middle_of_an_upload(far):
    image = large(far)
    words = [
        sys.executable,
        "-c",
        "import os, sys; from tests.support.uploading import die; die(*sys.argv[1:])",
        str(far.config),
        "large",
    ]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (half,) = far.files(far.bases)
    host = far.host()
    assert list(host.template_store.all()) == []
    assert host.template_store.unfinished() == [half]
    far.ok("doctor", "--mend")
    assert far.files() == []
    template = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert far.json("cache", "verify", "--all")[0]["outcome"] == "intact"
    assert template.size == image.size


def test_a_connection_lost_in_the_middle_of_an_upload(far):
    image = large(far)
    told = []

    def progress(count):
        told.append(count)
        if len(told) == 20:
            far.host.kill()

    host = far.host()
    try:
        with pytest.raises((ConnectionLost, HostUnreachable)):
            host.handlers.chosen.fetch_image(image, DiskFormat.RAW, progress)
    finally:
        far.host.start()
    assert sum(told) < image.size
    assert list(far.host().template_store.all()) == []
    far.ok("doctor", "--mend")
    assert far.files() == []
    told.clear()
    far.host().handlers.chosen.fetch_image(image, DiskFormat.RAW, lambda n: told.append(n))
    assert sum(told) == image.size


def test_a_full_pool_is_said_and_leaves_nothing(far):
    far.host.run("mount", "-o", "remount,size=16m", str(far.place))
    image = large(far)
    host = far.host()
    with pytest.raises(NoSpace, match="no space left in pool nova-base-images-pool"):
        host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert far.files() == []
    assert host.template_store.unfinished() == []


def test_two_processes_fetch_one_template_once(far):
    image = large(far)
    words = [str(COMMAND), "--config-file", str(far.config), "cache", "fetch", "large", "--json"]
    running = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [each.communicate(timeout=100) for each in running]
    assert [each.returncode for each in running] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(far.files(far.bases)) == 1
    assert str(image.size) in answers[0][0]


def test_holes_stay_holes_on_the_way(far):
    path = raw_file(far.directory, 64 * MiB)
    far.ok("image", "add", path, "--name", "sparse")
    far.ok("cache", "fetch", "sparse")
    (name,) = far.files(far.bases)
    blocks = int(far.host.run("stat", "-c", "%b", f"{far.bases}/{name}").stdout)
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
def test_a_host_that_cannot_be_reached_is_told_in_one_sentence(far, uri, reason, hint):
    far.config.write_text(
        re.sub("connection_uri = .*", f"connection_uri = {uri}", far.config.read_text())
    )
    code, message = far.fails("pool", "list")
    assert (code, reason in message, hint in message) == (6, True, True), message
    assert len(message.splitlines()) == 2


def test_a_host_that_does_not_answer_holds_nobody_for_long(far):
    os.kill(far.host.pid, signal.SIGSTOP)
    try:
        with pytest.raises(HostUnreachable, match=r"did not answer within 0\.5 s") as raised:
            Libvirtd(far.uri, patience=0.5).versions()
    finally:
        os.kill(far.host.pid, signal.SIGCONT)
    assert "firewall" in raised.value.advice


@pytest.mark.full
def test_a_host_that_falls_silent_is_given_up(far):
    """By keepalive: TCP alone would wait for a quarter of an hour."""
    host = Libvirtd(far.uri)
    host.versions()
    far.host.run("ip", "link", "set", "eth0", "down")
    try:
        with pytest.raises(ConnectionLost), host.calling("looking") as connection:
            connection.listAllStoragePools()
    finally:
        far.host.run("ip", "link", "set", "eth0", "up")
    wait_for(lambda: bool(host.versions()), 60)


# The same contract as that of local files


class TestFarTemplates(TemplateStoreContract):
    @pytest.fixture
    def store(self, far, tmp_path):
        pools = far.host().pools
        self.records = pools.records
        return RemoteTemplates(pools.base, pools.records, tmp_path / "sidecar")

    def damage(self, name):
        self.records.upload(f"{name}.json", b"?")
