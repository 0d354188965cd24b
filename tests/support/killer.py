"""A program that does one operation and dies by SIGKILL at a named step of it.

killer CONFIG VERB STEP MOMENT create NAME IMAGE [SWAP BYTES]
killer CONFIG VERB STEP MOMENT delete|start|reboot NAME
killer CONFIG VERB STEP MOMENT grow|add|remove NAME BYTES|DISK
killer CONFIG VERB STEP MOMENT grow NAME BYTES without-files
killer CONFIG VERB STEP MOMENT snapshot NAME IMAGE
killer CONFIG VERB STEP MOMENT prune
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from millpond.compute import data_disks, delete, power, resize, snapshot, spawn
from millpond.compute.request import ServerRequest
from millpond.engine import Engine
from millpond.fleet import Fleet
from millpond.images.intake import Intake
from millpond.model.flavor import Flavor
from millpond.model.sizes import MiB
from millpond.records.journal import Moment, Watch
from tests.support import forked
from tests.support.millpond import Millpond, without_files


def killed(millpond: Millpond, verb: str, step: str, moment: Moment, *action: object) -> None:
    """Do it in a process of its own, which dies there."""
    words = ["killer", millpond.config, verb, step, moment, *action]
    done = forked.run(main, [*map(str, words)], seconds=100)
    assert done.returncode == -signal.SIGKILL, done.stderr


def die_at(verb: str, step: str, moment: Moment) -> Watch:
    def watch(*where: object) -> None:
        if where == (verb, step, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def create(engine: Engine, name: str, image: str, swap: str = "0") -> None:
    flavor = Flavor(memory=32 * MiB, swap=int(swap))
    request = ServerRequest(name=name, image=engine.images.get(image), flavor=flavor)
    spawn.create(engine.host, request)


def grow(engine: Engine, name: str, size: str, *how: str) -> None:
    host = without_files(engine) if "without-files" in how else engine.host
    resize.grow(host, engine.server(name), "disk", int(size))


def take_snapshot(engine: Engine, name: str, image: str) -> None:
    request = snapshot.SnapshotRequest(name=image)
    intake = Intake(engine.commons.images_directory)
    snapshot.snapshot(engine.host, intake, engine.server(name), request)


ACTIONS: dict[str, Callable[..., object]] = {
    "create": create,
    "delete": lambda engine, name: delete.delete(engine.host, engine.server(name)),
    "start": lambda engine, name: power.start(engine.host, engine.server(name)),
    "reboot": lambda engine, name: power.reboot(engine.host, engine.server(name), patience=0),
    "grow": grow,
    "add": lambda engine, name, size: data_disks.add(engine.host, engine.server(name), int(size)),
    "remove": lambda engine, name, role: data_disks.remove(engine.host, engine.server(name), role),
    "snapshot": take_snapshot,
    "prune": lambda engine: engine.cache.manager.prune(engine.cache.rules.at_once()),
}


def main() -> None:
    config, verb, step, moment, action, *rest = sys.argv[1:]
    engine = Fleet.load([Path(config)], die_at(verb, step, Moment(moment))).engine()
    ACTIONS[action](engine, *rest)
