"""What the programs next to nova-compute have in common: they read nova.conf, and Nova's database
through the conductor, as nova-compute does."""

import sys
from typing import NoReturn

import nova.cmd.compute
import nova.conf.libvirt
import nova.config
import nova.db.main.api
from nova import objects
from nova.conductor.rpcapi import ConductorAPI
from nova.objects.base import NovaObject

from millpond import config
from millpond.errors import MillpondError
from millpond.model.names import printable
from millpond.nova.advice import reword_for_nova
from millpond.nova.releases import refuse_other_releases


def configure(words: list[str]) -> None:
    """As nova-compute does it for itself."""
    refuse_other_releases()
    config.widen(nova.conf.libvirt.libvirt_imagebackend_opts)
    nova.config.parse_args(words)
    objects.register_all()
    nova.db.main.api.DISABLE_DB_ACCESS = True
    NovaObject.indirection_api = ConductorAPI()


def complain(program: str, error: MillpondError) -> None:
    words = printable(f"{program}: {error}\n  {reword_for_nova(error.advice)}", keep="\n")
    print(words, file=sys.stderr)


def fail(program: str, error: MillpondError) -> NoReturn:
    complain(program, error)
    sys.exit(error.exit_code)
