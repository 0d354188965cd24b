"""A program that does one operation and dies by SIGKILL at a named step of it.

killer CONFIG VERB STEP MOMENT create NAME IMAGE [SWAP BYTES]
killer CONFIG VERB STEP MOMENT delete|start|reboot|pause|unpause|unrescue NAME
killer CONFIG VERB STEP MOMENT grow|add|remove NAME BYTES|DISK
killer CONFIG VERB STEP MOMENT grow NAME BYTES without-files
killer CONFIG VERB STEP MOMENT nic add|nic remove NAME NETWORK|MAC
killer CONFIG VERB STEP MOMENT rename NAME NEW
killer CONFIG VERB STEP MOMENT snapshot|snapshot all NAME IMAGE
killer CONFIG VERB STEP MOMENT snapshot half NAME IMAGE
killer CONFIG VERB STEP MOMENT rebuild NAME IMAGE
killer CONFIG VERB STEP MOMENT rebuild|rescue NAME IMAGE
killer CONFIG VERB STEP MOMENT resize vcpus NAME NUMBER
killer CONFIG VERB STEP MOMENT resize save|resize confirm|resize revert NAME
killer CONFIG VERB STEP MOMENT settle NAME
killer CONFIG VERB STEP MOMENT clone NAME NEW
killer CONFIG VERB STEP MOMENT import ARCHIVE NEW
killer CONFIG VERB STEP MOMENT migrate NAME HOST [stop]
killer CONFIG VERB STEP MOMENT live NAME HOST
killer CONFIG VERB STEP MOMENT evacuate NAME HOST
killer CONFIG VERB STEP MOMENT transit|transit live NAME
killer CONFIG VERB STEP MOMENT prune
killer CONFIG VERB STEP MOMENT fetch IMAGE
killer CONFIG VERB STEP MOMENT publish TEMPLATE
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from millpond.disks import precache
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.libvirt.migration import LiveOptions
from millpond.model.network_option import parse_network
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment, Watch
from millpond.servers import (
    across_hosts,
    copies,
    data_disks,
    delete,
    evacuate,
    migrate,
    nics,
    pause,
    porting,
    power,
    rebuild,
    rename,
    rescue,
    resize,
    revert,
    settle,
    snapshot,
    transition,
)
from millpond.servers.archive import ArchiveReader
from millpond.servers.create import ServerRequest
from millpond.servers.grow import grow as grow_disk
from millpond.servers.rescue import Switching
from millpond.servers.resize import Sizes
from millpond.servers.transition import TransitRequest
from tests.support import forked
from tests.support.millpond import Millpond, without_files


def kill_at(millpond: Millpond, verb: str, step: str, moment: StepMoment, *action: object) -> None:
    """Do it in a process of its own, which dies there."""
    words = ["killer", millpond.config, verb, step, moment, *action]
    done = forked.run(main, [*map(str, words)], seconds=100)
    assert done.returncode == -signal.SIGKILL, done.stderr


def die_at(verb: str, step: str, moment: StepMoment) -> Watch:
    def watch(*where: object) -> None:
        if where == (verb, step, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def create(deployment: Deployment, name: str, image: str, swap: str = "0") -> None:
    flavor = Flavor(memory=32 * MiB, swap=int(swap))
    image = deployment.images.get(image)
    across_hosts.create(deployment, ServerRequest(name=name, image=image, flavor=flavor))


def grow(deployment: Deployment, name: str, size: str, *how: str) -> None:
    host, server = deployment.find(name)
    host = without_files(host) if "without-files" in how else host
    grow_disk(host, server, "disk", int(size))


def rebuild_from(deployment: Deployment, name: str, image: str) -> None:
    host, server = deployment.find(name)
    rebuild.rebuild(host, server, deployment.images.get(image), patience=0)


def rescue_by(deployment: Deployment, name: str, image: str) -> None:
    host, server = deployment.find(name)
    rescue.rescue(host, server, deployment.images.get(image), Switching())


def take_snapshot(
    deployment: Deployment, name: str, image: str, *, all_disks: bool = False
) -> None:
    host, server = deployment.find(name)
    request = snapshot.SnapshotRequest(name=image, all_disks=all_disks)
    snapshot.snapshot(host, Intake(deployment.images_directory), server, request)


class DieAtOnce(logging.Handler):
    def emit(self, _record: logging.LogRecord) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def take_half(deployment: Deployment, name: str, image: str) -> None:
    """Of all disks, until the first image is in the catalogue."""
    log = logging.getLogger("millpond.images.intake")
    log.setLevel(logging.INFO)
    log.addHandler(DieAtOnce())
    take_snapshot(deployment, name, image, all_disks=True)


def clone(deployment: Deployment, name: str, new: str) -> None:
    server = deployment.server(name)
    copies.clone(deployment, server, copies.CloneRequest(name=new, networks=()))


def import_(deployment: Deployment, archive: str, new: str) -> None:
    with open(archive, "rb") as file:
        reader = ArchiveReader(file, archive)
        request = porting.ImportRequest(name=new)
        porting.import_server(deployment, reader, reader.read_manifest(), request)


def migrate_server(deployment: Deployment, name: str, host: str, *stop: str) -> None:
    request = migrate.MigrateRequest(host=host, stop=bool(stop), patience=30)
    migrate.migrate(deployment, deployment.server(name), request)


def migrate_live(deployment: Deployment, name: str, host: str) -> None:
    request = migrate.MigrateRequest(host=host, live=LiveOptions())
    migrate.migrate(deployment, deployment.server(name), request)


def evacuate_server(deployment: Deployment, name: str, host: str) -> None:
    server = deployment.server(name)
    request = evacuate.EvacuateRequest(source=server.host, host=host, fenced=True)
    for each in evacuate.evacuate(deployment, [server], request):
        assert not isinstance(each, evacuate.NotEvacuated), each.error


def prune(deployment: Deployment) -> None:
    host = deployment.host()
    host.cache_manager.prune(host.cache_rules.at_once())


def fetch(deployment: Deployment, image: str) -> None:
    host = deployment.host()
    (wanted,) = precache.plan(deployment.images.get(image), None, host.settings.libvirt.selection)
    precache.fetch(host.handlers.chosen, host.storage, [wanted], 1)


def publish(deployment: Deployment, template: str) -> None:
    deployment.host().handlers.streaming.settle(template)


def of_server(act: Callable[..., object]) -> Callable[..., object]:
    """What is done to a server, on its host."""

    def action(deployment: Deployment, name: str, *rest: str) -> None:
        host, server = deployment.find(name)
        act(host, server, *rest)

    return action


ACTIONS: dict[str, Callable[..., object]] = {
    "create": create,
    "delete": of_server(delete.delete),
    "start": of_server(power.start),
    "stop": of_server(lambda host, server: power.stop(host, server, patience=0)),
    "reboot": of_server(lambda host, server: power.reboot(host, server, patience=0)),
    "pause": of_server(pause.pause),
    "unpause": of_server(pause.unpause),
    "grow": grow,
    "resize": of_server(
        lambda host, server: resize.resize(host, server, Sizes(vcpus=2, memory=64 * MiB))
    ),
    "resize vcpus": of_server(
        lambda host, server, vcpus: resize.resize(host, server, Sizes(vcpus=int(vcpus)))
    ),
    "rebuild": rebuild_from,
    "rescue": rescue_by,
    "unrescue": of_server(lambda host, server: rescue.unrescue(host, server, Switching())),
    "resize save": of_server(revert.save),
    "resize confirm": of_server(revert.confirm),
    "resize revert": of_server(revert.revert),
    "add": of_server(lambda host, server, size: data_disks.add(host, server, int(size))),
    "remove": of_server(data_disks.remove),
    "nic add": of_server(lambda host, server, nic: nics.add(host, server, parse_network(nic))),
    "nic remove": of_server(nics.remove),
    "rename": of_server(rename.rename),
    "settle": of_server(settle.settle),
    "snapshot": take_snapshot,
    "snapshot all": partial(take_snapshot, all_disks=True),
    "snapshot half": take_half,
    "clone": clone,
    "import": import_,
    "prune": prune,
    "fetch": fetch,
    "publish": publish,
    "transit": of_server(
        lambda host, server: transition.transit(host, server, TransitRequest(stop=True))
    ),
    "transit live": of_server(
        lambda host, server: transition.transit(host, server, TransitRequest(live=True))
    ),
    "migrate": migrate_server,
    "live": migrate_live,
    "evacuate": evacuate_server,
}


def main() -> None:
    config, verb, step, moment, action, *rest = sys.argv[1:]
    ACTIONS[action](Deployment.load([Path(config)], die_at(verb, step, StepMoment(moment))), *rest)
