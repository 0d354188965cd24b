"""A small Linux that runs a program of ours in place of its own."""

import gzip
import subprocess
from pathlib import Path

from tests.support.millpond import Millpond

_BEGIN = """\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </modules/order
sleep 1
"""


def add_image(millpond: Millpond, linux_ami: Path, workdir: Path, program: str) -> None:
    """The image 'linux', whose init is the program. Of two archives in a row the kernel takes the
    files of the later one."""
    (workdir / "init").write_text(_BEGIN + program)
    (workdir / "init").chmod(0o755)
    words = ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"]
    archive = subprocess.run(words, input=b"init\n", cwd=workdir, stdout=-1, check=True).stdout
    ramdisk = workdir / "own.ari"
    ramdisk.write_bytes(linux_ami.with_suffix(".ari").read_bytes() + gzip.compress(archive))
    millpond.ok("image", "add", linux_ami.with_suffix(".aki"), "--name", "kernel")
    millpond.ok("image", "add", ramdisk, "--name", "ramdisk")
    properties = ("kernel_id=kernel", "ramdisk_id=ramdisk", "os_command_line=console=ttyS0 quiet")
    options = [word for each in properties for word in ("--property", each)]
    millpond.ok("image", "add", linux_ami, "--name", "linux", *options)
