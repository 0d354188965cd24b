"""What becomes of disks that Nova's own driver laid out, with Nova's classes, a real libvirt and
a database in SQLite: `python transition_alone.py SCENARIO... --config-file NOVA.CONF`.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from driver_alone import ADMIN, ANYTHING, CONF, Driver, again, main, new_instance, refusal
from nova import objects
from nova.compute import task_states, vm_states
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.errors import HostProblem
from millpond.hosts.cache import list_templates
from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import ImageId, template_name
from millpond.model.volume import Volume
from millpond.nova import giving_back, transition, transition_command
from millpond.nova.records import InstanceRecords
from millpond.nova.recovery import recover
from millpond.records import journal
from millpond.servers import transition_steps

FILES = ("disk", "disk.eph0", "disk.swap", "disk.config")
BASES = {"disk.eph0": "ephemeral_1_40d1d2c", "disk.swap": "swap_16"}
MOMENTS = ("begin", "end")


class Killed(BaseException):
    pass


def lay_out(**fields: Any) -> objects.Instance:
    """An instance that is off, with files as Nova's driver makes them."""
    state = {"vm_state": vm_states.STOPPED, "task_state": None}
    instance = new_instance(**(state | {"kernel_id": ""} | fields))
    directory = home(instance)
    directory.mkdir(parents=True)
    image = template_name(ImageId(instance.image_ref), DiskFormat.RAW)
    for role, base in ({"disk": image} | BASES).items():
        write_base(base)
        words = ("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", bases() / base)
        subprocess.run((*words, directory / role, "16M"), check=True)
        words = ("qemu-io", "-f", "qcow2", "-c", "write -P 7 1M 64k", directory / role)
        subprocess.run(words, check=True, capture_output=True)
    (directory / "disk.config").write_bytes(os.urandom(4096))
    (directory / "kernel").write_bytes(b"kernel")
    (directory / "console.log").write_bytes(b"READY")
    told = {str(directory / each): "qcow2" for each in ("disk", *BASES)}
    told |= {str(directory / each): "raw" for each in ("kernel", "disk.config")}
    (directory / "disk.info").write_text(json.dumps(told))
    return instance


def bases() -> Path:
    return Path(CONF.instances_path, "_base")


def write_base(name: str) -> None:
    bases().mkdir(exist_ok=True)
    if not (bases() / name).exists():
        (bases() / name).write_bytes(bytes(16 * 1024**2))


def home(instance: objects.Instance) -> Path:
    return Path(CONF.instances_path, instance.uuid)


def contents(driver: Driver, instance: objects.Instance) -> dict[str, str]:
    """Where each disk is."""
    pool = Path(driver.millpond.pools.ensure("nova-disks-pool").path)
    found = {}
    for role in FILES:
        places = {"files": home(instance) / role, "pool": pool / f"{instance.uuid}_{role}"}
        found[role] = " ".join(name for name, path in places.items() if path.exists())
    return found


def read(driver: Driver, instance: objects.Instance, place: str) -> dict[str, bytes]:
    pool = Path(driver.millpond.pools.ensure("nova-disks-pool").path)
    paths = {
        role: home(instance) / role if place == "files" else pool / f"{instance.uuid}_{role}"
        for role in FILES
    }
    return {role: path.read_bytes() for role, path in paths.items() if path.exists()}


def hard_reboot(driver: Driver, instance: objects.Instance) -> None:
    """Nova's own part is only that it is asked."""
    with mock.patch.object(LibvirtDriver, "_hard_reboot"):
        driver._hard_reboot(ADMIN, instance, [], [])


def notes(instance: objects.Instance) -> dict[str, str]:
    """What is left in the metadata, without records."""
    found = again(instance).system_metadata.items()
    return {key: text for key, text in found if key.startswith("millpond-") and text}


def records(instance: objects.Instance) -> list[str]:
    return sorted(InstanceRecords(again(instance)).roles())


@contextmanager
def logged() -> Any:
    output = StringIO()
    handler = logging.StreamHandler(output)
    logger = logging.getLogger("millpond")
    logger.addHandler(handler)
    try:
        yield output
    finally:
        logger.removeHandler(handler)


# Scenarios


def moved(driver: Driver) -> Any:
    instance = lay_out(task_state=task_states.REBOOT_STARTED_HARD, vm_state=vm_states.ACTIVE)
    before = read(driver, instance, "files")
    hard_reboot(driver, instance)
    described = {role: describe(driver, instance, role) for role in FILES}
    hard_reboot(driver, instance)  # nothing is left to do
    return {
        "same": read(driver, instance, "pool") == before,
        "places": contents(driver, instance),
        "directory": sorted(os.listdir(home(instance))),
        "disk.info": [Path(each).name for each in json.loads(disk_info(instance))],
        "records": records(instance),
        "notes": notes(instance),
        "templates": sorted(each.volume for each in list_templates(driver.millpond)),
        "base": oct((bases() / "swap_16").stat().st_mode & 0o777),
        "described": described,
    }


def describe(driver: Driver, instance: objects.Instance, role: str) -> str:
    image = driver.image_backend.by_name(instance, role, disk_info_mapping=ANYTHING)
    return str(image.libvirt_info("none", {}).to_xml())


def disk_info(instance: objects.Instance) -> str:
    return (home(instance) / "disk.info").read_text()


def interrupted(driver: Driver) -> Any:
    """Killed at each moment of each step; what nova-compute finds then, and leaves."""
    found = {}
    for moment in moments(driver, "transition", there):
        instance = lay_out(task_state=task_states.REBOOT_STARTED_HARD, vm_state=vm_states.ACTIVE)
        before = read(driver, instance, "files")
        die_at(driver, moment, lambda: hard_reboot(driver, instance))  # noqa: B023
        found[" ".join(moment)] = after_death(driver, instance, before)
    return found


def after_death(driver: Driver, instance: objects.Instance, before: dict[str, bytes]) -> Any:
    at_death = whole(driver, instance, before)
    instance = again(instance)
    status = {each["server"]: each for each in command("status")[1]}
    recover(driver.millpond, CONF.host, Path(CONF.state_path))
    recovered = set(contents(driver, instance).values())
    settled = whole(driver, instance, before) and not notes(instance)
    again_ = again(instance)
    hard_reboot(driver, again_)
    return {
        "whole": at_death and settled,
        "in the way": status[instance.uuid]["in_the_way"],
        "recovered": sorted(recovered),
        "moved": read(driver, instance, "pool") == before and not read(driver, instance, "files"),
        "records": records(instance) == sorted(FILES) and not notes(instance),
        "made": all(each.made for each in InstanceRecords(again(instance)).all()),
    }


def whole(driver: Driver, instance: objects.Instance, before: dict[str, bytes]) -> bool:
    """There is a whole copy of each."""
    copies = [read(driver, instance, place) for place in ("files", "pool")]
    return all(content in [each.get(role) for each in copies] for role, content in before.items())


def failed(driver: Driver) -> Any:
    """With a fault at each moment of each step, the server starts all the same."""
    found = {}
    for moment in moments(driver, "transition", there):
        instance = lay_out(task_state=task_states.REBOOT_STARTED_HARD, vm_state=vm_states.ACTIVE)
        before = read(driver, instance, "files")

        def fail(*step: str, moment: tuple[str, ...] = moment) -> None:
            if step == moment:
                raise HostProblem("the well is dry", "wait for rain")

        driver.now = fail
        with logged() as log:
            refused = refusal(hard_reboot, driver, instance)
        driver.now = lambda *_: None
        found[" ".join(moment)] = {
            "refused": refused,
            "warned": log.getvalue().count("stays in Nova's layout: the well is dry"),
            "stays": read(driver, instance, "files") == before and not records(instance),
            "notes": notes(instance),
            "whole": whole(driver, instance, before),
        }
        hard_reboot(driver, again(instance))
        found[" ".join(moment)]["moved later"] = read(driver, instance, "pool") == before
    return found


def between_two_disks(driver: Driver) -> Any:
    """Killed when one has moved and the others have not."""
    instance = lay_out(task_state=task_states.POWERING_ON)
    before = read(driver, instance, "files")
    rename, done = transition_steps._rename, []

    def once(*args: Any) -> None:
        if done:
            raise Killed
        done.append(rename(*args))

    with mock.patch.object(transition_steps, "_rename", once):
        die_at(driver, (), lambda: hard_reboot(driver, instance))
    places = contents(driver, instance)
    return {"places": places, **after_death(driver, instance, before)}


def moments(driver: Driver, verb: str, act: Callable[..., Any]) -> list[tuple[str, ...]]:
    """Those that are come to when nothing happens."""
    seen: list[tuple[str, ...]] = []
    driver.now = lambda *step: seen.append(tuple(map(str, step)))
    act(driver)
    driver.now = lambda *_: None
    return [each for each in seen if each[0] == verb]


def there(driver: Driver) -> objects.Instance:
    instance = lay_out(task_state=task_states.POWERING_ON)
    hard_reboot(driver, instance)
    return instance


def die_at(driver: Driver, moment: tuple[str, ...], act: Callable[[], Any]) -> None:
    """Nothing is undone, as after SIGKILL."""

    def die(*step: str) -> None:
        if tuple(map(str, step)) == moment:
            raise Killed

    driver.now = die
    try:
        with mock.patch.object(journal, "_give_up"), suppress(Killed):
            act()
            raise AssertionError(f"it did not die at {moment}")
    finally:
        driver.now = lambda *_: None


def in_the_way(driver: Driver) -> Any:
    """What cannot be moved stays, and the server starts."""
    found = {}
    for name, act in OBSTACLES.items():
        instance = lay_out(task_state=task_states.POWERING_ON)
        act(driver, instance)
        before, places = read(driver, instance, "files"), contents(driver, instance)
        told = [each for each in command("status")[1] if each["server"] == instance.uuid]
        with logged() as log:
            refused = refusal(hard_reboot, driver, instance)
        found[name] = {
            "status": told[0]["in_the_way"],
            "refused": refused,
            "warned": log.getvalue(),
            "stays": read(driver, instance, "files") == before
            and contents(driver, instance) == places,
            "records": records(instance),
            "notes": notes(instance),
        }
    return found


def _link(_driver: Driver, instance: objects.Instance) -> None:
    disk = home(instance) / "disk.swap"
    disk.rename(home(instance) / "elsewhere")
    disk.symlink_to(home(instance) / "elsewhere")


def _hard_link(_driver: Driver, instance: objects.Instance) -> None:
    (home(instance) / "another").hardlink_to(home(instance) / "disk")


def _no_base(_driver: Driver, instance: objects.Instance) -> None:
    (bases() / template_name(ImageId(instance.image_ref), DiskFormat.RAW)).unlink()


def _twice(driver: Driver, instance: objects.Instance) -> None:
    pool = Path(driver.millpond.pools.ensure("nova-disks-pool").path)
    (pool / f"{instance.uuid}_disk").write_bytes(b"another")


def _unknown_format(_driver: Driver, instance: objects.Instance) -> None:
    told = {str(home(instance) / each): "vmdk" for each in FILES}
    (home(instance) / "disk.info").write_text(json.dumps(told))


def _damaged(_driver: Driver, instance: objects.Instance) -> None:
    (home(instance) / "disk.info").write_text("{")


def _rescue(_driver: Driver, instance: objects.Instance) -> None:
    (home(instance) / "disk.rescue").write_bytes(b"")


def _resize(_driver: Driver, instance: objects.Instance) -> None:
    instance.vm_state = vm_states.RESIZED
    instance.save()


OBSTACLES = {
    "link": _link,
    "hard link": _hard_link,
    "no base": _no_base,
    "twice": _twice,
    "unknown format": _unknown_format,
    "damaged": _damaged,
    "rescue": _rescue,
    "resize": _resize,
}


def at_start(driver: Driver) -> Any:
    old, new = lay_out(display_name="old"), new_instance(display_name="new")
    config_only = new_instance(display_name="config only")
    home(config_only).mkdir()
    (home(config_only) / "disk.config").write_bytes(b"config")
    with logged() as log:
        refused = refusal(transition.look_at_start, driver.millpond)
    return {"log": log.getvalue(), "refused": refused, "ids": [old.uuid, new.uuid]}


def command(*words: str) -> tuple[int, Any]:
    """millpond-nova-transition, without the conductor: its exit status, and its words."""
    parser = transition_command._parser()
    asked = parser.parse_args([*words, "--json"])
    output = StringIO()
    host = transition_command.wiring.host()
    with mock.patch.object(sys, "stdout", output):
        try:
            status = asked.act(host, asked)
        except Exception as error:
            return getattr(error, "exit_code", -1), f"{type(error).__name__}: {error}"
    return status, json.loads(output.getvalue())


def by_command(driver: Driver) -> Any:
    off = lay_out(display_name="off")
    busy = lay_out(display_name="busy", task_state=task_states.POWERING_ON)
    active = lay_out(display_name="active", vm_state=vm_states.ACTIVE)
    elsewhere = lay_out(display_name="elsewhere", host="dam")
    before = {each.uuid: read(driver, each, "files") for each in (off, busy, active, elsewhere)}
    found = {
        "status": command("status"),
        "dry run": command("run", "--all", "--dry-run"),
        "run": command("run", "--all"),
        "run elsewhere": command("run", elsewhere.uuid),
        "neither": command("run"),
    }
    found["same"] = read(driver, off, "pool") == before[off.uuid]
    found["untouched"] = [
        read(driver, each, "files") == before[each.uuid] for each in (busy, active, elsewhere)
    ]
    found["status after"] = [each["name"] for each in command("status")[1]]
    found["revert"] = command("revert", "off")
    found["reverted"] = read(driver, off, "files") == before[off.uuid]
    found["base"] = oct((bases() / "swap_16").stat().st_mode & 0o777)
    found["places"] = contents(driver, off)
    found["disk.info"] = json.loads(disk_info(off))
    found["records"] = records(off)
    found["again"] = command("revert", "off")
    found["directory"] = str(home(off))
    return found


def revert_interrupted(driver: Driver) -> Any:
    found = {}
    for moment in moments(driver, "revert", back):
        instance = there(driver)
        instance.task_state = None
        instance.save()
        before = read(driver, instance, "pool")
        die_at(driver, moment, lambda: give_back(driver, again(instance)))  # noqa: B023
        at_death = whole(driver, instance, before)
        recover(driver.millpond, CONF.host, Path(CONF.state_path))
        settled = whole(driver, instance, before) and not notes(instance)
        told = command("revert", instance.uuid)
        found[" ".join(moment)] = {
            "whole": at_death and settled,
            "status": told[0],
            "reverted": read(driver, instance, "files") == before
            and not read(driver, instance, "pool"),
            "records": records(instance),
            "notes": notes(instance),
        }
    return found


def back(driver: Driver) -> None:
    instance = there(driver)
    instance.task_state = None
    instance.save()
    give_back(driver, instance)


def give_back(driver: Driver, instance: objects.Instance) -> None:
    host = driver.millpond
    giving_back.give_back(host, instance, giving_back.plan_back(host, instance))


def not_back(driver: Driver) -> Any:
    """What Nova's driver would not find, or take for something else."""
    found = {}
    for name, change in {
        "raw": {"backend": "raw", "format": "raw"},
        "lvm": {"backend": "lvm", "pool": "nova-disks-pool-lvm"},
        "base": {"base": "0123456789abcdef0123456789abcdef01234567.qcow2"},
        "base pool": {"base_pool": "elsewhere"},
        "unfinished": {"made": False},
    }.items():
        instance = there(driver)
        instance.task_state = None
        _change_record(instance, change)
        before = contents(driver, instance)
        status, told = command("revert", instance.uuid)
        found[name] = {
            "status": status,
            "error": told[0]["error"],
            "same": contents(driver, instance) == before,
            "records": records(instance),
        }
    return found


def with_a_base_that_is_not_raw(driver: Driver) -> Any:
    """As Nova has it with force_raw_images = False."""
    instance = lay_out(task_state=task_states.POWERING_ON)
    base = bases() / template_name(ImageId(instance.image_ref), DiskFormat.RAW)
    disk = home(instance) / "disk"
    for path in (base, disk):
        path.unlink()
    subprocess.run(("qemu-img", "create", "-q", "-f", "qcow2", base, "16M"), check=True)
    words = ("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, disk)
    subprocess.run(words, check=True)
    hard_reboot(driver, instance)
    return {
        "places": contents(driver, instance),
        "described": describe(driver, instance, "disk"),
        "known to libvirt": bool(driver.millpond.pools.base.find(base.name)),
    }


class Group:
    """A volume group as libvirt would show it: there is none here."""

    def __init__(self, pool: str, *names: str) -> None:
        self._volumes = [
            Volume(pool=pool, name=each, path=f"/dev/vg0/{each}", capacity=2**30, allocation=2**30)
            for each in names
        ]

    def volumes(self) -> list[Volume]:
        return self._volumes


def in_place(driver: Driver) -> Any:
    """Logical volumes, and a config drive, which is a file then; killed, moved and given back."""
    instance = new_instance(vm_state=vm_states.STOPPED, task_state=None)
    home(instance).mkdir()
    config = os.urandom(4096)
    (home(instance) / "disk.config").write_bytes(config)
    host = driver.millpond
    pool = host.pool_plan.by_backend[Backend.LVM].name
    group = Group(pool, f"{instance.uuid}_disk", f"{instance.uuid}_disk.swap")
    layout = host.nova_layout({Backend.LVM: group})
    found: dict[str, Any] = {}
    with mock.patch.object(transition, "find_layout", return_value=layout):
        found["concerned"] = transition.is_concerned(host, instance)
        for step in ("move", "remove"):
            here = again(instance)
            die_at(driver, ("transition", step, "begin"), lambda: hard_reboot(driver, here))  # noqa: B023
            found[f"{step} noted"] = records(instance)
            recover(host, CONF.host, Path(CONF.state_path))
            found[f"{step} recovered"] = records(instance)
        here = again(instance)
        hard_reboot(driver, here)
        found["concerned later"] = transition.is_concerned(host, here)
        found["record"] = InstanceRecords(here).get("disk").disk.location
        found["places"] = contents(driver, instance)["disk.config"]
        status, told = command("revert", instance.uuid)
        found["revert"] = [status, told[0]["disks"], told[0]["error"]]
        found["records"] = records(instance)
        found["config drive"] = (home(instance) / "disk.config").read_bytes() == config
        found["found again"] = transition.is_concerned(host, again(instance))
    return {**found, "pool": pool, "id": instance.uuid}


def raw_goes_back(driver: Driver) -> Any:
    instance = new_instance()
    with driver.image_backend.making(instance):
        image = driver.image_backend.by_name(instance, "disk.swap", disk_info_mapping=ANYTHING)
        image.cache(fetch_func=None, filename="swap", size=16 * 1024**2)
    instance.vm_state, instance.task_state = vm_states.STOPPED, None
    instance.save()
    status, _ = command("revert", instance.uuid)
    told = json.loads(disk_info(instance))
    return {
        "status": status,
        "disk.info": told[str(home(instance) / "disk.swap")],
        "records": records(instance),
    }


def reverted_without_knowing(_driver: Driver) -> Any:
    return command("revert", "--all")


def _change_record(instance: objects.Instance, change: dict[str, Any]) -> None:
    text = json.loads(instance.system_metadata["millpond_disk"])
    for key, value in change.items():
        if key in ("base", "base_pool"):
            text[7][1 if key == "base" else 0] = value
        else:
            text[{"made": 1, "backend": 2, "pool": 3, "format": 4}[key]] = value
    instance.system_metadata["millpond_disk"] = json.dumps(text)
    instance.save()


if __name__ == "__main__":
    main(globals(), *sys.argv[1:])
