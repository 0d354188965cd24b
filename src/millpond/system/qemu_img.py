"""One function per verb of qemu-img: stated formats in, values out, limits always."""

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.errors import ToolFailed, Unsupported
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.layer import (
    FileSource,
    IscsiSource,
    Layer,
    NbdSource,
    RbdSource,
    Source,
    VolumeSource,
)
from millpond.system import ceph_conf
from millpond.system.process import CONVERSION, Handed, Watch, run

_BLOCK = 64 * 1024

_CONVERT = ["qemu-img", "convert", "-t", "writeback"]
"""With its usual cache mode, unsafe, it would not flush what it wrote when it ends."""

_PERCENT = re.compile(r"\((\d+\.\d+)/100%\)")

_OPTIONS = {DiskFormat.QCOW2: ["-o", "compat=1.1"]}

# QEMU would take 128 MiB ahead and give it back at the end: too much for a nearly full pool.
_TAKES_NO_MORE = {DiskFormat.PLOOP: {"prealloc-mode": "truncate"}}

# QEMU does not reopen these for reading when an overlay comes above, and keeps its write lock.
_STAYS_LOCKED = (DiskFormat.PLOOP,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress:
    """Whom to report progress to while qemu-img works, and of how many bytes in all."""

    progress: Progress = noop
    total: int = 0

    def watch(self) -> Watch:
        """Takes what qemu-img prints with -p: ``(12.50/100%)``."""
        done = 0

        def watch(line: str) -> None:
            nonlocal done
            if found := _PERCENT.fullmatch(line):
                before, done = done, int(self.total * float(found[1]) / 100)
                self.progress(done - before)

        return watch


def convert(
    source: Path,
    source_format: DiskFormat,
    target: Path,
    format: DiskFormat,
    told: ToolProgress | None = None,
) -> None:
    """A copy in another format. Only for bytes that passed inspection: qemu-img opens them."""
    words = [*_CONVERT, "-f", source_format.qemu, "-O", format.qemu]
    words += [*_OPTIONS.get(format, []), str(source), str(target)]
    target.touch()
    _run(words, Handed(reads=[source], writes=[target]), told)


def create(path: Path, format: DiskFormat, size: int) -> None:
    """An empty image; a file that is there keeps its owner and its mode."""
    words = ["qemu-img", "create", "-q", "-f", format.qemu, *_OPTIONS.get(format, [])]
    path.touch()
    _run([*words, str(path), str(size)], Handed(writes=[path]))


def fill(target: Layer, layers: Sequence[Layer]) -> None:
    """What the layers show, into a new image that is there and may be larger. Told that this is
    all zeros: else zeros would be written to wherever the source has a hole."""
    words = [*_CONVERT, "-n", "--target-is-zero", "--image-opts"]
    options = _options([target]) | _TAKES_NO_MORE.get(target.format, {})
    words += ["--target-image-opts", _format(_options(layers)), _format(options)]
    _run(words, _handed(layers, [target]))


def is_same(one: Layer, other: Layer) -> bool:
    """Whether both show the same, with nothing but zeros behind the shorter."""
    words = ["qemu-img", "compare", "-q", "--image-opts"]
    try:
        stated = [_format(_options([each])) for each in (one, other)]
        _run([*words, *stated], _handed([one, other]))
    except ToolFailed as error:
        if error.status != 1:
            raise
        return False
    return True


def repair(path: Path, format: DiskFormat) -> None:
    """Put right what a crash left."""
    words = ["qemu-img", "check", "-q", "-r", "all", "-f", format.qemu, str(path)]
    _run(words, Handed(writes=[path]))


def resize(layers: Sequence[Layer], size: int) -> None:
    """Make the top layer larger. qemu-img refuses to make it smaller unless it is told to."""
    words = [
        "qemu-img",
        "resize",
        "-q",
        "--image-opts",
        _format(_options(layers)),
        str(size),
    ]
    _run(words, _handed(layers[1:], layers[:1]))


def extract(
    layers: Sequence[Layer],
    target: Path,
    format: DiskFormat,
    *,
    compress: bool,
    told: ToolProgress | None = None,
) -> None:
    """What a disk shows, as one image. Every layer is stated, the top first: nothing that is
    written in a header is followed."""
    words = [*_CONVERT, "--image-opts", "-O", format.qemu, *_OPTIONS.get(format, [])]
    words += ["-c"] if compress else []
    words += ["-U"] if any(layer.format in _STAYS_LOCKED for layer in layers) else []
    target.touch()
    handed = _handed(layers)
    words += [_format(_options(layers)), str(target)]
    _run(words, replace(handed, writes=[*handed.writes, target]), told)


def read(layer: Layer, offset: int, length: int, target: Path) -> bytes:
    """Bytes of what is no file here, by way of one. What they are is not asked."""
    first, end = offset // _BLOCK, -(-(offset + length) // _BLOCK)
    raw = _format(_options([replace(layer, format=DiskFormat.RAW)]))
    words = ["qemu-img", "dd", "--image-opts", "-O", "raw", f"if={raw}", f"of={target}"]
    words += [f"bs={_BLOCK}", f"skip={first}", f"count={end}"]  # counted from the beginning
    target.touch()
    handed = _handed([layer])
    _run(words, replace(handed, writes=[*handed.writes, target]))
    with target.open("rb") as file:
        file.seek(offset - first * _BLOCK)
        return file.read(length)


def commit(layers: Sequence[Layer]) -> None:
    """Write the top layer into the next; it is not emptied afterwards. Every layer is stated."""
    words = ["qemu-img", "commit", "-q", "-d", "--image-opts", _format(_options(layers))]
    _run(words, _handed(layers[2:], layers[:2]))


def _format(options: Mapping[str, str]) -> str:
    """As --image-opts takes it."""
    return ",".join(f"{key}={value.replace(',', ',,')}" for key, value in options.items())


def _options(layers: Sequence[Layer], prefix: str = "") -> dict[str, str]:
    top, *below = layers
    door = {f"{prefix}file.{key}": value for key, value in _bytes(top).items()}
    rest = _options(below, f"{prefix}backing.") if below else {}
    return {f"{prefix}driver": top.format.qemu, **door, **rest}


def _bytes(layer: Layer) -> dict[str, str]:
    if layer.length is None:
        return _door(layer.source)
    door = {f"file.{key}": value for key, value in _door(layer.source).items()}
    return {"driver": "raw", "size": str(layer.length), **door}


def _door(source: Source) -> dict[str, str]:
    """How QEMU opens the bytes."""
    match source:
        case FileSource(path=path, device=device):
            return {"driver": "host_device" if device else "file", "filename": path}
        case RbdSource(access=access, image=image, snapshot=snapshot):
            options = {
                "driver": "rbd",
                "pool": access.pool,
                "image": image,
                "snapshot": snapshot,
                "conf": str(access.conf or ""),
                "user": access.user,
            }
            return {key: value for key, value in options.items() if value}
        case IscsiSource(host=host, port=port, target=target, lun=lun, initiator=initiator):
            options = {
                "driver": "iscsi",
                "transport": "tcp",
                "portal": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                "target": target,
                "lun": str(lun),
                "initiator-name": initiator,
            }
            return {key: value for key, value in options.items() if value}
        case NbdSource(socket=socket, export=export):
            options = {"driver": "nbd", "server.type": "unix", "server.path": str(socket)}
            return options | ({"export": export} if export else {})
        case VolumeSource(pool=pool, volume=volume):
            raise Unsupported(f"opening {pool}/{volume} by qemu-img", "it has no path here")


def _handed(reads: Sequence[Layer], writes: Sequence[Layer] = ()) -> Handed:
    """What qemu-img has to open for these layers. librbd and libiscsi reach their servers by
    themselves, and a socket is one: then, and only then, it gets the network."""
    sources = [layer.source for layer in (*reads, *writes)]
    ceph = [source.access for source in sources if isinstance(source, RbdSource)]
    sockets = [source.socket for source in sources if isinstance(source, NbdSource)]
    credentials = [path for access in ceph for path in ceph_conf.files(access.conf, access.user)]
    return Handed(
        reads=[*_paths(reads), *credentials],
        writes=[*_paths(writes), *sockets],
        network=any(isinstance(source, RbdSource | IscsiSource | NbdSource) for source in sources),
    )


def _paths(layers: Sequence[Layer]) -> list[Path]:
    return [Path(each.source.path) for each in layers if isinstance(each.source, FileSource)]


def _run(words: list[str], handed: Handed, told: ToolProgress | None = None) -> None:
    """``told`` is for a conversion, whose words come after its verb."""
    if told:
        words = [*words[:2], "-p", *words[2:]]
    try:
        run(words, CONVERSION, handed, told.watch() if told else None)
    except ToolFailed as error:
        if "No space left" in error.reason:
            raise OSError(errno.ENOSPC, error.reason) from error
        raise
