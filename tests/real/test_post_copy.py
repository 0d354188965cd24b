"""A guest continues at the destination before all its memory is there. Its QEMU is root's: the
kernel may let nobody else catch the faults (vm.unprivileged_userfaultfd)."""

import contextlib
import subprocess
from datetime import datetime
from pathlib import Path

import libvirt
import pytest

from tests.real.test_live_migrate import check_only_on, create
from tests.support.guests import build_micro_guest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import converted
from tests.support.multi_host import fresh_state
from tests.support.waiting import wait_for

KERNEL = Path("/proc/sys/vm/unprivileged_userfaultfd")
ROOT = ('user = "root"', 'group = "root"')


@pytest.fixture
def hosts(session_directory, workdir):
    guest = build_micro_guest(workdir / "guest", marker="SCRIBE", clock=1, scribbles=True)
    with (
        PrivateLibvirtd(session_directory / "root-alder", name="alder", qemu=ROOT) as alder,
        PrivateLibvirtd(session_directory / "root-birch", name="birch", qemu=ROOT) as birch,
        fresh_state({"alder": alder, "birch": birch}, session_directory) as made,
    ):
        made.ok("image", "add", converted(guest, "qcow2", workdir), "--name", "qcow2")
        yield made


@pytest.fixture
def events(hosts, workdir):
    """What the libvirts tell of their domains."""
    words = ("event", "--loop", "--timestamp", "--event", "lifecycle")
    with (workdir / "events").open("a") as file, contextlib.ExitStack() as stack:
        for host in hosts.hosts.values():
            told = ["virsh", "-c", host.uri, *words]
            process = stack.enter_context(subprocess.Popen(told, stdout=file, stderr=file))
            stack.callback(process.terminate)
        yield workdir / "events"


def slow_down(hosts, name):
    """To less than its guest writes: it would never end without."""
    with hosts.hosts["alder"].connect() as connection:
        domain = connection.lookupByName(name)
        for flags in (0, libvirt.VIR_DOMAIN_MIGRATE_MAX_SPEED_POSTCOPY):
            domain.migrateSetMaxSpeed(1, flags)


def time_of(events, what):
    (line,) = [each for each in events.read_text().splitlines() if each.endswith(what)]
    return datetime.fromisoformat(line.partition(": ")[0]).timestamp()


@pytest.mark.full
def test_its_guest_continues_there_and_fetches_the_rest(hosts, events):
    guest = create(hosts, "web", "qcow2", "--config-drive")
    hosts.ok("server", "disk", "add", "web", "--size", "16M")
    slow_down(hosts, "web")
    live = ("server", "migrate", "web", "--host", "birch", "--live")
    status, message = hosts.fails(*live, "--timeout", "10")
    assert (status, "had not moved after 10 s" in message) == (6, True), message
    told = hosts.json(*live, "--post-copy")
    assert told["host"] == "birch"
    guest.check_gapless("alder", "birch")
    check_only_on(hosts, "web", "birch")
    wait_for(lambda: "Stopped Migrated" in events.read_text(), 10)
    assert "Suspended Post-copy" in events.read_text()
    paused, resumed, ended = (
        time_of(events, each)
        for each in ("Suspended Migrated", "Resumed Migrated", "Stopped Migrated")
    )
    assert told["pause"] < ended - paused
    assert paused < resumed < ended


@pytest.mark.full
@pytest.mark.skipif(
    KERNEL.exists() and KERNEL.read_text() == "1\n",
    reason="the kernel lets everybody: sysctl vm.unprivileged_userfaultfd=0",
)
def test_where_the_kernel_does_not_let_it_the_server_stays(multi_host, busy_guest, workdir):
    multi_host.ok("image", "add", converted(busy_guest, "qcow2", workdir), "--name", "qcow2")
    guest = create(multi_host, "web", "qcow2")
    live = ("server", "migrate", "web", "--host", "birch", "--live")
    status, message = multi_host.fails(*live, "--post-copy")
    assert (status, "does not let QEMU catch page faults" in message) == (6, True), message
    guest.check_gapless("alder")
    check_only_on(multi_host, "web", "alder")
