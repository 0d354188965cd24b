"""A program that does one operation and dies by SIGKILL at a named step of it.

python -m tests.support.killer CONFIG VERB STEP MOMENT create NAME IMAGE [SWAP BYTES]
python -m tests.support.killer CONFIG VERB STEP MOMENT delete|start|reboot NAME
python -m tests.support.killer CONFIG VERB STEP MOMENT grow|add|remove NAME BYTES|DISK
python -m tests.support.killer CONFIG VERB STEP MOMENT grow NAME BYTES without-files
"""

import os
import signal
import sys
from pathlib import Path

from millpond.compute import data_disks, delete, power, resize, spawn
from millpond.compute.request import ServerRequest
from millpond.engine import Engine
from millpond.model.flavor import Flavor
from millpond.model.sizes import MiB
from millpond.records.journal import Moment, Watch
from tests.support.millpond import without_files


def die_at(verb: str, step: str, moment: Moment) -> Watch:
    def watch(*where: object) -> None:
        if where == (verb, step, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def main() -> None:
    config, verb, step, moment, action, name, *rest = sys.argv[1:]
    engine = Engine.load([Path(config)], die_at(verb, step, Moment(moment)))
    if action == "create":
        image = engine.catalogue.get(rest[0])
        swap = int(rest[1]) if rest[1:] else 0
        flavor = Flavor(memory=32 * MiB, swap=swap)
        request = ServerRequest(name=name, image=image, flavor=flavor)
        spawn.create(engine.host, request)
    elif action == "delete":
        delete.delete(engine.host, engine.server(name))
    elif action == "start":
        power.start(engine.host, engine.server(name))
    elif action == "reboot":
        power.reboot(engine.host, engine.server(name), patience=0)
    elif action == "grow":
        host = without_files(engine) if "without-files" in rest else engine.host
        resize.grow(host, engine.server(name), "disk", int(rest[0]))
    elif action == "add":
        data_disks.add(engine.host, engine.server(name), int(rest[0]))
    elif action == "remove":
        data_disks.remove(engine.host, engine.server(name), rest[0])


if __name__ == "__main__":
    main()
