"""barbican-api in one process: `python barbican_api.py PASTE.INI PORT`.

Each of its modules reads barbican.conf by itself, from its user's home directory.
"""

import sys

from barbican.model.migration import commands
from loopback_wsgi import serve
from paste.deploy import loadapp


def main(paste: str, port: str) -> None:
    commands.upgrade()
    serve(loadapp(f"config:{paste}"), port)


if __name__ == "__main__":
    main(*sys.argv[1:])
