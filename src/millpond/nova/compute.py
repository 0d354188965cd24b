"""nova-compute with Millpond's driver: Nova loads drivers from nova.virt alone, so this is shown
there, and everything else is Nova's own program."""

import os
import sys
from pathlib import Path

import nova.cmd.compute
import nova.conf
import nova.conf.libvirt
import nova.monkey_patch
import nova.virt

from millpond import config
from millpond.errors import BadConfiguration, BadOption, MillpondError, Unsupported
from millpond.nova import program
from millpond.nova.releases import refuse_other_releases

_VARIABLE = "OS_NOVA_DISABLE_EVENTLET_PATCHING"
_PLUGIN = Path(__file__).with_name("plugin")


def main() -> None:
    try:
        refuse_other_releases()
        _refuse_eventlet()
        _refuse_other_users()
        config.widen(nova.conf.libvirt.libvirt_imagebackend_opts)
        nova.virt.__path__.append(str(_PLUGIN))
        sys.exit(nova.cmd.compute.main())
    except MillpondError as error:
        program.fail("millpond-nova-compute", error)


def _refuse_eventlet() -> None:
    """All of its tasks share one thread: one that waits for the lock of a template would keep the
    one that holds it from going on."""
    if nova.monkey_patch.is_patched():
        reason = "Millpond needs threads, and with eventlet there are none"
        option, advice = (
            "[DEFAULT] concurrency_backend",
            f"set it to threading, and unset {_VARIABLE}",
        )
        if "concurrency_backend" not in nova.conf.CONF:  # of Nova 33
            option, advice = (
                _VARIABLE,
                "set it to true in the environment of millpond-nova-compute",
            )
        raise BadConfiguration((BadOption(option, reason, advice),))


def _refuse_other_users() -> None:
    """What needs root is in decision 39."""
    if os.geteuid():
        raise Unsupported(
            "millpond-nova-compute as another user than root",
            "templates and the volumes of libvirt's pools are root's",
            "set User=root in the unit that starts millpond-nova-compute",
        )


if __name__ == "__main__":
    main()
