"""glance-api in one process: `python glance_api.py DIRECTORY PORT`, with glance-api.conf there."""

import os
import sys
from pathlib import Path

import os_brick.privileged
from glance.cmd.manage import DbCommands
from glance.common import wsgi_app
from loopback_wsgi import serve, serve_administrator
from oslo_config import cfg


def main(directory: str, port: str) -> None:
    # We are root, so what needs root needs no process of its own.
    os_brick.privileged.default.set_client_mode(False)
    os.environ["OS_GLANCE_CONFIG_DIR"] = directory
    made = Path(directory, "database-is-made")
    if not made.exists():
        cfg.CONF([], project="glance", default_config_files=[f"{directory}/glance-api.conf"])
        DbCommands().sync()
        made.touch()
    application = wsgi_app.init_app()
    knows_who_asks = cfg.CONF.paste_deploy.flavor == "keystone"
    (serve if knows_who_asks else serve_administrator)(application, port)


if __name__ == "__main__":
    main(*sys.argv[1:])
