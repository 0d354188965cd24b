"""Bases that Nova's own driver has cached: they go when nothing needs them, by Nova's rules."""

import os
import stat
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from millpond.images.intake import Intake
from millpond.legacy.bases import NovaBases
from millpond.model.formats import DiskFormat
from millpond.records.journal import StepMoment
from millpond.templates.cache_manager import UsageLeases, Uses
from millpond.templates.store import LocalTemplates, TemplateStore
from millpond.templates.verdicts import Rules
from tests.support.image_files import raw_file
from tests.support.preparing import DirectoryPool, handler, kill_at

SHA1 = "0123456789abcdef0123456789abcdef01234567"
BASES = [SHA1, f"{SHA1}_20", f"{SHA1}_sm", "ephemeral_1_40d1d2c", "swap_512"]
DAY = timedelta(days=1)
RULES = Rules(removes_unused=True, minimum_age=DAY, max_bytes=0)


@pytest.fixture
def store(tmp_path: Path) -> TemplateStore:
    store = LocalTemplates(DirectoryPool(tmp_path / "_base"))
    for name in (*BASES, "notes.txt", f"{SHA1}.part", f"{SHA1}.qcow2"):
        put(store, name)
    (store.cache / ("f" * 40)).symlink_to(store.cache / "notes.txt")
    return store


def put(store: TemplateStore, name: str, age: timedelta = 2 * DAY) -> None:
    path = store.cache / name
    path.write_bytes(b"made by Nova")
    then = time.time() - age.total_seconds()
    os.utime(path, (then, then))


def prune(
    store: TemplateStore,
    by_template: Mapping[str, tuple[str, ...]] | None = None,
    unreadable: tuple[str, ...] = (),
    needed: Collection[str] = (),
    rules: Rules = RULES,
) -> list[str]:
    uses = Uses(by_template=by_template or {}, unreadable=unreadable)
    leases = UsageLeases(store, lambda: "here", 30 * DAY)
    return NovaBases(store).prune(rules, needed, lambda: uses, leases.hosts_using)


def test_what_is_old_and_nothing_needs_goes_and_nothing_else(store: TemplateStore) -> None:
    assert prune(store) == BASES
    assert store.unknown() == [f"{SHA1}.part", f"{SHA1}.qcow2", "f" * 40, "notes.txt"]


def test_what_something_uses_stays(store: TemplateStore) -> None:
    UsageLeases(store, lambda: "there", 30 * DAY).note("swap_512")
    used = {SHA1: ("disk /instances/a/disk",), f"{SHA1}_20": ("foreign",)}
    gone = prune(store, used)
    assert gone == [f"{SHA1}_sm", "ephemeral_1_40d1d2c"]


def test_all_stay_while_a_disk_cannot_be_read(store: TemplateStore) -> None:
    assert prune(store, unreadable=("perhaps disk x",)) == []


def test_what_an_instance_was_made_from_stays_as_nova_does_it(store: TemplateStore) -> None:
    assert prune(store, needed={SHA1}) == ["ephemeral_1_40d1d2c", "swap_512"]


def test_what_was_touched_lately_stays(store: TemplateStore) -> None:
    put(store, SHA1, age=timedelta(hours=23))
    assert SHA1 not in prune(store)


def test_none_goes_where_the_operator_wants_them_kept(store: TemplateStore) -> None:
    kept = Rules(removes_unused=False, minimum_age=DAY, max_bytes=0)
    assert prune(store, rules=kept) == []


def test_what_somebody_works_on_stays(store: TemplateStore) -> None:
    with store.lock(SHA1):
        assert SHA1 not in prune(store)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not yet recorded"])
def test_templates_of_ours_are_not_novas(
    store: TemplateStore, tmp_path: Path, recorded: bool
) -> None:
    image = Intake(tmp_path / "images").add(raw_file(tmp_path), name="guest")
    if recorded:
        name = handler(store, tmp_path).fetch_image(image, DiskFormat.RAW).volume
    else:
        kill_at("prepare", "record", StepMoment.BEGIN, store, image, tmp_path)
        (name,) = store.unfinished()
    os.utime(store.cache / name, (0, 0))
    assert name not in prune(store)
    assert store.has(name)


def test_given_back_they_can_be_copied_and_protected_again_only_templates_cannot(
    store: TemplateStore, tmp_path: Path
) -> None:
    image = Intake(tmp_path / "images").add(raw_file(tmp_path), name="guest")
    name = handler(store, tmp_path).fetch_image(image, DiskFormat.RAW).volume
    bases = NovaBases(store)
    bases.unprotect()
    assert {mode(store, each) for each in (name, *BASES)} == {0o644}
    bases.protect_all()
    assert mode(store, name) == 0o444
    assert {mode(store, each) for each in BASES} == {0o644}


def mode(store: TemplateStore, name: str) -> int:
    return stat.S_IMODE((store.cache / name).stat().st_mode)
