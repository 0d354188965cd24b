"""A table of bad input: what is typed, what it answers, and that nothing is left of it."""

import contextlib
import gzip
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libvirt

from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond, converted
from tests.support.ordinary_user import OrdinaryUser
from tests.support.refusals import world
from tests.support.waiting import wait_for
from tests.support.web import Web

FOREIGN = (
    "<domain type='qemu'><name>theirs</name><memory>1024</memory>"
    "<os><type>hvm</type></os></domain>"
)


@dataclass(frozen=True, slots=True)
class Use:
    """One command. {files}, {web} and what else the pond has by name stand for themselves."""

    words: str
    status: int
    sentence: str = ""
    undo: str = ""
    """What takes back what was made, where bad input is taken after all."""


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    uses: tuple[Use, ...] = ()
    check: Callable[["Pond"], None] | None = None
    only_root: str = ""
    """Why it cannot be met by an ordinary user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pond:
    """A server that runs, one that does not, an image, a domain of somebody else's, and files."""

    millpond: Millpond
    uri: str
    files: Path
    web: Web
    scratch: Path
    """Of this user's."""

    @property
    def is_root(self) -> bool:
        return not isinstance(self.millpond, OrdinaryUser)

    def words(self, text: str) -> list[str]:
        names = {"files": self.files, "web": self.web.url(""), "scratch": self.scratch}
        return [each.format(**names) for each in shlex.split(text)]

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        done = self.millpond.run(*self.words(text))
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def look(self) -> object:
        """Everything that a command could have left."""
        with contextlib.closing(libvirt.open(self.uri)) as connection:
            states = {each.name(): each.isActive() for each in connection.listAllDomains()}
            records = {
                path.name: path.read_bytes()
                for path in (self.millpond.state / "servers").glob("*.json")
            }
            return (
                world(self.millpond, connection),
                states,
                records,
                sorted(self.scratch.iterdir()),
            )

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        before = self.look()
        yield
        assert self.look() == before


def walk(pond: Pond, row: Row) -> None:
    for use in row.uses:
        with pond.unchanged():
            done = pond.run(use.words)
            if use.undo:
                pond.run(use.undo)
            said = done.stderr + done.stdout
            assert (done.returncode, use.sentence in said) == (use.status, True), (use.words, said)
            if use.status and not said.startswith("Usage: "):
                assert said.startswith("millpond: "), said
                assert "\n  hint: " in said, (use.words, said)
    if row.check:
        with pond.unchanged():
            row.check(pond)


def fill(pond: Pond, guest: MicroGuest) -> None:
    """What each row may rely on."""
    with contextlib.closing(libvirt.open(pond.uri)) as connection:
        connection.defineXML(FOREIGN)
    pond.millpond.ok("image", "add", pond.files / "guest.qcow2", "--name", "guest")
    for name, start in (("web", "--start"), ("db", "--no-start")):
        words = ("--image", "guest", "--memory", "16M", "--network", "none", start)
        made = pond.millpond.json("server", "create", name, *words)
        if start == "--start":
            wait_for(lambda id=made["id"]: guest.marker in pond.millpond.console(id), 60)


def write_files(directory: Path, guest: MicroGuest) -> None:
    """Whatever the rows name."""
    good = converted(guest, "qcow2", directory)
    content = good.read_bytes()
    written = {
        "empty.raw": b"",
        "odd.raw": bytes(1000),
        "junk.qcow2": os.urandom(65536),
        "text.qcow2": b"hello\n" * 1000,
        "half.qcow2": content[: len(content) // 2],
        "qcow2.raw": content,
        "nosuffix": content,
        "disk.img": content,
        "packed.raw.gz": gzip.compress(bytes(1 << 20)),
        "packed.gz": gzip.compress(content),
        "notpacked.raw.gz": content,
        "key": b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
        "notes": b"\xff\xfe\x00binary",
        "there": b"",
    }
    for name, data in written.items():
        (directory / name).write_bytes(data)
    (directory / "dangling.raw").symlink_to(directory / "gone.raw")
    backing = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"]
    subprocess.run([*backing, str(directory / "backing.qcow2"), "1M"], check=True)
    _write_configurations(directory)
    for each in directory.iterdir():
        if not each.is_symlink():
            each.chmod(0o644)


def _write_configurations(directory: Path) -> None:
    host = "[DEFAULT]\nenabled_hosts = {}\n{}"
    written = {
        "empty": "",
        "garbage": "}{ nonsense",
        "open": "[libvirt\nimages_type = raw\n",
        "typo": "[libvirt]\nimages_typ_mapping = raw:raw\n",
        "section": "[libvrt]\nimages_type = raw\n",
        "zfs": "[libvirt]\nimages_type = zfs\n",
        "xen": "[libvirt]\nvirt_type = xen\n",
        "mapping": "[libvirt]\nimages_type_mapping = qcow2=qcow2\n",
        "comma": "[libvirt]\nimages_type_mapping = raw:raw,\n",
        "twice": "[libvirt]\nimages_type_mapping = raw:raw, raw:qcow2\n",
        "lvm": "[libvirt]\nimages_type = lvm\n",
        "relative": "[DEFAULT]\nstate_path = some/where\n",
        "negative": "[image_cache]\nmax_bytes = -5\n",
        "handler": "[DEFAULT]\ntemplate_image_handler = nosuch\n",
        "many": "[flavor:small]\nvcpus = many\n",
        "comment": "[libvirt]\nimages_type = raw # for now\n",
        "sections": host.format("a, b", ""),
        "same": host.format("a, a", "[host:a]\nconnection_uri = qemu:///system\n"),
        "dead": "[libvirt]\nconnection_uri = qemu:///system?socket=/nowhere/libvirt-sock\n",
        "elsewhere": "[DEFAULT]\nstate_path = /nowhere\n",
        "ssh": "[libvirt]\nconnection_uri = qemu+ssh://127.0.0.1:1/system\n",
    }
    for name, text in written.items():
        (directory / f"{name}.conf").write_text(text)
    (directory / "binary.conf").write_bytes(b"\xff\xfe\x00\x01")


def copy_files(source: Path, target: Path) -> None:
    """Where an ordinary user can read them."""
    shutil.copytree(source, target, symlinks=True)
