"""Packed images: unpacked while they arrive, a piece at a time."""

import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from millpond.errors import ImageRefused, ToolFailed
from millpond.images.formats.container import AGAIN
from millpond.model.sizes import KiB, MiB
from millpond.system.process import CONVERSION, Filter, Handed

_PIECE = 4 * MiB
_SLICE = 64 * KiB
"""At the end of every member, all that was fed behind it is copied."""
_MEMORY = 256 * MiB
"""For the dictionary: xz -9 needs 65 MiB, zstd --ultra 128 MiB."""
_LIMITS = replace(CONVERSION, seconds=600)
_ZSTD = ["zstd", "--decompress", "--stdout", "--quiet", f"--memory={_MEMORY // MiB}MB"]


class Packing(StrEnum):
    """By the suffix of a file's name."""

    GZIP = ".gz"
    XZ = ".xz"
    ZSTD = ".zst"


class Unpacker(Protocol):
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """What the bytes so far hold, in pieces of a bounded size."""
        ...

    def finish(self) -> Iterator[bytes]:
        """All have come: the rest. Raises EOFError where the end is missing."""
        ...

    def close(self) -> None:
        """However it went."""
        ...


class _Plain:
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def finish(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None:
        """Nothing is open."""


class _Gzip(_Plain):
    """One member after the other, and zeros behind the last."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        for each in _slices(chunk):
            yield from self._unpack(each)

    def _unpack(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            if self._member.eof:
                chunk = chunk.lstrip(b"\0")
                if not chunk:
                    return
                self._member = zlib.decompressobj(wbits=31)
            if piece := self._member.decompress(chunk, _PIECE):
                yield piece
            chunk = self._member.unused_data or self._member.unconsumed_tail

    def finish(self) -> Iterator[bytes]:
        if not self._member.eof:
            raise EOFError
        return iter(())


class _Xz(_Plain):
    """One stream after the other, and zeros behind the last."""

    def __init__(self) -> None:
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        for each in _slices(chunk):
            yield from self._unpack(each)

    def _unpack(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            if self._stream.eof:
                chunk = chunk.lstrip(b"\0")
                if not chunk:
                    return
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
            yield self._stream.decompress(chunk, _PIECE)
            while not self._stream.eof and not self._stream.needs_input:
                yield self._stream.decompress(b"", _PIECE)
            chunk = self._stream.unused_data

    def finish(self) -> Iterator[bytes]:
        if not self._stream.eof:
            raise EOFError
        return iter(())


def _slices(chunk: bytes) -> Iterator[bytes]:
    return (chunk[start : start + _SLICE] for start in range(0, len(chunk), _SLICE))


def _zstd() -> Unpacker:
    """A program, confined: the standard library has no reader."""
    return Filter(_ZSTD, _LIMITS, Handed())


_UNPACKERS: Mapping[Packing | None, Callable[[], Unpacker]] = {
    None: _Plain,
    Packing.GZIP: _Gzip,
    Packing.XZ: _Xz,
    Packing.ZSTD: _zstd,
}


class Unpacking:
    """Of one image, whose name is for the error."""

    def __init__(self, packing: Packing | None, name: str) -> None:
        self._unpacker = _UNPACKERS[packing]()
        self._name = name

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        return self._explain(lambda: self._unpacker.feed(chunk))

    def finish(self) -> Iterator[bytes]:
        return self._explain(self._unpacker.finish)

    def close(self) -> None:
        self._unpacker.close()

    def _explain(self, unpack: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        try:
            yield from unpack()
        except EOFError as error:
            raise ImageRefused(self._name, "it is cut off: its end is missing", AGAIN) from error
        except (zlib.error, lzma.LZMAError, ToolFailed) as error:
            raise ImageRefused(self._name, f"it cannot be unpacked: {error}", AGAIN) from error
