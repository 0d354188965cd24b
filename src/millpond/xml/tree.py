"""What is done to trees of XML that say more than our classes know."""

from lxml import etree


def child(parent: etree._Element, tag: str) -> etree._Element:
    found = parent.find(tag)
    return etree.SubElement(parent, tag) if found is None else found


def remove(parent: etree._Element, *tags: str) -> None:
    for tag in tags:
        for each in parent.findall(tag):
            parent.remove(each)


def contains(present: etree._Element, wanted: etree._Element) -> bool:
    return (
        set(wanted.items()) <= set(present.items())
        and (wanted.text or "").strip() in ("", (present.text or "").strip())
        and all(any(contains(each, child) for each in present) for child in wanted)
    )
