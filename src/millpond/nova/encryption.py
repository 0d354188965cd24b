"""Servers that ask for encrypted disks (hw:ephemeral_encryption), which are refused.

Nova 33 and 34 give such disks a key, but have no image backend that encrypts (none of their
imagebackend's classes sets SUPPORTS_LUKS), and so no host that reports the trait. Who comes to
us nonetheless must not get a plain disk.
"""

from typing import Any

from nova import exception
from nova.virt import driver as virt_driver
from oslo_utils import strutils


def refuse_encryption(image_meta: Any, flavor: Any, block_device_info: Any = None) -> None:
    """Before anything is made: a key in the key manager, for one."""
    if asking := _find_asking(image_meta, flavor, block_device_info):
        image = image_meta.id if image_meta.obj_attr_is_set("id") else None
        reason = f"{asking} asks for encrypted disks, which Millpond does not make"
        raise exception.ImageUnacceptable(image_id=image, reason=reason)


def _find_asking(image_meta: Any, flavor: Any, block_device_info: Any) -> str:
    if image_meta.properties.get("hw_ephemeral_encryption"):
        return "it"
    if strutils.bool_from_string(flavor.extra_specs.get("hw:ephemeral_encryption", "")):
        return f"flavor {flavor.name}"
    encrypted = virt_driver.block_device_info_get_encrypted_disks(block_device_info)
    return "the server's list of block devices" if encrypted else ""
