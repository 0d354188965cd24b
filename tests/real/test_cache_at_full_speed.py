"""No base that anything uses is ever removed, whatever goes on meanwhile."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from millpond.disks.backend import ImageFile
from millpond.hosts.cache import list_templates
from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.servers import delete
from millpond.templates.scrub import Outcome

ROOT = Path(__file__).parents[2]
IMAGES = 12
BOUND = 6
"""MiB: not all of the images' templates fit into the cache, and what is used may fill it."""


@pytest.fixture
def contents(millpond, workdir):
    """The disks that the images hold, by the name of the image: a MiB each, to be converted."""
    millpond.configure(
        "images_type = qcow2\nimages_type_mapping = vmdk:raw\n"
        f"[image_cache]\nremove_unused_original_minimum_age_seconds = 0\nmax_bytes = {BOUND}M\n"
    )
    made, intake = {}, Intake(millpond.host().shared.images_directory)
    for number in range(IMAGES):
        name, format = f"image{number}", "vmdk" if number == 0 else "qcow2"
        raw, file = workdir / f"{name}.raw", workdir / f"{name}.{format}"
        raw.write_bytes(os.urandom(MiB))
        words = ["qemu-img", "convert", "-f", "raw", "-O", format]
        subprocess.run([*words, raw, file], check=True)
        intake.add(file, name=name)
        made[name] = raw.read_bytes()
    return made


def stress(millpond, seconds, *seeds):
    words = ["tests.support.cache_stress", millpond.config, seconds, *seeds]
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.full)])
def test_no_base_that_anything_uses_is_ever_removed(millpond, contents, workdir, seconds):
    """Two processes of two threads each create, delete, snapshot, fetch, prune and pin; then every
    chain is read to its end."""
    begun = [stress(millpond, seconds, *seeds) for seeds in ("ab", "cd")]
    told = [each.communicate(timeout=seconds + 120)[0] for each in begun]
    assert [each.returncode for each in begun] == [0, 0]
    done = sum((Counter(json.loads(each)) for each in told), Counter())
    print(dict(done))
    assert min(done[each] for each in ("create", "delete", "snapshot", "fetch", "pin")) > 0
    assert done["template pruned"] > 0

    host = millpond.host()
    servers = host.records.all()
    assert {each.operation for each in servers} <= {None}
    assert sorted(os.listdir(millpond.disks)) == sorted(
        disk.volume for server in servers for disk in server.disks
    )
    for server in servers:
        assert_holds(host, server, contents[server.image.name.split("-")[-1]], workdir / "read")
    assert_whole(host, millpond)
    for server in servers:
        delete.delete(host, server)
    for template in list_templates(host):
        host.cache_manager.unpin(template.volume)
    host.cache_manager.prune(host.cache_rules)
    assert list(millpond.bases.iterdir()) == []


def assert_holds(host, server, content, target):
    """What the whole chain of its root disk shows, every layer stated from the record."""
    disk = server.disks[0]
    host.disks.extract(disk, ImageFile(path=target, format=DiskFormat.RAW))
    assert target.read_bytes() == content
    target.unlink()


def assert_whole(host, millpond):
    """Each template has its bytes, and nothing else is there; what disks are backed by is."""
    store = host.template_store
    templates = {each.volume: each for each in store.all()}
    assert sorted(os.listdir(millpond.bases)) == sorted(templates)
    assert store.unfinished() == []
    used = {d.template.volume for s in host.records.all() for d in s.disks if d.overlay}
    assert used <= set(templates)
    for template in templates.values():
        assert host.scrub.scrub(template).outcome in (Outcome.INTACT, Outcome.RECORDED)
