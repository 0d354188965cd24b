"""A real Glance with images in files and, next to a Cinder, in volumes and in Ceph."""

import functools
import json
from pathlib import Path

from openstack.exceptions import raise_from_response
from openstack.image.v2._proxy import Proxy
from openstack.image.v2.image import Image

from tests.support.ceph import Ceph
from tests.support.ini import ini
from tests.support.openstack.cinder import SHARED_RBD, Cinder
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.service import Api, connect

POOL = "images"
USER = "glance"

# The stores, which stand in locations, too: cinder://volumes/…
FILES = "files"
VOLUMES = "volumes"
RBD = "rbd"

# Its usual pipelines; without Keystone, programs/loopback_wsgi.py stands in for it.
_PASTE = {
    "pipeline:glance-api": {"pipeline": "version_negotiation context root"},
    "pipeline:glance-api-keystone": {"pipeline": "version_negotiation authtoken context root"},
    "filter:authtoken": {
        "paste.filter_factory": "keystonemiddleware.auth_token:filter_factory",
    },
    "filter:version_negotiation": {
        "paste.filter_factory": (
            "glance.api.middleware.version_negotiation:VersionNegotiationFilter.factory"
        )
    },
    "filter:context": {
        "paste.filter_factory": "glance.api.middleware.context:ContextMiddleware.factory"
    },
    "composite:root": {
        "paste.composite_factory": "glance.api:root_app_factory",
        "/": "versions",
        "/v2": "v2",
    },
    "app:versions": {"paste.app_factory": "glance.api.versions:create_resource"},
    "app:v2": {"paste.app_factory": "glance.api.v2.router:API.factory"},
}


class Glance(Api):
    """With the store FILES, and next to a Cinder also with VOLUMES and, in its Ceph, RBD.

    Without a Keystone, whoever asks is an administrator; without another, its database is
    SQLite.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cinder: Cinder | None = None,
        keystone: Keystone | None = None,
        database: str = "",
    ) -> None:
        super().__init__(directory)
        self._database = database
        self._cinder = cinder
        self._ceph = cinder.ceph if cinder else None
        self._keystone = keystone

    @functools.cached_property
    def api(self) -> Proxy:
        client = self._keystone.admin() if self._keystone else connect(image=self.url)
        api = client.image
        assert isinstance(api, Proxy)
        return api

    @property
    def files(self) -> Path:
        """Where the store FILES keeps its images, each under its id."""
        return self._make_directory("images")

    def upload(
        self, path: Path, disk_format: str, store: str = FILES, container: str = "bare"
    ) -> Image:
        """A new image, named after the file."""
        made = self.api.create_image(
            path.name, disk_format=disk_format, container_format=container, allow_duplicates=True
        )
        return self.fill(made, path, store)

    def fill(self, made: Image, path: Path, store: str = FILES) -> Image:
        """Give an image its content."""
        # The SDK's own upload knows no stores, and Glance wants the size for a volume.
        headers = {
            "Content-Type": "application/octet-stream",
            "X-Image-Meta-Store": store,
            "X-OpenStack-Image-Size": str(path.stat().st_size),
        }
        with path.open("rb") as content:
            answer = self.api.put(f"/images/{made.id}/file", data=content, headers=headers)
        raise_from_response(answer)
        return self.api.get_image(made)

    def rule(self, **rules: str) -> None:
        """State rules of its policy, which it reads again when they change. One that was stated
        stays until it is stated anew: ``!`` allows nobody, ``@`` everybody."""
        self._policy.write_text(json.dumps(rules))

    def add_ceph(self, ceph: Ceph, cinder: Cinder) -> None:
        """To one that runs: with the stores RBD and VOLUMES from now on."""
        self.stop()
        self._ceph = ceph
        self._cinder = cinder
        self._configure()
        self.start()

    def _configure(self) -> None:
        self.rule()
        if self._ceph:
            self._configure_ceph(self._ceph)
        if self._cinder:
            self._cinder.nfs.offer_to(self._host)
        self._paste.write_text(ini(_PASTE))
        (self._etc / "glance-api.conf").write_text(ini(self._settings()))

    def _configure_ceph(self, ceph: Ceph) -> None:
        etc_ceph = self._make_directory("ceph")
        ceph.make_pool(POOL)
        ceph.make_client(etc_ceph, USER, POOL)
        if self._cinder:
            self._cinder.allow_access_to_volumes(etc_ceph)
        self._host.run("mount", "--bind", str(etc_ceph), "/etc/ceph")

    def _settings(self) -> dict[str, dict[str, object]]:
        stores: dict[str, dict[str, object]] = {FILES: {"filesystem_store_datadir": self.files}}
        kinds = {FILES: "file"}
        if self._cinder:
            stores[VOLUMES] = self._volume_store(self._cinder)
            kinds[VOLUMES] = "cinder"
        if self._ceph:
            stores[RBD] = {
                "rbd_store_pool": POOL,
                "rbd_store_user": USER,
                "rbd_store_ceph_conf": "/etc/ceph/ceph.conf",
            }
            kinds[RBD] = "rbd"
        return {
            "DEFAULT": {
                "enabled_backends": ", ".join(f"{name}:{kind}" for name, kind in kinds.items()),
                "show_image_direct_url": True,
                "show_multiple_locations": True,
                "worker_self_reference_url": self.url,
            },
            "database": {"connection": self._database or f"sqlite:///{self._etc}/sqlite"},
            "glance_store": {"default_backend": FILES},
            "oslo_concurrency": {"lock_path": self._make_directory("locks")},
            "oslo_policy": {"policy_file": self._policy},
            "paste_deploy": {
                "config_file": self._paste,
                **({"flavor": "keystone"} if self._keystone else {}),
            },
            "keystone_authtoken": self._keystone.authtoken() if self._keystone else {},
            "os_glance_staging_store": {
                "filesystem_store_datadir": self._make_directory("staging")
            },
            "os_glance_tasks_store": {"filesystem_store_datadir": self._make_directory("tasks")},
            **stores,
        }

    def _volume_store(self, cinder: Cinder) -> dict[str, object]:
        """No volume type: without a user of its own in Keystone it cannot ask for one."""
        place = {
            "cinder_endpoint_template": cinder.url,
            "cinder_mount_point_base": self._make_directory("mnt"),
        }
        if not self._keystone:
            return place
        who = self._keystone.credentials()
        return {
            **place,
            "cinder_store_auth_address": who["auth_url"],
            "cinder_store_user_name": who["username"],
            "cinder_store_password": who["password"],
            "cinder_store_project_name": who["project_name"],
            "cinder_volume_type": SHARED_RBD,
        }

    def _command(self) -> list[str]:
        return self._program("glance_api.py", self._etc)

    @property
    def _etc(self) -> Path:
        return self._make_directory("glance")

    @property
    def _policy(self) -> Path:
        return self._etc / "policy.yaml"

    @property
    def _paste(self) -> Path:
        return self._etc / "paste.ini"
