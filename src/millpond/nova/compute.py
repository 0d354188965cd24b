"""nova-compute with Millpond's driver: Nova loads drivers from nova.virt alone, so this is shown
there, and everything else is Nova's own program."""

import sys
from pathlib import Path

import nova.cmd.compute
import nova.conf.libvirt
import nova.monkey_patch
import nova.virt

from millpond import config
from millpond.errors import BadConfiguration, BadOption

_PLUGIN = Path(__file__).with_name("plugin")


def main() -> None:
    try:
        _refuse_eventlet()
        config.widen(nova.conf.libvirt.libvirt_imagebackend_opts)
        nova.virt.__path__.append(str(_PLUGIN))
        sys.exit(nova.cmd.compute.main())
    except BadConfiguration as error:
        print(f"millpond-nova-compute: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _refuse_eventlet() -> None:
    """All of its tasks share one thread: one that waits for the lock of a template would keep the
    one that holds it from going on."""
    if nova.monkey_patch.is_patched():
        reason = "Millpond needs threads, and with eventlet there are none"
        advice = "set it to threading, and unset OS_NOVA_DISABLE_EVENTLET_PATCHING"
        raise BadConfiguration((BadOption("[DEFAULT] concurrency_backend", reason, advice),))


if __name__ == "__main__":
    main()
