"""A program that dies by SIGKILL in the middle of uploading an image."""

import os
import signal
import sys
from pathlib import Path

from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.images.receive import receive_file
from millpond.images.source import Upload
from millpond.model.callbacks import noop
from millpond.model.formats import ImageFormat


def die(config: str, content: str) -> None:
    uploads = Deployment.load([Path(config)]).uploads
    assert uploads
    directory, source = uploads
    with Intake(directory).arriving() as (id, part):
        found = receive_file(Path(content), part, ImageFormat.RAW, "half", noop)
        upload = Upload(
            id=id,
            path=part,
            name="half",
            format=ImageFormat.RAW,
            size=found.size,
            virtual_size=found.virtual_size,
            digest=found.digest,
            properties={},
        )
        source.upload(upload, lambda _count: os.kill(os.getpid(), signal.SIGKILL))


if __name__ == "__main__":
    die(*sys.argv[1:])
