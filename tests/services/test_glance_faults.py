"""What goes wrong between a real Glance and a server: one sentence, nothing left, try again."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from millpond.errors import ImageNotFound
from millpond.model.formats import DiskFormat
from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond
from tests.support.openstack.glance import Glance
from tests.support.refusals import Refuses


@pytest.fixture
def pond(millpond: Millpond, glance: Glance, monkeypatch: pytest.MonkeyPatch) -> Millpond:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    millpond.configure(
        f"[glance]\nauth_type = none\nendpoint_override = {glance.url}\nnum_retries = 1\n",
        default="image_source = glance",
    )
    millpond.make_pools()
    return millpond


@pytest.fixture
def image(glance: Glance, micro_guest: MicroGuest, workdir: Path) -> Iterator[str]:
    made = glance.upload(micro_guest.path, "raw")
    yield made.id
    glance.api.delete_image(made.id)


def create(image: str) -> tuple[str, ...]:
    return ("server", "create", "web", "--image", image, "--memory", "32M", "--no-start")


Fault = Callable[[Glance, str], AbstractContextManager[None]]


@contextmanager
def deactivated(glance: Glance, image: str) -> Iterator[None]:
    glance.api.deactivate_image(image)
    yield
    glance.api.reactivate_image(image)


@contextmanager
def forbidden(glance: Glance, _image: str) -> Iterator[None]:
    glance.rule(download_image="!")
    try:
        yield
    finally:
        glance.rule(download_image="@")


def in_its_store(change: Callable[[bytes], bytes]) -> Fault:
    """Behind Glance's back, which states what it was."""

    @contextmanager
    def fault(glance: Glance, image: str) -> Iterator[None]:
        file = glance.files / image
        content = file.read_bytes()
        file.write_bytes(change(content))
        yield
        file.write_bytes(content)

    return fault


@contextmanager
def without_bytes(glance: Glance, image: str) -> Iterator[None]:
    file = glance.files / image
    aside = file.rename(file.with_suffix(".aside"))
    yield
    aside.rename(file)


@contextmanager
def stopped(glance: Glance, _image: str) -> Iterator[None]:
    glance.stop()
    try:
        yield
    finally:
        glance.start()


@pytest.mark.parametrize(
    ("fault", "status", "sentence"),
    [
        (deactivated, 4, "cannot be used now: its status in Glance is 'deactivated'"),
        (forbidden, 9, "its server answers 403 (Forbidden)"),
        (in_its_store(lambda bytes: bytes[:-1] + b"!"), 5, "its sha512 is not the one"),
        (in_its_store(lambda bytes: bytes[: len(bytes) // 2]), 9, "it broke off after 512 KiB"),
        pytest.param(without_bytes, 9, "its server answers", marks=pytest.mark.full),
        pytest.param(stopped, 9, "Glance, or Keystone, cannot be reached", marks=pytest.mark.full),
    ],
    ids=["deactivated", "forbidden", "overwritten", "truncated", "without bytes", "stopped"],
)
def test_a_fault_is_said_leaves_nothing_and_the_next_try_succeeds(
    pond: Millpond,
    glance: Glance,
    image: str,
    refuses: Refuses,
    fault: Fault,
    status: int,
    sentence: str,
) -> None:
    with fault(glance, image):
        refuses(status, sentence, *create(image))
    pond.ok(*create(image))


def test_an_image_without_content_is_refused_until_it_has_some(
    pond: Millpond, glance: Glance, micro_guest: MicroGuest, refuses: Refuses
) -> None:
    queued = glance.api.create_image("queued", disk_format="raw", container_format="bare")
    refuses(4, "'queued' cannot be used now: its status", *create(queued.id))
    glance.fill(queued, micro_guest.path)
    pond.ok(*create(queued.id))
    glance.api.delete_image(queued)


def test_an_image_that_nobody_has_is_refused(pond: Millpond, refuses: Refuses) -> None:
    unknown = "00000000-0000-4000-8000-000000000000"
    refuses(3, f"there is no image '{unknown}'", *create(unknown))


def test_an_image_that_went_before_its_bytes_came_leaves_nothing(
    pond: Millpond, glance: Glance, micro_guest: MicroGuest
) -> None:
    made = glance.upload(micro_guest.path, "raw")
    host = pond.host()
    described = host.images.get(made.id)
    glance.api.delete_image(made.id)
    with pytest.raises(ImageNotFound):
        host.handlers.chosen.fetch_image(described, DiskFormat.RAW)
    assert list(pond.bases.iterdir()) == []
    assert host.template_store.unfinished() == []
