"""Templates in the cluster: removed by one host while others look, die or are of another age."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from millpond.disks.rbd_storage import COMPLETE, RbdStorage, is_complete
from millpond.errors import Busy, ToolFailed
from millpond.hosts.host import Host
from millpond.model.formats import DiskFormat
from millpond.model.layer import CephAccess, RbdSource
from millpond.model.sizes import MiB
from millpond.model.template import Template
from millpond.system import rbd
from tests.ceph.conftest import rbd_options
from tests.support.ceph import Ceph, RbdPool
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond

KILLS = range(1, 13)
"""After so many of its commands a removal is killed; the last one is not any more."""
ORDINARY = (5, 9)
"""The others run with make test-full."""


@pytest.fixture
def host(millpond: Millpond, ceph: Ceph, rbd_pool: RbdPool, micro_guest) -> Host:
    millpond.configure("\n".join(["images_type = rbd", *rbd_options(ceph, rbd_pool)]))
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond.host()


@pytest.fixture
def template(host: Host) -> Template:
    """In the cluster, too."""
    found = host.handlers.chosen.fetch_image(host.shared.catalogue.get("guest"), DiskFormat.RAW)
    host.rbd_storage.upload_template(found)
    return found


@pytest.fixture
def access(host: Host) -> CephAccess:
    found = host.pools.ensure("nova-disks-pool-rbd").ceph
    assert found
    return found


def killed_after(commands: int, host: Host, template: Template) -> bool:
    """Whether a removal was killed when its next command began."""
    pid = os.fork()
    if pid == 0:
        count = 0

        def watch(event: str, _words: object) -> None:
            nonlocal count
            if event == "subprocess.Popen":
                count += 1
                if count > commands:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            host.rbd_storage.remove_template(template.volume)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    "commands",
    [pytest.param(n, marks=[] if n in ORDINARY else [pytest.mark.full]) for n in KILLS],
)
def test_a_template_whose_removal_was_killed_can_be_used_and_removed_again(
    commands, millpond, host, template, access, ceph
):
    host.libvirtd.close()  # a connection does not survive a fork
    was_killed = killed_after(commands, host, template)
    assert was_killed == (commands < KILLS[-1])
    ceph.end_leases(access.pool)
    assert template.volume not in rbd.names(access) or is_complete(access, template.volume)

    fresh = millpond.host()
    fresh.rbd_storage.upload_template(template)
    assert rbd.names(access) == [template.volume]
    fresh.rbd_storage.remove_template(template.volume)
    assert rbd.names(access) == []


@pytest.mark.parametrize("state", ["unprotected", "unmarked"])
def test_what_an_older_version_left_of_a_template_is_repaired(
    state, millpond, template, access, ceph
):
    """It unprotected and unmarked a template under its final name, and may have died there."""
    mark = f"{access.pool}/{template.volume}@{COMPLETE}"
    ceph.rbd("snap", "unprotect", mark)
    if state == "unmarked":
        ceph.rbd("snap", "rm", mark)
    millpond.ok("server", "create", "web", "--image", "guest", "--memory", "32M", "--no-start")
    assert is_complete(access, template.volume)
    assert len(rbd.names(access)) == 2


def test_an_image_with_the_name_of_a_template_and_another_content_is_left_alone(
    millpond, template, access, ceph, host
):
    host.rbd_storage.remove_template(template.volume)
    ceph.rbd("create", "--size", f"{template.virtual_size}B", f"{access.pool}/{template.volume}")
    code, message = millpond.fails("server", "create", "web", "--image", "guest")
    assert code == 4
    assert f"volume '{template.volume}' already exists" in message
    assert rbd.names(access) == [template.volume]
    assert "is not complete" in millpond.run("doctor").stdout


def test_a_clone_that_another_host_makes_meanwhile_keeps_the_template(template, access, host):
    """The removal finds it when it unprotects, under the other name."""
    storage = host.rbd_storage
    pool = host.pools.ensure("nova-disks-pool-rbd")
    aside = f"{template.volume}.{host.records.owner}.0123abcd"
    origin = RbdSource(access=access, image=template.volume, snapshot=COMPLETE)
    with rbd.holding_lock(access, template.volume) as lease:
        assert rbd.rename(replace(origin, snapshot=""), aside, lease)
        rbd.clone(replace(origin, image=aside), RbdSource(access=access, image="clone"))
    storage.remove_template(template.volume)  # sweeps, and cannot remove it
    assert set(rbd.names(access)) == {aside, "clone"}
    rbd.remove(RbdSource(access=access, image="clone"))
    pool.refresh()
    storage.remove_template(template.volume)
    assert rbd.names(access) == []


def test_what_is_swept_is_this_hosts_alone(template, access, host, workdir):
    """A host's name may be the beginning of another's."""
    others = [f"{template.volume}.node1.example.0123abcd", f"{template.volume}.node10.0123abcd"]
    for name in (*others, f"{template.volume}.node1.0123abcd"):
        rbd.clone(
            RbdSource(access=access, image=template.volume, snapshot=COMPLETE),
            RbdSource(access=access, image=name),
        )
    storage = RbdStorage(
        host.pools,
        owner=lambda: "node1",
        locks=host.shared.locks,
        incoming=workdir / "incoming",
    )
    storage.remove_template(template.volume)
    assert set(rbd.names(access)) == {template.volume, *others}


def test_a_lock_whose_lease_is_over_is_the_next_ones_and_stays_with_it(access, ceph):
    image = RbdSource(access=access, image="part")
    with ExitStack() as stack:
        late = stack.enter_context(rbd.holding_lock(access, "name", 2))
        time.sleep(2.5)
        with rbd.holding_lock(access, "name") as held:
            before = ceph.lockers(access.pool, "millpond.name", "millpond")
            with pytest.raises(Busy, match="name in Ceph pool"):
                rbd.rename(image, "name", late)
            stack.close()
            assert len(before) == 1
            assert ceph.lockers(access.pool, "millpond.name", "millpond") == before
            assert held.limits.seconds > 30
    assert ceph.lockers(access.pool, "millpond.name", "millpond") == []


def test_an_image_takes_the_size_that_it_has_and_no_invalid_one(access, ceph):
    image = RbdSource(access=access, image="image")
    ceph.rbd("create", "--size", "4M", image.name)
    rbd.resize(image, 4 * MiB)
    rbd.resize(image, 8 * MiB)
    rbd.resize(image, 2 * MiB)
    assert rbd.size(image) == 2 * MiB
    with pytest.raises(ToolFailed):
        rbd.resize(image, -1)


def test_a_process_that_lives_through_a_restart_of_libvirtd_goes_on(
    host, template, libvirtd: PrivateLibvirtd
):
    pool = host.pools.ensure("nova-disks-pool-rbd")
    assert pool.find(template.volume)
    libvirtd.restart()
    time.sleep(1.1)  # before that a connection is not asked whether it still answers
    with ThreadPoolExecutor(4) as threads:  # which all find it inactive
        assert all(threads.map(pool.find, [template.volume] * 4))
    libvirtd.restart()
    time.sleep(1.1)
    assert pool.usage().capacity > 0
