"""What every ledger promises; each implementation runs this suite with its own ``ledger``."""

import pytest

from millpond.errors import DamagedRecord
from millpond.templates.ledger import Ledger


class LedgerContract:
    @pytest.fixture
    def ledger(self) -> Ledger:
        raise AssertionError("the implementation's own tests give the ledger")

    def damage(self, name: str) -> None:
        raise AssertionError("the implementation's own tests know how")

    def test_what_was_written_is_read(self, ledger):
        ledger.write("a", b"one")
        ledger.write("b.qcow2", b"two\nlines")
        assert ledger.read("a") == b"one"
        assert ledger.read("b.qcow2") == b"two\nlines"
        assert ledger.names() == ["a", "b.qcow2"]
        assert ledger.has("a")

    def test_nothing_is_there_before(self, ledger):
        assert (ledger.read("a"), ledger.has("a"), ledger.names()) == (None, False, [])
        ledger.remove("a")

    def test_the_last_word_counts(self, ledger):
        ledger.write("a", b"a long word")
        ledger.write("a", b"short")
        assert ledger.read("a") == b"short"
        assert ledger.names() == ["a"]

    def test_what_was_removed_is_gone(self, ledger):
        ledger.write("a", b"one")
        ledger.remove("a")
        assert (ledger.read("a"), ledger.has("a"), ledger.names()) == (None, False, [])

    def test_a_damaged_one_is_there_and_says_so(self, ledger):
        ledger.write("a", b"one")
        self.damage("a")
        assert ledger.has("a")
        with pytest.raises(DamagedRecord):
            ledger.read("a")
