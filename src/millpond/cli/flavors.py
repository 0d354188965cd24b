"""How large a server is to be, from what was typed."""

from collections.abc import Mapping
from dataclasses import asdict

from millpond.config import Settings
from millpond.errors import BadOption
from millpond.model.flavor import Flavor
from millpond.model.sizes import parse_size

_UNITS = {"memory": "m", "disk": "g", "ephemeral": "g", "swap": "m"}
"""What a bare number counts, as in Nova."""


def chosen_flavor(
    settings: Settings, name: str, vcpus: int | None, sizes: Mapping[str, str]
) -> Flavor:
    """The named one, or the default, with what was said besides."""
    if name and name not in settings.flavors:
        known = ", ".join(sorted(settings.flavors)) or "none is configured"
        raise BadOption("--flavor", f"there is no flavour {name!r}", f"known: {known}")
    flavor = settings.flavors[name] if name else Flavor()
    said = {key: parse_size(text, unit=_UNITS[key]) for key, text in sizes.items() if text}
    if said.get("memory") == 0:
        raise BadOption("--memory", "a server needs some", "write such as 512M")
    return Flavor(**(asdict(flavor) | said | {"vcpus": vcpus or flavor.vcpus}))
