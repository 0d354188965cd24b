"""What docs/plugins.md promises to plug-ins stays as it is."""

import importlib
import inspect
import re
from dataclasses import MISSING, fields, is_dataclass

import pytest

from millpond.images.source import Stream
from millpond.templates.downloading import DownloadingTemplateImagehandler
from millpond.templates.handler import BaseTemplateImagehandler, HandlerContext
from tests.support.plugin import PAGE

PROMISED = re.findall(r"^\| `(millpond[\w.]+)` \| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.M)


@pytest.mark.parametrize(("module", "name", "members"), PROMISED, ids=[p[1] for p in PROMISED])
def test_what_is_promised_is_there(module: str, name: str, members: str) -> None:
    promised = getattr(importlib.import_module(module), name)
    has = {*dir(promised), *re.findall(r"self\.(\w+) =", inspect.getsource(promised))}
    if is_dataclass(promised):
        has |= {each.name for each in fields(promised)}
    assert set(re.findall(r"`(\w+)`", members)) <= has


def test_the_page_promises_something() -> None:
    assert {name for _, name, _ in PROMISED} >= {
        "HandlerContext",
        "BaseTemplateImagehandler",
        "Template",
    }


@pytest.mark.parametrize(
    ("kind", "required"),
    [(HandlerContext, ["store", "images", "users"]), (Stream, ["chunks"])],
    ids=["HandlerContext", "Stream"],
)
def test_a_new_field_has_a_default(kind: type, required: list[str]) -> None:
    assert is_dataclass(kind)
    without = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
    assert without == required


@pytest.mark.parametrize(
    "kind",
    [BaseTemplateImagehandler, DownloadingTemplateImagehandler],
    ids=lambda kind: kind.__name__,
)
def test_a_handler_is_made_with_a_workshop_alone(kind: type[BaseTemplateImagehandler]) -> None:
    assert list(inspect.signature(kind).parameters) == ["context"]


def test_a_handler_has_to_bring_three_things() -> None:
    assert BaseTemplateImagehandler.__abstractmethods__ == {"init", "_prepare", "_drop"}
    taken = {
        name: list(inspect.signature(getattr(BaseTemplateImagehandler, name)).parameters)
        for name in ("fetch_image", "remove_image", "drop", "_prepare", "_drop")
    }
    assert taken == {
        "fetch_image": ["self", "image", "format", "progress"],
        "remove_image": ["self", "image", "format"],
        "drop": ["self", "template"],
        "_prepare": ["self", "image", "format", "progress"],
        "_drop": ["self", "name"],
    }
