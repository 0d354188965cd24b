"""What Glance says of an image, as ours."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from openstack.image.v2.image import Image as Answer

from millpond.errors import ImageNotActive, ImageRefused
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId

INDEX_ROOT = "millpond_index_root"
INDEX_OF = "millpond_index_of"
"""The digest of the image that the root is of: an image that inherits both properties has another
one."""
INDEX_LIST = "millpond_index_list"
"""The id of the image that holds the list."""

# Properties of the disk that the SDK knows by name; those that it does not are apart.
_KNOWN = re.compile(r"(?:hw|img)_.+|os_(?!hash_|hidden).+|kernel_id|ramdisk_id")
_CONTAINERS = frozenset({"bare", "ami", "aki", "ari"})


def to_image(answer: Answer) -> Image:
    name = answer.name or answer.id
    if answer.status != "active":
        raise ImageNotActive(name, str(answer.status))
    format = _format(answer, name)
    algorithm, digest = _digest(answer, name)
    properties = _properties(answer.to_dict(computed=False, original_names=True))
    has_index = properties.get(INDEX_OF) == digest
    return Image(
        id=ImageId(answer.id),
        name=name,
        format=format,
        size=answer.size,
        virtual_size=_virtual_size(answer, format),
        digest=digest,
        digest_algorithm=algorithm,
        created=str(answer.created_at),
        properties=properties,
        index_root=properties.get(INDEX_ROOT, "") if has_index else "",
    )


def _format(answer: Answer, name: str) -> ImageFormat:
    if answer.container_format not in _CONTAINERS:
        reason = f"it is packed in a container of the format {answer.container_format!r}"
        raise ImageRefused(name, reason, "upload the disk itself, with container_format bare")
    if answer.disk_format not in set(ImageFormat):
        reason = f"its format is {answer.disk_format!r}"
        raise ImageRefused(name, reason, f"formats that can be used: {', '.join(ImageFormat)}")
    return ImageFormat(answer.disk_format)


def _digest(answer: Answer, name: str) -> tuple[str, str]:
    if answer.hash_algo in hashlib.algorithms_available and answer.hash_value:
        return str(answer.hash_algo), str(answer.hash_value)
    if answer.checksum:
        return "md5", str(answer.checksum)  # of images from before os_hash_algo
    raise ImageRefused(name, "Glance states no digest of it", "upload it again")


def _virtual_size(answer: Answer, format: ImageFormat) -> int:
    """0 where Glance does not say it. What it says of an ISO is the size of its file system;
    there may be partitions behind that."""
    return int((answer.size if format.content is DiskFormat.RAW else answer.virtual_size) or 0)


def _properties(answer: Mapping[str, Any]) -> dict[str, str]:
    known = {key: value for key, value in answer.items() if _KNOWN.fullmatch(key)}
    said = {**known, **(answer.get("properties") or {})}
    said.pop("stores", None)  # Glance's, and unknown to the SDK
    return {key: str(value) for key, value in said.items() if value is not None}
