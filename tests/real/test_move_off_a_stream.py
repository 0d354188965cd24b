"""A server on a stream moves to another host, which has the whole template, or fetches it."""

from dataclasses import replace

import libvirt
import pytest

from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.errors import MillpondError
from millpond.libvirt.migration import LiveOptions
from millpond.servers import power
from millpond.servers.migrate import MigrateRequest, migrate
from tests.support.guest_ticks import disks
from tests.support.reader import Reader, build_reader
from tests.support.streamed import Streamed
from tests.support.waiting import wait_for

MIB = 1024 * 1024


class OnAlder(Streamed):
    @property
    def path(self):
        return self.millpond.directory / "alder/bases" / self.template.volume

    def deployment(self):
        """As alder is while the template arrives there."""
        found = self.millpond.deployment()
        alder = found.hosts["alder"]
        stream = replace(self.template, link=self._link).linked_layer

        def storage(backend):
            return LibvirtStorage(backend, alder.pools, find_linked=lambda _: stream)

        alder.disks = replace(alder.disks, storage=storage)
        return found

    def leave(self):
        self.path.rename(self.away)
        store = self.millpond.deployment().hosts["alder"].template_store
        store.pool.refresh()
        store.put(replace(self.template, link=self._link))


@pytest.fixture
def stream(multi_host, workdir):
    own = "images_type = qcow2\nimages_type_mapping = raw:qcow2, qcow2:qcow2"
    instances = f"instances_path = {multi_host.directory}/instances"
    multi_host.configure(multi_host.place_locally(own), default=instances)
    path = build_reader(workdir / "reader.raw", 8 * MIB)
    multi_host.ok("image", "add", path, "--name", "guest")
    words = ("--memory", "32M", "--network", "none", "--host", "alder", "--no-start")
    multi_host.ok("server", "create", "web", "--image", "guest", *words)
    store = multi_host.deployment().hosts["alder"].template_store
    directory = multi_host.directory / "streams"
    directory.mkdir()
    made = OnAlder(
        millpond=multi_host,
        template=next(iter(store.all())),
        away=directory / "away",
        socket=directory / "stream.sock",
    )
    made.leave()
    made.serve()
    yield made
    made.end()


@pytest.fixture
def web(stream):
    host, server = stream.deployment().find("web")
    power.start(host, server)
    found = Reader(millpond=stream.millpond, id=server.id)
    wait_for(lambda: "..." in said(stream, "alder"), 30)
    disk, *_ = disks(domain(stream, "alder"))
    assert 'protocol="nbd"' in disk
    assert 'rerror_policy="stop"' in disk
    return found


def domain(stream, host):
    connection = stream.millpond.deployment().hosts[host].libvirtd
    with connection.calling("looking") as found:
        return found.lookupByName("web")


def said(stream, host):
    found = stream.millpond.deployment()
    server = found.server("web")
    return found.hosts[host].consoles.read(server.id, "web").decode(errors="replace")


def check_moved(stream):
    """It reads its own host's template, and nothing of the other one."""
    stream.end()
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        disk, *_ = disks(domain(stream, "birch"), flags)
        assert "nbd" not in disk
        assert stream.template.volume in disk
    passes = said(stream, "birch").count("P")
    wait_for(lambda: said(stream, "birch").count("P") >= passes + 2, 90)
    found = said(stream, "birch").partition("R")[2] or said(stream, "birch")
    assert not set(found) & {"E", "X"}, found
    assert stream.millpond.where("web") == "birch"
    assert list((stream.millpond.directory / "alder/disks").iterdir()) == []


@pytest.mark.full
def test_it_moves_while_it_runs(stream, web):
    deployment = stream.deployment()
    request = MigrateRequest(host="birch", live=LiveOptions())
    migrate(deployment, deployment.server("web"), request)
    check_moved(stream)


@pytest.mark.full
def test_it_moves_while_it_is_off(stream, web):
    deployment = stream.deployment()
    host, server = deployment.find("web")
    power.stop(host, server, patience=0)
    migrate(deployment, deployment.server("web"), MigrateRequest(host="birch"))
    stream.end()
    stream.millpond.ok("server", "start", "web")
    assert stream.millpond.where("web") == "birch"
    disk, *_ = disks(domain(stream, "birch"))
    assert "nbd" not in disk
    wait_for(lambda: "R" in said(stream, "birch"), 30)


@pytest.mark.full
def test_one_that_waits_does_not_move_while_it_runs(stream, web):
    """It goes on where it was."""
    stream.end()
    wait_for(lambda: domain(stream, "alder").state()[0] == libvirt.VIR_DOMAIN_PAUSED, 30)
    deployment = stream.deployment()
    with pytest.raises(MillpondError, match="paused"):
        migrate(
            deployment,
            deployment.server("web"),
            MigrateRequest(host="birch", live=LiveOptions()),
        )
    assert list((stream.millpond.directory / "birch/disks").iterdir()) == []
    stream.serve()
    power.start(*stream.deployment().find("web"))
    before = len(said(stream, "alder"))
    wait_for(lambda: len(said(stream, "alder")) > before, 30)
