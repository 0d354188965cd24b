"""A real Cinder with volumes on an NFS share and, where there is a cluster, in Ceph."""

import functools
import shutil
from pathlib import Path

from openstack.block_storage.v3._proxy import Proxy
from openstack.block_storage.v3.attachment import Attachment
from openstack.block_storage.v3.volume import Volume

from tests.support.ceph import Ceph
from tests.support.ini import ini
from tests.support.openstack.environment import python
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.nfs import NfsExport
from tests.support.openstack.service import Api, connect

POOL = "volumes"
USER = "cinder"

# Volume types and what Cinder wants to know of each. Only a type makes a volume attachable more
# than once, and the NFS driver knows no such volumes.
RBD = "rbd"
SHARED_RBD = "rbd-multiattach"
NFS = "nfs"
_TYPES = {
    RBD: {"volume_backend_name": "rbd"},
    SHARED_RBD: {"volume_backend_name": "rbd", "multiattach": "<is> True"},
    NFS: {"volume_backend_name": "nfs"},
}

# Who attaches, as os-brick would describe it.
_CONNECTOR = {"host": "pond", "ip": "127.0.0.1", "initiator": "iqn.2026-11.test.millpond:pond"}

_SECONDS = 60

# Its usual pipeline without keystonemiddleware, for which programs/loopback_wsgi.py stands in.
_PASTE = {
    "composite:osapi_volume": {
        "use": "call:cinder.api:root_app_factory",
        "/": "versions",
        "/v3": "v3",
    },
    "pipeline:versions": {"pipeline": "request_id faultwrap versions_app"},
    "pipeline:v3": {"pipeline": "request_id faultwrap context v3_app"},
    "filter:request_id": {
        "paste.filter_factory": "cinder.api.middleware.request_id:RequestId.factory"
    },
    "filter:faultwrap": {
        "paste.filter_factory": "cinder.api.middleware.fault:FaultWrapper.factory"
    },
    "filter:context": {
        "paste.filter_factory": "cinder.api.middleware.auth:CinderKeystoneContext.factory"
    },
    "app:versions_app": {"paste.app_factory": "cinder.api.versions:Versions.factory"},
    "app:v3_app": {"paste.app_factory": "cinder.api.v3.router:APIRouter.factory"},
}


class Cinder(Api):
    """With the volume types above; who names none, as Glance does, gets the default one. Without
    a Keystone, whoever asks is an administrator."""

    def __init__(
        self,
        directory: Path,
        *,
        nfs: NfsExport,
        ceph: Ceph | None = None,
        default_type: str = SHARED_RBD,
        keystone: Keystone | None = None,
        glance: str = "",
    ) -> None:
        super().__init__(directory)
        self.ceph = ceph
        self.nfs = nfs
        self._default_type = default_type
        self._keystone = keystone
        self._glance = glance

    @property
    def url(self) -> str:
        return f"{super().url}/v3"

    @functools.cached_property
    def api(self) -> Proxy:
        client = self._keystone.admin() if self._keystone else connect(block_storage=self.url)
        api = client.block_storage
        assert isinstance(api, Proxy)
        return api

    def make_volume(self, volume_type: str, gibibytes: int = 1) -> Volume:
        """A volume that is there; one that is not within a minute raises."""
        volume = self.api.create_volume(volume_type=volume_type, size=gibibytes)
        return self.api.wait_for_status(
            volume, "available", ["error"], interval=0.1, wait=_SECONDS
        )

    def attach(self, volume: Volume, mode: str = "rw") -> Attachment:
        """As Nova does it, but for no server; connection_info says how to reach the volume."""
        attachment = self.api.create_attachment(volume, connector=_CONNECTOR, mode=mode)
        self.api.complete_attachment(attachment)
        return self.api.get_attachment(attachment)

    def detach(self, attachment: Attachment) -> None:
        self.api.delete_attachment(attachment)

    def attachments(self, volume_id: str) -> list[Attachment]:
        """All that Cinder knows of."""
        return list(self.api.attachments(volume_id=volume_id))

    def add_ceph(self, ceph: Ceph) -> None:
        """To one that runs: its volumes and their types besides."""
        self.stop()
        self.ceph = ceph
        self._reach_ceph(ceph)
        self._conf.write_text(ini(self._settings()))
        self.start()

    def allow_access_to_volumes(self, etc_ceph: Path) -> None:
        """Write what a host needs in its /etc/ceph, where os-brick seeks it, to open volumes."""
        if self.ceph:
            self.ceph.make_client(etc_ceph, USER, POOL)

    def _configure(self) -> None:
        if self.ceph:
            self._reach_ceph(self.ceph)
        self.nfs.offer_to(self._host)
        self._shares.write_text(f"{self.nfs.share}\n")
        if self._keystone:
            shutil.copy(python().parents[1] / "etc/cinder/api-paste.ini", self._paste)
        else:
            self._paste.write_text(ini(_PASTE))
        self._conf.write_text(ini(self._settings()))

    def _reach_ceph(self, ceph: Ceph) -> None:
        ceph.make_pool(POOL)
        etc_ceph = self._make_directory("ceph")
        self.allow_access_to_volumes(etc_ceph)
        self._host.run("mount", "--bind", str(etc_ceph), "/etc/ceph")

    def _settings(self) -> dict[str, dict[str, object]]:
        return {
            "DEFAULT": {
                "transport_url": "fake:/",
                "host": "pond",
                "my_ip": "127.0.0.1",
                "state_path": self._make_directory("state"),
                "api_paste_config": self._paste,
                "auth_strategy": "keystone" if self._keystone else "noauth",
                "enabled_backends": "rbd, nfs" if self.ceph else "nfs",
                "default_volume_type": self._default_type,
                **({"glance_api_servers": self._glance} if self._glance else {}),
                # All services are one process, so none has to tell the others that it lives.
                "report_interval": 0,
                "service_down_time": 10**9,
                "periodic_interval": 0,
                "scheduler_driver_init_wait_time": 1,
                "reinit_driver_count": 0,
            },
            "database": {"connection": f"sqlite:///{self.directory}/cinder.sqlite"},
            "keystone_authtoken": self._keystone.authtoken() if self._keystone else {},
            "oslo_concurrency": {"lock_path": self._make_directory("locks")},
            "rbd": {
                "volume_driver": "cinder.volume.drivers.rbd.RBDDriver",
                "volume_backend_name": "rbd",
                "rbd_pool": POOL,
                "rbd_user": USER,
                "rbd_ceph_conf": "/etc/ceph/ceph.conf",
            },
            "nfs": {
                "volume_driver": "cinder.volume.drivers.nfs.NfsDriver",
                "volume_backend_name": "nfs",
                "nfs_shares_config": self._shares,
                "nfs_mount_point_base": self._make_directory("mnt"),
                # Files of root's, as all its processes are.
                "nas_secure_file_operations": False,
                "nas_secure_file_permissions": False,
            },
        }

    def _command(self) -> list[str]:
        return self._program("cinder_all.py", self._conf)

    def _furnish(self) -> None:
        offered = set(_TYPES) if self.ceph else {NFS}
        for name in offered - {known.name for known in self.api.types()}:
            self.api.create_type(name=name, extra_specs=_TYPES[name])

    @property
    def _conf(self) -> Path:
        return self.directory / "cinder.conf"

    @property
    def _paste(self) -> Path:
        return self.directory / "api-paste.ini"

    @property
    def _shares(self) -> Path:
        return self.directory / "shares"
