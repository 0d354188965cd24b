"""The services of OpenStack: where they are, who asks, how patiently, and whom to trust."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

from millpond.config.cloud_options import CLOUD_AUTH
from millpond.config.options import CINDER, GLANCE, HTTP, PLACEMENT
from millpond.config.reader import Reader, parse_text
from millpond.config.settings import ImageSourceOption, Settings
from millpond.model.cloud import CloudAccess, SignaturePolicy
from millpond.model.transfer import Patience


@dataclass(frozen=True, slots=True)
class _CloudNames:
    """Nova has another name for the same in each group."""

    url: str
    region: str
    retries: str
    service: str


def glance(reader: Reader) -> CloudAccess:
    return _cloud(
        reader, GLANCE, _CloudNames("endpoint_override", "region_name", "num_retries", "Glance")
    )


def cinder(reader: Reader, glances: CloudAccess) -> CloudAccess:
    """Where nothing is said of it, in the cloud that has Glance."""
    names = _CloudNames("endpoint_template", "os_region_name", "http_retries", "Cinder")
    access = _cloud(reader, CINDER, names)
    if access.cloud or access.auth_type:
        return access
    return replace(
        glances,
        endpoint_override=access.endpoint_override,
        region_name=access.region_name or glances.region_name,
        cafile=access.cafile or glances.cafile,
        insecure=access.insecure or glances.insecure,
        patience=access.patience,
    )


def placement(reader: Reader) -> CloudAccess | None:
    """None where it is not said where one is: it is embedded then."""
    names = _CloudNames("endpoint_override", "region_name", "connect_retries", "Placement")
    access = _cloud(reader, PLACEMENT, names)
    return access if access.cloud or access.is_stated else None


def _cloud(reader: Reader, group: str, names: _CloudNames) -> CloudAccess:
    def text(name: str) -> str:
        return reader.take(group, name, parse_text, "")

    access = CloudAccess(
        cloud=text("cloud"),
        auth_type=text("auth_type"),
        auth={name: value for name in CLOUD_AUTH if (value := text(name))},
        endpoint_override=text(names.url),
        region_name=text(names.region),
        cafile=text("cafile"),
        insecure=reader.take(group, "insecure", bool, False),
        patience=patience(reader, group, names.retries),
    )
    if access.cloud and (access.auth_type or access.endpoint_override):
        reason = f"auth_type and {names.url} say where {names.service} is, too"
        reader.complain(group, "cloud", reason, "set either cloud or these")
    return access


def patience(reader: Reader, group: str, retries: str) -> Patience:
    return Patience(
        connect_seconds=reader.take(HTTP, "connect_timeout", int, 1),
        read_seconds=reader.take(HTTP, "read_timeout", int, 1),
        retries=reader.take(group, retries, int, 0),
    )


def signatures(reader: Reader) -> SignaturePolicy | None:
    """As Nova reads them: ids count where they are asked for, and then they are enough."""
    validates = reader.take(GLANCE, "enable_certificate_validation", bool, False)
    ids = reader.take(GLANCE, "default_trusted_certificate_ids", tuple, ())
    verifies = reader.take(GLANCE, "verify_glance_signatures", bool, False)
    if not verifies and not (validates and ids):
        return None
    return SignaturePolicy(
        trusted=ids if validates else (),
        key_manager=reader.conf,
        seconds=reader.take(HTTP, "read_timeout", int, 1),
    )


def check_signatures(reader: Reader, settings: Settings) -> None:
    if settings.signatures is None or settings.image_source is not ImageSourceOption.GLANCE:
        return
    if not all(find_spec(each) for each in ("castellan", "cursive")):
        reason = "what verifies signatures is not installed"
        advised = "pip install 'millpond[signatures]'"
        reader.complain(GLANCE, "verify_glance_signatures", reason, advised)
    validates = reader.take(GLANCE, "enable_certificate_validation", bool, False)
    if validates and not settings.signatures.trusted:
        reason = "enable_certificate_validation is on, and no certificate is trusted"
        advised = "name some, or leave enable_certificate_validation out"
        reader.complain(GLANCE, "default_trusted_certificate_ids", reason, advised)
