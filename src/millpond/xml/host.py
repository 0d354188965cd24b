"""What we read of a host's <capabilities>."""

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class SecurityModelXml(Element, tag="secmodel"):
    model: str = at("model")
    label: str | None = at("baselabel[@type='kvm']", default=None)


@dataclass(frozen=True, kw_only=True)
class CapabilitiesXml(Element, tag="capabilities"):
    arch: str = at("host/cpu/arch")
    security: tuple[SecurityModelXml, ...] = at("host/secmodel", default=())
