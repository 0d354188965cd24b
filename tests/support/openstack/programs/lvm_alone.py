"""What our driver does with logical volumes, its own and those of Nova's own driver, with Nova's
classes, a real libvirt, a real volume group and a database in SQLite:
`python lvm_alone.py SCENARIO... --config-file NOVA.CONF`.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from driver_alone import (
    ADMIN,
    ANYTHING,
    CONF,
    Driver,
    again,
    delete,
    main,
    make,
    make_config_drive,
    new_instance,
)
from nova import objects
from nova.compute import task_states, vm_states
from transition_alone import command, describe, hard_reboot, home, records

from millpond.model.formats import Backend
from millpond.nova import transition

MiB = 1024**2
WRITTEN = b"written by the guest"
EVERYTHING = "100%FREE"


def lvm(*words: object) -> str:
    done = subprocess.run([str(each) for each in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr}")
    return done.stdout


def group() -> str:
    return str(CONF.libvirt.images_volume_group)


def device(name: str) -> Path:
    return Path("/dev", group(), name)


def sizes(instance: objects.Instance | None = None) -> dict[str, int]:
    """As LVM itself says; those of one server by their roles."""
    plain = ("--noheadings", "--units", "b", "--nosuffix", "--options", "lv_name,lv_size")
    rows = [line.split() for line in lvm("lvs", *plain, group()).splitlines()]
    prefix = f"{instance.uuid}_" if instance else ""
    return {name[len(prefix) :]: int(size) for name, size in rows if name.startswith(prefix)}


def scribble(name: str, where: int) -> None:
    with device(name).open("r+b") as file:
        file.seek(where)
        file.write(WRITTEN)


def life_of_disks(driver: Driver) -> Any:
    """They are made, described, grown and deleted; who gets their extents finds nothing."""
    instance, other = new_instance(), new_instance()
    make(driver, instance, "disk.swap", "disk.eph0")
    make(driver, other, "disk.swap")
    make_config_drive(driver, instance)
    found: dict[str, Any] = {"made": sizes(instance), "records": records(instance)}
    found["described"] = describe(driver, instance, "disk.swap")
    swap = driver.image_backend.by_name(instance, "disk.swap", disk_info_mapping=ANYTHING)
    found["blank"] = not any(device(f"{instance.uuid}_disk.swap").read_bytes())
    scribble(f"{instance.uuid}_disk.swap", 8 * MiB)
    swap.resize_image(64 * MiB)
    content = device(f"{instance.uuid}_disk.swap").read_bytes()
    found["grown"] = [sizes(instance)["disk.swap"], content.find(WRITTEN), content.count(0)]
    driver.destroy(ADMIN, delete(instance), [])
    found["deleted"] = [sizes(instance), sorted(sizes(other))]
    lvm("lvcreate", "--yes", "--name", "next", "--extents", EVERYTHING, group())
    with device("next").open("rb") as file:
        found["left"] = any(WRITTEN in file.read(64 * MiB) for _ in range(16))
    lvm("lvremove", "--yes", f"{group()}/next")
    driver.destroy(ADMIN, delete(other), [])
    found["in the end"] = sizes()
    return found


def deleted_behind_its_back(driver: Driver) -> Any:
    """Of a server that was deleted while no nova-compute ran, and whose records are lost."""
    instance = new_instance()
    make(driver, instance, "disk.swap")
    instance.system_metadata = {}
    instance.task_state = task_states.DELETING
    instance.save()
    driver.destroy(ADMIN, instance, [])
    return sizes()


def adopted_in_place(driver: Driver) -> Any:
    """Volumes that Nova's own driver made, moved into records by a hard reboot, and given back."""
    instance = new_instance(vm_state=vm_states.STOPPED, task_state=None)
    home(instance).mkdir(parents=True, exist_ok=True)
    for role in ("disk", "disk.swap"):
        name = f"{instance.uuid}_{role}"
        lvm("lvcreate", "--yes", "--name", name, "--size", "16m", group())
        scribble(name, 4 * MiB)
    host = driver.millpond
    before, content = sizes(instance), device(f"{instance.uuid}_disk").read_bytes()
    found: dict[str, Any] = {"concerned": transition.is_concerned(host, instance)}
    found["status"] = [each["name"] for each in command("status")[1]]
    here = again(instance)
    hard_reboot(driver, here)
    found["records"] = records(instance)
    found["described"] = describe(driver, again(instance), "disk")
    found["pool"] = host.pool_plan.by_backend[Backend.LVM].name
    found["status later"] = command("status")[1]
    found["revert"] = command("revert", instance.uuid)[0]
    found["records later"] = records(instance)
    found["same"] = (sizes(instance), device(f"{instance.uuid}_disk").read_bytes()) == (
        before,
        content,
    )
    found["found again"] = [each["name"] for each in command("status")[1]]
    hard_reboot(driver, again(instance))
    driver.destroy(ADMIN, delete(instance), [])
    found["deleted"] = sizes()
    return found


if __name__ == "__main__":
    main(globals(), *sys.argv[1:])
