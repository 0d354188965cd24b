"""nova-compute of a cloud with one of two drivers: ours, or the one that Nova comes with."""

import importlib.metadata
import shutil
from pathlib import Path

from tests.support.openstack.cloud import Cloud
from tests.support.openstack.environment import python
from tests.support.openstack.nova import Sections

MILLPOND = "millpond"
NOVA = "nova"

_SOURCES = Path(__file__).parents[3] / "src"

_MAPPING = "qcow2:qcow2, raw:raw"


class Deployment:
    """Each driver keeps its disks in a directory of its own."""

    def __init__(self, cloud: Cloud, driver: str) -> None:
        self.cloud = cloud
        self.driver = driver
        self.instances = cloud.compute.directory / f"{driver}-instances"

    def start(self, mapping: str = _MAPPING, extra: Sections | None = None) -> None:
        """Configured anew, in place of whatever runs."""
        self.cloud.compute.stop()
        self.instances.mkdir(parents=True, exist_ok=True)
        self.cloud.compute.configure(
            {
                "DEFAULT": {"instances_path": self.instances, "compute_driver": self._driver},
                "libvirt": {"snapshot_image_format": "qcow2", **self._storage(mapping)},
                **(extra or {}),
            }
        )
        self.run()

    def run(self) -> None:
        """With the configuration that is there."""
        if self.driver == NOVA:
            self.cloud.start_compute()
            return
        path = f"{_SOURCES}:{self._entry_points()}"
        self.cloud.start_compute(python(), "-m", "millpond.nova.compute", PYTHONPATH=path)

    def restart(self) -> None:
        self.cloud.compute.stop()
        self.run()

    @property
    def _driver(self) -> str:
        return "libvirt.LibvirtDriver" if self.driver == NOVA else "millpond.MillpondDriver"

    def _storage(self, mapping: str) -> dict[str, object]:
        if self.driver == NOVA:
            return {"images_type": "qcow2"}
        return {"images_type": "libvirt-storage", "images_type_mapping": mapping}

    def _entry_points(self) -> Path:
        """What Millpond's installation says of it, without all that is installed beside it."""
        own = self.cloud.compute.directory / "millpond-installed"
        files = importlib.metadata.distribution("millpond").files or []
        for file in files:
            if file.parent.name.endswith(".dist-info"):
                target = own / file.parent.name / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
        return own
