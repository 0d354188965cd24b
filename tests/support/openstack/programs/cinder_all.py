"""Cinder in one process: `python cinder_all.py CINDER.CONF PORT`.

API, scheduler and volume services talk through oslo.messaging's fake transport, which knows one
process only: no message broker, and what they have in common is imported once.
"""

import os
import sys
import threading

# The transport serves threads. Read when cinder.cmd.volume is imported.
os.environ["OS_CINDER_DISABLE_EVENTLET_PATCHING"] = "true"

import cinder.privsep
import eventlet.tpool
import os_brick
import os_brick.privileged
from cinder.cmd.volume import host_opt
from cinder.db import migration
from cinder.service import Service
from cinder.wsgi import wsgi
from loopback_wsgi import serve, serve_administrator
from oslo_config import cfg


def main(conf: str, port: str) -> None:
    # Its threads serve the thread that was the first to ask, and leave the others waiting.
    eventlet.tpool.execute = lambda work, *args, **kwargs: work(*args, **kwargs)
    # We are root, so what needs root needs no process of its own.
    for context in (cinder.privsep.sys_admin_pctxt, os_brick.privileged.default):
        context.set_client_mode(False)
    sys.argv = ["cinder-api", "--config-file", conf]
    cfg.CONF(sys.argv[1:], project="cinder")
    migration.db_sync()
    application = wsgi.initialize_application()
    os_brick.setup(cfg.CONF)
    # It listens at once and then waits for a second, whatever it hears meanwhile.
    threading.Thread(target=Service.create(binary="cinder-scheduler").start).start()
    for backend in cfg.CONF.enabled_backends:
        start_volume_service(backend)
    knows_who_asks = cfg.CONF.auth_strategy == "keystone"
    (serve if knows_who_asks else serve_administrator)(application, port)


def start_volume_service(backend: str) -> None:
    cfg.CONF.register_opt(host_opt, group=backend)
    service = Service.create(
        binary="cinder-volume",
        host=f"{cfg.CONF.host}@{backend}",
        service_name=backend,
        coordination=True,
    )
    service.start()
    # It goes on without its storage, hoping for better times, and every volume becomes an error.
    if not service.manager.driver.initialized:
        print(f"the driver of {backend} did not start", file=sys.stderr, flush=True)
        os._exit(1)  # there are threads by now


if __name__ == "__main__":
    main(*sys.argv[1:])
