"""[image_cache] max_bytes: what is on the disk is never more, whatever is fetched."""

import os
import random
import subprocess
import time

import pytest

from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.sizes import KiB, MiB


def add_images(millpond, workdir, sizes):
    """By name; no byte is a hole, and a server's template has to be converted."""
    intake = Intake(millpond.host().shared.images_directory)
    for name, size in sizes.items():
        raw, file = workdir / f"{name}.raw", workdir / f"{name}.qcow2"
        raw.write_bytes(os.urandom(size))
        words = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2"]
        subprocess.run([*words, raw, file], check=True)
        intake.add(file, name=name)


@pytest.fixture
def images(millpond, workdir):
    add_images(millpond, workdir, dict.fromkeys("abc", MiB))
    millpond.configure("[image_cache]\nmax_bytes = 2560K\n")
    millpond.make_pools()


def bases(millpond):
    return sorted(os.listdir(millpond.bases))


def fetch(millpond, name):
    (made,) = millpond.json("cache", "fetch", name)
    time.sleep(1.1)  # a use is noted to the second
    return made["volume"]


def test_a_cache_that_is_too_large_loses_the_least_recently_used(millpond, images):
    millpond.configure()
    made = {name: fetch(millpond, name) for name in ("a", "b", "c", "a")}
    millpond.configure("[image_cache]\nmax_bytes = 2560K\n")
    (gone,) = millpond.json("cache", "prune")
    assert gone["template"]["volume"] == made["b"]
    assert bases(millpond) == sorted(made[each] for each in "ac")


def test_a_bounded_cache_makes_room_for_what_is_fetched(millpond, images):
    made = {name: fetch(millpond, name) for name in ("a", "b", "a", "c")}
    assert bases(millpond) == sorted(made[each] for each in "ac")


CREATE = ("server", "create", "--memory", "32M", "--no-start", "--image")
KEEPING = {
    "pinned": ([("cache", "pin", "a", "b")], ("cache", "unpin", "a")),
    "used": ([(*CREATE, "a", "s1"), (*CREATE, "b", "s2")], ("server", "delete", "s1")),
}


@pytest.mark.parametrize(("keep", "let_go"), KEEPING.values(), ids=KEEPING.keys())
def test_what_does_not_fit_beside_what_stays_is_refused(millpond, images, refuses, keep, let_go):
    millpond.ok("cache", "fetch", "a", "b")
    for words in keep:
        millpond.ok(*words)
    sentence = "does not fit next to 2 MiB that are used or pinned"
    refuses(6, sentence, "cache", "fetch", "c")
    refuses(6, sentence, *CREATE, "c", "s3")
    millpond.ok(*let_go)
    millpond.ok("cache", "fetch", "c")
    assert len(bases(millpond)) == 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("fetches", "images"), [(40, 10), pytest.param(500, 50, marks=pytest.mark.full)]
)
def test_the_bound_holds_through_random_fetches(millpond, workdir, fetches, images):
    chance = random.Random(fetches)
    sizes = {f"i{number}": chance.randrange(16, 512) * KiB for number in range(images)}
    add_images(millpond, workdir, sizes)
    bound = sum(sizes.values()) // 3
    millpond.configure(f"[image_cache]\nmax_bytes = {bound // KiB}K\n")
    host, held = millpond.host(), set()
    for _ in range(fetches):
        image = host.shared.catalogue.get(chance.choice(list(sizes)))
        made = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
        there = {each.name: each.stat().st_blocks * 512 for each in millpond.bases.iterdir()}
        assert made.volume in there
        assert sum(there.values()) <= bound
        held.add(frozenset(there))
    assert len(held) > images  # it changed all the time
