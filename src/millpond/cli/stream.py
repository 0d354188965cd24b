"""``python -m millpond.cli.stream --config-file=FILE DIRECTORY``: serves a stream of an image that
only its source can read in parts, such as Glance. Nobody calls it but the streaming handler."""

import argparse
from functools import partial
from pathlib import Path

from millpond.hosts.deployment import Deployment
from millpond.templates.streams import serve
from millpond.templates.streams.parts import open_parts


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config-file", type=Path, action="append", default=[])
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()
    images = Deployment.load(asked.config_file).images
    serve.main(asked.directory, partial(open_parts, images))


if __name__ == "__main__":
    main()
