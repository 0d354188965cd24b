"""nova-compute of a cloud with one of two drivers: ours, or the one that Nova comes with."""

import json
from pathlib import Path
from typing import Any

from tests.support.openstack.cloud import Cloud
from tests.support.openstack.environment import python, python_path
from tests.support.openstack.nova import NovaCompute, Sections, merged

MILLPOND = "millpond"
NOVA = "nova"

_MORTAL = Path(__file__).parent / "programs/mortal_compute.py"

_MAPPING = "qcow2:qcow2, raw:raw"


class Deployment:
    """Each driver keeps its disks in a directory that is named for it, or for another one."""

    def __init__(
        self, cloud: Cloud, driver: str, compute: NovaCompute | None = None, *, place: str = ""
    ) -> None:
        self.cloud = cloud
        self.driver = driver
        self.is_mortal = False
        """Whether it runs until it dies somewhere."""
        self.compute = compute or cloud.compute
        self.place = place or driver
        directory = f"{self.place}-instances"
        self.instances = self.compute.directory / directory
        """As it is seen from outside of the host. There it is at the same place on all of them."""
        self._place = cloud.compute.directory / directory

    def start(self, mapping: str = _MAPPING, extra: Sections | None = None) -> None:
        """Configured again, in place of whatever runs."""
        self.compute.stop()
        for each in (self.instances, self._place):
            each.mkdir(parents=True, exist_ok=True)
        self.compute.hypervisor.mount(self.instances, self._place)
        own = {
            "DEFAULT": {"instances_path": self._place, "compute_driver": self._driver},
            "libvirt": {"snapshot_image_format": "qcow2", **self._storage(mapping)},
        }
        self.compute.configure(merged(own, extra or {}))
        self.run()

    def run(self) -> None:
        """With the configuration that is there."""
        self.is_mortal = False
        if self.driver == NOVA:
            self.cloud.start_compute(self.compute)
            return
        self.cloud.start_compute(
            self.compute, python(), "-m", "millpond.nova.compute", **self._path()
        )

    def run_until(self, verb: str, step: str, moment: str) -> None:
        """Ours, which will die by SIGKILL when it comes there."""
        self.compute.stop()
        self.is_mortal = True
        self.cloud.start_compute(
            self.compute, python(), _MORTAL, verb, step, moment, **self._path()
        )

    def doctor(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """millpond-nova-doctor: its exit status, and what it found."""
        program = (python(), "-W", "ignore", "-m", "millpond.nova.doctor", "--json", *words)
        done = self.compute.run(*program, **self._path())
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def transition(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """millpond-nova-transition: its exit status, and what it says."""
        program = (python(), "-W", "ignore", "-m", "millpond.nova.transition_command")
        done = self.compute.run(*program, *words, "--json", **self._path())
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def problems(self, *words: str) -> list[str]:
        """What the doctor finds wrong, in its own words."""
        code, found = self.doctor(*words)
        problems = [each["what"] for each in found if each["level"] == "problem"]
        assert bool(code) == bool(problems), found
        return problems

    def restart(self) -> None:
        self.compute.stop()
        self.run()

    @property
    def _driver(self) -> str:
        return "libvirt.LibvirtDriver" if self.driver == NOVA else "millpond.MillpondDriver"

    def _storage(self, mapping: str) -> dict[str, object]:
        if self.driver == NOVA:
            return {"images_type": "qcow2"}
        return {"images_type": "libvirt-storage", "images_type_mapping": mapping}

    def _path(self) -> dict[str, str]:
        return {"PYTHONPATH": python_path(self.compute.directory)}
