"""A host of the cluster has lost its power: its servers come to another one with their disks."""

import pytest

from tests.ceph.conftest import POOL, shared_pool
from tests.ceph.test_live_migrate import tick_on_disk
from tests.real.test_evacuate import FENCED, console, domains, state, ticks
from tests.real.test_migrate import create
from tests.support.waiting import wait_for


@pytest.fixture
def shared(multi_host, micro_guest, ceph):
    """All disks are in Ceph, and config drives in a directory that all hosts have."""
    place = multi_host.directory / "shared"
    with shared_pool(multi_host, ceph) as options:
        common = f"disks_pool_path = {place}\nimages_type = rbd"
        multi_host.configure({each: f"{common}\n{own}" for each, own in options.items()})
        multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
        multi_host.ok("host", "list", "--refresh")
        yield multi_host


@pytest.mark.full
def test_a_host_whose_guest_still_runs_is_refused(shared, ceph):
    alder = shared.hosts["alder"]
    create(shared, "web", "raw")
    before = shared.deployment().server("web")
    alder.stop()  # libvirtd alone
    status, message = shared.fails("server", "evacuate", "web", *FENCED)
    assert (status, "is open at" in message, "not fenced" in message) == (4, True, True), message
    assert (shared.deployment().server("web"), domains(shared, "birch")) == (before, {})
    alder.start()
    assert state(shared, "alder", "web") == "running"
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.full
def test_it_boots_elsewhere_with_all_that_its_guest_wrote(shared, ceph):
    alder = shared.hosts["alder"]
    create(shared, "web", "raw", "--config-drive")
    create(shared, "off", "raw", "--no-start", "--swap", "16M")
    image = f"{POOL}/{shared.deployment().server('web').get_disk().volume}"
    wait_for(lambda: len(ticks(shared, "web")) > 2, 60)
    last = ticks(shared, "web")[-1]
    alder.lose_power()
    assert ceph.watchers(image)  # Ceph has not missed it yet
    assert tick_on_disk(shared, ceph, image) >= last
    told = shared.json("server", "evacuate", "--all", *FENCED, "--host", "birch")
    assert {each["name"]: (each["host"], each["error"]) for each in told} == {
        "off": ("birch", ""),
        "web": ("birch", ""),
    }
    assert (state(shared, "birch", "web"), state(shared, "birch", "off")) == ("running", "stopped")
    wait_for(lambda: "BOOTS 0002" in console(shared, "web"), 60)
    assert len(ceph.watchers(image)) == 1
    shared.ok("server", "start", "off")
    alder.start()
    shared.run("doctor", "--repair", "--host", "alder")
    assert not {"web", "off"} & set(domains(shared, "alder"))
    assert shared.ok("doctor", "--placement").endswith("no problem\n")
    shared.ok("server", "delete", "web", "off", "--yes")
