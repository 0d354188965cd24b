"""A real MariaDB: the database of those services that are more than one process."""

from pathlib import Path

from tests.support.loopback import ADDRESS
from tests.support.openstack.service import Service, isolated

_USER = "millpond"


class MariaDb(Service):
    """Whoever reaches its port may do anything: for test machines only."""

    def __init__(self, directory: Path, *databases: str) -> None:
        super().__init__(directory)
        self._databases = databases

    def url(self, database: str) -> str:
        return f"mysql+pymysql://{_USER}@{ADDRESS}:{self.port}/{database}?charset=utf8mb4"

    def _configure(self) -> None:
        self._make_directory("data")
        words = [f"create database if not exists {name};\n" for name in self._databases]
        self._first_words.write_text("".join(words))

    def _command(self) -> list[str]:
        words = (
            "--user=root",
            f"--datadir={self.directory}/data",
            "--skip-grant-tables",  # which then need not be made
            f"--bind-address={ADDRESS}",
            f"--port={self.port}",
            f"--socket={self.directory}/socket",
            f"--init-file={self._first_words}",
            "--max-connections=512",
            # What it holds need not outlive the machine.
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
            "--character-set-server=utf8mb4",
        )
        return isolated(self.directory, "/usr/sbin/mariadbd", "--no-defaults", *words)

    @property
    def _first_words(self) -> Path:
        return self.directory / "first.sql"
