"""What every store of templates promises; each implementation runs this with its own ``store``."""

from pathlib import Path

import pytest

from millpond.errors import VolumeExists, VolumeNotFound
from millpond.model.formats import DiskFormat
from millpond.model.names import ImageId
from millpond.model.sizes import MiB
from millpond.model.template import Prepared, Template
from millpond.system import files
from millpond.templates.store import Leftover, TemplateStore

CONTENT = b"a template" + bytes(300_000) + b"ends here"


def part(directory: Path, content: bytes = CONTENT) -> Path:
    path = directory / "part"
    path.write_bytes(content)
    return path


def forget(_proof: str) -> None:
    """Nobody wants to know it again."""


def template(name: str, image: str = "image") -> Template:
    return Template(
        image=ImageId(image),
        image_digest="",
        pool="base",
        volume=name,
        format=DiskFormat.RAW,
        virtual_size=len(CONTENT),
        size=len(CONTENT),
        prepared=Prepared.COPY,
        digest=None,
        created="2026-01-02T03:04:05+00:00",
    )


class TemplateStoreContract:
    @pytest.fixture
    def store(self) -> TemplateStore:
        raise AssertionError("the implementation's own tests give the store")

    def damage(self, name: str) -> None:
        """The record of a template."""
        raise AssertionError("the implementation's own tests know how")

    # Bytes

    def test_what_enters_is_there_to_the_byte(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        assert (store.has("a"), store.unknown()) == (True, ["a"])
        assert b"".join(store.read("a")) == CONTENT
        assert store.space("a") > 0

    def test_what_is_not_there_is_not_found_and_takes_no_space(self, store):
        assert (store.has("a"), store.unknown(), store.space("a")) == (False, [], 0)
        with pytest.raises(VolumeNotFound):
            b"".join(store.read("a"))
        store.remove("a")

    def test_what_is_there_already_stays(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        proofs = []
        with pytest.raises(VolumeExists):
            store.enter(part(tmp_path, b"other"), "a", Leftover.NOTHING, proofs.append)
        assert b"".join(store.read("a")) == CONTENT
        assert store.find_leftover("a", proofs[-1]) is Leftover.NOTHING

    def test_what_has_entered_is_known_by_its_proof_alone(self, store, tmp_path):
        proofs = []
        store.enter(part(tmp_path), "a", Leftover.NOTHING, proofs.append)
        assert store.find_leftover("a", proofs[-1]) is Leftover.WHOLE
        assert store.proof("a") == proofs[-1]
        assert store.find_leftover("b", proofs[-1]) is Leftover.NOTHING
        store.remove("a")
        assert store.find_leftover("a", proofs[-1]) is Leftover.NOTHING
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        assert store.find_leftover("a", proofs[-1]) is Leftover.NOTHING

    def test_a_copy_is_kept_when_it_goes(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        kept = store.quarantine("a")
        store.remove("a")
        assert not store.has("a")
        assert kept.read_bytes() == CONTENT

    def test_a_trusted_image_is_taken_and_stays_as_it_is(self, store, tmp_path):
        image = tmp_path / "image"
        image.write_bytes(CONTENT)
        files.link_or_copy(image, tmp_path / "taken")
        store.enter(tmp_path / "taken", "a", Leftover.NOTHING, forget)
        assert b"".join(store.read("a")) == CONTENT == image.read_bytes()

    def test_all_of_a_long_one_is_told(self, store, tmp_path):
        told = []
        store.enter(
            part(tmp_path, bytes([7]) * 3 * MiB), "a", Leftover.NOTHING, forget, told.append
        )
        assert sum(told) == (0 if store.local else 3 * MiB)

    # Records

    def test_what_was_written_is_read(self, store, tmp_path):
        for name in ("a", "b.qcow2"):
            store.enter(part(tmp_path), name, Leftover.NOTHING, forget)
            store.put(template(name))
        assert store.find("a") == template("a")
        assert store.find("b.qcow2") == template("b.qcow2")
        assert list(store.all()) == [template("a"), template("b.qcow2")]
        assert store.has_record("a")
        assert store.unknown() == []
        assert store.space() == store.space("a") + store.space("b.qcow2")

    def test_nothing_is_there_before(self, store):
        assert (store.find("a"), store.has_record("a"), list(store.all())) == (None, False, [])
        store.forget("a")

    def test_the_last_word_counts(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        for image in ("a long name", "short"):
            store.put(template("a", image))
        assert store.find("a") == template("a", "short")
        assert list(store.all()) == [template("a", "short")]

    def test_what_was_removed_is_gone(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        store.put(template("a"))
        store.forget("a")
        assert (store.find("a"), store.has_record("a"), list(store.all())) == (None, False, [])

    def test_a_damaged_one_is_there_and_is_no_template(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        store.put(template("a"))
        self.damage("a")
        assert (store.has_record("a"), store.unknown()) == (True, [])
        assert (store.find("a"), list(store.all())) == (None, [])

    @pytest.mark.parametrize("content", [b"", CONTENT[:-1]], ids=["missing", "shorter"])
    def test_one_whose_bytes_are_not_those_of_its_record_is_no_template(
        self, store, tmp_path, content
    ):
        if content:
            store.enter(part(tmp_path, content), "a", Leftover.NOTHING, forget)
        store.put(template("a"))
        assert (store.has_record("a"), store.find("a")) == (True, None)
