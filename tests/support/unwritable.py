"""A state directory in which no record can be written."""

from dataclasses import replace

from millpond.errors import StateNotWritable
from millpond.model.server import Server
from millpond.records.files import FileRecords
from millpond.servers.host import Host
from tests.support.millpond import Millpond


class Unwritable(FileRecords):
    def put(self, server: Server) -> None:
        raise StateNotWritable(self._path(server.id), "Input/output error")


def unwritable(millpond: Millpond, host: Host) -> Host:
    """The same host, for somebody who cannot write."""
    return replace(host, records=Unwritable(millpond.state, millpond.engine().commons.locks))
