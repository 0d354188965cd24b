"""``python -m millpond.cli.stream --config-file=FILE DIRECTORY``: serves a stream of an image that
only its source can read in parts, such as Glance. Nobody calls it but the streaming handler."""

import argparse
from functools import cache, partial
from pathlib import Path

from millpond.errors import NotStreamable
from millpond.hosts.deployment import Deployment
from millpond.images.source import ImageSource, Parts
from millpond.model.stream import ReadPart
from millpond.templates.streams import serve
from millpond.templates.streams.plan import StreamPlan


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config-file", type=Path, action="append", default=[])
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()

    images = Deployment.load(asked.config_file).images
    serve.main(asked.directory, partial(open_parts, images))


def open_parts(images: ImageSource, plan: StreamPlan) -> ReadPart:
    """The source is asked when something is read, and again if it did not answer: it may be away
    when the process starts."""

    @cache
    def parts() -> Parts:
        found = images.find_parts(images.describe(plan.image))
        if found is None:
            raise NotStreamable("its source gives no parts of it")
        return found

    return lambda offset, length: parts().read(offset, length)


if __name__ == "__main__":
    main()
