"""A source of images that misbehaves: one sentence, nothing left, and the next try succeeds.

What a real Glance can be brought to do is in tests/services.
"""

import pytest

from tests.support.glance_pages import FILE, ID, offer_content, offer_description, offer_versions
from tests.support.loopback import ADDRESS
from tests.support.web import Answer, serving

CREATE = ("server", "create", "web", "--image", ID, "--memory", "32M", "--no-start")


@pytest.fixture
def content(micro_guest):
    return micro_guest.path.read_bytes()


@pytest.fixture
def web(millpond, content, monkeypatch):
    """Of whom we are patient for a second, twice."""
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        offer_versions(web)
        offer_description(web, content)
        millpond.configure(
            f"[glance]\nauth_type = none\nendpoint_override = {web.url('')}\nnum_retries = 1\n"
            "[http]\nread_timeout = 1\n",
            default="image_source = glance",
        )
        millpond.make_pools()
        yield web


@pytest.mark.parametrize(
    ("answer", "status", "sentence"),
    [
        (Answer(truncate=1000), 9, "it broke off after 0 B of 1 MiB"),
        (Answer(hang=1000), 9, "its server sent nothing for 1 s"),
        (Answer(status=503), 9, "its server answers 503 (Service Unavailable)"),
        (Answer(content=bytes(1024**2)), 5, "its sha512 is not the one that was stated"),
    ],
    ids=["truncates", "hangs", "is overloaded", "lies"],
)
def test_a_fault_is_said_leaves_nothing_and_the_next_try_succeeds(
    millpond, web, content, refuses, answer, status, sentence
):
    offer_content(web, content, usual=answer)
    refuses(status, sentence, *CREATE)
    offer_content(web, content)
    millpond.ok(*CREATE)
    assert [each.read_bytes() for each in millpond.bases.iterdir()] == [content]


def test_a_source_that_recovers_is_asked_again(millpond, web, content):
    offer_content(web, content, Answer(status=503))
    millpond.ok(*CREATE)
    assert len([each for each in web.seen if each.path == FILE]) == 2
