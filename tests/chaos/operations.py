"""The operations to choose from, each with what it makes of the model."""

import itertools
import random
from collections.abc import Callable

from tests.chaos.model import Change, ImageModel, Model, ServerModel
from tests.chaos.world import FORMATS, World
from tests.support.loopfs import MIB

_MOST_SERVERS = 6
_MOST_SPARES = 5
_MOST_DATA_DISKS = 2
_LARGEST = 12 * MIB

Choose = Callable[[], Change | None]


class Operations:
    def __init__(self, world: World, model: Model) -> None:
        self._world = world
        self._model = model
        self._numbers = itertools.count(1)

    def chosen(self, chance: random.Random) -> Change:
        makers = {
            self._create: 6,
            self._delete: 4,
            self._grow: 4,
            self._add_disk: 4,
            self._remove_disk: 4,
            self._snapshot: 4,
            self._fetch: 2,
            self._prune: 2,
            self._add_image: 3,
            self._remove_image: 4,
            self._start: 1,
            self._stop: 2,
            self._reboot: 1,
        }
        while True:
            (make,) = chance.choices([*makers], [*makers.values()])
            if change := make(chance):
                return change

    def _server(
        self, chance: random.Random, accepts: Callable[[ServerModel], bool] = lambda _: True
    ) -> ServerModel | None:
        found = [each for _, each in sorted(self._model.servers.items()) if accepts(each)]
        return chance.choice(found) if found else None

    def _name(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _create(self, chance: random.Random) -> Change | None:
        if len(self._model.servers) >= _MOST_SERVERS:
            return None
        name, image = self._name("s"), chance.choice(sorted(self._model.images))
        content = self._model.images[image].content
        words = ["server", "create", name, "--image", image, "--memory", "32M"]
        words += ["--network", "none"]
        if chance.random() < 0.3:
            size = len(content) + MIB * chance.randrange(1, 4)
            words += ["--disk", str(size // MIB) + "M"]
            content = content.ljust(size, b"\0")
        on = not self._any_guest and image in FORMATS and chance.random() < 0.15
        words += [] if on else ["--no-start"]
        server = ServerModel(name=name, image=image, disks={"disk": content}, on=on)
        return Change(
            kind="create", words=tuple(words), servers={name: server}, needs=frozenset({image})
        )

    @property
    def _any_guest(self) -> bool:
        return any(each.on for each in self._model.servers.values())

    def _delete(self, chance: random.Random) -> Change | None:
        if server := self._server(chance):
            words = ("server", "delete", server.name)
            return Change(kind="delete", words=words, servers={server.name: None})
        return None

    def _grow(self, chance: random.Random) -> Change | None:
        server = self._server(chance)
        if server is None:
            return None
        role = chance.choice(sorted(server.disks))
        size = len(server.disks[role]) + MIB * chance.randrange(1, 3)
        if size > _LARGEST:
            return None
        words = ("server", "disk", "grow", server.name, role, "--size", f"{size // MIB}M")
        grown = server.grown(role, size // MIB * MIB)
        return Change(kind="grow", words=words, servers={server.name: grown})

    def _add_disk(self, chance: random.Random) -> Change | None:
        server = self._server(chance, lambda each: len(each.disks) <= _MOST_DATA_DISKS)
        if server is None:
            return None
        role = next(role for n in range(9) if (role := f"disk.data{n}") not in server.disks)
        size = chance.randrange(1, 5)
        words = ("server", "disk", "add", server.name, "--size", f"{size}M")
        larger = server.with_disk(role, bytes(size * MIB))
        return Change(kind="disk add", words=words, servers={server.name: larger})

    def _remove_disk(self, chance: random.Random) -> Change | None:
        """Not while it runs: the guest knows nothing of disks that go."""
        server = self._server(chance, lambda each: len(each.disks) > 1 and not each.on)
        if server is None:
            return None
        role = chance.choice(sorted(server.disks.keys() - {"disk"}))
        words = ("server", "disk", "remove", server.name, role)
        return Change(
            kind="disk remove", words=words, servers={server.name: server.without_disk(role)}
        )

    def _snapshot(self, chance: random.Random) -> Change | None:
        server = self._server(chance)
        if server is None or len(self._model.images) >= len(FORMATS) + _MOST_SPARES:
            return None
        name, format = self._name("snap"), chance.choice(("qcow2", "raw"))
        words = ("server", "snapshot", server.name, name, "--format", format)
        image = ImageModel(name=name, content=server.disks["disk"])
        kind = "snapshot running" if server.on else "snapshot"
        return Change(kind=kind, words=words, servers={server.name: server}, images={name: image})

    def _fetch(self, chance: random.Random) -> Change:
        image = chance.choice(sorted(self._model.images))
        return Change(kind="fetch", words=("cache", "fetch", image), needs=frozenset({image}))

    def _prune(self, _chance: random.Random) -> Change:
        return Change(kind="prune", words=("cache", "prune", "--all-unused"))

    def _add_image(self, chance: random.Random) -> Change | None:
        if len(self._model.images) >= len(FORMATS) + _MOST_SPARES:
            return None
        file = chance.choice(self._world.files[chance.choice(FORMATS)])
        name = self._name("spare")
        image = ImageModel(name=name, content=file.content)
        words = ("image", "add", str(file.path), "--name", name)
        return Change(kind="image add", words=words, images={name: image})

    def _remove_image(self, chance: random.Random) -> Change | None:
        used = {each.image for each in self._model.servers.values()}
        free = sorted(self._model.images.keys() - used - {*FORMATS})
        if not free:
            return None
        name = chance.choice(free)
        return Change(kind="image remove", words=("image", "remove", name), images={name: None})

    def _start(self, chance: random.Random) -> Change | None:
        """One guest at a time: it takes a core to emulate it."""
        boots = lambda each: not each.on and each.image in FORMATS  # noqa: E731
        if self._any_guest or not (server := self._server(chance, boots)):
            return None
        return self._powered("start", server, on=True)

    def _stop(self, chance: random.Random) -> Change | None:
        server = self._server(chance, lambda each: each.on)
        return self._powered("stop", server, "--force", on=False) if server else None

    def _reboot(self, chance: random.Random) -> Change | None:
        server = self._server(chance, lambda each: each.on)
        return self._powered("reboot", server, "--hard", on=True) if server else None

    def _powered(self, verb: str, server: ServerModel, *words: str, on: bool) -> Change:
        after = ServerModel(name=server.name, image=server.image, disks=server.disks, on=on)
        return Change(
            kind=verb, words=("server", verb, server.name, *words), servers={server.name: after}
        )
