"""B48, row by row, as root and as an ordinary user: one clear sentence with a hint, its exit
status, no traceback, and nothing left."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millpond.model.sizes import MiB
from tests.support import forked, killer, loopfs
from tests.support.bad_input import Pond, Row, Use, copy_files, fill, walk, write_files
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import COMMAND, Millpond
from tests.support.ordinary_user import OrdinaryUser, become_nobody, ordinary_user
from tests.support.waiting import wait_for
from tests.support.web import serving

NEW = "server create new --image guest --memory 16M --network none --no-start"
GONE = "server delete new"
CONF = "--config-file {files}"
LIST = "server list"


@pytest.fixture(scope="module")
def files(session_directory, micro_guest):
    path = Path(tempfile.mkdtemp(prefix="files-", dir=session_directory))
    path.chmod(0o755)
    write_files(path, micro_guest)
    return path


@pytest.fixture(scope="module")
def daemon(session_directory):
    """Of this table alone: what is there stays for all rows."""
    with PrivateLibvirtd(session_directory / "bad-input", name="bad-input") as started:
        yield started


@pytest.fixture(scope="module", params=["root", "ordinary user"])
def pond(request, session_directory, files, micro_guest):
    with contextlib.ExitStack() as stack:
        web = stack.enter_context(serving())
        web.offer("/fetched.qcow2", (files / "guest.qcow2").read_bytes())
        if request.param == "root":
            daemon = request.getfixturevalue("daemon")
            directory = Path(tempfile.mkdtemp(prefix="table-", dir=session_directory))
            directory.chmod(0o755)
            millpond, uri = Millpond(directory=directory, uri=daemon.uri), daemon.uri
        else:
            millpond = stack.enter_context(ordinary_user())
            directory, uri = millpond.directory, millpond.socket_uri
            copy_files(files, directory / "files")
            files = directory / "files"
        scratch = directory / "scratch"
        scratch.mkdir()
        millpond.configure()
        with millpond.config.open("a") as config:
            config.write("[flavor:small]\nvcpus = 1\nmemory = 32M\n")
        if isinstance(millpond, OrdinaryUser):
            shutil.chown(scratch, "nobody", "nogroup")
            millpond.start_libvirtd()
        made = Pond(millpond=millpond, uri=uri, files=files, web=web, scratch=scratch)
        fill(made, micro_guest)
        yield made
        millpond.run("server", "delete", "web", "db", "--yes")


# Rows that are more than words


def interrupt_image_add(pond):
    """Ctrl-C while bytes arrive."""
    with subprocess.Popen(
        [
            *(*_as_user(pond), COMMAND, "--config-file", pond.millpond.config),
            *("image", "add", "-", "--name", "intr", "--disk-format", "raw"),
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=False,
        env=_environment(pond),
    ) as process:
        process.stdin.write(os.urandom(4 * MiB))
        process.stdin.flush()
        incoming = pond.millpond.state / "images" / "incoming"
        wait_for(lambda: any(path.stat().st_size for path in incoming.glob("*")), 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Traceback" not in process.stderr.read()


def interrupt_create(pond):
    """Ctrl-C while its template is converted."""
    wide = pond.scratch / "wide.vmdk"
    raw = pond.scratch / "wide.raw"
    with raw.open("wb") as file:
        for _ in range(96):
            file.write(os.urandom(MiB))
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "vmdk", raw, wide], check=True)
    wide.chmod(0o644)
    pond.millpond.ok("image", "add", wide, "--name", "wide")
    words = ["server", "create", "new", "--image", "wide", "--memory", "16M", "--network", "none"]
    with subprocess.Popen(
        [*_as_user(pond), COMMAND, "--config-file", pond.millpond.config, *words],
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(pond),
    ) as process:
        servers = pond.millpond.state / "servers"
        wait_for(lambda: len(list(servers.glob("[!.]*.json"))) == 3, 30)
        process.send_signal(signal.SIGINT)
        status, said = process.wait(60), process.stderr.read()
    assert (status, "Traceback" in said) == (130, False), said
    pond.millpond.ok("image", "remove", "wide")
    for each in (wide, raw):
        each.unlink()


def interrupt_start(pond):
    """Ctrl-C before the program has loaded itself, at some moments of that."""
    for hundredths in (5, 15, 25, 40):
        done = subprocess.run(
            ["timeout", "--signal", "INT", f"0.{hundredths:02}", *_as_user(pond), COMMAND, LIST],
            env=_environment(pond),
            capture_output=True,
            text=True,
            check=False,
        )
        # What the interpreter itself loads before any line of ours is its own.
        ours = "/millpond/cli/" in done.stderr.partition("Traceback")[2]
        assert not ours, done.stderr


def kill_create(pond):
    """kill -9 in the middle, and doctor."""
    words = ["killer", pond.millpond.config, "create", "disks", "end", "create", "new", "guest"]
    program = functools.partial(_kill, None if pond.is_root else pond.millpond.environment)
    done = forked.run(program, [*map(str, words)], seconds=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "interrupted (create: disks)" in pond.run("server list").stdout
    started = pond.run("server start new")
    assert (started.returncode, "left in the middle of 'create'" in started.stderr) == (4, True)
    assert "new" in pond.run("doctor").stdout
    assert pond.run("doctor --repair").returncode == 0


def _kill(environment):
    killer.main() if environment is None else become_nobody(environment, killer.main)


def race(pond):
    """Two at once of one name: one is made, the other is told why not."""
    for words, undo, sentence in (
        (NEW, "", "there is already a server named 'new'"),
        ("server delete new --yes", "", ""),
        ("image add {files}/guest.qcow2 --name twin", "image remove twin", "there is already an"),
    ):
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(pond.run, [words, words]))
        statuses = sorted(each.returncode for each in done)
        assert statuses[0] == 0
        assert statuses[1] in ((3, 4) if "delete" in words else (4,)), done
        assert any(sentence in each.stderr for each in done), done
        if undo:
            pond.run(undo)


def remove_image_in_use(pond):
    """An image is removed while a server is made of it."""
    pond.millpond.ok("image", "add", pond.files / "guest.qcow2", "--name", "goer")
    with ThreadPoolExecutor(2) as pool:
        made = pool.submit(pond.run, NEW.replace("guest", "goer"))
        removed = pool.submit(pond.run, "image remove goer")
    status = (made.result().returncode, removed.result().returncode)
    assert status in ((0, 4), (3, 0)), (made.result(), removed.result())
    if status == (0, 4):
        assert "image 'goer' is needed by" in removed.result().stderr
        pond.millpond.ok("server", "delete", "new")
        pond.millpond.ok("image", "remove", "goer")


def full_disk(pond):
    """State and pools on a file system with nothing left."""
    with loopfs.loop_filesystem("ext4", 64 * MiB, pond.millpond.directory / "small") as small:
        config = pond.millpond.directory / "small.conf"
        config.write_text(
            f"[DEFAULT]\nstate_path = {small.path}/state\n"
            "[libvirt]\nbase_images_pool = small-base\ndisks_pool = small-disks\n"
        )
        ballast = small.path / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        done = pond.run(f"--config-file {config} image add {{files}}/guest.qcow2 --name full")
        assert (done.returncode, "no space left" in done.stderr) == (6, True), done.stderr
    config.unlink()


def read_only_state(pond):
    state = pond.millpond.state
    if pond.is_root:
        subprocess.run(["mount", "--bind", state, state], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", state], check=True)
    else:
        modes = {path: path.stat().st_mode for path in [state, *state.rglob("*")]}
        for path in modes:
            path.chmod(modes[path] & 0o555)
    try:
        for words in (NEW, "image add {files}/guest.qcow2 --name other"):
            done = pond.run(words)
            said = "cannot write to the state directory" in done.stderr
            assert (done.returncode, said) == (8, True), done.stderr
            hint = "mount that file system" if pond.is_root else "run it as root"
            assert hint in done.stderr
    finally:
        if pond.is_root:
            subprocess.run(["umount", state], check=True)
        else:
            for path, mode in modes.items():
                path.chmod(mode & 0o7777)


def somebody_elses_state(pond):
    """An ordinary user with root's configuration; root, with nothing to fear, is served."""
    if not pond.is_root:
        return
    environment = OrdinaryUser(directory=pond.files).environment
    verbs = ("show", "start", "stop", "reboot", "delete", "console", "rename", "set", "edit")
    more = {"rename": "other", "set": "--autostart"}
    for words in (
        "server list",
        "server create new --image guest",
        "image list",
        "image add guest.qcow2",
        *(f"server {verb} web {more.get(verb, '')}" for verb in verbs),
        "server snapshot web snap",
        "server resize web --disk 1G",
        "server disk add web --size 1G",
        "server disk list",
        "server nic add web --network user",
        "cache list",
        "doctor",
    ):
        told = ["millpond", "--config-file", str(pond.millpond.config), *pond.words(words)]
        done = forked.run(functools.partial(become_nobody, environment), told, 60)
        assert "Traceback" not in done.stderr, done.stderr
        said = done.stderr + done.stdout
        assert done.returncode in (1, 6, 8), (words, said)
        if words != "doctor":
            assert (done.returncode, "not yours to read" in said) == (8, True), (words, said)


def second_state(pond):
    """Another state directory for the same libvirtd is refused before a pool is made."""
    with (pond.scratch / "second.conf").open("w") as file:
        file.write(
            f"[DEFAULT]\nstate_path = {pond.scratch}/second\n"
            "[libvirt]\nbase_images_pool = small-base\ndisks_pool = small-disks\n"
        )
    (pond.scratch / "second.conf").chmod(0o644)
    second = "--config-file {scratch}/second.conf"
    assert pond.run(f"{second} image add {{files}}/guest.qcow2").returncode == 0
    done = pond.run(f"{second} {NEW}")
    assert done.returncode == 6
    assert "servers of another Millpond state directory" in done.stderr
    shutil.rmtree(pond.scratch / "second")
    (pond.scratch / "second.conf").unlink()


def no_valid_host(pond):
    """Neither has so many vCPUs."""
    config = pond.millpond.directory / "hosts.conf"
    with PrivateLibvirtd(pond.millpond.directory / "birch", name="birch") as birch:
        config.write_text(
            "[DEFAULT]\nenabled_hosts = local, birch\n"
            f"[host:local]\nconnection_uri = {pond.uri}\n"
            f"[host:birch]\nconnection_uri = {birch.uri}\n"
        )
        done = pond.run(f"--config-file {config} {NEW} --vcpus 200")
    assert done.returncode == 6, done.stderr
    for words in ("no valid host", "local: ", "birch: ", "VCPU"):
        assert words in done.stderr
    shutil.rmtree(pond.millpond.state / "placement")
    config.unlink()


def _as_user(pond):
    words = ("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups")
    return () if pond.is_root else words


def _environment(pond):
    return None if pond.is_root else pond.millpond.environment


ROWS = {
    1: Row(
        "a verb that is misspelt",
        (
            Use("srver list", 2, "No such command 'srver'. Did you mean 'server'?"),
            Use("server lst", 2, "No such command 'lst'. Did you mean 'list'"),
        ),
    ),
    2: Row(
        "a server that is not there",
        (
            Use("server show nosuch", 3, "there is no server 'nosuch'"),
            Use("server show wbe", 3, "did you mean 'web'?"),
            Use("image show gest", 3, "did you mean 'guest'?"),
        ),
    ),
    3: Row("no name at all", (Use("server show ''", 3, "there is no server ''"),)),
    4: Row(
        "create without a name, without an image",
        (
            Use("server create", 2, "Missing argument 'NAME'"),
            Use("server create new", 2, "--image: a server is made from one image"),
        ),
    ),
    5: Row(
        "names that cannot be one",
        tuple(
            Use(f"server create --image guest -- {name}", 2, "cannot be the name of a server")
            for name in ("'bad name!'", "../../etc", "''", "a" * 300)
        ),
    ),
    6: Row(
        "a name that is not ASCII",
        (Use(NEW.replace("new", "ünïcode"), 0, "ünïcode", undo="server delete ünïcode"),),
    ),
    7: Row(
        "a name that is taken, by a server and by a domain of somebody else's",
        (
            Use(NEW.replace("new", "web"), 4, "there is already a server named 'web'"),
            Use(NEW.replace("new", "theirs"), 4, "a domain of somebody else's"),
        ),
    ),
    8: Row(
        "what is no size",
        tuple(
            Use(f"{NEW} --disk={size}", 2, f"'{size}' is not a size")
            for size in ("-5G", "5X", "999999999999T")
        ),
    ),
    9: Row(
        "a disk smaller than the image",
        (Use(f"{NEW} --disk 512K", 2, "smaller than image 'guest', which needs 1 MiB"),),
    ),
    10: Row(
        "sizes without a unit, and with several ways to write it",
        (
            Use(f"{NEW} --disk 5", 2, "write a number with its unit"),
            Use(f"{NEW} --disk 10GB", 0, "10 GiB", undo=GONE),
            Use(f"{NEW} --disk '10 G'", 0, "10 GiB", undo=GONE),
            Use(f"{NEW} --disk 0", 0, "1 MiB", undo=GONE),
        ),
    ),
    11: Row(
        "a thin disk that is larger than its pool",
        (Use(f"{NEW} --disk 64T", 0, "larger than the free space", undo=GONE),),
    ),
    12: Row(
        "a disk that no format can have",
        (
            Use(f"{NEW} --disk 9000T", 2, "a disk of 9000 TiB is too large"),
            Use("server resize db --disk 9000T", 2, "a disk of 9000 TiB is too large"),
            Use("server disk add db --size 9000T", 2, "a disk of 9000 TiB is too large"),
        ),
    ),
    13: Row("no memory", (Use(f"{NEW} --memory 0", 2, "no guest boots with less than"),)),
    14: Row(
        "memory without a unit, and too little of it",
        (
            Use(f"{NEW} --memory 1", 2, "'1' is not a size"),
            Use(f"{NEW} --memory 2M", 2, "no guest boots with less than 16 MiB"),
        ),
    ),
    15: Row(
        "more memory than the host has",
        (
            Use(f"{NEW} --memory 900T", 2, "--memory: 900 TiB are too much"),
            Use(f"{NEW} --memory 500G", 2, "--memory: 500 GiB are too much"),
        ),
    ),
    16: Row(
        "vCPUs that are none",
        (
            Use(f"{NEW} --vcpus 0", 2, "0 is not in the range"),
            Use(f"{NEW} --vcpus abc", 2, "'abc' is not a valid integer"),
        ),
    ),
    17: Row(
        "more vCPUs than the machine type has",
        (Use(f"{NEW} --vcpus 1024", 2, "--vcpus: 1024 are too many"),),
    ),
    18: Row(
        "keys that are none",
        (
            Use(f"{NEW} --ssh-key {{files}}/gone.pub", 3, "cannot read"),
            Use(f"{NEW} --ssh-key /etc/passwd", 2, "holds no public key"),
            Use(f"{NEW} --ssh-key {{files}}/key", 2, "is a private key"),
        ),
    ),
    19: Row("a directory for user data", (Use(f"{NEW} --user-data /tmp", 3, "Is a directory"),)),
    20: Row(
        "networks that are not there",
        (
            Use(f"{NEW} --network nosuch", 3, "there is no libvirt network 'nosuch'"),
            Use(f"{NEW} --network bridge:nobr", 3, "there is no bridge 'nobr'"),
        ),
    ),
    21: Row("a bridge without a name", (Use(f"{NEW} --network bridge:", 2, "is no network"),)),
    22: Row(
        "a flavour, a firmware and a host that are not there",
        (
            Use(f"{NEW} --flavor nosuch", 2, "there is no flavour 'nosuch'"),
            Use(f"{NEW} --firmware efi", 2, "'efi' is not one of"),
            Use(f"{NEW} --host nosuch", 3, "nosuch"),
        ),
    ),
    23: Row("the opposite besides", (Use(f"{NEW} --start --no-start", 0, "stopped", undo=GONE),)),
    24: Row(
        "one letter, which begins the id of a server",
        tuple(
            Use(f"server delete {each}", 3, "there is no server") for each in "0123456789abcdef"
        ),
    ),
    25: Row(
        "files that are none",
        tuple(
            Use(f"image add {{files}}/{name}", 3, "cannot read")
            for name in ("gone.qcow2", "dangling.raw", "no/where.raw")
        ),
    ),
    26: Row(
        "an empty file, and a part of a sector",
        (
            Use("image add {files}/empty.raw", 5, "it is empty"),
            Use("image add {files}/odd.raw", 5, "not a multiple of 512 bytes"),
        ),
    ),
    27: Row(
        "content that is not what it is declared to be, or unsafe",
        (
            Use("image add {files}/junk.qcow2", 5, "declared as qcow2, but"),
            Use("image add {files}/text.qcow2", 5, "declared as qcow2, but"),
            Use("image add {files}/half.qcow2", 5, "cut off"),
            Use("image add {files}/backing.qcow2", 5, "has a backing file"),
            Use("image add {files}/qcow2.raw", 5, "declared as raw, but"),
        ),
    ),
    28: Row(
        "a name that does not say the format",
        (
            Use("image add {files}/nosuffix", 2, "it looks like qcow2"),
            Use("image add {files}/disk.img", 2, "it looks like qcow2"),
            Use("image add {files}/packed.gz", 2, "which format it is"),
            Use("image add {files}/packed.raw.gz", 0, "packed", undo="image remove packed"),
            Use("image add {files}/notpacked.raw.gz", 5, "is refused"),
        ),
    ),
    29: Row(
        "a format that is none",
        (Use("image add {files}/nosuffix --disk-format qcow", 2, "'qcow' is not one of"),),
    ),
    30: Row("standard input without a name", (Use("image add -", 2, "has no name"),)),
    31: Row(
        "digests that are none",
        tuple(
            Use(
                f"image add {{web}}/fetched.qcow2 --digest {each}",
                2,
                "is not an algorithm and its hexadecimal digest",
            )
            for each in ("md5:abc", "sha256:00", f"sha256:{'0' * 63}")
        ),
    ),
    32: Row(
        "addresses with other content, or none",
        (
            Use(
                f"image add {{web}}/fetched.qcow2 --digest sha256:{'0' * 64}",
                5,
                "its sha256 is not the one that was stated",
            ),
            Use("image add {web}/gone.qcow2", 3, "there is nothing at"),
            Use("image add http://127.0.0.1:1/x.qcow2", 9, "Connection refused"),
            Use("image add http://", 2, "web address"),
        ),
    ),
    33: Row(
        "a scheme that is not fetched",
        (Use("image add ftp://127.0.0.1/x.qcow2", 2, "ftp:// is not fetched"),),
    ),
    34: Row(
        "properties that are none",
        (
            Use("image add {files}/guest.qcow2 --property foo", 2, "is not KEY=VALUE"),
            Use("image add {files}/guest.qcow2 --property hw_disk_bus=floppy", 2, "hw_disk_bus"),
        ),
    ),
    35: Row(
        "an image that is needed, and one that is not there",
        (
            Use("image remove guest", 4, "image 'guest' is needed by"),
            Use("image remove nosuch", 3, "there is no image 'nosuch'"),
        ),
    ),
    36: Row(
        "saving over a file, and into nowhere",
        (
            Use("image save guest {files}/there", 4, "there is already a file named"),
            Use("image save guest {files}/no/where", 2, "cannot be written"),
        ),
    ),
    37: Row(
        "templates that are not there, and none named",
        (
            Use("cache pin nosuch", 3, "there is no template 'nosuch'"),
            Use("cache verify", 2, "name templates or images, or say --all"),
            Use("cache verify guest --all", 2, "--all needs no names"),
            Use("cache fetch nosuch", 3, "there is no image 'nosuch'"),
        ),
    ),
    38: Row(
        "a pool, a host and an image that are not there",
        (
            Use("pool show nosuch", 3, "there is no storage pool 'nosuch'"),
            Use("host show nosuch", 3, "nosuch"),
            Use("explain nosuch", 3, "there is no image 'nosuch'"),
        ),
    ),
    39: Row(
        "sizes that a disk cannot get",
        (
            Use("server resize db --disk 1K", 5, "a disk only grows"),
            Use("server resize db --disk 1M", 0),
            Use("server resize db", 2, "no size was said"),
        ),
    ),
    40: Row(
        "disks that are none, or not to be removed",
        (
            Use("server disk add db --size 0", 2, "--size: must be larger than 0"),
            Use("server disk remove db disk", 5, "came with the server"),
            Use("server disk remove db vda", 5, "came with the server"),
            Use("server disk remove db vdz", 3, "has no disk 'vdz'"),
        ),
    ),
    41: Row(
        "snapshots that cannot be one",
        (
            Use("server snapshot db guest", 4, "there is already an image named 'guest'"),
            Use("server snapshot db 'bad/name'", 2, "cannot be the name of an image"),
            Use("server snapshot db snap --format vmdk", 2, "--format: vmdk is not possible"),
            Use("server snapshot db snap --format raw --compress", 2, "--compress"),
        ),
    ),
    42: Row(
        "a timeout that is none",
        (Use("server stop web --timeout=-1", 2, "-1.0 is not in the range"),),
    ),
    43: Row(
        "adopting what is not there, and what is ours",
        (
            Use("server adopt nosuch", 3, "no server 'nosuch' has disks in Nova's"),
            Use("server adopt web --yes", 4, "is Millpond's already"),
        ),
    ),
    44: Row(
        "options and words that doctor does not have",
        (
            Use("doctor --fix", 2, "No such option: --fix"),
            Use("doctor foo", 2, "unexpected extra argument"),
        ),
    ),
    45: Row(
        "files that are no configuration",
        (
            Use(f"{CONF}/gone.conf {LIST}", 2, "gone.conf"),
            Use(f"{CONF} {LIST}", 2, "files"),
            Use(f"{CONF}/empty.conf {LIST}", 0, "web"),
            Use(f"{CONF}/garbage.conf {LIST}", 2, "line 1 is wrong"),
            Use(f"{CONF}/open.conf {LIST}", 2, "line 1 is wrong"),
            Use(f"{CONF}/binary.conf {LIST}", 2, "is not text"),
        ),
    ),
    46: Row(
        "options and sections that are misspelt",
        (
            Use(f"{CONF}/typo.conf {LIST}", 2, "did you mean images_type_mapping?"),
            Use(f"{CONF}/section.conf {LIST}", 2, "did you mean"),
        ),
    ),
    47: Row(
        "values that are none",
        (
            Use(f"{CONF}/zfs.conf {LIST}", 2, "zfs"),
            Use(f"{CONF}/xen.conf {LIST}", 2, "xen"),
            Use(f"{CONF}/mapping.conf {LIST}", 2, "qcow2=qcow2"),
            Use(f"{CONF}/comma.conf {LIST}", 2, "images_type_mapping"),
            Use(f"{CONF}/twice.conf {LIST}", 2, "raw"),
            Use(f"{CONF}/lvm.conf {LIST}", 2, "images_volume_group"),
            Use(f"{CONF}/relative.conf {LIST}", 2, "some/where"),
            Use(f"{CONF}/negative.conf {LIST}", 2, "-5"),
            Use(f"{CONF}/handler.conf {LIST}", 2, "volume-based-linking"),
            Use(f"{CONF}/many.conf {LIST}", 2, "'many' is not a whole number"),
            Use(f"{CONF}/comment.conf {LIST}", 2, "a comment needs a line of its own"),
        ),
    ),
    48: Row(
        "hosts that have no section, or two",
        (
            Use(f"{CONF}/sections.conf {LIST}", 2, "[host:a]"),
            Use(f"{CONF}/same.conf {LIST}", 2, "'a' stands there more than once"),
        ),
    ),
    49: Row(
        "a libvirt that does not answer",
        (
            Use(f"{CONF}/dead.conf pool list", 6, "cannot reach libvirt at"),
            Use(f"{CONF}/ssh.conf pool list", 6, "cannot reach libvirt at"),
        ),
    ),
    50: Row(
        "a state directory that is misspelt",
        tuple(
            Use(f"{CONF}/elsewhere.conf {noun} list", 0, "there is no state directory /nowhere")
            for noun in ("server", "image")
        ),
    ),
    51: Row("Ctrl-C while an image arrives", check=interrupt_image_add),
    52: Row("Ctrl-C while a template is converted", check=interrupt_create),
    53: Row("Ctrl-C in the first second", check=interrupt_start),
    54: Row("kill -9 in the middle of a create", check=kill_create),
    55: Row("two at once of one name", check=race),
    56: Row("an image removed while a server is made of it", check=remove_image_in_use),
    57: Row("a full disk", check=full_disk, only_root="only root can mount a small file system"),
    58: Row("a state directory that cannot be written to", check=read_only_state),
    59: Row("somebody else's state directory", check=somebody_elses_state),
    60: Row("a second state directory for one libvirtd", check=second_state),
    61: Row(
        "no host that has room",
        check=no_valid_host,
        only_root="a session has one libvirtd",
    ),
    62: Row(
        "a verb for which the server is in the wrong state",
        (
            Use("server resize web --confirm", 4, "has no resize to confirm or revert"),
            Use("server resize db --revert", 4, "has no resize to confirm or revert"),
            Use("server resize db --confirm --revert", 2, "stand alone"),
            Use("server resize db --revertable", 2, "no size was said"),
            Use("server resize web --vcpus 2", 5, "stop it first: millpond server stop web"),
            Use("server resize web --vcpus 2 --disk 1K", 5, "is not possible here"),
            Use("server resize web --disk 2M --revertable", 5, "stop it first"),
            Use("server unrescue web", 4, "is not in rescue"),
            Use("server rescue db --image nosuch", 3, "there is no image 'nosuch'"),
            Use("server rebuild db --image nosuch", 3, "there is no image 'nosuch'"),
            Use("server pause db", 4, "is stopped; this needs it to be running"),
            Use("server unpause db", 4, "is stopped; this needs it to be paused"),
            Use("server reboot db --soft", 4, "is stopped; this needs it to be running"),
            Use("server reboot web --soft --hard", 2, "exclude each other"),
        ),
    ),
    63: Row(
        "sizes that contradict each other",
        (
            Use("server resize db --flavor nosuch", 2, "there is no flavour 'nosuch'"),
            Use("server resize db --vcpus 2 --disk 1K", 5, "a disk only grows"),
            Use("server resize db --vcpus 1000", 2, "are too many"),
            Use("server set db --max-memory 1M", 2, "less than the 16 MiB that it has"),
            Use("server set db --max-vcpus 1000", 2, "are too many"),
            Use(f"{NEW} --vcpus 4 --max-vcpus 2", 2, "2 are less than the 4 that it has"),
        ),
    ),
    64: Row(
        "moves where there is one host; test_bad_moves.py has several",
        (
            Use("server migrate db", 2, "there is no other host than 'local'"),
            Use("server migrate db --host local", 2, "is on host 'local' already"),
            Use("server migrate db --host nosuch", 3, "there is no host 'nosuch'"),
            Use("server migrate web --live", 2, "there is no other host than 'local'"),
            Use("server migrate web --abort", 4, "is not being migrated"),
            Use("server evacuate db --from local --fenced", 2, "there is no other host"),
        ),
    ),
}


def test_every_row_is_there():
    assert list(ROWS) == list(range(1, 65))


@pytest.mark.parametrize("number", ROWS, ids=lambda number: f"{number}: {ROWS[number].what}")
def test_bad_input(pond, number):
    row = ROWS[number]
    if row.only_root and not pond.is_root:
        pytest.skip(row.only_root)
    walk(pond, row)
