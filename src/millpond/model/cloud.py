"""How to reach services of OpenStack, and who asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.model.layer import CephAccess
from millpond.model.transfer import Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudAccess:
    cloud: str
    """Its name in clouds.yaml; empty where the environment says it, or what follows does."""
    auth_type: str
    auth: Mapping[str, str]
    """By keystoneauth's names: auth_url, username, password, …"""
    endpoint_override: str
    region_name: str
    cafile: str
    insecure: bool
    patience: Patience
    interfaces: tuple[str, ...] = ("internal", "public")
    """valid_interfaces: the first of them that the catalogue has; for Placement alone."""

    @property
    def is_stated(self) -> bool:
        """Here, rather than in clouds.yaml or in the environment."""
        return not self.cloud and bool(self.auth_type or self.endpoint_override)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAccess:
    """Who links, and by whom."""

    host: str
    """This one's name, which Cinder shows."""
    initiator: str
    """This host's name for iSCSI targets."""
    owner: Callable[[], str]
    """Tells our state directory from others on a host of the same name, and its hosts from each
    other: each lets go of what it holds itself."""
    cinder: CloudAccess
    ceph: CephAccess | None
    """As [libvirt] has it; its pool is of no concern here."""
    bases: Path
    """The base pool's directory: a volume that is a device or a file here has its name there."""
    state: Path
    """Ours, on this machine."""
    reader: Callable[[], int]
    """QEMU's user, who reads what is linked; 0 if there is none besides root."""
    image_volume_project: str = ""
    """Id of the project that owns the volumes of Glance's store; empty: that which we ask for."""
    own_process: bool = True
    """False inside nova-compute: libraries are set up there, and not by us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePolicy:
    trusted: tuple[str, ...]
    """Ids of certificates, to one of which a signer's must lead; empty believes every certificate
    that the key manager has."""
    key_manager: object = field(compare=False)
    """Where castellan reads [key_manager], [barbican] and [vault] by itself: a ConfigOpts."""
    of_every_image: bool
    """Else only of those that are wanted for a server which names certificates."""
    seconds: float
    """That the key manager has to answer."""
