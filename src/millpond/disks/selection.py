"""Which backend an image goes to: images_type and images_type_mapping, parsed and applied."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from millpond.errors import BadOption, Unsupported
from millpond.model.formats import Backend, DiskFormat, ImageFormat

LOG = logging.getLogger(__name__)

IMAGES_TYPE = "[libvirt] images_type"
IMAGES_TYPE_MAPPING = "[libvirt] images_type_mapping"

SOURCES = tuple(each for each in ImageFormat if each.can_be_a_disk)
"""What may stand on the left side of an entry of images_type_mapping (B6)."""

_ALIASES = {"flat": "raw"}  # of backends: no image service declares a format "flat"


class ImagesType(StrEnum):
    """The values of images_type; ``flat`` is another word for raw (parse_images_type knows)."""

    RAW = "raw"
    QCOW2 = "qcow2"
    LVM = "lvm"
    RBD = "rbd"
    PLOOP = "ploop"
    DEFAULT = "default"
    LIBVIRT_STORAGE = "libvirt-storage"

    @property
    def pools_only(self) -> bool:
        """The operator says that no legacy disk is left: none is looked for (B6, B21)."""
        return self is ImagesType.LIBVIRT_STORAGE

    @property
    def follows_use_cow_images(self) -> bool:
        """It names no backend itself (B8)."""
        return self in (ImagesType.DEFAULT, ImagesType.LIBVIRT_STORAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What becomes of one image on this host."""

    backend: Backend
    template_format: DiskFormat
    native: bool
    """The image's own bytes serve the disk: nothing is converted."""
    reason: str
    """Why this backend, as one plain phrase for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the operator wants, asked once for each disk that is made (B5)."""

    images_type: ImagesType = ImagesType.DEFAULT
    mapping: Mapping[ImageFormat, Backend] = field(default_factory=dict)
    use_cow_images: bool = True
    force_raw_images: bool = True

    def choose(self, source: ImageFormat) -> Choice:
        """The backend of an image and the format of its template.

        ============= ===================== ===============================================
        backend       content of the image  template
        ============= ===================== ===============================================
        raw, lvm      any                   raw
        rbd           any                   as it is; converted on its way into the cluster
        qcow2         raw                   raw, as it is
        qcow2         qcow2                 as it is if the mapping has qcow2:qcow2 (B10) or
                                            force_raw_images is off, else raw
        qcow2         another               raw if force_raw_images is on, else qcow2
        ploop         any                   ploop
        ============= ===================== ===============================================
        """
        if not source.can_be_a_disk:
            raise Unsupported(
                f"a disk from an {source} image",
                "it holds a kernel or a ramdisk, which is booted with a disk",
                "choose the ami image that it belongs to",
            )
        backend = self.mapping.get(source) or self.blank_backend()
        template_format = self._template_format(source, backend)
        return Choice(
            backend=backend,
            template_format=template_format,
            native=source.content is template_format and not _converts(backend, template_format),
            reason=self._reason(source),
        )

    def blank_backend(self) -> Backend:
        """The backend of disks without an image, swap and ephemeral: images_type's (B12)."""
        if not self.images_type.follows_use_cow_images:
            return Backend(self.images_type.value)
        return Backend.QCOW2 if self.use_cow_images else Backend.RAW

    def backends(self) -> frozenset[Backend]:
        """Every backend that a disk made here may need (B9)."""
        return frozenset({self.blank_backend(), *self.mapping.values()})

    def _template_format(self, source: ImageFormat, backend: Backend) -> DiskFormat:
        if backend is Backend.RBD:
            return source.content
        if backend is not Backend.QCOW2:
            return backend.disk_format
        if source.content is DiskFormat.RAW:
            return DiskFormat.RAW
        kept = source is ImageFormat.QCOW2 and source in self.mapping
        return DiskFormat.QCOW2 if kept or not self.force_raw_images else DiskFormat.RAW

    def _reason(self, source: ImageFormat) -> str:
        if source in self.mapping:
            return f"images_type_mapping has {source}:{self.mapping[source]}"
        if not self.images_type.follows_use_cow_images:
            return f"images_type = {self.images_type}"
        how = "copy-on-write" if self.use_cow_images else "no copy-on-write"
        return f"images_type = {self.images_type}, {how}"


def _converts(backend: Backend, template: DiskFormat) -> bool:
    """Whether a template becomes another format when a disk is made of it."""
    return backend is Backend.RBD and template is not backend.disk_format


def parse_images_type(text: str) -> ImagesType:
    """The value of images_type; like the names of a mapping it folds case."""
    name = text.strip().lower()
    try:
        return ImagesType(_ALIASES.get(name, name))
    except ValueError:
        reason = f"{text!r} is not a type of images"
        raise BadOption(IMAGES_TYPE, reason, _listed("types", *ImagesType, "flat")) from None


def split_entries(text: str) -> tuple[str, ...]:
    """A comma-separated value to its entries; a stray comma leaves an empty one (B4, B7)."""
    return tuple(text.split(",")) if text.strip() else ()


def parse_images_type_mapping(entries: Sequence[str]) -> Mapping[ImageFormat, Backend]:
    """The entries ``source:backend``, as a mapping; all that is wrong with them in one error."""
    mapping: dict[ImageFormat, Backend] = {}
    problems: list[BadOption] = []
    for entry in entries:
        try:
            _add(mapping, *_parse_entry(entry.strip()))
        except BadOption as problem:
            problems.append(problem)
    if problems:
        reasons = "; ".join(each.reason for each in problems)
        advice = "; ".join(each.advised for each in problems)
        once = "; ".join(dict.fromkeys(advice.split("; ")))
        raise BadOption(IMAGES_TYPE_MAPPING, reasons, once)
    return mapping


def _add(mapping: dict[ImageFormat, Backend], source: ImageFormat, backend: Backend) -> None:
    """One more entry: the same again is worth a warning, a contradiction an error (B3, B7)."""
    if source not in mapping:
        mapping[source] = backend
    elif mapping[source] is backend:
        LOG.warning("%s has %s:%s more than once", IMAGES_TYPE_MAPPING, source, backend)
    else:
        reason = f"'{source}:{backend}' contradicts '{source}:{mapping[source]}'"
        raise BadOption(IMAGES_TYPE_MAPPING, reason, "give each source one backend")


def _parse_entry(entry: str) -> tuple[ImageFormat, Backend]:
    if not entry:
        reason = "'' is an empty entry"
        raise BadOption(IMAGES_TYPE_MAPPING, reason, "put commas only between entries")
    sides = [side.strip().lower() for side in entry.split(":")]
    if len(sides) != 2 or not all(sides):
        reason = f"{entry!r} is not of the form source:backend"
        raise BadOption(IMAGES_TYPE_MAPPING, reason, f"{_SOURCES}; {_BACKENDS}")
    return _parse_source(sides[0], entry), _parse_backend(sides[1], entry)


def _parse_source(name: str, entry: str) -> ImageFormat:
    if name not in SOURCES:
        reason = f"{name!r} in {entry!r} cannot be a source"
        raise BadOption(IMAGES_TYPE_MAPPING, reason, _SOURCES)
    return ImageFormat(name)


def _parse_backend(name: str, entry: str) -> Backend:
    try:
        return Backend(_ALIASES.get(name, name))
    except ValueError:
        reason = f"{name!r} in {entry!r} is not a backend"
        raise BadOption(IMAGES_TYPE_MAPPING, reason, _BACKENDS) from None


def _listed(kind: str, *names: str) -> str:
    return f"{kind}: {', '.join(names)}"


_SOURCES = _listed("sources", *SOURCES)
_BACKENDS = _listed("backends", *Backend, "flat")
