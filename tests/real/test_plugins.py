"""The plug-in of docs/plugins.md, installed as anybody's would be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import plugin
from tests.support.glance_pages import (
    FILE,
    ID,
    offer_content,
    offer_description,
    offer_versions,
)
from tests.support.guests import MicroGuest
from tests.support.loopback import ADDRESS
from tests.support.millpond import Millpond
from tests.support.web import Web, serving


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plugin.install(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def mirror(installed: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the installed plug-in looks into."""
    directory = workdir / "mirror"
    directory.mkdir()
    monkeypatch.setenv("MILLPOND_MIRROR", str(directory))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    return directory


@pytest.fixture
def glance(
    millpond: Millpond, micro_guest: MicroGuest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Web]:
    """It knows the guest, and does not give it."""
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        offer_versions(web)
        offer_description(web, micro_guest.path.read_bytes())
        configure(millpond, web, "mirror")
        yield web


def configure(millpond: Millpond, glance: Web, handler: str) -> None:
    millpond.configure(
        f"[glance]\nauth_type = none\nendpoint_override = {glance.url('')}\nnum_retries = 0\n",
        default=f"image_source = glance\ntemplate_image_handler = {handler}",
    )


def test_a_server_boots_from_what_the_mirror_has(
    millpond: Millpond, glance: Web, mirror: Path, micro_guest: MicroGuest
) -> None:
    (mirror / ID).write_bytes(micro_guest.path.read_bytes())
    made = millpond.json("server", "create", "web", "--image", ID, "--memory", "32M")
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    assert FILE not in {each.path for each in glance.seen}
    millpond.ok("server", "delete", "web")


def test_what_the_mirror_does_not_have_is_downloaded(
    millpond: Millpond, glance: Web, mirror: Path, micro_guest: MicroGuest
) -> None:
    content = micro_guest.path.read_bytes()
    offer_content(glance, content)
    [made] = millpond.json("cache", "fetch", ID)
    assert (millpond.bases / made["volume"]).read_bytes() == content
    assert glance.sent[FILE] == len(content)


def test_what_is_wrong_in_the_mirror_is_refused_as_from_anywhere(
    millpond: Millpond, glance: Web, mirror: Path, micro_guest: MicroGuest
) -> None:
    (mirror / ID).write_bytes(micro_guest.path.read_bytes()[:-512] + bytes(range(256)) * 2)
    status, message = millpond.fails("cache", "fetch", ID)
    assert status == 5
    assert "its sha512 is not the one that was stated" in message
    assert list(millpond.bases.iterdir()) == []


def test_b40_plug_ins_are_among_the_choices(
    millpond: Millpond, glance: Web, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Allowed: downloading, mirror" in millpond.ok("config", "sample")
    configure(millpond, glance, "miror")
    status, message = millpond.fails("server", "list")
    assert status == 2
    assert "there is no handler 'miror' (handlers: downloading, mirror" in message
    configure(millpond, glance, "mirror")
    monkeypatch.delenv("PYTHONPATH")
    status, message = millpond.fails("server", "list")
    assert status == 2
    assert "there is no handler 'mirror' (handlers: downloading" in message
    assert "mirror" not in message.partition("handlers:")[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_this_name", "cannot be loaded (ModuleNotFoundError: No module named"),
        ("MirrorTemplateImagehandler = print", "is no BaseTemplateImagehandler"),
    ],
    ids=["broken", "something else"],
)
def test_a_plug_in_that_cannot_be_used_is_an_error(
    millpond: Millpond,
    glance: Web,
    mirror: Path,
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
) -> None:
    changed = mirror / "changed"
    changed.mkdir()
    (changed / "millpond_mirror.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{changed}:{installed}")
    status, message = millpond.fails("cache", "fetch", ID)
    assert status == 2
    assert f"[DEFAULT] template_image_handler: handler 'mirror' {said}" in message


def test_two_plug_ins_of_one_name_are_an_error(
    millpond: Millpond,
    glance: Web,
    mirror: Path,
    installed: Path,
    workdir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = workdir / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[millpond.template_handlers]\nmirror = other:Other\n")
    (workdir / "other.py").write_text("class Other: pass")
    monkeypatch.setenv("PYTHONPATH", f"{workdir}:{installed}")
    status, message = millpond.fails("cache", "fetch", ID)
    assert status == 2
    assert "handler 'mirror' is there more than once" in message
