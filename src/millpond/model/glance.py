"""How to reach Glance."""

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.model.transfer import Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class GlanceAccess:
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

    @property
    def is_stated(self) -> bool:
        """Here, rather than in clouds.yaml or in the environment."""
        return bool(self.auth_type or self.endpoint_override)
