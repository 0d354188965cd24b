"""Disks that Nova's own driver laid out, under ours: without a cloud, with a fault or a death at
every moment."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import driver_alone
from tests.support.openstack.environment import NOVA, OLDER_NOVA, reason_to_skip

pytestmark = pytest.mark.timeout(300)

ROLES = ["disk", "disk.config", "disk.eph0", "disk.swap"]
RENAMES = ["prepare", "move", "remove"]
COPIES = ["prepare", "copy", "verify", "move", "remove"]
WAYS = {"renamed": RENAMES, "copied": COPIES}

Found = dict[str, Any]


@dataclass(frozen=True)
class Pond:
    libvirtd: PrivateLibvirtd
    release: int
    """Of Nova."""


@pytest.fixture(scope="module", params=[NOVA, pytest.param(OLDER_NOVA, marks=pytest.mark.full)])
def pond(session_directory: Path, request: pytest.FixtureRequest) -> Iterator[Pond]:
    """One that is not cleared after each test."""
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    directory = session_directory / f"transition-alone-{request.param}"
    with PrivateLibvirtd(directory, name="pond") as libvirtd:
        yield Pond(libvirtd, request.param)


def run(pond: Pond, *scenarios: str, **options: object) -> Found:
    """With images_type = qcow2, as Nova had it."""
    settings = {"libvirt": {"images_type": "qcow2", **options}}
    return driver_alone.run(
        pond.libvirtd.directory,
        pond.libvirtd,
        scenarios,
        settings,
        program=driver_alone.TRANSITIONS,
        release=pond.release,
    )


@pytest.fixture(scope="module")
def renamed(pond: Pond) -> Found:
    scenarios = (
        *("moved", "interrupted", "failed", "between_two_disks", "in_the_way", "at_start"),
        *("by_command", "revert_interrupted", "not_back", "with_a_base_that_is_not_raw"),
    )
    return run(pond, *scenarios)


@pytest.fixture(scope="module")
def copied(session_directory: Path, pond: Pond) -> Iterator[Found]:
    """The pool is on another file system."""
    place = session_directory / f"transition-copies-{pond.release}"
    scenarios = ("moved", "interrupted", "failed", "revert_interrupted")
    with (
        PrivateLibvirtd(place, name="pond") as libvirtd,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="millpond-test-") as directory,
    ):
        yield run(
            Pond(libvirtd, pond.release), *scenarios, disks_pool_path=Path(directory, "disks")
        )


@pytest.fixture(scope="module")
def found(renamed: Found, request: pytest.FixtureRequest) -> dict[str, Found]:
    return {"renamed": renamed, "copied": request.getfixturevalue("copied")}


@pytest.mark.parametrize("way", WAYS)
class TestMoving:
    def test_the_disks_are_volumes_and_nothing_else_changes(
        self, found: dict[str, Found], way: str
    ) -> None:
        came = found[way]["moved"]
        assert came["same"]
        assert came["places"] == dict.fromkeys(came["places"], "pool")
        assert came["directory"] == ["console.log", "disk.info", "kernel"]
        assert came["disk.info"] == ["kernel"]
        assert (came["records"], came["notes"]) == (ROLES, {})

    def test_bases_are_templates(self, found: dict[str, Found], way: str) -> None:
        came = found[way]["moved"]
        assert {"ephemeral_1_40d1d2c", "swap_16"} < set(came["templates"])
        assert came["base"] == "0o444"

    def test_the_domain_names_volumes_and_their_bases(
        self, found: dict[str, Found], way: str
    ) -> None:
        disks = {
            role: etree.fromstring(each) for role, each in found[way]["moved"]["described"].items()
        }
        assert {each.get("type") for each in disks.values()} == {"volume"}
        formats = {role: each.find("driver").get("type") for role, each in disks.items()}
        assert formats == {**dict.fromkeys(ROLES, "qcow2"), "disk.config": "raw"}
        assert disks["disk.swap"].find("backingStore/source").get("volume") == "swap_16"

    def test_killed_anywhere_the_next_reboot_completes_it(
        self, found: dict[str, Found], way: str
    ) -> None:
        came = found[way]["interrupted"]
        assert list(came) == moments("transition", WAYS[way])
        for moment, each in came.items():
            recovered = ["pool" if " remove " in moment else "files"]
            expected = {"whole": True, "recovered": recovered, "moved": True, "in the way": []}
            assert each == {**expected, "records": True, "made": True}, moment

    def test_a_server_starts_whatever_fails(self, found: dict[str, Found], way: str) -> None:
        came = found[way]["failed"]
        assert list(came) == moments("transition", WAYS[way])
        for moment, each in came.items():
            stays = " remove " not in moment
            assert (each["refused"], each["whole"], each["moved later"]) == ("", True, True)
            assert (each["stays"], each["warned"]) == (stays, int(stays)), moment
            assert bool(each["notes"]) is not stays

    def test_killed_on_the_way_back_it_is_finished_by_the_next(
        self, found: dict[str, Found], way: str
    ) -> None:
        came = found[way]["revert_interrupted"]
        assert list(came) == moments("revert", WAYS[way][1:])
        for moment, each in came.items():
            expected = {"whole": True, "status": 0, "reverted": True}
            assert each == {**expected, "records": [], "notes": {}}, moment


def moments(verb: str, steps: list[str]) -> list[str]:
    return [f"{verb} {step} {moment}" for step in steps for moment in ("begin", "end")]


def test_killed_between_two_disks(renamed: Found) -> None:
    came = renamed["between_two_disks"]
    assert came["places"] == {**dict.fromkeys(ROLES, "files"), "disk": "pool"}
    assert came["whole"]
    assert came["recovered"] == ["files"]
    assert came["moved"]
    assert came["records"]


def test_a_base_that_is_not_raw_stays_what_it_is(renamed: Found) -> None:
    came = renamed["with_a_base_that_is_not_raw"]
    assert came["places"]["disk"] == "pool"
    base = etree.fromstring(came["described"]).find("backingStore")
    assert base.find("format").get("type") == "qcow2"
    assert came["known to libvirt"]


def test_logical_volumes_get_records_and_lose_them(pond: Pond) -> None:
    came = run(pond, "in_place", images_type="lvm", images_volume_group="vg0")["in_place"]
    ours = ["disk", "disk.config", "disk.swap"]
    assert came["concerned"]
    assert (came["move noted"], came["move recovered"]) == ([], [])
    assert (came["remove noted"], came["remove recovered"]) == (ours, ours)
    assert not came["concerned later"]
    assert came["record"] == f"{came['pool']}/{came['id']}_disk"
    assert came["places"] == "pool"
    assert came["revert"] == [0, 3, ""]
    assert came["records"] == []
    assert came["config drive"]
    assert came["found again"]


@pytest.mark.parametrize(
    ("what", "words"),
    {
        "link": "disk.swap is a symbolic link",
        "hard link": "it has 2 names (hard links)",
        "no base": "disk: its base ",
        "twice": "disk: it is in two places",
        "unknown format": "disk: its format is on record as 'vmdk'",
        "damaged": "disk.info cannot be used",
        "rescue": "disk.rescue: it is of a rescue that was not ended",
        "resize": "its resize is neither confirmed nor reverted",
    }.items(),
)
def test_what_cannot_be_moved_stays_and_starts(renamed: Found, what: str, words: str) -> None:
    came = renamed["in_the_way"][what]
    assert came["refused"] == ""
    assert came["stays"]
    assert (came["records"], came["notes"]) == ([], {})
    assert came["warned"].count("stays in Nova's layout") == 1
    assert words in came["warned"]
    assert words in " ".join(came["status"])


class TestStart:
    def test_such_servers_are_named(self, renamed: Found) -> None:
        came = renamed["at_start"]
        old, new = came["ids"]
        assert came["refused"] == ""
        assert "driver made: 1. Each" in came["log"]
        assert f"old ({old})" in came["log"]
        assert new not in came["log"]
        assert "config only" not in came["log"]

    def test_libvirt_storage_is_refused(self, pond: Pond) -> None:
        came = run(pond, "at_start", images_type="libvirt-storage")["at_start"]
        old, new = came["ids"]
        assert came["refused"].startswith("BadConfiguration: [libvirt] images_type: ")
        assert f"old ({old})" in came["refused"]
        assert new not in came["refused"]


class TestCommand:
    def test_status_names_the_servers_of_this_host(self, renamed: Found) -> None:
        status, told = renamed["by_command"]["status"]
        assert status == 0
        assert [each["name"] for each in told] == ["off", "busy", "active"]
        assert [each["role"] for each in told[0]["disks"]] == ROLES

    @pytest.mark.parametrize("how", ["dry run", "run"])
    def test_only_what_is_off_and_idle_is_moved(self, renamed: Found, how: str) -> None:
        status, told = renamed["by_command"][how]
        assert status != 0
        errors = {each["name"]: each["error"] for each in told}
        assert errors["off"] == ""
        assert "another operation is under way" in errors["busy"]
        assert "it is active, and not off" in errors["active"]
        assert renamed["by_command"]["untouched"] == [True, True, True]

    def test_it_moves(self, renamed: Found) -> None:
        came = renamed["by_command"]
        assert came["same"]
        assert came["status after"] == ["busy", "active"]

    def test_servers_of_other_hosts_are_not_known(self, renamed: Found) -> None:
        status, told = renamed["by_command"]["run elsewhere"]
        assert status == 3
        assert "there is no server" in told
        assert renamed["by_command"]["neither"][0] == 2

    def test_revert_puts_the_disks_where_nova_finds_them(self, renamed: Found) -> None:
        came = renamed["by_command"]
        assert (came["revert"][0], came["revert"][1][0]["disks"]) == (0, 4)
        assert came["reverted"]
        assert came["base"] == "0o644", "Nova's Flat copies a base with its mode"
        assert came["places"] == dict.fromkeys(came["places"], "files")
        assert came["disk.info"] == {
            f"{came['directory']}/{name}": format
            for name, format in {
                **dict.fromkeys(("disk", "disk.eph0", "disk.swap"), "qcow2"),
                **dict.fromkeys(("disk.config", "kernel"), "raw"),
            }.items()
        }
        assert came["records"] == []
        assert (came["again"][0], came["again"][1][0]["disks"]) == (0, 0)

    @pytest.mark.parametrize(
        ("what", "words"),
        {
            "raw": "Nova takes it for qcow2, and it is raw",
            "lvm": "Nova does not look for it in pool nova-disks-pool-lvm",
            "base": "Nova does not know such a disk, or what it is backed by",
            "base pool": "of pool elsewhere, which Nova does not know",
            "unfinished": "disk was begun and never finished",
        }.items(),
    )
    def test_what_nova_would_not_find_is_refused(
        self, renamed: Found, what: str, words: str
    ) -> None:
        came = renamed["not_back"][what]
        assert came["status"] == 5
        assert words in came["error"]
        assert came["same"]
        assert came["records"] == ROLES

    def test_with_images_type_raw_both_formats_go_back(self, pond: Pond) -> None:
        """Nova reads disk.info then."""
        came = run(pond, "raw_goes_back", "by_command", images_type="raw")
        assert came["raw_goes_back"] == {"status": 0, "disk.info": "raw", "records": []}
        assert came["by_command"]["reverted"]

    def test_revert_must_know_what_nova_will_run_with(self, pond: Pond) -> None:
        came = run(pond, "reverted_without_knowing", images_type="libvirt-storage")
        status, told = came["reverted_without_knowing"]
        assert status == 2
        assert "does not know libvirt-storage" in told
