"""``python -m millpond.nova.stream --config-file=FILE serve DIRECTORY | settle NAME``: serves a
stream of an image of Glance under Nova, and publishes its template. Nobody calls it but the
streaming handler. Instances leave a stream when Nova defines them anew."""

import logging
import sys
from pathlib import Path

from millpond.errors import MillpondError
from millpond.nova import program, wiring  # the first: it sets up threads as Nova has them
from millpond.templates.streams import serve
from millpond.templates.streams.parts import open_parts


def main() -> None:
    *words, verb, what = sys.argv
    logging.getLogger("millpond").setLevel(logging.INFO)
    try:
        program.configure(words)
        host = wiring.host()
        if verb == "serve":
            serve.main(Path(what), lambda plan: open_parts(host.images, plan))
        else:
            host.handlers.streaming.settle(what)
    except MillpondError as error:
        program.fail("millpond-nova-stream", error)


if __name__ == "__main__":
    main()
