"""Many servers at once, and others who look meanwhile."""

import statistics
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from millpond.model.formats import DiskFormat
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.servers import delete
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from tests.support.glance_pages import (
    FILE,
    ID,
    offer_content,
    offer_description,
    offer_versions,
)
from tests.support.loopback import ADDRESS
from tests.support.millpond import converted
from tests.support.timing import floor, timed
from tests.support.web import serving

AT_A_TIME = 16


class Looker:
    """Another process that lists servers again and again, and how long each answer took; in turns
    with one that does nothing."""

    def __init__(self, millpond):
        self._millpond = millpond
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.answers = []
        self.floors = []

    def _look(self):
        while not self._stop.is_set():
            self.floors.append(floor())
            self.answers.append(timed(lambda: self._millpond.ok("server", "list")))
            self._stop.wait(0.5)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


@pytest.fixture
def guest(millpond, micro_guest, workdir):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "guest")
    millpond.ok("image", "add", micro_guest.path, "--name", "raw")
    return "guest"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.full)])
def test_servers_come_and_go_sixteen_at_a_time(millpond, guest, connection, count):
    host = millpond.host()
    domains, flavor = host.domains, Flavor(memory=16 * MiB)
    images = [host.shared.catalogue.get(name) for name in ("guest", "raw")]

    def come_and_go(number):
        request = ServerRequest(name=f"s{number}", image=images[number % 2], flavor=flavor)
        server = create_server(host, request)
        assert domains.state(server.id) == "running"
        delete.delete(host, server)

    with Looker(millpond) as looker, ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(come_and_go, range(count)))
    print("seconds for an answer:", [round(each, 2) for each in sorted(looker.answers)])
    assert len(looker.answers) > 10
    assert statistics.median(looker.answers) < 4 * statistics.median(looker.floors)

    assert connection.listAllDomains() == []
    assert connection.storagePoolLookupByName("nova-disks-pool").listVolumes() == []
    assert list(millpond.disks.iterdir()) == []
    assert millpond.json("server", "list") == []
    assert list((millpond.state / "servers").iterdir()) == []
    assert list((millpond.state / "locks").iterdir()) == []
    left = {each.name for each in (millpond.state / "instances").iterdir()}
    assert left == {"_base", "_base.millpond", "disks"}


def test_processes_that_want_one_name_make_one_server(millpond, guest):
    words = ("server", "create", "same", "--image", guest, "--memory", "16M", "--no-start")
    with ThreadPoolExecutor(6) as pool:
        codes = [done.returncode for done in pool.map(lambda _: millpond.run(*words), range(6))]
    assert sorted(codes) == [0, 4, 4, 4, 4, 4]
    (made,) = millpond.json("server", "list")
    assert made["name"] == "same"
    assert len(list(millpond.disks.iterdir())) == len(made["disks"])


def test_a_template_is_prepared_once_however_many_ask(millpond, micro_guest, workdir):
    """B41: between threads and between processes."""
    millpond.ok("image", "add", converted(micro_guest, "vmdk", workdir), "--name", "vmdk")
    words = ("-v", "server", "create", "--image", "vmdk", "--memory", "16M", "--no-start")
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda n: millpond.run(*words, f"p{n}"), range(6)))
    assert [each.returncode for each in done] == [0] * 6
    prepared = [each for each in done if "prepared template" in each.stderr]
    assert len(prepared) == 1
    assert len(list(millpond.bases.iterdir())) == 1


def test_threads_that_want_one_template_get_the_same(millpond, micro_guest, workdir):
    millpond.ok("image", "add", converted(micro_guest, "vmdk", workdir), "--name", "vmdk")
    host = millpond.host()
    image = host.shared.catalogue.get("vmdk")
    handler = host.handlers.chosen
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: handler.fetch_image(image, DiskFormat.RAW), range(16)))
    assert len(set(found)) == 1


@pytest.fixture
def glance(millpond, micro_guest, monkeypatch):
    """One image, uncached, at a server that counts what it sends."""
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    content = micro_guest.path.read_bytes()
    with serving() as web:
        offer_versions(web)
        offer_description(web, content)
        offer_content(web, content)
        millpond.configure(
            f"[glance]\nauth_type = none\nendpoint_override = {web.url('')}",
            default="image_source = glance",
        )
        yield web


def by_processes(millpond, count):
    words = ("server", "create", "--image", ID, "--memory", "16M")
    with ThreadPoolExecutor(count) as pool:
        done = list(pool.map(lambda n: millpond.run(*words, f"s{n}", seconds=500), range(count)))
    assert [each.stderr for each in done] == [""] * count


def by_threads(millpond, count):
    host = millpond.host()
    image, flavor = host.images.get(ID), Flavor(memory=16 * MiB)

    def create(number):
        create_server(host, ServerRequest(name=f"s{number}", image=image, flavor=flavor))

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(create, range(count)))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("create", "count"),
    [
        (by_threads, 32),
        (by_processes, 4),  # each loads all of Millpond, and half a minute of all cores goes
        pytest.param(by_processes, 32, marks=pytest.mark.full),
    ],
)
def test_many_servers_of_an_uncached_image_take_one_download(
    millpond, glance, micro_guest, create, count
):
    create(millpond, count)
    servers = millpond.json("server", "list")
    assert len(servers) == count
    for each in servers:
        assert micro_guest.marker in millpond.wait_for_console(each["id"], "READY")
    assert len([each for each in glance.seen if each.path == FILE]) == 1
    assert glance.sent[FILE] == micro_guest.path.stat().st_size
    assert len(list(millpond.bases.iterdir())) == 1
