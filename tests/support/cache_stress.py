"""Everything that befalls an image cache, at random and at full speed; a program and its threads.

python -m tests.support.cache_stress CONFIG SECONDS SEED...     a thread for each seed

Prints how often each deed was done, as JSON, and ends with an error if anybody's base was not
what it was. The images are those of the catalogue whose names begin with "image".
"""

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from millpond.errors import CacheFull, TemplateNotFound
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.server import Flavor, Server
from millpond.model.sizes import MiB
from millpond.servers import create, delete
from millpond.servers.create import ServerRequest
from millpond.servers.snapshot import SnapshotRequest, snapshot

_MOST_SERVERS = 2
Identity = tuple[int, int]
"""Of a file: one that was removed and made again under its name has another one."""


class Person:
    """Makes and removes servers and images of its own; the templates are everybody's."""

    def __init__(self, host: Host, seed: str) -> None:
        self._host = host
        self._random = random.Random(seed)
        self._seed = seed
        self._images = [
            each for each in host.shared.catalogue.all() if each.name.startswith("image")
        ]
        self._servers: list[tuple[Server, dict[str, Identity]]] = []
        self._snapshots: list[Image] = []
        self._pinned = "none"
        self.done: Counter[str] = Counter()

    def act(self, until: float) -> None:
        often = {self._create: 6, self._delete: 3, self._fetch: 3, self._prune: 2}
        seldom = [self._snapshot, self._remove_snapshot, self._bound, self._pin, self._unpin]
        deeds = [*(deed for deed, times in often.items() for _ in range(times)), *seldom]
        while time.monotonic() < until:
            self._do(self._random.choice(deeds))
        for server, stood_on in self._servers:
            assert self._stands_on(server) == stood_on

    def _do(self, deed: Callable[[], object]) -> None:
        name = deed.__name__.strip("_")
        try:
            deed()
        except (CacheFull, TemplateNotFound) as error:
            name += f": {type(error).__name__}"
        self.done[name] += 1

    def _stands_on(self, server: Server) -> dict[str, Identity]:
        """The bases of its overlays, which must be there."""
        names = {each.template.volume for each in server.disks if each.template and each.overlay}
        found = {name: os.stat(self._host.template_store.cache / name) for name in names}
        return {name: (each.st_ino, each.st_mtime_ns) for name, each in found.items()}

    def _create(self) -> None:
        if len(self._servers) >= _MOST_SERVERS:
            self._delete()
        swap = self._random.choice([0, 0, 16 * MiB])
        request = ServerRequest(
            name=f"s{self._seed}-{self._random.getrandbits(64):x}",
            image=self._random.choice(self._images + self._snapshots),
            flavor=Flavor(memory=32 * MiB, swap=swap),
        )
        made = create.create(self._host, request, start=False)
        self._servers.append((made, self._stands_on(made)))

    def _delete(self) -> None:
        if self._servers:
            server, stood_on = self._servers.pop(self._random.randrange(len(self._servers)))
            assert self._stands_on(server) == stood_on
            delete.delete(self._host, server)

    def _snapshot(self) -> None:
        """It bears the name of the image whose content it has."""
        if self._servers and len(self._snapshots) < 2:
            server, _ = self._random.choice(self._servers)
            name = f"copy-{self._random.getrandbits(64):x}-of-{server.image.name}"
            intake = Intake(self._host.shared.images_directory)
            request = SnapshotRequest(name=name)
            made = snapshot(self._host, intake, server, request)
            self._snapshots.extend(made.images)

    def _remove_snapshot(self) -> None:
        """Behind the cache's back: its template goes when nothing uses it."""
        if self._snapshots:
            self._host.shared.catalogue.remove(self._snapshots.pop(0))

    def _fetch(self) -> None:
        image = self._random.choice(self._images)
        self._host.handlers.chosen.fetch_image(image, DiskFormat.RAW)

    def _prune(self) -> None:
        gone = self._host.cache_manager.prune(self._host.cache_rules.at_once())
        self.done["template pruned"] += len(gone)

    def _bound(self) -> None:
        rules = self._host.cache_rules
        assert self._host.template_store.space() <= rules.max_bytes
        half = replace(rules, max_bytes=rules.max_bytes // 2)
        self.done["template evicted"] += len(self._host.cache_manager.prune(half))

    def _pin(self) -> None:
        """One at a time, or the cache would be full of them."""
        self._unpin()
        self._pinned = self._random.choice([*os.listdir(self._host.template_store.cache), "none"])
        self._host.cache_manager.pin(self._pinned, self._seed)

    def _unpin(self) -> None:
        self._host.cache_manager.unpin(self._pinned)


def main(config: str, seconds: str, *seeds: str) -> None:
    until = time.monotonic() + float(seconds)
    people = [Person(Deployment.load([Path(config)]).host(), seed) for seed in seeds]
    with ThreadPoolExecutor(len(people)) as threads:
        list(threads.map(lambda each: each.act(until), people))
    print(json.dumps(sum((each.done for each in people), Counter())))


if __name__ == "__main__":
    main(*sys.argv[1:])
