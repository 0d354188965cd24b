"""Many servers at once for several hosts, and providers that are somebody else's."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millpond.errors import NoValidHost
from millpond.hosts.deployment import Deployment
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.servers import across_hosts
from millpond.servers.create import ServerRequest
from tests.support.image_files import image_of_each_format
from tests.support.multi_host import NAMES, MultiHost
from tests.support.scheduling import register

FORMATS = ("raw", "qcow2", "vmdk", "vdi", "vhdx", "vhd")
TAKEN = {
    "alder": {"raw", "qcow2", "vhdx"},
    "birch": {"raw", "vmdk", "vhdx"},
    "cedar": {"qcow2", "vhd", "vmdk"},
}
"""vdi nowhere."""
MAPPINGS = {"alder": "qcow2:qcow2", "birch": "raw:raw, vmdk:raw", "cedar": ""}
SERVERS = 200 if os.environ.get("MILLPOND_TEST_FULL") else 24
AT_A_TIME = 8


@pytest.fixture
def configured(multi_host: MultiHost, workdir: Path) -> MultiHost:
    """Six images, by the names of their formats."""
    for format, path in image_of_each_format(workdir):
        if format in FORMATS:
            multi_host.ok("image", "add", path, "--name", format, "--disk-format", format)
    multi_host.configure(
        {
            name: f"image_type_exclude_list = {','.join(sorted(set(FORMATS) - taken))}\n"
            f"images_type_mapping = {MAPPINGS[name]}"
            for name, taken in TAKEN.items()
        },
        default="\n".join(f"{each}_allocation_ratio = 999" for each in ("cpu", "ram", "disk")),
        rest="[scheduler]\nfilter_hosts_by_image_type_support = true",
    )
    return multi_host


def create(deployment: Deployment, name: str, image: str) -> str | NoValidHost:
    """The host that it is on, or why there is none."""
    request = ServerRequest(
        name=name, image=deployment.images.get(image), flavor=Flavor(memory=16 * MiB)
    )
    try:
        return across_hosts.create(deployment, request, start=False).host
    except NoValidHost as error:
        return error


def placed(
    multi_host: MultiHost, count: int, format_of: Callable[[int], str]
) -> Iterator[tuple[str, str | NoValidHost]]:
    """Format and host of each, made by threads of one process."""
    deployment = multi_host.deployment()
    formats = [format_of(number) for number in range(count)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield from zip(
            formats,
            pool.map(lambda n: create(deployment, f"s{n}", formats[n]), range(count)),
            strict=True,
        )


@pytest.mark.timeout(900)
def test_no_server_lands_where_its_image_is_not_taken(configured: MultiHost) -> None:
    configured.ok("host", "list", "--refresh")
    placement = configured.deployment().scheduler.placement
    plenty = dict.fromkeys(("VCPU", "MEMORY_MB", "DISK_GB"), 100_000)
    register(placement, "esx", "COMPUTE_IMAGE_TYPE_VMDK", amounts=plenty)
    register(placement, "old", amounts=plenty)
    found = list(placed(configured, SERVERS, lambda number: FORMATS[number % len(FORMATS)]))
    for format, host in found:
        if format == "vdi":
            assert isinstance(host, NoValidHost)
            assert "none has COMPUTE_IMAGE_TYPE_VDI" in str(host)
            assert "esx: it lacks COMPUTE_IMAGE_TYPE_VDI" in str(host)
        else:
            assert isinstance(host, str)
            assert format in TAKEN[host]
    used = Counter(host for _, host in found if isinstance(host, str))
    assert used.keys() == set(NAMES)
    servers = {each.id for each in configured.deployment().records.all()}
    assert configured.taken_by() == servers
    assert configured.ok("doctor", "--placement").endswith("no problem\n")


def test_with_the_filter_off_nobody_asks_for_traits(configured: MultiHost) -> None:
    text = configured.config.read_text()
    configured.config.write_text(text.replace("support = true", "support = false"))
    hosts = {host for _, host in placed(configured, 6, lambda _: "vdi")}
    assert hosts <= set(NAMES)


SEATS = 12


@pytest.fixture
def nearly_full(configured: MultiHost) -> MultiHost:
    """Four servers fit on each host."""
    configured.configure(dict.fromkeys(NAMES, "cpu_allocation_ratio = 2"))
    configured.ok("host", "list", "--refresh")
    seats = sum(each["vcpus"]["capacity"] for each in configured.json("host", "list"))
    assert seats == SEATS == 3 * 2 * (os.cpu_count() or 1)
    return configured


def check(multi_host: MultiHost, outcomes: list[bool]) -> None:
    """As many as fit are there, and nothing of the others."""
    assert sum(outcomes) == SEATS
    servers = multi_host.deployment().records.all()
    assert Counter(each.host for each in servers) == dict.fromkeys(NAMES, SEATS // 3)
    assert multi_host.taken_by() == {each.id for each in servers}
    assert multi_host.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.timeout(600)
def test_fifty_threads_at_nearly_full_hosts(nearly_full: MultiHost) -> None:
    deployment = nearly_full.deployment()
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda n: create(deployment, f"s{n}", "raw"), range(50)))
    lost = [each for each in found if isinstance(each, NoValidHost)]
    check(nearly_full, [isinstance(each, str) for each in found])
    assert all("VCPU" in str(each) for each in lost)


@pytest.mark.timeout(600)
def test_sixteen_processes_at_nearly_full_hosts(nearly_full: MultiHost) -> None:
    def run(number: int) -> bool:
        words = ("server", "create", f"s{number}", "--image", "raw", "--memory", "16M")
        done = nearly_full.run(*words, "--no-start", seconds=300)
        assert done.returncode in (0, 6), done.stderr
        assert done.returncode == 0 or "no valid host" in done.stderr
        return done.returncode == 0

    with ThreadPoolExecutor(16) as pool:
        check(nearly_full, list(pool.map(run, range(50))))
