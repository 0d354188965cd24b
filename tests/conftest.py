"""Options and fixtures of the whole suite."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# What a shell starts in the background ignores it, and so would all that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes says how busy the machine is; a whole test has a time limit.
settings.register_profile("millpond", deadline=None)
settings.load_profile("millpond")

pytest_plugins = [
    "tests.support.fixtures",
    "tests.support.remote_host",
    "tests.support.multi_host",
    "tests.support.networked_host",
    "tests.support.operations",
    "tests.support.refusals",
    "tests.support.results",
]

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate", action="store_true", help="write the golden files again from what is made"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): the text is what the file of this name holds."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--regenerate"):
            path.write_text(text + "\n")
        assert text + "\n" == path.read_text()

    return compare
