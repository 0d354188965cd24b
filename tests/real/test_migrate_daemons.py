"""The libvirtd of either host dies while a server moves: whoever comes then finishes or undoes it,
and one disk has all that the guest wrote."""

from contextlib import ExitStack, suppress

import pytest

from millpond.errors import MillpondError, NoSpace
from millpond.hosts.deployment import Deployment
from millpond.records.journal import StepMoment
from millpond.servers.migrate import MigrateRequest, migrate
from tests.real.test_kill import moments
from tests.real.test_migrate import check_only_on, contents, create, images  # noqa: F401
from tests.support.killer import kill_at
from tests.support.multi_host import filled
from tests.support.qemus import wait_until_booted, watching_qemus

AGAIN = ("server", "migrate", "web", "--host", "birch", "--stop", "--timeout", "30")
DEATHS = [
    pytest.param(who, step, moment, marks=pytest.mark.full, id=f"{who}-{step}-{moment}")
    for who in ("alder", "birch")
    for step, moment in moments("migrate")
]


def request(**more):
    return MigrateRequest(host="birch", stop=True, patience=30, **more)


def move(hosts, watch=None, **more):
    """In this process, as far as it comes."""
    deployment = Deployment.load([hosts.config], watch) if watch else hosts.deployment()
    with suppress(MillpondError):
        migrate(deployment, deployment.server("web"), request(**more))


@pytest.mark.parametrize(("who", "step", "moment"), DEATHS)
def test_a_libvirtd_that_dies_anywhere_costs_nothing(images, who, step, moment):  # noqa: F811
    """It is back before somebody comes: who gives the same command again, or doctor."""
    server = create(images, "web", "raw")
    daemon = images.hosts[who]

    def watch(*where):
        if where == ("migrate", step, moment) and daemon.is_running:
            daemon.kill()

    with watching_qemus(server.id) as seen:
        wait_until_booted(images, "web")
        move(images, watch)
        assert not daemon.is_running
        daemon.start()
        if moment is StepMoment.BEGIN:
            images.run("doctor", "--repair")
        if images.where("web") == "alder" or moment is StepMoment.END:
            status = images.run(*AGAIN)
            assert (status.returncode == 0) or "already" in status.stderr, status.stderr
        images.run("doctor", "--repair")
        check_only_on(images, "web", "birch")
        assert images.json("server", "show", "web")["state"] == "running"
        wait_until_booted(images, "web", len(seen))


@pytest.mark.full
@pytest.mark.parametrize("who", ["alder", "birch"])
@pytest.mark.parametrize("step", ["copy", "verify", "domain", "remove", "start"])
def test_a_libvirtd_that_is_back_at_once_costs_nothing(images, who, step):  # noqa: F811
    server = create(images, "web", "raw")

    def watch(*where):
        if where == ("migrate", step, StepMoment.BEGIN):
            images.hosts[who].kill()
            images.hosts[who].start()

    with watching_qemus(server.id) as seen:
        wait_until_booted(images, "web")
        move(images, watch)
        images.run("doctor", "--repair")
        if images.where("web") == "alder":
            images.ok(*AGAIN)
        check_only_on(images, "web", "birch")
        wait_until_booted(images, "web", len(seen))


@pytest.mark.parametrize("loses", ["libvirtd", pytest.param("power", marks=pytest.mark.full)])
def test_a_destination_that_dies_in_the_middle_of_a_copy(images, loses):  # noqa: F811
    """The server runs again where it was, and the destination is clear for the next attempt."""
    server = create(images, "web", "raw")
    birch = images.hosts["birch"]

    def die(_carried):
        if birch.is_running:
            birch.kill() if loses == "libvirtd" else birch.lose_power()

    with watching_qemus(server.id) as seen:
        wait_until_booted(images, "web")
        move(images, progress=die)
        assert not birch.is_running
        found = images.deployment().server("web")
        assert (found.host, found.operation) == ("alder", None)
        assert [each.host for each in found.leftovers] == ["birch"]
        assert images.deployment().hosts["alder"].domains.state(server.id) == "running"
        wait_until_booted(images, "web", 2)
        birch.start()
        images.ok(*AGAIN)
        check_only_on(images, "web", "birch")
        wait_until_booted(images, "web", 3)
    assert len(seen) == 3


def test_a_destination_that_becomes_full_in_the_middle_of_a_copy(images):  # noqa: F811
    """The server runs again where it was, and nothing is left of the copy."""
    server = create(images, "web", "raw")
    pending = [filled(images, "birch")]
    with ExitStack() as full, watching_qemus(server.id) as seen:
        wait_until_booted(images, "web")

        def fill(_carried):
            if pending:
                full.enter_context(pending.pop())

        with pytest.raises(NoSpace):
            migrate(images.deployment(), server, request(progress=fill))
        wait_until_booted(images, "web", 2)
        check_only_on(images, "web", "alder")
    images.ok(*AGAIN)
    check_only_on(images, "web", "birch")
    wait_until_booted(images, "web", 3)
    assert len(seen) == 2


@pytest.mark.parametrize("clear", ["doctor", "delete"])
def test_a_source_that_loses_power_after_the_switch(images, clear):  # noqa: F811
    """The server is whole at the destination; what is left at the source never starts, and goes
    when that is back."""
    server = create(images, "web", "raw", "--no-start")
    before = contents(images, "web")
    kill_at(images, "migrate", "remove", StepMoment.BEGIN, "migrate", "web", "birch")
    alder = images.hosts["alder"]
    alder.stop()
    images.run("doctor", "--repair", "--host", "birch")
    found = images.deployment().server("web")
    assert (found.host, found.operation) == ("birch", None)
    assert [each.host for each in found.leftovers] == ["alder"]
    assert contents(images, "web") == before
    with watching_qemus(server.id) as seen:
        images.ok("server", "start", "web")
        alder.reboot()
        wait_until_booted(images, "web")
    assert len(seen) == 1
    told = " ".join(images.run("doctor", "--host", "alder").stdout.split())
    assert "a move left the domain of server 'web'" in told
    if clear == "delete":
        images.ok("server", "delete", "web")
        assert [images.volumes(each) for each in images.hosts] == [[], [], []]
        assert "web" not in images.deployment().hosts["alder"].domains.names()
        return
    images.run("doctor", "--repair")
    check_only_on(images, "web", "birch")
