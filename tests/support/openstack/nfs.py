"""A directory that pretended hosts can mount as an NFS share, on a kernel without NFS."""

import contextlib
import os
from pathlib import Path
from typing import Self

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopback import ADDRESS
from tests.support.loopfs import loop_filesystem, skip_unless_kernel_has
from tests.support.namespace import HostNamespaces

_SIZE = 8 * 1024**3  # sparse

# What mount(8) calls for `mount -t nfs SHARE DIRECTORY …`.
_MOUNT_NFS = """\
#!/bin/sh
[ "$1" = {share} ] || {{ echo "mount.nfs: no such share: $1" >&2; exit 32; }}
exec mount --bind {path} "$2"
"""


class NfsExport:
    """A file system of its own, so that os.path.ismount() knows a mount of it, as of any share."""

    share = f"{ADDRESS}:/ponds"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "export"
        self._helpers = directory / "helpers"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        skip_unless_kernel_has("overlay")
        self._helpers.mkdir(parents=True)
        helper = self._helpers / "mount.nfs"
        helper.write_text(_MOUNT_NFS.format(share=self.share, path=self.path))
        helper.chmod(0o755)
        self._stack.enter_context(loop_filesystem("ext4", _SIZE, self.path))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def offer_to(self, host: HostNamespaces | PrivateLibvirtd) -> None:
        """Let `mount -t nfs` work on this host; mount(8) seeks its helpers in /sbin alone."""
        sbin = os.path.realpath("/sbin")
        layers = f"lowerdir={self._helpers}:{sbin}"
        host.run("mount", "-t", "overlay", "-o", layers, "millpond-sbin", sbin)
