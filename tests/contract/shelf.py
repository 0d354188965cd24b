"""What every shelf of templates promises; each implementation runs this with its own ``shelf``."""

from pathlib import Path

import pytest

from millpond.errors import VolumeExists, VolumeNotFound
from millpond.model.sizes import MiB
from millpond.system.files import silent
from millpond.templates.shelf import Left, Shelf

CONTENT = b"a template" + bytes(300_000) + b"ends here"


def part(directory: Path, content: bytes = CONTENT) -> Path:
    path = directory / "part"
    path.write_bytes(content)
    return path


def forget(_proof: str) -> None:
    """Nobody wants to know it again."""


class ShelfContract:
    @pytest.fixture
    def shelf(self) -> Shelf:
        raise AssertionError("the implementation's own tests give the shelf")

    def test_what_enters_is_there_to_the_byte(self, shelf, tmp_path):
        shelf.enter(part(tmp_path), "a", Left.NOTHING, forget)
        assert (shelf.has("a"), shelf.length("a"), shelf.names()) == (True, len(CONTENT), ["a"])
        assert b"".join(shelf.bytes_of("a")) == CONTENT
        assert shelf.space("a") > 0

    def test_what_is_not_there_is_not_found_and_takes_no_space(self, shelf):
        assert (shelf.has("a"), shelf.length("a"), shelf.space("a")) == (False, None, 0)
        with pytest.raises(VolumeNotFound):
            b"".join(shelf.bytes_of("a"))
        shelf.remove("a")

    def test_what_is_there_already_stays(self, shelf, tmp_path):
        shelf.enter(part(tmp_path), "a", Left.NOTHING, forget)
        proofs = []
        with pytest.raises(VolumeExists):
            shelf.enter(part(tmp_path, b"other"), "a", Left.NOTHING, proofs.append)
        assert b"".join(shelf.bytes_of("a")) == CONTENT
        assert shelf.left("a", proofs[-1]) is Left.NOTHING

    def test_what_has_entered_is_known_by_its_proof_alone(self, shelf, tmp_path):
        proofs = []
        shelf.enter(part(tmp_path), "a", Left.NOTHING, proofs.append)
        assert shelf.left("a", proofs[-1]) is Left.WHOLE
        assert shelf.proof("a") == proofs[-1]
        assert shelf.left("b", proofs[-1]) is Left.NOTHING
        shelf.remove("a")
        assert shelf.left("a", proofs[-1]) is Left.NOTHING
        shelf.enter(part(tmp_path), "a", Left.NOTHING, forget)
        assert shelf.left("a", proofs[-1]) is Left.NOTHING

    def test_a_copy_is_kept_when_it_goes(self, shelf, tmp_path):
        shelf.enter(part(tmp_path), "a", Left.NOTHING, forget)
        shelf.keep("a", tmp_path / "kept")
        shelf.remove("a")
        assert not shelf.has("a")
        assert (tmp_path / "kept").read_bytes() == CONTENT

    def test_a_trusted_image_is_taken_and_stays_as_it_is(self, shelf, tmp_path):
        image = tmp_path / "image"
        image.write_bytes(CONTENT)
        shelf.take(image, tmp_path / "taken", silent)
        shelf.enter(tmp_path / "taken", "a", Left.NOTHING, forget)
        assert b"".join(shelf.bytes_of("a")) == CONTENT == image.read_bytes()

    def test_all_of_a_long_one_is_told(self, shelf, tmp_path):
        told = []
        shelf.enter(part(tmp_path, bytes([7]) * 3 * MiB), "a", Left.NOTHING, forget, told.append)
        assert sum(told) == (3 * MiB if shelf.uploads else 0)
