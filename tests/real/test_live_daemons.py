"""The libvirtd of either host dies at any step of a live migration: whoever comes then finishes or
undoes it, and the guest has noticed nothing."""

from contextlib import suppress

import pytest

from millpond.errors import MillpondError
from millpond.hosts.deployment import Deployment
from millpond.libvirt.migration import LiveOptions
from millpond.records.journal import StepMoment
from millpond.servers.migrate import MigrateRequest, migrate
from tests.real.test_kill import moments
from tests.real.test_live_migrate import check_only_on, create, images  # noqa: F401
from tests.support.qemus import never_two_run

DEATHS = [
    pytest.param(who, step, moment, id=f"{who}-{step}-{moment}")
    for who in ("alder", "birch")
    for step, moment in moments("live migrate")
]


@pytest.mark.full
@pytest.mark.parametrize(("who", "step", "moment"), DEATHS)
def test_a_libvirtd_that_dies_anywhere_costs_nothing(images, who, step, moment):  # noqa: F811
    """It is back before somebody comes: doctor, or who gives the same command again."""
    guest = create(images, "web", "qcow2", "--config-drive")
    daemon = images.hosts[who]

    def watch(*where):
        if where == ("live migrate", step, moment) and daemon.is_running:
            daemon.kill()

    deployment = Deployment.load([images.config], watch)
    request = MigrateRequest(host="birch", live=LiveOptions())
    with never_two_run(images, "web"):
        with suppress(MillpondError):
            migrate(deployment, deployment.server("web"), request)
        assert not daemon.is_running
        daemon.start()
        images.run("doctor", "--repair")
        if moment is StepMoment.END and images.where("web") == "alder":
            images.ok("server", "migrate", "web", "--live", "--host", "birch")
        host = images.where("web")
        check_only_on(images, "web", host)
    guest.check_gapless(*("alder", "birch") if host == "birch" else ("alder",))
