"""Where the parts of an image come from that only its source can read, such as Glance."""

from functools import cache

from millpond.errors import NotStreamable
from millpond.images.source import ImageSource, Parts
from millpond.model.stream import ReadPart
from millpond.templates.streams.plan import StreamPlan


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
