"""Serves an API of OpenStack as it comes: `python wsgi_api.py MODULE DIRECTORY PORT`.

The modules read their configuration when they are imported, from the directory that a variable of
the environment names after the service, as under any WSGI server.
"""

import importlib
import os
import sys

from loopback_wsgi import serve


def main(module: str, directory: str, port: str) -> None:
    service = module.partition(".")[0].upper()
    os.environ[f"OS_{service}_CONFIG_DIR"] = directory
    sys.argv = [module]
    application = importlib.import_module(module).application
    serve(application, port)


if __name__ == "__main__":
    main(*sys.argv[1:])
