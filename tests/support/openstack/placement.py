"""A real Placement."""

from pathlib import Path

from tests.support.ini import ini
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.service import Api


class Placement(Api):
    def __init__(self, directory: Path, *, keystone: Keystone) -> None:
        super().__init__(directory)
        self._keystone = keystone

    def _configure(self) -> None:
        settings: dict[str, dict[str, object]] = {
            "api": {"auth_strategy": "keystone"},
            "placement_database": {
                "connection": f"sqlite:///{self.directory}/placement.sqlite",
                "sync_on_startup": True,
            },
            "keystone_authtoken": self._keystone.authtoken(),
        }
        (self._etc / "placement.conf").write_text(ini(settings))

    def _command(self) -> list[str]:
        return self._wsgi("placement.wsgi.api", self._etc)

    @property
    def _etc(self) -> Path:
        return self._make_directory("placement")
