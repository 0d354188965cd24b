"""Placement in this process."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from millpond.errors import PlacementFailed, PlacementProblem, StateNotWritable
from millpond.scheduling.api import WRITING, Answer
from millpond.scheduling.embedded import EmbeddedPlacement
from millpond.scheduling.inventory import ProviderTrees
from millpond.scheduling.placement import Placement
from millpond.system.locks import Locks
from tests.contract.placement import PlacementContract
from tests.support.scheduling import Hosts, host, request, uuid_of

HOSTS = [host("a", vcpus=7), host("b", vcpus=6)]


class Pretending:
    """A transport to a Placement that says it knows these versions of its API."""

    def __init__(self, transport, oldest, newest):
        self._transport = transport
        self._offer = f'{{"versions": [{{"min_version": "{oldest}", "max_version": "{newest}"}}]}}'
        self.versions = set()

    def ask(self, method, path, version, body):
        if path == "/":
            return Answer(status=200, body=self._offer.encode())
        self.versions.add(version)
        return self._transport.ask(method, path, version, body)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "placement"


@pytest.fixture
def placement(directory):
    return Placement(EmbeddedPlacement(directory))


class TestEmbeddedPlacement(PlacementContract):
    @pytest.fixture
    def transport(self, directory):
        return EmbeddedPlacement(directory)


@pytest.mark.full
class TestPlacementOfTrain(PlacementContract):
    """The oldest that we ask, as far as its API goes."""

    @pytest.fixture
    def transport(self, directory):
        transport = Pretending(EmbeddedPlacement(directory), "1.0", "1.36")
        yield transport
        assert transport.versions == {"1.36"}


def test_one_that_is_too_old_or_too_new_is_refused(directory):
    old = Placement(Pretending(EmbeddedPlacement(directory), "1.0", "1.30"))
    with pytest.raises(PlacementProblem, match=r"up to 1\.30 only"):
        old.providers.find()
    new = Placement(Pretending(EmbeddedPlacement(directory), "1.40", "1.50"))
    with pytest.raises(PlacementFailed, match="too old for it"):
        new.providers.find()


def test_directories_do_not_see_each_other(tmp_path):
    """Several at once in one process, each with threads."""
    all_of_them = [Placement(EmbeddedPlacement(tmp_path / name)) for name in "xyz"]

    def use(number):
        placement = all_of_them[number % 3]
        name = f"host-{number}"
        ProviderTrees(placement).publish([host(name)])
        Hosts(placement, name).create(request(host=name))

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(use, range(18)))
    for number, placement in enumerate(all_of_them):
        roots = [each for each in placement.providers.find() if not each.parent_provider_uuid]
        assert {each.name for each in roots} == {f"host-{n}" for n in range(number, 18, 3)}


def test_a_consumer_that_a_killed_process_left_can_still_claim(directory, placement):
    """Placement makes it in a transaction of its own before it looks for room."""
    ProviderTrees(placement).publish(HOSTS)
    placement.allocations.claim(str(uuid4()), {uuid_of("a"): {"VCPU": 1}})
    server = str(uuid4())
    with sqlite3.connect(directory / "placement.sqlite") as database:
        database.execute(
            "INSERT INTO consumers (uuid, project_id, user_id, generation, consumer_type_id)"
            " SELECT ?, project_id, user_id, 0, consumer_type_id FROM consumers LIMIT 1",
            [server],
        )
    wanted = {uuid_of("a"): {"VCPU": 2}}
    placement.allocations.claim(server, wanted)
    assert placement.allocations.of(server).held == wanted


def test_a_damaged_database_and_a_directory_that_is_none_are_said(tmp_path):
    (tmp_path / "placement.sqlite").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(PlacementFailed, match="is damaged"):
        Placement(EmbeddedPlacement(tmp_path)).providers.find()
    (tmp_path / "file").touch()
    with pytest.raises(StateNotWritable):
        Placement(EmbeddedPlacement(tmp_path / "file")).providers.find()


def test_who_writes_waits_for_the_lock_and_who_reads_does_not(directory, placement):
    placement.providers.find()  # it is loaded
    with ThreadPoolExecutor(1) as pool:
        with Locks(directory / "locks").hold(WRITING):
            writing = pool.submit(placement.providers.create, uuid_of("a"), "a")
            assert placement.providers.find() == []
            with pytest.raises(TimeoutError):
                writing.result(timeout=0.5)
        writing.result(timeout=60)
    assert len(placement.providers.find()) == 1
