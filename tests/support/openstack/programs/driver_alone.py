"""Our driver with Nova's classes, a real libvirt and a database in SQLite, and no other service.

`python driver_alone.py SCENARIO... --config-file NOVA.CONF` prints what came of each, as JSON.
"""

import json
import os
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import nova.cmd.compute  # the first: it sets up threads as Nova has them
import nova.conf.libvirt
import nova.config
import nova.db.main.api as main_db
from nova import context, exception, objects, service_auth
from nova.compute import task_states, vm_states
from nova.db.main import models
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt import utils as libvirt_utils
from nova.virt.libvirt.driver import LibvirtDriver

from millpond import config
from millpond.nova.driver import MillpondDriver
from millpond.nova.images import trusted_by
from millpond.nova.records import InstanceRecords

CONF = nova.conf.CONF
ADMIN = context.get_admin_context()
ANYTHING = {"bus": "virtio", "dev": "vdb", "type": "disk"}


def set_up(conf: str) -> "Driver":
    config.widen(nova.conf.libvirt.libvirt_imagebackend_opts)
    nova.config.parse_args(["nova-compute", "--config-file", conf])
    objects.register_all()
    main_db.configure(CONF)
    models.BASE.metadata.create_all(main_db.context_manager.writer.get_engine())
    return Driver(None)


class Driver(MillpondDriver):
    """It tells a scenario of each step of a disk."""

    now: Callable[..., None] = staticmethod(lambda *_: None)

    def watch(self, *step: str) -> None:
        self.now(*step)


def new_instance(task_state: str | None = task_states.SPAWNING, **fields: Any) -> objects.Instance:
    flavor = objects.Flavor(
        **{"id": 1, "flavorid": "1", "name": "small", "memory_mb": 64, "vcpus": 1},
        **{"root_gb": 1, "ephemeral_gb": 0, "swap": 0, "rxtx_factor": 1.0, "extra_specs": {}},
        **{"vcpu_weight": 0, "disabled": False, "is_public": True},
    )
    values = {
        "uuid": str(uuid.uuid4()),
        "host": CONF.host,
        "user_id": "angler",
        "project_id": "anglers",
        "image_ref": str(uuid.uuid4()),
        "display_name": "pike",
        "vm_state": vm_states.BUILDING,
        "task_state": task_state,
        "flavor": flavor,
        "system_metadata": {"image_disk_format": "raw"},
    }
    instance = objects.Instance(context=ADMIN, **(values | fields))
    instance.create()
    return instance


def again(instance: objects.Instance) -> objects.Instance:
    """As another request reads it at this moment."""
    attributes = ["system_metadata", "flavor"]
    return objects.Instance.get_by_uuid(ADMIN, instance.uuid, expected_attrs=attributes)


def make(driver: Driver, instance: objects.Instance, *roles: str) -> None:
    """Disks without an image, as spawn() makes them."""
    with driver.image_backend.making(instance):
        for role in roles:
            image = driver.image_backend.by_name(instance, role, disk_info_mapping=ANYTHING)
            image.cache(fetch_func=None, filename=role, size=16 * 1024**2)


def make_config_drive(driver: Driver, instance: objects.Instance) -> None:
    """A file of a pool, whatever images_type says."""
    file = Path(CONF.state_path, "config-drive")
    file.write_bytes(bytes(4096))
    with driver.image_backend.making(instance):
        image = driver.image_backend.by_name(instance, "disk.config", "raw")
        image.import_file(instance, str(file), "disk.config")
    file.unlink(missing_ok=True)


def volumes(driver: Driver) -> list[str]:
    pool = driver.millpond.pools.ensure("nova-disks-pool")
    pool.refresh()
    return sorted(name.partition("_")[2] for name in pool.names())


def refusal(function: Callable[..., Any], *args: Any, **kw: Any) -> str:
    """The name of the exception and its words; empty if there was none."""
    try:
        function(*args, **kw)
    except exception.InstanceFaultRollback as error:
        return f"rolled back: {error.inner_exception}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# Scenarios


def deleted_with_a_copy_from_before_its_disks(driver: Driver) -> Any:
    instance = new_instance()
    stale = again(instance)
    make(driver, instance, "disk.swap", "disk.eph0")
    before = volumes(driver)
    stale.task_state = task_states.DELETING
    driver.destroy(ADMIN, stale, [])
    return {"before": before, "after": volumes(driver)}


def novas_own_requests(_driver: Driver) -> Any:
    """Of a service, as which Nova asks when no user does."""
    return refusal(service_auth.get_service_auth_plugin, "cinder")


def deleted_before_its_disks_are_made(driver: Driver) -> Any:
    """The build goes on, and the delete waits for its end."""
    instance = new_instance()
    deleted = delete(instance)
    refused = refusal(make, driver, instance, "disk.swap")
    driver.destroy(ADMIN, deleted, [])
    return {"refused": refused, "after": volumes(driver)}


def deleted_while_a_disk_is_made(driver: Driver) -> Any:
    """Its record is there, and its volume is not."""
    instance = new_instance()

    def watch(*step: str) -> None:
        if step == ("disk", "make", "begin"):
            driver.destroy(ADMIN, delete(instance), [])

    driver.now = watch
    try:
        refused = refusal(make, driver, instance, "disk.swap")
    finally:
        driver.now = lambda *_: None
    return {"refused": refused, "after": volumes(driver)}


def delete(instance: objects.Instance) -> objects.Instance:
    """As nova-api begins it, and hands it to nova-compute."""
    found = again(instance)
    found.task_state = task_states.DELETING
    found.save()
    return found


def deleted_without_any_record(driver: Driver) -> Any:
    """As a driver of before has left them."""
    instance, other = new_instance(), new_instance()
    make(driver, instance, "disk.swap")
    make(driver, other, "disk.eph0")
    instance.system_metadata = {}
    instance.task_state = task_states.DELETING
    instance.save()
    driver.destroy(ADMIN, instance, [])
    return volumes(driver)


def rescued_while_it_is_deleted(driver: Driver) -> Any:
    """Nova deletes at once what is being rescued."""
    instance = new_instance(task_states.RESCUING, vm_state=vm_states.ACTIVE)
    delete(instance)
    return refusal(driver.rescue, ADMIN, instance, [], None, "", None, [])


def server_from_before(driver: Driver) -> Any:
    """Whose disks are its disks, by the class that serves them."""
    instance = new_instance(None, vm_state=vm_states.ACTIVE)
    kind = partial(kind_of, driver, instance)
    found = {
        "disk": kind("disk"),
        "path": kind(f"{CONF.instances_path}/{instance.uuid}/disk"),
        "kernel": kind("kernel", "raw"),
        "shared": driver.image_backend.backend().is_shared_block_storage(),
    }
    with driver.image_backend.making(instance, ".rescue"):
        found["disk in rescue"] = kind("disk")
        found["disk.rescue"] = kind("disk.rescue")
    with driver.image_backend.making(instance):
        found["disk in spawn"] = kind("disk")
        found["path in spawn"] = kind("/somewhere/disk")
    found["records"] = [key for key in again(instance).system_metadata if "millpond" in key]
    return found


def kind_of(driver: Driver, instance: objects.Instance, name: str, type_: str = "") -> str:
    return type(driver.image_backend.by_name(instance, name, type_ or None)).__name__


def cleanup_of_a_server_from_before(driver: Driver) -> Any:
    """Of which servers Nova's own part is asked to remove logical volumes or images in Ceph."""
    asked: list[str] = []
    LibvirtDriver._cleanup_lvm = lambda _self, each, _info: asked.append(each.display_name)
    LibvirtDriver._cleanup_rbd = lambda _self, each: asked.append(each.display_name)
    old, new = (new_instance(display_name=each) for each in ("old", "new"))
    make_config_drive(driver, new)
    driver._cleanup_lvm(new, None)
    driver._cleanup_rbd(new)
    with_records = list(asked)
    for instance in (old, new):
        driver.destroy(ADMIN, delete(instance), [])
    return {"with records": with_records, "deleted": asked, "after": volumes(driver)}


def moved_here(driver: Driver) -> Any:
    """A record from another host, and no volume: nothing is recreated."""
    instance = new_instance()
    make(driver, instance, "disk.swap")
    driver.millpond.pools.ensure("nova-disks-pool").delete(f"{instance.uuid}_disk.swap")
    swap = driver.image_backend.by_name(instance, "disk.swap", disk_info_mapping=ANYTHING)
    return {
        "refused": refusal(swap.cache, None, "swap", size=16 * 1024**2),
        "after": volumes(driver),
    }


def moves(driver: Driver) -> Any:
    ours, old = new_instance(task_states.RESIZE_MIGRATING), new_instance()
    bare = new_instance(image_ref="")
    make(driver, ours, "disk.swap")
    to = driver.check_can_live_migrate_destination
    stock = objects.LibvirtLiveMigrateData(image_type="qcow2")
    os.makedirs(libvirt_utils.get_instance_path(old))
    return {
        "from before": refusal(to, ADMIN, old, None, None),
        "to another driver": refusal(driver.check_can_live_migrate_source, ADMIN, ours, stock),
        "to another cell": refusal(driver.power_off, ours),
        "evacuated from before": refusal(driver.instance_on_disk, old),
        "evacuated without a disk": refusal(driver.instance_on_disk, bare),
    }


def evacuated(driver: Driver) -> Any:
    """What the host destroys that comes back, by the state of the evacuation."""
    found = {}
    for status in ("accepted", "done"):
        instance = new_instance(None, vm_state=vm_states.ACTIVE)
        instance.task_state = task_states.SPAWNING
        instance.save()
        make(driver, instance, "disk.swap")
        migration = objects.Migration(
            **{"context": ADMIN, "instance_uuid": instance.uuid, "status": status},
            **{"source_compute": CONF.host, "dest_compute": "dam", "migration_type": "evacuation"},
        )
        migration.create()
        if status == "done":
            instance.host = "dam"
        instance.task_state = None
        instance.save()
        shared = status == "done"  # the instances' directory: then Nova keeps disks
        driver.destroy(ADMIN, instance, [], destroy_disks=not shared)
        records = [
            bool(each)
            for key, each in again(instance).system_metadata.items()
            if "millpond" in key
        ]
        found[status] = {"volumes": volumes(driver), "records": records}
        instance.host = CONF.host
        instance.task_state = task_states.DELETING
        migration.status = "completed"
        migration.save()
        driver.destroy(ADMIN, instance, [])
    return {"supported": driver.capabilities["supports_evacuate"], **found}


def one_bad_instance(driver: Driver) -> Any:
    good = new_instance()
    make(driver, good, "disk.swap")
    new_instance(None, system_metadata={"image_disk_format": "luks"})
    new_instance(None, system_metadata={"millpond_disk": "damaged"})
    counted = driver._get_disk_over_committed_size_total()
    driver.manage_image_cache(ADMIN, [])
    return {"counted": counted, "bases": driver.millpond.pools.base.names()}


def free_space(driver: Driver) -> Any:
    """By how much it changes when guests fill 2 GiB of their disks, in MiB."""
    pool = driver.millpond.pools.ensure("nova-disks-pool")
    before = driver._get_local_gb_info()
    filled = Path(pool.path, "filled")
    with filled.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * 1024**3)
    after = driver._get_local_gb_info()
    filled.unlink()
    return {name: round(1024 * (after[name] - before[name])) for name in before}


def asks_for_encryption(driver: Driver) -> Any:
    """What is said by each way in, whoever asks; a rebuild without a wish Nova does itself."""
    plain, wish = {}, {"hw_ephemeral_encryption": True}
    flavor = {"hw:ephemeral_encryption": "true"}
    devices = {"ephemerals": [{"encrypted": True, "device_name": "/dev/vdb"}]}
    asking = {
        "nobody": (plain, {}, None),
        "image": (wish, {}, None),
        "flavor": (plain, flavor, None),
        "device": (plain, {}, devices),
    }
    backends = [each for each in vars(imagebackend).values() if isinstance(each, type)]
    encrypting = [each.__name__ for each in backends if getattr(each, "SUPPORTS_LUKS", False)]
    found = {who: refusals(driver, *asked) for who, asked in asking.items()}
    return {"backends of Nova that encrypt": encrypting, "said": found}


def refusals(
    driver: Driver, properties: dict[str, Any], extra_specs: dict[str, str], devices: Any
) -> dict[str, str]:
    meta = objects.ImageMeta.from_dict(
        {"id": str(uuid.uuid4()), "disk_format": "raw", "properties": properties}
    )
    instance = new_instance()
    instance.flavor.extra_specs = extra_specs
    found = {"rebuild": refusal(driver.rebuild, ADMIN, instance, meta, block_device_info=devices)}
    if properties or extra_specs or devices:
        spawn = (ADMIN, instance, meta, [], "", {})
        found["spawn"] = refusal(driver.spawn, *spawn, block_device_info=devices)
        instance.system_metadata |= {f"image_{key}": "true" for key in properties}
        resize = (ADMIN, instance, "127.0.0.1", instance.flavor, [])
        found["resize"] = refusal(driver.migrate_disk_and_power_off, *resize, devices)
    return found


def ephemeral_formats(driver: Driver) -> Any:
    """What the template of each ephemeral disk is, and what Nova is told of others."""
    found = {}
    for kind in (None, "ext3", "xfs", "vfat"):
        instance = new_instance()
        with driver.image_backend.making(instance):
            image = driver.image_backend.by_name(instance, "disk.eph0", disk_info_mapping=ANYTHING)
            image.cache(fetch_func=None, filename="eph", size=512 * 1024**2, specified_fs=kind)
        record = InstanceRecords(again(instance)).get("disk.eph0")
        template = Path(driver.millpond.pools.base.path, record.disk.template.volume)
        words = ("blkid", "-p", "-o", "value", "-s", "TYPE", template)
        found[str(kind)] = subprocess.check_output(words, text=True).strip()
    return {"made": found, "ntfs": driver.is_supported_fs_format("ntfs")}


def trusted_certificates(driver: Driver) -> Any:
    """Servers of each image, before and after somebody trusts the certificates of nova.conf."""
    ids = list(CONF.glance.default_trusted_certificate_ids)
    found: dict[str, Any] = {"traits": driver.capabilities_as_traits()}
    for image in driver.millpond.images.all():
        asked = {"nobody": None, "trusting": ids, "trusting others": [str(uuid.uuid4())]}
        found[image.name] = {
            who: refusal(make_root, driver, image.id, trusted) for who, trusted in asked.items()
        }
    trusts = again(new_instance(trusted_certs=objects.TrustedCerts(ids=ids)))
    return found | {"of the server": list(trusted_by(trusts)), "ids": ids}


def make_root(driver: Driver, image_id: str, trusted: list[str] | None) -> None:
    instance = new_instance(image_ref=image_id)
    certificates = objects.TrustedCerts(ids=trusted) if trusted else None
    with driver.image_backend.making(instance):
        image = driver.image_backend.by_name(instance, "disk", disk_info_mapping=ANYTHING)
        image.cache(None, filename="any", image_id=image_id, trusted_certs=certificates)
    assert f"{instance.uuid}_disk" in driver.millpond.pools.ensure("nova-disks-pool").names()


def disk_in_the_domain(driver: Driver) -> Any:
    instance = new_instance()
    make(driver, instance, "disk.swap")
    swap = driver.image_backend.by_name(instance, "disk.swap", disk_info_mapping=ANYTHING)
    described = swap.libvirt_info("none", {})
    driver._set_cache_mode(described)
    return described.to_xml()


def main(known: Mapping[str, Any], *words: str) -> None:
    """``known``: functions by the names of their scenarios."""
    *scenarios, _option, conf = words
    driver = set_up(conf)
    found = {}
    for each in scenarios:
        try:
            found[each] = known[each](driver)
        except Exception:
            found[each] = traceback.format_exc()
        clear(driver)
    print(json.dumps(found), flush=True)
    os._exit(0)  # threads of the connection to libvirt go on


def clear(driver: Driver) -> None:
    for instance in objects.InstanceList.get_all(ADMIN):
        instance.destroy()
    pool = driver.millpond.pools.ensure("nova-disks-pool")
    pool.refresh()
    for name in pool.names():
        pool.delete(name)


if __name__ == "__main__":
    main(globals(), *sys.argv[1:])
