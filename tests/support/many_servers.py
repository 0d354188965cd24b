"""Many servers on many templates, laid out behind Millpond's back: by its own ways, minutes."""

import os
import uuid
from dataclasses import replace

import libvirt

from millpond.images.intake import Intake
from millpond.model.names import ServerId
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.servers import create
from millpond.servers.create import ServerRequest
from tests.support.millpond import Millpond


def populate(millpond: Millpond, connection: libvirt.virConnect, count: int, bases: int) -> None:
    """So many servers, each with an overlay; no disk and no template has a byte of its own."""
    host = millpond.host()
    blank = millpond.directory / "blank.raw"
    blank.write_bytes(bytes(MiB))
    image = Intake(host.shared.images_directory).add(blank, name="blank")
    request = ServerRequest(name="model", image=image, flavor=Flavor(memory=32 * MiB))
    model = create.create(host, request, start=False)
    store, (disk,) = host.template_store, model.disks
    (template,) = store.all()
    assert disk.template
    names = [f"{number:040x}" for number in range(bases)]
    for name in names:
        os.link(millpond.bases / template.volume, millpond.bases / name)
        store.put(replace(template, volume=name))
    overlay = (millpond.disks / disk.volume).read_bytes()[:65536]
    domain = connection.lookupByName("model").XMLDesc()
    for number in range(count):
        id, base = ServerId(str(uuid.uuid4())), names[number % bases]
        own = replace(disk, volume=f"{id}_disk", template=replace(disk.template, volume=base))
        host.records.put(replace(model, id=id, name=f"s{number}", disks=(own,)))
        header = overlay.replace(template.volume.encode(), base.encode())
        (millpond.disks / own.volume).write_bytes(header)
        xml = domain.replace(model.id, id).replace(template.volume, base)
        connection.defineXML(xml.replace("<name>model<", f"<name>s{number}<"))
    connection.storagePoolLookupByName("nova-disks-pool").refresh()
