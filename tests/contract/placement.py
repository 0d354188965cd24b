"""What Millpond does with a Placement; the embedded one and a service both run this suite."""

import itertools
import json
from dataclasses import replace
from uuid import uuid4

import pytest

from millpond.errors import (
    BadRequirement,
    HostsShareUuid,
    HostUnreachable,
    ImageTypeUnknown,
    NoRoom,
    NoSuchHost,
    NoValidHost,
    ProviderRenamed,
    ProviderTaken,
    UnknownTrait,
)
from millpond.model.formats import ImageFormat
from millpond.model.sizes import GiB, MiB
from millpond.scheduling import moves
from millpond.scheduling.consistency import Consistency, Difference
from millpond.scheduling.decision import State
from millpond.scheduling.inventory import ProviderTrees
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import Ratio, pool_provider
from millpond.scheduling.query import Purpose
from millpond.scheduling.traits import DISABLED, IMAGE_TYPES
from tests.support.scheduling import (
    POOL,
    Hosts,
    host,
    plan,
    pool,
    register,
    request,
    uuid_of,
)

QCOW2, RAW, VMDK = ImageFormat.QCOW2, ImageFormat.RAW, ImageFormat.VMDK


class Counting:
    """A transport that counts what goes through it."""

    def __init__(self, transport):
        self._transport = transport
        self.asked = []

    def ask(self, method, path, version, body):
        self.asked.append(f"{method} {path}")
        return self._transport.ask(method, path, version, body)

    @property
    def written(self):
        return [each for each in self.asked if not each.startswith("GET")]


class Killed(Exception):
    pass


class Dying:
    """A transport after whose last write its user is gone."""

    def __init__(self, transport, last):
        self._transport = transport
        self._left = last

    def ask(self, method, path, version, body):
        if method != "GET":
            self._left -= 1
            if self._left < 0:
                raise Killed
        return self._transport.ask(method, path, version, body)


class PlacementContract:
    @pytest.fixture
    def transport(self):
        """To a Placement that has no provider; the implementation's own tests give it."""
        raise AssertionError("the implementation's own tests give the transport")

    @pytest.fixture
    def counting(self, transport):
        return Counting(transport)

    @pytest.fixture
    def placement(self, counting):
        return Placement(counting)

    @pytest.fixture
    def trees(self, placement):
        return ProviderTrees(placement)

    def test_a_host_is_a_tree_with_its_pools(self, placement, trees):
        assert trees.publish([host("a")])
        root, child = sorted(placement.providers.find(), key=lambda each: each.name)
        assert (root.name, root.uuid, root.parent_provider_uuid) == ("a", uuid_of("a"), None)
        assert (child.name, child.parent_provider_uuid) == (f"a:{POOL}", root.uuid)
        machine = placement.providers.inventories(root.uuid)
        assert {name: each.total for name, each in machine.items()} == {
            "VCPU": 8,
            "MEMORY_MB": 16384,
        }
        assert placement.providers.inventories(child.uuid)["DISK_GB"].total == 100
        assert set(IMAGE_TYPES.values()) <= placement.providers.traits(root.uuid)

    def test_nothing_is_written_when_nothing_changed(self, counting, trees):
        trees.publish([host("a"), host("b")])
        counting.asked.clear()
        assert not trees.publish([host("a"), host("b")])
        assert counting.written == []

    def test_a_format_that_goes_is_withdrawn_and_foreign_traits_survive(self, placement, trees):
        trees.publish([host("a", QCOW2, VMDK)])
        placement.make_traits(["CUSTOM_GOLD"])
        foreign = {"CUSTOM_GOLD", "HW_CPU_X86_AVX2"}
        placement.providers.change_traits(uuid_of("a"), foreign.union)
        assert trees.publish([host("a", QCOW2)])
        assert placement.providers.traits(uuid_of("a")) == {IMAGE_TYPES["qcow2"], *foreign}

    def test_reserved_and_ratios_are_as_in_nova(self, placement, trees):
        loose = Ratio(stated=None, initial=4.0)
        trees.publish([host("a", cpu_ratio=loose, reserved_memory=512 * MiB)])
        found = placement.providers.inventories(uuid_of("a"))
        assert (found["VCPU"].allocation_ratio, found["MEMORY_MB"].reserved) == (4.0, 512)
        by_hand = {**found, "VCPU": replace(found["VCPU"], allocation_ratio=2.5)}
        placement.providers.change_inventories(uuid_of("a"), lambda _: by_hand)
        trees.publish([host("a", cpu_ratio=loose)])
        assert placement.providers.inventories(uuid_of("a"))["VCPU"].allocation_ratio == 2.5
        trees.publish([host("a", cpu_ratio=Ratio(stated=8.0, initial=4.0))])
        assert placement.providers.inventories(uuid_of("a"))["VCPU"].allocation_ratio == 8.0

    def test_a_pool_that_is_gone_is_removed_unless_it_is_in_use(self, placement, trees):
        both = (pool(), pool("other"))
        trees.publish([host("a", pools=both)])
        other = pool_provider(uuid_of("a"), "other")
        server = str(uuid4())
        placement.allocations.claim(server, {other: {"DISK_GB": 7}})
        assert trees.publish([host("a")])
        kept = placement.providers.inventories(other)["DISK_GB"]
        assert kept.reserved == kept.total
        assert placement.providers.traits(other) == set()
        assert not trees.publish([host("a")]) or placement.providers.find(uuid=other)
        placement.allocations.release(server)
        assert trees.publish([host("a")])
        assert placement.providers.find(uuid=other) == []

    def test_a_pool_below_what_is_allocated_and_one_without_a_gibibyte_are_reported(
        self, placement, trees
    ):
        trees.publish([host("a")])
        child = pool_provider(uuid_of("a"), POOL)
        placement.allocations.claim(str(uuid4()), {child: {"DISK_GB": 50}})
        trees.publish([host("a", pools=(pool(capacity=20 * GiB),))])
        assert placement.providers.inventories(child)["DISK_GB"].total == 20
        trees.publish([host("a", pools=(pool(capacity=MiB),))])
        found = placement.providers.inventories(child)["DISK_GB"]
        assert (found.total, found.reserved) == (1, 1)

    def test_what_others_nest_beneath_a_host_stays(self, placement, trees):
        trees.publish([host("a")])
        nested = str(uuid4())
        placement.providers.create(nested, "a:gpu", uuid_of("a"))
        trees.publish([host("a")])
        assert placement.providers.find(uuid=nested)

    def test_twins_are_refused_before_anything_is_written(self, placement, trees):
        with pytest.raises(HostsShareUuid, match="a and b have one UUID"):
            trees.publish([host("a"), host("b", uuid=uuid_of("a"))])
        assert placement.providers.find() == []

    def test_a_name_and_a_uuid_belong_to_one_host(self, placement, trees):
        register(placement, "nova-1")
        with pytest.raises(ProviderTaken, match="named 'nova-1'"):
            trees.publish([host("a"), host("nova-1", uuid=str(uuid4()))])
        assert [each.name for each in placement.providers.find()] == ["nova-1"]
        trees.publish([host("a")])
        with pytest.raises(ProviderRenamed, match="is that of 'a'"):
            trees.publish([host("b", uuid=uuid_of("a"))])
        trees.rename(uuid_of("a"), "b")
        assert not trees.publish([host("b", uuid=uuid_of("a"))])
        names = {each.name for each in placement.providers.find(in_tree=uuid_of("a"))}
        assert names == {"b", f"b:{POOL}"}

    def test_a_host_that_is_gone_is_disabled_and_counted_until_it_is_back(self, placement, trees):
        trees.publish([host("a"), host("b")])
        assert trees.disable(uuid_of("a"))
        assert not trees.disable(uuid_of("a"))
        assert not trees.disable(uuid_of("nowhere"))
        assert DISABLED in placement.providers.traits(uuid_of("a"))
        decision = Hosts(placement, "a", "b").decide(request(), everything=True)
        states = {each.host: each.state for each in decision.verdicts}
        assert states == {"a": State.DISABLED, "b": State.FITS}
        trees.publish([host("a")])
        assert DISABLED not in placement.providers.traits(uuid_of("a"))

    def test_a_shared_pool_counts_once(self, placement, trees):
        members = frozenset(map(uuid_of, "abc"))
        shared = pool("ceph", shared_by=members, capacity=10 * GiB)
        trees.publish([host(name, pools=(shared,)) for name in "abc"])
        assert not trees.publish([host(name, pools=(shared,)) for name in "abc"])
        (provider,) = [
            each for each in placement.providers.find() if each.name.startswith("shared:")
        ]
        assert provider.uuid == pool_provider(uuid_of("b"), "ceph", members)
        hosts = Hosts(placement, *"abc", shared={"ceph": members})
        there = plan(pools={"ceph": 5})
        for _ in range(2):
            server = hosts.create(request(), lambda _: there)
            assert placement.allocations.of(server.id).held == {
                uuid_of(server.host): {"VCPU": 1, "MEMORY_MB": 512},
                provider.uuid: {"DISK_GB": 5},
            }
        with pytest.raises(NoValidHost, match="0 of 5 DISK_GB are free for the root disk"):
            hosts.create(request(), lambda _: there)

    def test_a_shared_pool_that_is_left_goes_when_it_is_empty(self, placement, trees):
        members = frozenset(map(uuid_of, "ab"))
        shared = pool("ceph", shared_by=members)
        trees.publish([host(name, pools=(shared,)) for name in "ab"])
        provider = pool_provider(uuid_of("a"), "ceph", members)
        server = str(uuid4())
        placement.allocations.claim(server, {provider: {"DISK_GB": 1}})
        trees.publish([host("a")])
        assert placement.providers.aggregates(uuid_of("a")) == set()
        assert provider in placement.providers.aggregates(uuid_of("b"))
        trees.publish([host("b")])
        kept = placement.providers.inventories(provider)["DISK_GB"]
        assert kept.reserved == kept.total
        placement.allocations.release(server)
        trees.publish([host("b")])
        assert placement.providers.find(uuid=provider) == []

    def test_a_shared_pool_has_a_trait_for_one_host_and_not_for_another(self, placement, trees):
        members = frozenset(map(uuid_of, "ab"))
        reports = [
            host(name, format, pools=(pool("ceph", format, shared_by=members),))
            for name, format in (("a", RAW), ("b", QCOW2))
        ]
        trees.publish(reports)
        assert not trees.publish(reports)
        hosts = Hosts(placement, "a", "b", shared={"ceph": members})
        there = plan(pools={"ceph": 5})
        for format, name in (("raw", "a"), ("qcow2", "b")):
            assert hosts.decide(request(format), lambda _: there).choices == (name,)

    def test_whoever_is_killed_while_reporting_can_report_again(
        self, counting, placement, transport
    ):
        """After each of its writes."""
        members = frozenset(map(uuid_of, "ab"))
        pools = (pool(), pool("ceph", shared_by=members))
        reports = [host(name, pools=pools) for name in "ab"]
        for last in itertools.count():
            dying = Dying(transport, last)
            try:
                ProviderTrees(Placement(dying)).publish(reports)
                break
            except Killed:
                pass
        ProviderTrees(placement).publish(reports)
        assert counting.written == []
        assert len(placement.providers.find()) == 5

    def test_a_root_disk_needs_a_pool_for_its_format(self, placement, trees):
        pools = (pool("fast", QCOW2), pool("big", VMDK, takes_blank_disks=False))
        trees.publish([host("a", QCOW2, VMDK, pools=pools)])
        hosts = Hosts(placement, "a", pools=("big", "fast"))
        wanted = request("vmdk", root=50 * GiB, blank=60 * GiB)
        hosts.create(wanted, lambda _: plan(pools={"big": 50, "fast": 60}))
        assert placement.allocations.of(wanted.server).held == {
            uuid_of("a"): {"VCPU": 1, "MEMORY_MB": 512},
            pool_provider(uuid_of("a"), "big"): {"DISK_GB": 50},
            pool_provider(uuid_of("a"), "fast"): {"DISK_GB": 60},
        }

    def test_only_hosts_that_can_use_the_image_unless_the_filter_is_off(self, placement, trees):
        trees.publish([host("a", QCOW2), host("b", RAW), host("c", QCOW2, RAW)])
        on = Hosts(placement, *"abc").decide(request("raw"))
        assert set(on.choices) == {"b", "c"}
        off = Hosts(placement, *"abc", filters=False).decide(request("raw"))
        assert set(off.choices) == {"a", "b", "c"}

    def test_foreign_hosts_serve_the_same_query_and_are_never_chosen(self, placement, trees):
        trees.publish([host("a", QCOW2)])
        register(placement, "vmware", IMAGE_TYPES["vmdk"])
        register(placement, "silent")
        deciding = Hosts(placement, "a")
        offered = placement.candidates(
            deciding.scheduler.query(request("vmdk", blank=GiB)).params()
        )
        assert offered.hosts == {uuid_of("vmware")}
        decision = deciding.decide(request("vmdk"), everything=True)
        states = {each.host: each.state for each in decision.verdicts}
        assert states == {"a": State.LACKS, "silent": State.LACKS, "vmware": State.FOREIGN}
        with pytest.raises(NoValidHost) as raised:
            deciding.create(request("vmdk"))
        assert "a: it lacks COMPUTE_IMAGE_TYPE_VMDK" in str(raised.value)
        assert "silent reported none at all" in raised.value.advice

    def test_the_filter_switched_on_before_hosts_reported_is_recognised(self, placement, trees):
        trees.publish([host("a", traits=frozenset())])
        deciding = Hosts(placement, "a", "later")
        with pytest.raises(NoValidHost) as raised:
            deciding.create(request())
        assert "none has COMPUTE_IMAGE_TYPE_QCOW2" in str(raised.value)
        assert "a, later reported none at all" in raised.value.advice
        assert "filter_hosts_by_image_type_support = false" in raised.value.advice

    def test_unknown_formats_fail_closed_and_volumes_need_none(self, placement, trees):
        trees.publish([host("a", QCOW2)])
        deciding = Hosts(placement, "a")
        for format in (None, "", "docker"):
            with pytest.raises(ImageTypeUnknown):
                deciding.decide(request(format))
        volume = request(None, boots_from_volume=True, root=0)
        assert deciding.decide(volume, lambda _: plan(pools={})).choices
        loose = Hosts(placement, "a", filters=False)
        assert loose.decide(request("docker")).choices

    def test_forced_hosts_obey_too_and_so_does_rebuild(self, placement, trees):
        trees.publish([host("a", QCOW2), host("b", RAW)])
        deciding = Hosts(placement, "a", "b")
        for purpose in Purpose:
            forced = request("raw", host="a", purpose=purpose)
            with pytest.raises(NoValidHost, match="a: it lacks COMPUTE_IMAGE_TYPE_RAW"):
                deciding.create(forced)
            fits = request("raw", host="b", purpose=purpose)
            assert deciding.decide(fits).choices == ("b",)
        with pytest.raises(NoSuchHost):
            deciding.decide(request(host="nowhere"))
        left = request("raw", avoid=frozenset({"b"}), purpose=Purpose.MIGRATE)
        assert deciding.decide(left).choices == ()

    def test_a_full_host_can_rebuild_what_it_has(self, placement, trees):
        trees.publish([host("a", vcpus=1)])
        deciding = Hosts(placement, "a")
        first = request()
        deciding.create(first)
        again = replace(first, purpose=Purpose.REBUILD, host="a", image_format="raw")
        deciding.create(again, lambda _: plan(9))
        assert placement.allocations.of(first.server).held == {
            uuid_of("a"): {"VCPU": 1, "MEMORY_MB": 512},
            pool_provider(uuid_of("a"), POOL): {"DISK_GB": 9},
        }

    def test_traits_of_flavour_and_image_count(self, placement, trees):
        trees.publish([host("a"), host("b")])
        placement.make_traits(["CUSTOM_GOLD"])
        placement.providers.change_traits(uuid_of("b"), {"CUSTOM_GOLD"}.union)
        deciding = Hosts(placement, "a", "b")
        gold = request(extra_specs={"trait:CUSTOM_GOLD": "required"})
        assert deciding.decide(gold).choices == ("b",)
        lead = request(image_properties={"trait:CUSTOM_GOLD": "forbidden"})
        assert deciding.decide(lead).choices == ("a",)
        with pytest.raises(UnknownTrait, match="knows no trait CUSTOM_UNOBTAINIUM"):
            deciding.decide(request(extra_specs={"trait:CUSTOM_UNOBTAINIUM": "required"}))
        both = replace(lead, extra_specs=gold.extra_specs)
        with pytest.raises(BadRequirement, match="forbidden at the same time"):
            deciding.decide(both)

    def test_one_question_and_one_claim_in_the_good_case(self, counting, placement, trees):
        trees.publish([host("a"), host("b")])
        counting.asked.clear()
        asked = []
        deciding = Hosts(placement, "a", "b")
        deciding.create(request(), lambda name: asked.append(name) or plan())
        assert [each.partition("?")[0].split("/")[1] for each in counting.asked] == [
            "allocation_candidates",
            "allocations",
        ]
        assert sorted(asked) == ["a", "b"]

    def test_a_host_without_room_is_passed_over(self, placement, trees):
        trees.publish([host("a"), host("b")])
        deciding = Hosts(placement, "a", "b")
        assert deciding.decide(request()).choices == ("a", "b")
        somebody = str(uuid4())

        def meanwhile(_host):
            placement.allocations.claim(somebody, {uuid_of("a"): {"VCPU": 8}})
            return plan()

        assert deciding.create(request(), meanwhile).host == "b"

    def test_what_a_host_lacks_is_said_of_each(self, placement, trees):
        small = host("small", vcpus=1)
        tight = host("tight", pools=(pool(capacity=3 * GiB),))
        trees.publish([small, tight, host("full"), host("lost")])
        placement.allocations.claim(
            str(uuid4()),
            {
                uuid_of("full"): {"VCPU": 8, "MEMORY_MB": 16384},
                pool_provider(uuid_of("full"), POOL): {"DISK_GB": 100},
            },
        )
        deciding = Hosts(placement, "small", "tight", "full", "lost")

        def silent(name):
            raise HostUnreachable(f"qemu+ssh://{name}/system", "nobody answers")

        with pytest.raises(NoValidHost) as raised:
            deciding.create(request(vcpus=2), silent)
        assert raised.value.hosts == (
            "full: 0 of 2 VCPU are free",
            "lost: cannot reach libvirt at qemu+ssh://lost/system: nobody answers",
            "small: 1 of 2 VCPU are free",
            "tight: 3 of 5 DISK_GB are free for the root disk",
        )

    def test_a_claim_is_all_or_nothing_and_can_be_made_again(self, placement, trees):
        trees.publish([host("a")])
        server = str(uuid4())
        child = pool_provider(uuid_of("a"), POOL)
        with pytest.raises(NoRoom):
            placement.allocations.claim(
                server, {uuid_of("a"): {"VCPU": 1}, child: {"DISK_GB": 101}}
            )
        assert placement.allocations.of(server).held == {}
        for gibibytes in (90, 90, 95):
            placement.allocations.claim(server, {child: {"DISK_GB": gibibytes}})
        assert placement.allocations.of(server).held == {child: {"DISK_GB": 95}}
        for _ in range(2):
            placement.allocations.release(server)
        assert placement.allocations.of(server).held == {}

    def test_a_move_has_both_ends_until_it_is_over(self, placement, trees):
        trees.publish([host("a"), host("b")])
        placed = placement.allocations
        here, there = {uuid_of("a"): {"VCPU": 2}}, {uuid_of("b"): {"VCPU": 2}}
        for end, left in (("confirm", there), ("revert", here)):
            server, migration = str(uuid4()), str(uuid4())
            placed.claim(server, here)
            for _ in range(2):
                moves.begin(placed, server, migration, there)
            assert (placed.of(server).held, placed.of(migration).held) == (there, here)
            for _ in range(2):
                if end == "confirm":
                    moves.confirm(placed, migration)
                else:
                    moves.revert(placed, server, migration, here)
            assert (placed.of(server).held, placed.of(migration).held) == (left, {})
        with pytest.raises(NoRoom):
            moves.begin(placed, server, migration, {uuid_of("b"): {"VCPU": 9}})
        assert placed.of(server).held == here

    def test_a_move_within_a_shared_pool_takes_it_once(self, placement, trees):
        members = frozenset({uuid_of("a"), uuid_of("b")})
        shared = pool("ceph", shared_by=members, capacity=10 * GiB)
        trees.publish([host(name, pools=(shared,)) for name in "ab"])
        disk = {pool_provider(uuid_of("a"), "ceph", members): {"DISK_GB": 8}}
        here, there = ({uuid_of(name): {"VCPU": 1}, **disk} for name in "ab")
        placed, server, migration = placement.allocations, str(uuid4()), str(uuid4())
        placed.claim(server, here)
        moves.begin(placed, server, migration, there)
        left = {uuid_of("a"): {"VCPU": 1}}
        assert (placed.of(server).held, placed.of(migration).held) == (there, left)
        moves.revert(placed, server, migration, here)
        assert (placed.of(server).held, placed.of(migration).held) == (here, {})

    def test_what_differs_from_the_records_is_found_and_healed(self, placement, trees):
        trees.publish([host("a")])
        placed = placement.allocations
        root, child = uuid_of("a"), pool_provider(uuid_of("a"), POOL)
        whole = {root: {"VCPU": 1}, child: {"DISK_GB": 5}}
        right, less, none, orphan, dead = (str(uuid4()) for _ in range(5))
        placed.claim(right, whole)
        placed.claim(less, {root: {"VCPU": 1}})
        placed.claim(orphan, whole)
        elsewhere = register(placement, "nova-1")
        nova = str(uuid4())
        placed.claim(nova, {elsewhere: {"VCPU": 1}})
        lost = {str(uuid4()): {"DISK_GB": 1}}
        expected = {right: whole, less: whole, none: whole, dead: lost}
        consistency = Consistency(placement)
        findings = consistency.examine(expected, {root, child, str(uuid4())})
        assert {each.consumer: each.difference for each in findings} == {
            less: Difference.DIFFERENT,
            none: Difference.MISSING,
            orphan: Difference.ORPHAN,
            dead: Difference.DEAD_PROVIDER,
        }
        assert len(consistency.repair(findings)) == 3
        (left,) = consistency.examine(expected, {root, child})
        assert left.consumer == dead
        assert placed.of(nova).held == {elsewhere: {"VCPU": 1}}

    def test_what_is_not_ours_or_changed_meanwhile_is_not_healed(
        self, transport, placement, trees
    ):
        trees.publish([host("a")])
        root = uuid_of("a")
        somebody, late = str(uuid4()), str(uuid4())
        wanted = {
            "allocations": {root: {"resources": {"VCPU": 1}}},
            "consumer_generation": None,
            "project_id": "nova",
            "user_id": "nova",
        }
        body = json.dumps(wanted).encode()
        assert transport.ask("PUT", f"/allocations/{somebody}", "1.36", body).status == 204
        placement.allocations.claim(late, {root: {"VCPU": 1}})
        consistency = Consistency(placement)
        findings = consistency.examine({}, {root})
        assert {each.consumer: each.difference for each in findings} == {
            somebody: Difference.FOREIGN,
            late: Difference.ORPHAN,
        }
        placement.allocations.claim(late, {root: {"VCPU": 2}})
        assert consistency.repair(findings) == []
        assert placement.allocations.of(somebody).held == {root: {"VCPU": 1}}
        assert placement.allocations.of(late).held == {root: {"VCPU": 2}}

    def test_the_pool_that_a_host_plans_with_has_to_have_room(self, placement, trees):
        """Placement offers the host for the sake of its other pool."""
        pools = (pool("small", capacity=3 * GiB), pool("big"))
        trees.publish([host("a", pools=pools)])
        decision = Hosts(placement, "a", pools=("small", "big")).decide(
            request(), lambda _: plan(pools={"small": 5}), everything=True
        )
        (verdict,) = decision.verdicts
        assert (verdict.state, verdict.reason) == (State.NO_ROOM, "pool small has 3 of 5 GiB")
        assert decision.choices == ()
