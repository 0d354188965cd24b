"""Our errors as Nova knows errors, so that the instance's fault says what is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

from nova import exception

from millpond.errors import DiskTooSmall, ImageNotFound, MillpondError, NoSpace, Refused
from millpond.nova.advice import explain


class MillpondFailed(exception.NovaException):
    msg_fmt = "%(reason)s"


@contextmanager
def explaining(image: str | None = None) -> Iterator[None]:
    """What is wrong with the image or the flavour ends the request; with anything else Nova may
    try another host."""
    try:
        yield
    except ImageNotFound as error:
        raise exception.ImageNotFound(image_id=image) from error
    except DiskTooSmall as error:
        raise exception.FlavorDiskSmallerThanMinDisk(str(error)) from error
    except Refused as error:
        raise exception.ImageUnacceptable(image_id=image, reason=explain(error)) from error
    except NoSpace as error:
        raise exception.ComputeResourcesUnavailable(reason=explain(error)) from error
    except MillpondError as error:
        raise MillpondFailed(reason=explain(error)) from error


@contextmanager
def staying_as_it_was() -> Iterator[None]:
    """An image or a flavor is refused before the server is touched."""
    try:
        yield
    except exception.ImageUnacceptable as error:
        raise exception.InstanceFaultRollback(inner_exception=error) from error
