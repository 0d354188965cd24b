"""What is asked of a flavour: the named one, with what is said besides."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from millpond.errors import BadOption
from millpond.model.server import Flavor
from millpond.model.sizes import check_memory, format_size, parse_size

Flavors = Mapping[str, Flavor]
"""By name."""


def find_flavor(flavors: Flavors, name: str) -> Flavor:
    if name not in flavors:
        known = ", ".join(sorted(flavors)) or "none is configured"
        raise BadOption("--flavor", f"there is no flavour {name!r}", f"known: {known}")
    return flavors[name]


def choose_flavor(
    flavors: Flavors, name: str, vcpus: int | None, sizes: Mapping[str, str]
) -> Flavor:
    """The named one, or the default, with what was said besides."""
    flavor = find_flavor(flavors, name) if name else Flavor()
    said = {key: parse_size(text) for key, text in sizes.items() if text}
    check_memory(said.get("memory", flavor.memory))
    return Flavor(**(asdict(flavor) | said | {"vcpus": vcpus or flavor.vcpus}))


def with_maximum(flavor: Flavor, vcpus: int | None, memory: str) -> Flavor:
    """What it can be given while it runs; 0 takes it back, and what is not said stays."""
    changed = replace(
        flavor,
        max_vcpus=flavor.max_vcpus if vcpus is None else vcpus,
        max_memory=_parse_maximum(memory) if memory else flavor.max_memory,
    )
    if vcpus and vcpus < flavor.vcpus:
        reason = f"{vcpus} are less than the {flavor.vcpus} that it has"
        raise BadOption("--max-vcpus", reason, f"write {flavor.vcpus} or more")
    if memory and 0 < changed.max_memory < flavor.memory:
        reason = f"{memory} are less than the {format_size(flavor.memory)} that it has"
        raise BadOption("--max-memory", reason, "write more")
    return changed


def _parse_maximum(text: str) -> int:
    return 0 if text == "0" else parse_size(text)
