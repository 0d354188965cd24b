"""Whether what there is, is what there must be: read from files, libvirt and the lists."""

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libvirt
from lxml import etree

from millpond.libvirt.locality import is_locality_probe
from tests.chaos.model import Model, ServerModel
from tests.chaos.world import World
from tests.support import forked

LISTS = (("server", "list"), ("image", "list"), ("cache", "list"), ("pool", "list"))
_SECONDS = 90
_ABANDONED_AFTER = 60 + 15
"""Seconds: doctor waits for a minute, and a turn takes some time."""
_GUESTS_OWN = slice(2 * 512, 4 * 512)
"""Where the guest counts its boots and ticks (tools/guests/micro.asm)."""
_CONFIG, _LABEL = "disk.config", b"config-2"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POOL = "nova-disks-pool"


class Violated(Exception):
    """Something that must never be."""


def require(truth: object, what: str) -> None:
    if not truth:
        raise Violated(what)


def lists(world: World) -> dict[str, Any]:
    """What every list answers, as JSON; one that does not answer is a violation."""
    done = forked.run(_print_lists, ["lists", str(world.millpond.config)], _SECONDS)
    require(done.returncode == 0, f"a list does not answer: {done.stderr}")
    require("Traceback" not in done.stderr, f"a list answers with a traceback: {done.stderr}")
    answers = [json.loads(each) for each in done.stdout.split("\0")[:-1]]
    return {words[0]: answer for words, answer in zip(LISTS, answers, strict=True)}


def _print_lists() -> None:
    """One after the other in one process, each ended by a NUL."""
    config = sys.argv[1]
    for words in LISTS:
        sys.argv = ["millpond", "--config-file", config, *words, "--json"]
        try:
            forked.main()
        except SystemExit as end:
            if end.code:
                raise
        print(end="\0", flush=True)


def shape(server: Mapping[str, Any]) -> dict[str, int]:
    """The disks of a record and their sizes, without the config drive, which nobody grows."""
    sizes = {disk["role"]: disk["size"] for disk in server["disks"]}
    require(sizes.pop(_CONFIG, 0) > 0, f"{server['name']} has no config drive")
    return sizes


@dataclass(slots=True)
class Inspection:
    world: World
    connection: libvirt.virConnect
    read: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Digests of what has been read and has not changed since, by inode, length and times."""

    def inspect(self, model: Model, found: Mapping[str, Any]) -> None:
        """After a recovery, with what the lists answered."""
        servers = {each["name"]: each for each in found["server"]}
        for server in servers.values():
            require(server["operation"] is None, f"{server['name']} is still {server['state']}")
        require(servers.keys() == model.servers.keys(), _differ("servers", servers, model.servers))
        for name, server in servers.items():
            self._inspect_server(model.servers[name], server)
        self._inspect_images(model, found["image"])
        self._inspect_templates(found["cache"]["templates"], found["image"], model)
        self._inspect_leftovers([*servers.values()], found)

    def _inspect_server(self, model: ServerModel, server: Mapping[str, Any]) -> None:
        require(shape(server) == model.shape, f"disks of {model.name}: {shape(server)}")
        for disk in server["disks"]:
            name = f"{disk['role']} of {model.name}"
            path = self.world.disks / disk["volume"]
            require(path.exists(), f"{name} is gone: {path}")
            if disk["role"] == _CONFIG:
                require(_LABEL in path.read_bytes(), f"{name} is not written: {path}")
                continue
            found = self._digest(path, disk["format"], masked=disk["role"] == "disk")
            require(
                found == _of(model.disks[disk["role"]], masked=disk["role"] == "disk"),
                f"bytes of {name} are lost: {path}",
            )
        self._inspect_domain(server)

    def _inspect_domain(self, server: Mapping[str, Any]) -> None:
        try:
            domain = self.connection.lookupByUUIDString(server["id"])
        except libvirt.libvirtError as error:
            raise Violated(f"{server['name']} has no domain") from error
        flags = [libvirt.VIR_DOMAIN_XML_INACTIVE, *([0] if domain.isActive() else [])]
        recorded = [disk["volume"] for disk in server["disks"]]
        for each in flags:
            xml = etree.fromstring(domain.XMLDesc(each))
            sources = xml.findall("devices/disk/source")
            seen = [Path(source.get("volume") or source.get("file")).name for source in sources]
            require(sorted(seen) == sorted(recorded), f"{server['name']} has {seen}: {recorded}")

    def _inspect_images(self, model: Model, images: list[dict[str, Any]]) -> None:
        found = {each["name"]: each for each in images}
        require(found.keys() == model.images.keys(), _differ("images", found, model.images))
        for name, image in found.items():
            blob = self.world.state / "images" / "blobs" / image["digest"]
            require(blob.exists(), f"the content of image {name} is gone")
            digest = self._cached(blob, "", lambda path: _sha512(path.read_bytes()))
            require(digest == image["digest"], f"the content of image {name} is wrong: {blob}")
            content = self._digest(blob, image["format"], masked=True)
            wanted = _of(model.images[name].content, masked=True)
            require(content == wanted, f"image {name} holds another disk: {blob}")

    def _inspect_templates(
        self, templates: list[dict[str, Any]], images: list[dict[str, Any]], model: Model
    ) -> None:
        names = {each["id"]: each["name"] for each in images}
        for each in templates:
            template = each["template"]
            path = self.world.bases / template["volume"]
            require(path.stat().st_size == template["size"], f"template {path} has another size")
            if template["digest"]:
                digest = self._cached(path, "", lambda path: _sha512(path.read_bytes()))
                require(digest == template["digest"], f"template {path} is wrong")
            if name := names.get(template["image"]):
                content = self._digest(path, template["format"], masked=True)
                wanted = _of(model.images[name].content, masked=True)
                require(content == wanted, f"template {path} is not image {name}")

    def _inspect_leftovers(self, servers: list[dict[str, Any]], found: Mapping[str, Any]) -> None:
        state = self.world.state
        volumes = {disk["volume"] for each in servers for disk in each["disks"]}
        ids = {each["id"] for each in servers}
        templates = {each["template"]["volume"] for each in found["cache"]["templates"]}
        beside = self.world.instances / "_base.millpond"
        digests = {each["digest"] for each in found["image"]}
        domains = {each.UUIDString() for each in self.connection.listAllDomains()}
        _same("files in the disks' pool", _names(self.world.disks), volumes)
        _same("volumes that libvirt sees", self._seen_by_libvirt(), volumes)
        _same("domains", domains, ids)
        _same("records of servers", _names(state / "servers"), {f"{id}.json" for id in ids})
        directories = {each for each in _names(self.world.instances) if _UUID.fullmatch(each)}
        require(directories <= ids, f"directories of no server: {directories - ids}")
        _same("files in the base pool", _names(self.world.bases), templates)
        _same("records of templates", _names(beside / "records"), {f"{t}.json" for t in templates})
        _same("preparations", _names(beside / "incoming"), set())
        _same("quarantine", _names(beside / "quarantine"), set())
        _same("blobs", _names(state / "images" / "blobs"), digests)
        _same("indexes", _names(state / "images" / "indexes"), digests)
        images = {f"{each['id']}.json" for each in found["image"]}
        _same("records of images", _names(state / "images" / "records"), images)
        _same("images on their way", _names(state / "images" / "incoming"), set())
        for place in (state, state / "images", beside):
            _same("locks", _names(place / "locks"), set())
        _same("half-written files", self._half_written(), set())

    def _half_written(self) -> set[str]:
        """Those of which doctor knows that nobody writes them any more."""
        places, old = (self.world.state, self.world.instances), time.time() - _ABANDONED_AFTER
        found = {each for place in places for each in place.rglob(".*")}
        return {str(each) for each in found if each.stat().st_mtime < old}

    def _seen_by_libvirt(self) -> set[str]:
        pool = self.connection.storagePoolLookupByName(_POOL)
        pool.refresh()
        return {each for each in pool.listVolumes() if not is_locality_probe(each)}

    def _digest(self, path: Path, format: str, *, masked: bool) -> str:
        """Of the disk that an image or a volume holds, with all that it is backed by."""

        def read(path: Path) -> str:
            flat = self.world.millpond.directory / "flat"
            words = ["qemu-img", "convert", "-U", "-f", format, "-O", "raw", str(path), str(flat)]
            done = subprocess.run(words, capture_output=True, text=True)
            require(done.returncode == 0, f"{path} cannot be read: {done.stderr}")
            return _of(flat.read_bytes(), masked=masked)

        return self._cached(path, format, read)

    def _cached(self, path: Path, how: str, read: Any) -> str:
        before = path.stat()
        base = _backing_file(path) if how == "qcow2" else None
        below = base.stat() if base else before
        key = (path, how, *_print_of(before), *_print_of(below))
        if key not in self.read:
            self.read[key] = read(path)
        return self.read[key]


def _print_of(found: Any) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _backing_file(path: Path) -> Path | None:
    with path.open("rb") as file:
        head = file.read(20)
        start, length = int.from_bytes(head[8:16], "big"), int.from_bytes(head[16:20], "big")
        file.seek(start)
        name = file.read(length).decode() if start else ""
    require(not name or Path(name).exists(), f"{path} is backed by {name}, which is gone")
    return Path(name) if name else None


def _of(content: bytes, *, masked: bool) -> str:
    """A digest; of a root disk without what its guest counts there."""
    if masked:
        seen = bytearray(content)
        seen[_GUESTS_OWN] = bytes(2 * 512)
        content = bytes(seen)
    return f"{len(content)} {_sha512(content)}"


def _sha512(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()


def _names(directory: Path) -> set[str]:
    """What lies there, hidden files apart: those are looked for everywhere."""
    found = directory.iterdir() if directory.exists() else iter(())
    return {
        each.name for each in found if each.name[0] != "." and not is_locality_probe(each.name)
    }


def _same(what: str, found: set[str], wanted: set[str]) -> None:
    require(found == wanted, _differ(what, found, wanted))


def _differ(what: str, found: Any, wanted: Any) -> str:
    more, missing = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
    return f"{what}: too many: {more}, missing: {missing}"


def problems(out: str) -> Iterator[str]:
    """Of what doctor prints with --json; our file systems are small on purpose."""
    for each in json.loads(out):
        if each["level"] == "problem" and each["check"] != "space":
            yield f"{each['check']}: {each['what']}"
