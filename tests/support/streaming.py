"""An image in the web that is streamed, and the host that streams it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.model.names import ServerId
from millpond.model.sizes import MiB
from millpond.templates.streams.plan import StreamDirectory
from tests.support.millpond import Millpond
from tests.support.waiting import wait_for
from tests.support.web import Web, serving

CONFIGURATION = """
template_image_handler = streaming
force_raw_images = False
[image_cache]
sockets_path = {sockets}
fill_rate = {rate}
fill_delay = {delay}
{more}
[http]
connect_timeout = 2
read_timeout = 2
retries = 1
"""


@dataclass(kw_only=True)
class StreamingHost:
    millpond: Millpond
    web: Web

    def configure(
        self,
        rate: str = "0",
        delay: int = 0,
        libvirt: str = "images_type = qcow2",
        more: str = "",
    ) -> None:
        sockets = self.millpond.directory / "run"
        default = CONFIGURATION.format(sockets=sockets, rate=rate, delay=delay, more=more)
        self.millpond.configure(libvirt, default=default)

    def publish(self, path: Path, name: str = "guest", **options: Any) -> str:
        """The image in the web, with its index next to it. Its address."""
        address = f"/{name}{path.suffix}"
        made = self.millpond.directory / f"{name}.index"
        said = self.millpond.json("image", "index", path, "--output", made, "--force")
        self.web.offer(f"{address}.index", made.read_bytes())
        self.root = str(said["root"])
        return self.web.offer(address, path.read_bytes(), **options)

    def add(self, path: Path, name: str = "guest", **options: Any) -> str:
        url = self.publish(path, name, **options)
        words = ("--stream", "--index-root", self.root, "--name", name)
        return str(self.millpond.json("image", "add", url, *words)["id"])

    def create(self, name: str = "web", image: str = "guest", *words: object) -> ServerId:
        given = ("--image", image, "--memory", "32M", "--network", "none", *words)
        return ServerId(self.millpond.json("server", "create", name, *given)["id"])

    @property
    def sidecar(self) -> Path:
        bases = self.millpond.bases
        return bases.with_name(f"{bases.name}.millpond")

    def streams(self) -> list[StreamDirectory]:
        return [StreamDirectory(each) for each in sorted(self.sidecar.glob("streams/*"))]

    @property
    def stream(self) -> StreamDirectory:
        (found,) = self.streams()
        return found

    def template(self) -> dict[str, Any]:
        (found,) = self.millpond.json("cache", "list")["templates"]
        return dict(found)

    def wait_until_published(self, seconds: float = 60) -> dict[str, Any]:
        wait_for(lambda: self.template()["template"]["link"] is None, seconds)
        return self.template()

    def end(self) -> None:
        """All processes of streams end once they are not wanted any more."""
        for each in self.streams():
            each.unwant()
            wait_for(lambda each=each: not each.is_served, 30)


def with_tail(guest: Path, target: Path, size: int, zeros: int = 0) -> Path:
    """The guest, and behind it bytes that are nowhere else; at the end zeros."""
    made = random.Random(size)
    with target.open("wb") as file:
        file.write(guest.read_bytes())
        while file.tell() < size - zeros:
            file.write(made.randbytes(min(MiB, size - zeros - file.tell())))
        file.truncate(size)
    return target


@contextmanager
def streaming_host(millpond: Millpond) -> Iterator[StreamingHost]:
    with serving() as web:
        host = StreamingHost(millpond=millpond, web=web)
        host.configure()
        try:
            yield host
        finally:
            host.end()


def log_of(stream: StreamDirectory) -> str:
    return stream.log.read_text(errors="replace") if stream.log.exists() else ""
