"""A host whose image is a volume that the host itself has to reach."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cinder_pages import LOCATION, PROJECT, CinderPages, saying
from tests.support.glance_pages import ID, offer_content, offer_description, offer_versions
from tests.support.millpond import Millpond
from tests.support.multi_host import MultiHost
from tests.support.web import Web, serving


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedHost:
    millpond: Millpond
    cinder: CinderPages
    glance: Web

    def create(self, name: str, *options: str) -> Any:
        words = ("--image", ID, "--memory", "32M", "--network", "none")
        return self.millpond.json("server", "create", name, *words, *options)

    def templates(self) -> list[Any]:
        return [each["template"] for each in self.millpond.json("cache", "list")["templates"]]

    def left(self) -> list[str]:
        """Names in the cache, and what is under way next to it."""
        bases = self.millpond.bases
        incoming = bases.with_name(f"{bases.name}.millpond") / "incoming"
        places = (bases, incoming, self.millpond.state / "mnt")
        return [each.name for place in places if place.exists() for each in place.iterdir()]

    @property
    def name(self) -> Path:
        """Of the volume in the base pool."""
        (found,) = self.millpond.bases.iterdir()
        return found


@dataclass(frozen=True, slots=True)
class LinkingHosts:
    """Several, whose files can be opened here, as linked_host() asks for one."""

    hosts: MultiHost
    shared: bool = False
    """They share the directory of disks."""

    def configure(self, libvirt: str, default: str) -> None:
        default = f"{default}\ninstances_path = {self.hosts.directory}/instances"
        own = self.hosts.place_locally(shared=self.shared)
        self.hosts.configure(own, default=default, rest=f"[libvirt]\n{libvirt}")


@contextmanager
def linked_host(
    millpond: Millpond | LinkingHosts,
    content: bytes,
    connection: Mapping[str, Any],
    **described: Any,
) -> Iterator[LinkedHost]:
    """``described``: what Glance says of the image, which is raw."""
    with serving() as glance, saying(connection) as cinder:
        offer_versions(glance)
        locations = [{"url": LOCATION, "metadata": {}}]
        offer_description(glance, content, locations=locations, **described)
        offer_content(glance, content)
        said = json.loads(glance.pages[f"/v2/images/{ID}"].content)
        glance.offer("/v2/images", json.dumps({"images": [said]}).encode())
        millpond.configure(
            "images_type = qcow2\nimages_type_mapping = raw:qcow2, qcow2:qcow2\n"
            f"[glance]\nauth_type = none\nendpoint_override = {glance.url('')}\n"
            f"[cinder]\nauth_type = none\nendpoint_template = {cinder.url}\n"
            f"image_volume_project_id = {PROJECT}",
            default="image_source = glance\ntemplate_image_handler = volume-based-linking",
        )
        yield LinkedHost(millpond=millpond, cinder=cinder, glance=glance)
