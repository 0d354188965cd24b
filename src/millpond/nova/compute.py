"""nova-compute with Millpond's driver: Nova loads drivers from nova.virt alone, so this is shown
there, and everything else is Nova's own program."""

import sys
from pathlib import Path

import nova.cmd.compute
import nova.conf.libvirt
import nova.virt

from millpond import config

_PLUGIN = Path(__file__).with_name("plugin")


def main() -> None:
    config.widen(nova.conf.libvirt.libvirt_imagebackend_opts)
    nova.virt.__path__.append(str(_PLUGIN))
    sys.exit(nova.cmd.compute.main())


if __name__ == "__main__":
    main()
