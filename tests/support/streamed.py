"""A server that reads its template through a socket, as if that was still arriving."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.hosts.host import Host
from millpond.model.image import Image
from millpond.model.layer import NbdSource
from millpond.model.names import ServerId
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.model.template import Link, Template
from millpond.servers.create import ServerRequest, create
from tests.support.host_with import host_with
from tests.support.millpond import Millpond
from tests.support.waiting import wait_for

_SERVE = ("qemu-nbd", "--read-only", "--persistent", "--shared=8", "--cache=none")


@dataclass(kw_only=True)
class Streamed:
    """Of one image, whose template is moved out of the cache until it arrives."""

    millpond: Millpond
    template: Template
    away: Path
    socket: Path
    process: subprocess.Popen[bytes] | None = None
    servers: list[ServerId] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.millpond.bases / self.template.volume

    def host(self) -> Host:
        """As it is while the template arrives."""
        host = self.millpond.host()
        stream = replace(self.template, link=self._link)
        disks = replace(
            host.disks,
            storage=lambda backend: LibvirtStorage(
                backend, host.pools, find_linked=lambda _: stream.linked_layer
            ),
        )
        return host_with(host, disks=disks)

    @property
    def _link(self) -> Link:
        return Link(location="stream", nbd=NbdSource(socket=self.socket))

    def serve(self) -> None:
        format = self.template.format.qemu
        assert format == "raw", "the bytes of the image are what is served"
        self.socket.unlink(missing_ok=True)  # of one that was killed
        words = (*_SERVE, "-k", str(self.socket), "-f", "raw", str(self.away))
        self.process = subprocess.Popen(words)
        wait_for(self.socket.exists, 10)
        self.socket.chmod(0o666)

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def leave(self) -> None:
        """Its bytes are away, and its record says where they are read."""
        self.path.rename(self.away)
        store = self.millpond.host().template_store
        store.pool.refresh()
        store.put(replace(self.template, link=self._link))

    def arrive(self) -> None:
        """As the fill of a stream ends; whoever serves goes on."""
        self.path.hardlink_to(self.away)
        store = self.millpond.host().template_store
        store.pool.refresh()
        store.put(self.template)

    def create(self, name: str, image: Image, **flavor: int) -> ServerId:
        request = ServerRequest(
            name=name, image=image, flavor=Flavor(memory=32 * MiB, **flavor), networks=()
        )
        made = create(self.host(), request)
        self.servers.append(made.id)
        return made.id


@contextmanager
def streamed(millpond: Millpond, path: Path, name: str = "guest") -> Iterator[Streamed]:
    """Of this raw file, which has become an image."""
    millpond.configure("images_type = qcow2\nimages_type_mapping = raw:qcow2, qcow2:qcow2")
    millpond.ok("image", "add", path, "--name", name)
    millpond.ok("cache", "fetch", name)
    (template,) = millpond.host().template_store.all()
    with ExitStack() as stack:
        directory = millpond.directory / "streams"
        directory.mkdir()
        made = Streamed(
            millpond=millpond,
            template=template,
            away=directory / "away",
            socket=directory / "stream.sock",
        )
        stack.callback(made.end)
        made.leave()
        made.serve()
        yield made
