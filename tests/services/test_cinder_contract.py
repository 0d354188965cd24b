"""What our client of Cinder relies on: the real one, and the pages that stand for it elsewhere."""

import uuid
from collections.abc import Iterator

import pytest

from millpond.templates.links.cinder import Cinder as Client
from tests.services.test_glance_source import access
from tests.support.cinder_pages import VOLUME, saying
from tests.support.openstack import cinder as volume_types

CONNECTOR = {"host": "pond", "initiator": "iqn.x:pond", "mountpoint": "/millpond/us/template"}


@pytest.fixture(params=["real", "pages"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Client, str]]:
    """A client, and a volume that can be shared."""
    if request.param == "pages":
        with saying({"driver_volume_type": "local", "device_path": "/dev/null"}) as pages:
            yield Client(access(pages.url)), VOLUME
        return
    cinder = request.getfixturevalue("cinder")
    volume = cinder.make_volume(volume_types.SHARED_RBD)
    yield Client(access(cinder.url)), volume.id
    cinder.api.delete_volume(volume)


def test_an_attachment_is_reserved_made_seen_and_taken_away(
    served: tuple[Client, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    client, id = served
    assert client.volume(str(uuid.uuid4())) is None
    attachment = client.reserve(id)
    assert client.connection(attachment) == {}
    assert client.attach(attachment, CONNECTOR)["driver_volume_type"]
    found = client.volume(id)
    assert found
    assert (found.status, found.shared, found.encrypted) == ("in-use", True, False)
    (held,) = found.held
    assert (held.id, held.host, held.mountpoint) == (attachment, "pond", CONNECTOR["mountpoint"])
    client.detach(attachment)
    client.detach(attachment)  # gone already
    assert client.connection(attachment) == {}
    again = client.volume(id)
    assert again
    assert (again.status, again.held) == ("available", ())
