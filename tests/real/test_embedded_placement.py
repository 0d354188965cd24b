"""The embedded Placement with many threads, many processes, and some of them killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millpond.model.formats import ImageFormat
from millpond.model.sizes import GiB
from millpond.scheduling.embedded import EmbeddedPlacement
from millpond.scheduling.inventory import ProviderTrees
from millpond.scheduling.placement import Placement
from millpond.scheduling.traits import IMAGE_TYPES
from tests.support.placement_clients import claim_all, claim_in_processes
from tests.support.scheduling import (
    POOL,
    Hosts,
    host,
    pool,
    register,
    request,
    uuid_of,
)

HOSTS = [host("a", vcpus=7), host("b", vcpus=6)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "placement"


@pytest.fixture
def placement(directory):
    return Placement(EmbeddedPlacement(directory))


def test_fifty_threads_never_exceed_what_there_is(placement):
    ProviderTrees(placement).publish(HOSTS)
    came = claim_all(placement, 50, 50, ["a", "b"])
    assert (came.count("a"), came.count("b")) == (7, 6)
    lost = [each for each in came if each not in ("a", "b")]
    assert len(lost) == 37
    assert all(each.count("0 of 1 VCPU are free") == 2 for each in lost)
    held = {name: placement.providers.consumers(uuid_of(name)) for name in "ab"}
    assert {name: len(each) for name, each in held.items()} == {"a": 7, "b": 6}


@pytest.mark.timeout(200)
def test_sixteen_processes_never_exceed_what_there_is(directory, placement):
    ProviderTrees(placement).publish(HOSTS)
    came = claim_in_processes(str(directory), 16, 2, ["a", "b"])
    assert (came.count("a"), came.count("b"), len(came)) == (7, 6, 32)


@pytest.mark.timeout(200)
def test_many_first_starts_at_once_make_one_database(directory):
    came = claim_in_processes(str(directory), 8, 1, ["a"])
    assert all("a: it has not been reported" in each for each in came)
    ProviderTrees(Placement(EmbeddedPlacement(directory))).publish(HOSTS)


@pytest.mark.timeout(200)
def test_a_process_that_is_killed_leaves_no_damage(directory, placement):
    ProviderTrees(placement).publish([host("a", vcpus=1000, memory=2**44)])
    words = [
        sys.executable,
        "-m",
        "tests.support.placement_clients",
        str(directory),
        "400",
        "4",
        "a",
    ]
    for _ in range(4):
        before = len(placement.providers.consumers(uuid_of("a")))
        with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            while len(placement.providers.consumers(uuid_of("a"))) < before + 2:
                assert process.poll() is None
                time.sleep(0.05)
            os.kill(process.pid, signal.SIGKILL)
    with sqlite3.connect(directory / "placement.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = {row[0] for row in database.execute("SELECT consumer_id FROM allocations")}
    assert found == set(placement.providers.consumers(uuid_of("a")))
    assert all(len(placement.allocations.of(each).allocations) == 2 for each in found)
    claimed = claim_all(placement, 1, 1, ["a"])
    assert claimed == ["a"]


def test_nothing_of_its_talk_reaches_standard_error(directory):
    program = (
        "import logging, sys; from pathlib import Path;"
        "logging.basicConfig(level=logging.WARNING);"
        "from tests.support.placement_clients import claim_all, transport;"
        "from millpond.scheduling.placement import Placement;"
        "from millpond.scheduling.inventory import ProviderTrees;"
        "from tests.support.scheduling import host;"
        "placement = Placement(transport(sys.argv[1]));"
        "ProviderTrees(placement).publish([host('a', vcpus=1)]);"
        "print(claim_all(placement, 3, 3, ['a']).count('a'))"
    )
    words = [sys.executable, "-c", program, directory]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(True, id="filtered"),
        pytest.param(False, id="unfiltered", marks=pytest.mark.full),
    ],
)
def test_two_hundred_servers_of_six_formats_land_where_their_image_is_taken(placement, filters):
    """Next to hosts of others: one that takes only vmdk, and one that reports nothing."""
    taken = {
        "alder": {"qcow2", "raw", "iso"},
        "birch": {"raw", "vmdk", "vdi"},
        "cedar": {"qcow2", "vhd", "vdi"},
    }
    for name, formats in taken.items():
        mapped = [ImageFormat(each) for each in formats]
        pools = (pool(POOL, *mapped, capacity=10**6 * GiB),)
        roomy = host(name, *mapped, vcpus=1000, memory=2**42, pools=pools)
        ProviderTrees(placement).publish([roomy])
    register(placement, "vmware", IMAGE_TYPES["vmdk"])
    register(placement, "silent")
    hosts = Hosts(placement, *taken, filters=filters)
    formats = ["qcow2", "raw", "iso", "vmdk", "vdi", "vhd"]

    def place(number):
        wanted = request(formats[number % 6])
        return wanted.image_format, hosts.create(wanted).host

    with ThreadPoolExecutor(8) as threads:
        came = list(threads.map(place, range(200)))
    misplaced = [(format, where) for format, where in came if format not in taken[where]]
    assert bool(misplaced) is not filters
    counts = {name: len(placement.providers.consumers(uuid_of(name))) for name in taken}
    assert sum(counts.values()) == 200
    assert not placement.providers.consumers(uuid_of("vmware"))
