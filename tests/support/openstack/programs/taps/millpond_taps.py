"""Binds each of Neutron's ports to a tap device that leads nowhere: servers have network devices,
and no agent is needed."""

from typing import Any

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class TapMechanismDriver(api.MechanismDriver):
    def initialize(self) -> None:
        """Nothing is to be prepared."""

    @property
    def connectivity(self) -> str:
        return str(portbindings.CONNECTIVITY_L2)

    def bind_port(self, context: Any) -> None:
        segment = context.segments_to_bind[0][api.ID]
        context.set_binding(segment, portbindings.VIF_TYPE_TAP, {}, constants.PORT_STATUS_ACTIVE)
