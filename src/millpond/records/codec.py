"""Values to JSON and back, strictly.

The journal's details have a type per verb in memory; a server's record keeps them as strings by
key, as every version has written them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from millpond.errors import DamagedRecord, NewerRecord
from millpond.model.layer import VolumeSource
from millpond.model.move import MigrateDetails
from millpond.model.operation import (
    ROOT,
    DeleteDetails,
    Details,
    DiskDetails,
    GrowDetails,
    GrowMethod,
    InsertDetails,
    NativeSnapshotDetails,
    NicDetails,
    NotRunningDetails,
    Operation,
    OtherDetails,
    OverlayDetails,
    Overlays,
    RebuildDetails,
    RenameDetails,
    RescueDetails,
    ResizeDetails,
    SettleDetails,
    SnapshotDetails,
)
from millpond.model.server import SCHEMA, Server
from millpond.model.transition import TransitionDetails

T = TypeVar("T")
_YES = "yes"


class _Versioned(msgspec.Struct):
    schema: int


class _Named(_Versioned):
    name: str


def encode(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_plain), indent=1) + b"\n"


def plain(value: object) -> Any:
    """As what JSON knows: dictionaries, lists, strings, numbers."""
    return msgspec.to_builtins(value, enc_hook=_plain)


def decode(content: bytes, kind: type[T], path: Path, schema: int) -> T:
    """The value, or DamagedRecord, or NewerRecord if a later version wrote it."""
    try:
        found = msgspec.json.decode(content, type=_Versioned).schema
        if found > schema:
            raise NewerRecord(path, found, schema)
        return msgspec.json.decode(content, type=kind, dec_hook=_decode_field)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DamagedRecord(path, str(error)) from error


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError  # msgspec's word for it


def _decode_field(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    if kind is Details:  # of which verb they are is not known here
        return OtherDetails(entries=msgspec.convert(value, dict[str, str]))
    raise NotImplementedError


def encode_server(server: Server) -> bytes:
    return encode(plain_server(server))


def plain_server(server: Server) -> dict[str, Any]:
    """As what JSON knows."""
    found: dict[str, Any] = plain(server)
    if server.operation:
        found["operation"]["details"] = _encode_details(server.operation.details)
    return found


def decode_name(content: bytes, where: Path) -> str:
    """Of a server, without looking at the rest."""
    return decode(content, _Named, where, SCHEMA).name


def decode_server(content: bytes, where: Path) -> Server:
    """Raises DamagedRecord, or NewerRecord if a later version wrote it."""
    server = decode(content, Server, where, SCHEMA)
    try:
        return replace(server, operation=server.operation and _type_details(server.operation))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise DamagedRecord(where, f"the details of its operation: {error}") from error


def _type_details(operation: Operation) -> Operation:
    found = operation.details
    entries = found.entries if isinstance(found, OtherDetails) else {}
    if kind := _MOVES.get(operation.verb):
        return replace(operation, details=msgspec.json.decode(entries["move"], type=kind))
    return replace(operation, details=_decode_details(operation.verb, entries))


def _encode_details(details: Details | None) -> dict[str, str]:
    match details:
        case MigrateDetails() | TransitionDetails():
            return {"move": msgspec.json.encode(details).decode()}
        case GrowDetails(role=role, size=size, method=method):
            return {"role": role, "size": str(size), "way": method.value}
        case DiskDetails() | NicDetails() | RenameDetails() | ResizeDetails():
            return _encode_each(details)
        case InsertDetails() | RebuildDetails() | RescueDetails():
            return _encode_each(details)
        case DeleteDetails() | SettleDetails() | SnapshotDetails():
            return _encode_overlaid(details)
        case OtherDetails(entries=entries):
            return dict(entries)
    return {}


def _encode_overlaid(details: DeleteDetails | SettleDetails | SnapshotDetails) -> dict[str, str]:
    match details:
        case DeleteDetails(force=force, overlays=overlays):
            return {**_encode_overlays(overlays), **_flag("force", force)}
        case SettleDetails(overlays=overlays, state=state):
            return {**_encode_overlays(overlays), "state": state}
        case SnapshotDetails():
            return _encode_snapshot(details)


def _encode_each(details: Details) -> dict[str, str]:
    """Word by word."""
    found: dict[str, str] = {}
    for key, value in plain(details).items():
        found |= _flag(key, value) if isinstance(value, bool) else {key: str(value)}
    return found


def _decode_details(verb: str, entries: Mapping[str, str]) -> Details | None:
    if decode := _DECODERS.get(verb):
        return decode(entries)
    return OtherDetails(entries=entries) if entries else None


def _decode_grow(entries: Mapping[str, str]) -> Details:
    """Resizing was once the only method, and not written."""
    method = GrowMethod(entries.get("way", GrowMethod.RESIZE))
    return GrowDetails(role=entries["role"], size=int(entries["size"]), method=method)


def _decode_disk(entries: Mapping[str, str]) -> Details:
    return DiskDetails(role=entries["role"])


def _decode_nic(entries: Mapping[str, str]) -> Details:
    return NicDetails(mac=entries["mac"])


def _decode_insert(entries: Mapping[str, str]) -> Details:
    return InsertDetails(adds_drive="adds_drive" in entries)


def _decode_resize(entries: Mapping[str, str]) -> Details:
    vcpus, memory = int(entries["vcpus"]), int(entries["memory"])
    flavor, live = entries.get("flavor", ""), "live" in entries
    return ResizeDetails(vcpus=vcpus, memory=memory, flavor=flavor, live=live)


def _decode_rescue(entries: Mapping[str, str]) -> Details:
    return RescueDetails(ran="ran" in entries)


def _decode_rebuild(entries: Mapping[str, str]) -> Details:
    image, name, format = (entries[key] for key in ("image", "name", "format"))
    return RebuildDetails(image=image, name=name, format=format, ran="ran" in entries)


def _encode_snapshot(details: SnapshotDetails) -> dict[str, str]:
    """The root disk alone is not named: once it was the only one."""
    found = {} if details.roles == (ROOT,) else {"roles": " ".join(details.roles)}
    if details.state:
        found["state"] = details.state
    found |= _flag("quiesces", details.quiesces)
    match details:
        case OverlayDetails(overlays=overlays, merging=merging):
            return {**_encode_overlays(overlays), **found, **_flag("merging", merging)}
        case NotRunningDetails():
            return {"still": _YES, **found}
    return found


def _decode_snapshot(entries: Mapping[str, str]) -> SnapshotDetails:
    roles, state = tuple(entries.get("roles", ROOT).split()), entries.get("state", "")
    quiesces = "quiesces" in entries
    if overlays := _decode_overlays(entries):
        merging, state = "merging" in entries, entries["state"]
        return OverlayDetails(
            roles=roles, state=state, quiesces=quiesces, overlays=overlays, merging=merging
        )
    kind = NotRunningDetails if "still" in entries else NativeSnapshotDetails
    return kind(roles=roles, state=state, quiesces=quiesces)


def _encode_overlays(overlays: Overlays) -> dict[str, str]:
    found: dict[str, str] = {}
    for role, each in overlays.items():
        suffix = "" if role == ROOT else f" {role}"
        found |= {f"pool{suffix}": each.pool, f"volume{suffix}": each.volume}
    return found


def _decode_overlays(entries: Mapping[str, str]) -> Overlays:
    """The root disk's are without its role."""
    found: dict[str, VolumeSource] = {}
    for key, volume in entries.items():
        name, _, role = key.partition(" ")
        if name == "volume":
            pool = entries[key.replace("volume", "pool", 1)]
            found[role or ROOT] = VolumeSource(pool=pool, volume=volume)
    return found


_DECODERS: Mapping[str, Callable[[Mapping[str, str]], Details]] = {
    "grow": _decode_grow,
    "disk add": _decode_disk,
    "disk remove": _decode_disk,
    "disk attach": _decode_disk,
    "disk detach": _decode_disk,
    "nic add": _decode_nic,
    "nic remove": _decode_nic,
    "rename": lambda entries: RenameDetails(before=entries["before"]),
    "cdrom insert": _decode_insert,
    "resize": _decode_resize,
    "rebuild": _decode_rebuild,
    "rescue": _decode_rescue,
    "unrescue": _decode_rescue,
    "delete": lambda entries: DeleteDetails(
        force="force" in entries, overlays=_decode_overlays(entries)
    ),
    "settle": lambda entries: SettleDetails(
        overlays=_decode_overlays(entries), state=entries["state"]
    ),
    "snapshot": _decode_snapshot,
}
"""By verb; of any other the details are kept as they were found."""


_MOVES: Mapping[str, type[Details]] = {
    "migrate": MigrateDetails,
    "live migrate": MigrateDetails,
    "evacuate": MigrateDetails,
    "transition": TransitionDetails,
    "live transition": TransitionDetails,
}
"""Verbs whose details name disks, and are JSON in one string."""


def _flag(name: str, value: bool) -> dict[str, str]:
    return {name: _YES} if value else {}


def seal(content: bytes) -> bytes:
    """With its length and digest, so that one that is cut off or was changed is known."""
    head = {"length": len(content), "sha256": _digest(content)}
    return json.dumps(head).encode() + b"\n" + content


def unseal(sealed: bytes, path: Path) -> bytes:
    """Raises DamagedRecord."""
    head, _, content = sealed.partition(b"\n")
    try:
        stated = json.loads(head)
        intact = (stated["length"], stated["sha256"]) == (len(content), _digest(content))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedRecord(path, "its first line is damaged") from error
    if not intact:
        raise DamagedRecord(path, "its content is not what it was when it was written")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
