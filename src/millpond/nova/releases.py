"""Which releases of Nova our driver was looked at with, and tried with (docs/nova.md)."""

from importlib.metadata import version

from millpond.errors import Unsupported

SUPPORTED = (33, 34)


def refuse_other_releases() -> None:
    """An override of a method that has changed would do half of what Nova asks for."""
    found = version("nova")
    if int(found.partition(".")[0]) not in SUPPORTED:
        reason = f"it was made for releases {' and '.join(map(str, SUPPORTED))}"
        advice = "install one of these, or a Millpond that knows this one"
        raise Unsupported(f"Millpond's driver with Nova {found}", reason, advice)
