"""The values of single options, from the text that people write to what we work with."""

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

from millpond.config.settings import VirtTypeOption, parse_pairs
from millpond.disks.selection import parse_images_type_mapping, split_entries
from millpond.errors import BadOption
from millpond.model.formats import Backend, ImageFormat
from millpond.model.names import checked_name

_MOST = 1_000_000
"""Of a ratio: nobody means more, and Placement counts in 32 bits."""

HANDLERS = "millpond.template_handlers"
"""The entry points that plug-ins add to (B40)."""


def parse_text(value: str | None) -> str:
    return (value or "").strip()


def parse_path(value: str) -> Path:
    if not value.startswith("/"):
        raise BadOption("path", f"{value!r} is not an absolute path")
    return Path(value)


def parse_uri(value: str | None) -> str:
    uri = parse_text(value) or "qemu:///system"
    if not urlsplit(uri).scheme:
        advised = "such as qemu:///system or qemu+ssh://host/system"
        raise BadOption("connection_uri", f"{uri!r} is not a URI", advised)
    return uri


def parse_virt_type(value: str) -> VirtTypeOption:
    """Nova's own definition of the option allows more (lxc), and has no auto."""
    try:
        return VirtTypeOption(value)
    except ValueError:
        allowed = ", ".join(VirtTypeOption)
        raise BadOption(
            "virt_type", f"Millpond runs no {value!r} guests", f"values: {allowed}"
        ) from None


def parse_mapping(value: str | Sequence[str]) -> Mapping[ImageFormat, Backend]:
    return parse_images_type_mapping(split_entries(value) if isinstance(value, str) else value)


def parse_pool_name(value: str) -> str:
    return checked_name("a storage pool", value)


def parse_pool_paths(value: str) -> Mapping[str, Path]:
    paths = parse_pairs("pool_paths", value, "pool:directory")
    return {parse_pool_name(pool): parse_path(path) for pool, path in paths.items()}


def parse_image_formats(value: Sequence[str]) -> frozenset[ImageFormat]:
    names = {each.strip().lower() for each in value}
    unknown = sorted(names - set(ImageFormat))
    if unknown:
        reason = f"{', '.join(unknown)}: no such format of images"
        raise BadOption("image_type_exclude_list", reason, f"formats: {', '.join(ImageFormat)}")
    return frozenset(ImageFormat(each) for each in names)


def parse_ratio(value: float | None) -> float | None:
    """None and 0 say nothing, as in Nova."""
    if value is not None and not 0 <= value <= _MOST:  # nan is neither
        raise BadOption("ratio", f"{value} is not possible", f"from 0 to {_MOST}")
    return value or None


def parse_extra_specs(text: str) -> Mapping[str, str]:
    """``trait:NAME=required, trait:OTHER=forbidden``, as flavours of Nova's have them."""
    pairs = [each.partition("=") for each in split_entries(text)]
    wrong = [
        f"{key}{equals}{value}" for key, equals, value in pairs if not key.strip() or not value
    ]
    if wrong:
        reason = f"{wrong[0].strip()!r} is not of the form name=value"
        raise BadOption("extra_specs", reason, "example: trait:HW_CPU_X86_AVX2=required")
    return {key.strip(): value.strip() for key, _, value in pairs}


def parse_handler(value: str) -> str:
    choices = handler_names()
    if value not in choices:
        reason = f"there is no handler {value!r}"
        raise BadOption("template_image_handler", reason, f"handlers: {', '.join(choices)}")
    return value


def handler_names() -> list[str]:
    """The ways to prepare templates that are installed; none of them is loaded."""
    return sorted({each.name for each in entry_points(group=HANDLERS)})
