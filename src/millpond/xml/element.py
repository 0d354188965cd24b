"""A libvirt element as a frozen dataclass; each field names its place in the XML.

    @dataclass(frozen=True, kw_only=True)
    class VolumeXml(Element, tag="volume"):
        name: str = at("name")
        format: str | None = at("target/format/@type", default=None)

Conversions only. No policy, no default that libvirt would choose itself.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self, cast, get_args, get_origin, get_type_hints

from lxml import etree

# Entities and the network stay shut: a domain's XML may hold what somebody else wrote.
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, remove_blank_text=True)

# A name may begin with its namespace in braces, which may hold slashes itself.
_STEP = re.compile(r"(?:\{[^}]*\})?[^/]+")


def at(path: str, *, default: Any = MISSING) -> Any:
    """What stands at ``path``, by the field's type:

    - ``str`` and ``int``: the text of ``a/b``, or the attribute of ``a/b/@c``;
    - ``bool``: whether the element is there;
    - an Element: that element; a tuple of Elements: all of them, in their order.
    """
    return field(default=default, metadata={"path": path})


def parse(text: str | bytes) -> etree._Element:
    """ValueError of what is no XML."""
    try:
        return etree.fromstring(text, _PARSER)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"it is not well-formed: {error.msg}") from error


@dataclass(frozen=True)
class Element:
    tag: ClassVar[str]
    namespace: ClassVar[str | None]

    def __init_subclass__(cls, *, tag: str, namespace: str | None = None) -> None:
        cls.tag = f"{{{namespace}}}{tag}" if namespace else tag
        cls.namespace = namespace

    def to_xml(self) -> str:
        root = self.to_node()
        etree.indent(root)
        return etree.tostring(root, encoding="unicode")

    @classmethod
    def from_xml(cls, text: str | bytes) -> Self:
        """ValueError of what is no XML."""
        return cls.from_node(parse(text))

    def to_node(self) -> etree._Element:
        names = {"millpond": self.namespace} if self.namespace else None
        root = etree.Element(self.tag, nsmap=names)
        for each in fields(self):
            _put(root, each.metadata["path"], getattr(self, each.name))
        return root

    @classmethod
    def from_node(cls, root: etree._Element) -> Self:
        hints = _hints(cast(Hashable, cls))
        found = {
            each.name: value
            for each in fields(cls)
            if (value := _get(root, each.metadata["path"], hints[each.name])) is not None
        }
        return cls(**found)


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _split(path: str) -> tuple[list[str], str | None]:
    steps = _STEP.findall(path)
    if steps and steps[-1].startswith("@"):
        return steps[:-1], steps[-1][1:]
    return steps, None


def _get(root: etree._Element, path: str, hint: Any) -> Any:
    steps, attribute = _split(path)
    nodes = root.findall("/".join(steps)) if steps else [root]
    kinds = get_args(hint) or (hint,)
    element = next((k for k in kinds if isinstance(k, type) and issubclass(k, Element)), None)
    if element and get_origin(hint) is tuple:
        return tuple(element.from_node(node) for node in nodes)
    if bool in kinds:
        return bool(nodes)
    if not nodes:
        return None
    if element:
        return element.from_node(nodes[0])
    text = nodes[0].get(attribute) if attribute else nodes[0].text
    return int(text) if text is not None and int in kinds else text


def _put(root: etree._Element, path: str, value: Any) -> None:
    steps, attribute = _split(path)
    if value is None or value is False:
        return
    if isinstance(value, Element):
        _make(root, steps[:-1]).append(value.to_node())
    elif isinstance(value, tuple):
        if value:
            _make(root, steps[:-1]).extend(each.to_node() for each in value)
    elif attribute:
        _make(root, steps).set(attribute, str(value))
    else:
        node = _make(root, steps)
        node.text = None if value is True else str(value)


def _make(root: etree._Element, steps: list[str]) -> etree._Element:
    node = root
    for step in steps:
        child = node.find(step)
        node = etree.SubElement(node, step) if child is None else child
    return node


def put(root: etree._Element, kind: type[Element], name: str, value: Any) -> None:
    """One field in a tree that says more than the kind knows; None or False takes it away."""
    path = next(each.metadata["path"] for each in fields(kind) if each.name == name)
    steps, attribute = _split(path)
    if value is not None and value is not False:
        _put(root, path, value)
    elif (node := root.find("/".join(steps))) is None:
        return
    elif attribute:
        node.attrib.pop(attribute, "")
    elif (parent := node.getparent()) is not None:
        parent.remove(node)
