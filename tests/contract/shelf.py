"""What every shelf of templates promises; each implementation runs this with its own ``shelf``."""

from pathlib import Path

import pytest

from millpond.errors import VolumeNotFound
from millpond.model.sizes import MiB
from millpond.system.files import silent
from millpond.templates.shelf import Shelf

CONTENT = b"a template" + bytes(300_000) + b"ends here"


def part(directory: Path, content: bytes = CONTENT) -> Path:
    path = directory / "part"
    path.write_bytes(content)
    return path


class ShelfContract:
    @pytest.fixture
    def shelf(self) -> Shelf:
        raise AssertionError("the implementation's own tests give the shelf")

    def test_what_enters_is_there_to_the_byte(self, shelf, tmp_path):
        shelf.enter(part(tmp_path), "a", False)
        assert (shelf.has("a"), shelf.length("a"), shelf.names()) == (True, len(CONTENT), ["a"])
        assert b"".join(shelf.bytes_of("a")) == CONTENT
        assert shelf.space("a") > 0
        assert shelf.entered(tmp_path / "part", "a").read_bytes() == CONTENT

    def test_what_is_not_there_is_not_found_and_takes_no_space(self, shelf):
        assert (shelf.has("a"), shelf.length("a"), shelf.space("a")) == (False, None, 0)
        with pytest.raises(VolumeNotFound):
            b"".join(shelf.bytes_of("a"))
        shelf.remove("a")

    def test_what_an_attempt_left_gives_way(self, shelf, tmp_path):
        shelf.enter(part(tmp_path, b"half of something longer"), "a", False)
        shelf.enter(part(tmp_path), "a", False)
        assert b"".join(shelf.bytes_of("a")) == CONTENT

    def test_a_copy_is_kept_when_it_goes(self, shelf, tmp_path):
        shelf.enter(part(tmp_path), "a", False)
        shelf.keep("a", tmp_path / "kept")
        shelf.remove("a")
        assert not shelf.has("a")
        assert (tmp_path / "kept").read_bytes() == CONTENT

    def test_a_trusted_image_is_taken_and_stays_as_it_is(self, shelf, tmp_path):
        image = tmp_path / "image"
        image.write_bytes(CONTENT)
        shelf.take(image, tmp_path / "taken", silent)
        shelf.enter(tmp_path / "taken", "a", False)
        assert b"".join(shelf.bytes_of("a")) == CONTENT == image.read_bytes()

    def test_all_of_a_long_one_is_told(self, shelf, tmp_path):
        told = []
        shelf.enter(part(tmp_path, bytes([7]) * 3 * MiB), "a", False, told.append)
        assert sum(told) == (3 * MiB if shelf.uploads else 0)
