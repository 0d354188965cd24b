"""A Linux that counts in the variables of its UEFI: from the parts of the usual one, with another
program to begin with."""

import gzip
import subprocess
from pathlib import Path

_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
insmod /modules/efivarfs.ko
mount -t efivarfs efivarfs /sys/firmware/efi/efivars
vendor=6d696c6c-706f-4e64-8000-000000000003
cd /sys/firmware/efi/efivars
number=$(ls | grep $vendor | wc -l)
echo "FOUND: $number."
# Linux lets nobody change a variable that it does not know: each number is another one.
while true; do
    number=$((number + 1))
    printf '\\007\\000\\000\\000x' >Millpond$number-$vendor && echo "WROTE: $number."
    sleep 0.5
done
"""


def build_initrd(linux_ami: Path, target: Path) -> Path:
    """The kernel unpacks one archive after the other: what comes later replaces what was there."""
    root = target.with_suffix(".files")
    (root / "modules").mkdir(parents=True)
    (root / "init").write_text(_INIT)
    (root / "init").chmod(0o755)
    (module,) = (linux_ami.parent / "packages" / "root").glob("lib/modules/*/kernel/fs/efivarfs/*")
    (root / "modules" / "efivarfs.ko").write_bytes(module.read_bytes())
    names = "init\nmodules/efivarfs.ko\n"
    words = ("cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0")
    packed = subprocess.run(words, cwd=root, input=names.encode(), capture_output=True, check=True)
    target.write_bytes(linux_ami.with_suffix(".ari").read_bytes() + gzip.compress(packed.stdout))
    return target
