"""Servers as a release of Nova makes them, with its own driver, a real libvirt and a database in
SQLite: `python nova_alone.py create IMAGE NAME... --config-file NOVA.CONF` prints their ids, and
`python nova_alone.py reboot ID --config-file NOVA.CONF` reboots one, hard.

Only Glance is missing: what Nova would fetch from it is the file IMAGE.
"""

import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import nova.cmd.compute  # the first: it sets up threads as Nova has them
import nova.conf.neutron
import nova.config
import nova.db.main.api as main_db
import nova.privsep
from nova import context, objects
from nova.compute import power_state, task_states, vm_states
from nova.conf import CONF
from nova.db.main import models
from nova.virt.libvirt.driver import LibvirtDriver
from nova.virt.virtapi import VirtAPI

_GROUPS = "nova.network.security_group_api"  # which asks Neutron, for the config drive

ADMIN = context.get_admin_context()


class NoNetwork(VirtAPI):
    """nova-compute, which is told by Neutron when a server's ports are plugged."""

    @contextmanager
    def wait_for_instance_event(self, *_: Any, **__: Any) -> Iterator[None]:
        yield


def set_up(conf: str) -> LibvirtDriver:
    nova.config.parse_args(["nova-compute", "--config-file", conf])
    objects.register_all()
    main_db.configure(CONF)
    models.BASE.metadata.create_all(main_db.context_manager.writer.get_engine())
    nova.conf.neutron.register_dynamic_opts(CONF)
    nova.privsep.sys_admin_pctxt.set_client_mode(False)
    driver = LibvirtDriver(NoNetwork())
    driver.init_host(CONF.host)
    return driver


def new_instance(name: str, image: str) -> objects.Instance:
    flavor = objects.Flavor(
        **{"id": 1, "flavorid": "1", "name": "small", "memory_mb": 64, "vcpus": 1},
        **{"root_gb": 1, "ephemeral_gb": 1, "swap": 16, "rxtx_factor": 1.0, "extra_specs": {}},
        **{"vcpu_weight": 0, "disabled": False, "is_public": True},
    )
    instance = objects.Instance(
        context=ADMIN,
        **{"uuid": str(uuid.uuid4()), "host": CONF.host, "image_ref": image},
        **{"user_id": "angler", "project_id": "anglers", "display_name": name, "hostname": name},
        **{"vm_state": vm_states.BUILDING, "task_state": task_states.SPAWNING},
        **{"power_state": power_state.NOSTATE, "config_drive": "True", "metadata": {}},
        **{"flavor": flavor, "old_flavor": None, "new_flavor": None, "key_data": None},
        **{"system_metadata": {"image_disk_format": "raw"}, "root_device_name": "/dev/vda"},
    )
    instance.create()
    return read(instance.uuid)


def read(id: str) -> objects.Instance:
    wanted = ["system_metadata", "flavor", "metadata", "numa_topology", "pci_devices"]
    return objects.Instance.get_by_uuid(ADMIN, id, expected_attrs=wanted)


def block_devices() -> dict[str, Any]:
    return {
        "root_device_name": "/dev/vda",
        "image": [],
        "ephemerals": [
            {
                **{"device_name": "/dev/vdb", "size": 1, "num": 0, "guest_format": None},
                **{"virtual_name": "ephemeral0", "device_type": "disk", "disk_bus": "virtio"},
            }
        ],
        "swap": {
            **{"device_name": "/dev/vdc", "swap_size": 16},
            **{"device_type": "disk", "disk_bus": "virtio"},
        },
        "block_device_mapping": [],
    }


class Images:
    """What Nova asks of Glance."""

    def __init__(self, path: str) -> None:
        self._path = path

    def get(self, _context: Any, image: str, **_: Any) -> dict[str, Any]:
        return {"id": image, "disk_format": "raw", "container_format": "bare"}

    def download(self, _context: Any, _image: str, *, dest_path: str, **_: Any) -> None:
        shutil.copyfile(self._path, dest_path)


def create(driver: LibvirtDriver, path: str, *names: str) -> dict[str, str]:
    image = str(uuid.uuid4())
    meta = objects.ImageMeta.from_dict(
        {"id": image, "disk_format": "raw", "container_format": "bare", "properties": {}}
    )
    made = {}
    with mock.patch("nova.virt.images.IMAGE_API", Images(path)):
        for name in names:
            instance = new_instance(name, image)
            words = (ADMIN, instance, meta, [], None, {})
            driver.spawn(*words, network_info=[], block_device_info=block_devices())
            instance.vm_state, instance.task_state = vm_states.ACTIVE, None
            instance.save()
            made[name] = instance.uuid
    return made


def reboot(driver: LibvirtDriver, id: str) -> dict[str, str]:
    instance = read(id)
    driver.reboot(ADMIN, instance, [], "HARD", block_device_info=block_devices())
    return {instance.display_name: id}


def main() -> None:
    verb, *words, _, conf = sys.argv[1:]
    driver = set_up(conf)
    with mock.patch(f"{_GROUPS}.get_instance_security_groups", return_value=[]):
        made = {"create": create, "reboot": reboot}[verb](driver, *words)
    print(json.dumps(made), flush=True)
    os._exit(0)  # Nova's threads would be waited for


main()
