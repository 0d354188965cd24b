"""A real Placement as a service, on MariaDB, and next to a real Keystone."""

import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from millpond.errors import PlacementFailed, PlacementRefused, PlacementUnreachable
from millpond.scheduling.external import ExternalPlacement
from millpond.scheduling.inventory import ProviderTrees
from millpond.scheduling.placement import Placement
from tests.contract.placement import PlacementContract
from tests.support.guests import MicroGuest
from tests.support.multi_host import MultiHost
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.placement import Placement as Service
from tests.support.placement_clients import claim_all, claim_in_processes
from tests.support.scheduling import host, register, uuid_of
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class TestExternalPlacement(PlacementContract):
    @pytest.fixture
    def transport(self, placement_service: Service, tmp_path: Path) -> Iterator[ExternalPlacement]:
        transport = ExternalPlacement(placement_service.access(), tmp_path)
        yield transport
        empty(Placement(transport))

    @pytest.mark.timeout(300)
    def test_many_at_once_never_exceed_what_there_is(self, placement, placement_service, tmp_path):
        hosts = [host("a", vcpus=7), host("b", vcpus=6)]
        ProviderTrees(placement).publish(hosts)
        came = claim_all(placement, 50, 50, ["a", "b"])
        assert (came.count("a"), came.count("b")) == (7, 6)
        assert all("VCPU are free" in each for each in came if each not in ("a", "b"))
        empty(placement)
        ProviderTrees(placement).publish(hosts)
        came = claim_in_processes(f"{tmp_path},{placement_service.url}", 16, 1, ["a", "b"])
        assert (came.count("a"), came.count("b"), len(came)) == (7, 6, 16)

    @pytest.mark.timeout(300)
    def test_a_service_that_is_killed_in_the_middle_goes_on_where_it_was(
        self, placement, placement_service
    ):
        ProviderTrees(placement).publish([host("a", vcpus=1000, memory=2**42)])
        wanted = {uuid_of("a"): {"VCPU": 1, "MEMORY_MB": 64}}
        servers = [str(uuid4()) for _ in range(200)]

        def claim(server):
            try:
                placement.allocations.claim(server, wanted)
            except (PlacementUnreachable, PlacementFailed):
                return False
            return True

        def kill_amid():
            wait_for(lambda: len(placement.providers.consumers(uuid_of("a"))) > 5, 60)
            os.kill(placement_service.pid, signal.SIGKILL)

        with ThreadPoolExecutor(9) as threads:
            killing = threads.submit(kill_amid)
            claimed = list(threads.map(claim, servers))
            killing.result()
        assert not all(claimed)
        placement_service.start()
        held = placement.providers.consumers(uuid_of("a"))
        assert {each for each, done in zip(servers, claimed, strict=True) if done} <= set(held)
        assert all(map(claim, servers))
        held = placement.providers.consumers(uuid_of("a"))
        assert held == {each: wanted[uuid_of("a")] for each in servers}


def empty(placement: Placement) -> None:
    everything = placement.providers.find()
    for provider in everything:
        for consumer in placement.providers.consumers(provider.uuid):
            placement.allocations.release(consumer)
    for provider in sorted(everything, key=lambda each: each.parent_provider_uuid is None):
        placement.providers.remove(provider.uuid)


@pytest.mark.timeout(300)
def test_with_a_keystone_the_right_password_is_needed(services_directory: Path, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    with (
        Keystone(services_directory / "keystone") as keystone,
        Service(services_directory / "placement-with-keystone", keystone=keystone) as service,
    ):
        keystone.enter({"placement": service.url})
        stated = {str(name): str(value) for name, value in keystone.credentials().items()}
        region, kind = stated.pop("region_name"), stated.pop("auth_type")

        def transport(**changes: str) -> Placement:
            access = service.access(
                auth_type=kind, auth=stated | changes, region_name=region, endpoint_override=""
            )
            return Placement(ExternalPlacement(access, tmp_path))

        assert ProviderTrees(transport()).publish([host("a")])
        with pytest.raises(PlacementRefused, match="401"):
            transport(password="wrong").providers.find()
        somebody = ProviderTrees(transport(username="angler", project_name="angler"))
        with pytest.raises(PlacementRefused, match="403"):
            somebody.publish([host("b")])
        service.stop()
        with pytest.raises(PlacementUnreachable):
            transport().providers.find()
        keystone.stop()
        with pytest.raises(PlacementUnreachable):
            transport().providers.find()
    assert "gAAAA" not in caplog.text


def test_something_else_at_its_address_is_said(services_directory: Path, tmp_path):
    with Keystone(services_directory / "keystone-in-its-place") as keystone:
        access = Service(tmp_path).access(endpoint_override=keystone.url)
        with pytest.raises(PlacementFailed):
            Placement(ExternalPlacement(access, tmp_path)).providers.find()


def test_servers_go_by_the_placement_of_a_cloud(
    multi_host: MultiHost, placement_service: Service, micro_guest: MicroGuest
) -> None:
    """And what is not ours there is left alone."""
    outside = Placement(ExternalPlacement(placement_service.access(), multi_host.directory))
    nova = register(outside, "nova-host", "COMPUTE_IMAGE_TYPE_RAW")
    section = f"[placement]\nauth_type = none\nendpoint_override = {placement_service.url}"
    multi_host.configure(rest=section)
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    multi_host.ok("server", "create", "web", "--image", "raw", "--memory", "16M", "--no-start")
    web = multi_host.deployment().server("web")
    assert web.id in outside.providers.consumers(outside.providers.find(name=web.host)[0].uuid)
    assert outside.providers.consumers(nova) == {}
    assert not (multi_host.state / "placement" / "placement.sqlite").exists()
    assert multi_host.ok("doctor", "--placement").endswith("no problem\n")
    multi_host.ok("server", "delete", "web")
    assert outside.allocations.of(web.id).held == {}
    empty(outside)
