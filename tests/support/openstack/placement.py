"""A real Placement."""

from pathlib import Path

from millpond.model.cloud import CloudAccess
from millpond.model.transfer import Patience
from tests.support.ini import ini
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.service import Api


class Placement(Api):
    """Without a Keystone, whoever asks is an administrator; without another, its database is
    SQLite."""

    def __init__(
        self, directory: Path, *, keystone: Keystone | None = None, database: str = ""
    ) -> None:
        super().__init__(directory)
        self._keystone = keystone
        self._database = database or f"sqlite:///{self.directory}/placement.sqlite"

    def access(self, **changes: object) -> CloudAccess:
        """As [placement] says it."""
        values: dict[str, object] = {
            "cloud": "",
            "auth_type": "none",
            "auth": {},
            "endpoint_override": self.url,
            "region_name": "",
            "cafile": "",
            "insecure": False,
            "patience": Patience(connect_seconds=5, read_seconds=60, retries=0),
        }
        return CloudAccess(**(values | changes))  # type: ignore[arg-type]

    def _configure(self) -> None:
        settings: dict[str, dict[str, object]] = {
            "api": {"auth_strategy": "keystone" if self._keystone else "noauth2"},
            "placement_database": {"connection": self._database, "sync_on_startup": True},
            "keystone_authtoken": self._keystone.authtoken() if self._keystone else {},
        }
        (self._etc / "placement.conf").write_text(ini(settings))

    def _command(self) -> list[str]:
        return self._wsgi("placement.wsgi.api", self._etc)

    @property
    def _etc(self) -> Path:
        return self._make_directory("placement")
