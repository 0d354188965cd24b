"""B48: what a refusal looks like, and that it changed nothing."""

from typing import Any, Protocol

import libvirt
import pytest

from tests.support.millpond import Millpond


class Refuses(Protocol):
    def __call__(self, status: int, sentence: str, *words: str, hint: bool = True) -> None: ...


@pytest.fixture
def refuses(millpond: Millpond, connection: libvirt.virConnect) -> Refuses:
    """refuses(status, sentence, *words): the command fails like this and the world stays."""

    def check(status: int, sentence: str, *words: str, hint: bool = True) -> None:
        before = world(millpond, connection)
        code, message = millpond.fails(*words)
        assert sentence in message
        assert code == status
        lines = message.strip().splitlines()
        assert lines[0].startswith("millpond: ")
        assert len(lines) <= 3
        if hint:
            assert lines[-1].startswith("  hint: ")
        assert world(millpond, connection) == before

    return check


def world(millpond: Millpond, connection: libvirt.virConnect) -> Any:
    """Everything that an operation could have changed."""
    files = {
        str(path.relative_to(millpond.state))
        for path in millpond.state.rglob("*")
        if path.is_file()
    }
    volumes = {
        pool.name(): sorted(pool.listVolumes()) for pool in connection.listAllStoragePools()
    }
    return files, volumes, sorted(domain.name() for domain in connection.listAllDomains())
