"""Values to JSON and back, strictly."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from millpond.errors import DamagedRecord, NewerRecord
from millpond.model.operation import Details, OtherDetails

T = TypeVar("T")


class _Versioned(msgspec.Struct):
    schema: int


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
        return msgspec.json.decode(content, type=kind, dec_hook=_made)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(path, str(error)) from error


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError  # msgspec's word for it


def _made(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    if kind is Details:  # of which verb they are is not known here
        return OtherDetails(entries=msgspec.convert(value, dict[str, str]))
    raise NotImplementedError
