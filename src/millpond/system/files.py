"""Files on a host whose files we can open: atomic writes, copies that keep holes, links."""

import errno
import fcntl
import os
import re
import select
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import FileNotReadable, NoSpace
from millpond.model.callbacks import Progress, noop
from millpond.model.sizes import format_size
from millpond.model.template import Prepared
from millpond.model.volume import PoolUsage

CHUNK = 4 * 1024 * 1024
_LONGEST_NAME = 255  # NAME_MAX of Linux's file systems, in bytes
_BLOCK = 512  # st_blocks counts in these, whatever the file system's own are (stat(2))
_FICLONE = 0x40049409  # _IOW(0x94, 9, int) in linux/fs.h

_HALF_WRITTEN = re.compile(r"\..+\.\d+\.[0-9a-f]{8}")  # as write_atomically names it
_TURN = 0.5
"""Seconds until a signal is seen that came just before a read began to wait."""
_OF_THE_NETWORK = re.compile(r"nfs4?|cifs|smb3|ceph|9p|virtiofs|lustre|gfs2|ocfs2|afs|fuse\..+")
_ABANDONED_AFTER = 60
"""Seconds: a write takes a thousandth of one."""

NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
# What a file system answers that has no such thing (or not across its border).
_NO_REFLINK = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS}
_NO_HARD_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}


def read(descriptor: int, size: int) -> bytes:
    """As os.read(), which a signal does not end that came after Python's last look and before the
    system call: of a pipe that stays silent, Ctrl-C would wait for ever."""
    while not select.select([descriptor], [], [], _TURN)[0]:
        pass
    return os.read(descriptor, size)


@dataclass(frozen=True, slots=True)
class Pipe:
    """A descriptor of somebody else's that is read that way."""

    descriptor: int

    def read(self, size: int) -> bytes:
        return read(self.descriptor, size)


def write_atomically(path: Path, content: bytes, mode: int = 0o640) -> None:
    """The file holds either what it held before or all of this, whenever the power goes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "wb") as file:
            os.fchmod(file.fileno(), mode)
            write(file.fileno(), content, 0)
            sync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def half_written(directory: Path) -> list[Path]:
    """What :func:`write_atomically` left there when its process was killed. Nobody reads it; what
    is younger, or open, may be on its way."""
    old = time.time() - _ABANDONED_AFTER
    found = [each for each in entries(directory) if _HALF_WRITTEN.fullmatch(each.name)]
    return [each for each in found if _modified(each) < old and not is_open(each)]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # it has its name by now
        return time.time()


def make_like(model: Path, new: Path) -> None:
    """A new, empty file with another's owner and mode."""
    like = model.stat()
    with open(new, "xb") as file:
        os.fchown(file.fileno(), like.st_uid, like.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))


def replace(new: Path, old: Path) -> None:
    """Put a complete file into another's place, with that one's owner and mode."""
    like = old.stat()
    with open(new, "rb") as file:
        os.fchown(file.fileno(), like.st_uid, like.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
        sync(file.fileno())
    os.rename(new, old)
    sync_directory(old.parent)


def write(descriptor: int, content: bytes, at: int) -> None:
    """All of it, at this place. A system call may write less than it was given; a full file
    system is an error of the next one."""
    rest = memoryview(content)
    while rest:
        count = os.pwrite(descriptor, rest, at)
        rest, at = rest[count:], at + count


def move_to_new(source: Path, target: Path) -> None:
    """A file under another name. Raises FileExistsError; a rename would take what is there away.
    Where there are no hard links, nothing better than looking first is to be had."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
        if os.path.lexists(target):
            raise FileExistsError(target) from error
        os.rename(source, target)
    else:
        source.unlink()


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_path(path: Path) -> None:
    """What anybody wrote to a file or a device, and the name of a file, survive a power
    failure."""
    with open(path, "rb") as file:
        sync(file.fileno())
    if path.is_file():
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy(source: Path, target: Path, progress: Progress = noop) -> Prepared:
    """The same bytes under a new name, with as little work as the file systems allow.

    A hard link shares the inode: only for a source that nobody will ever write to again.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
    else:
        progress(source.stat().st_size)
        return Prepared.HARD_LINK
    with open(source, "rb") as reader, open(target, "xb") as writer:
        how = copy_into(reader.fileno(), writer.fileno(), progress)
        sync(writer.fileno())
        return how


def copy_into(source: int, target: int, progress: Progress = noop) -> Prepared:
    """Fill an open, empty file with another's bytes: a reflink, else a copy that keeps holes."""
    size = os.fstat(source).st_size
    if reflink(source, target):
        progress(size)
        return Prepared.REFLINK
    if os.fstat(target).st_size < size:
        os.ftruncate(target, size)
    done = 0
    for start, end in extents(source, size):
        progress(start - done)
        _copy_range(source, target, start, end, progress)
        done = end
    progress(size - done)
    return Prepared.COPY


def have_same_content(one: Path, other: Path) -> bool:
    """Of the other, what its device has is read, as far as the kernel keeps no copy of it."""
    with open(one, "rb") as first, open(other, "rb") as second:
        os.posix_fadvise(second.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while chunk := first.read(CHUNK):
            if second.read(CHUNK) != chunk:
                return False
        return not second.read(1)


def reflink(source: int, target: int) -> bool:
    """Share the bytes of a whole file; False where the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


def extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that hold data."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int, progress: Progress) -> None:
    while start < end:
        count = _copy_some(source, target, start, min(CHUNK, end - start))
        if count == 0:
            raise OSError(errno.EIO, "the source became shorter while it was copied")
        start += count
        progress(count)


def _copy_some(source: int, target: int, at: int, count: int) -> int:
    try:
        return os.copy_file_range(source, target, count, at, at)
    except OSError as error:
        if error.errno not in _NO_REFLINK:
            raise
    content = os.pread(source, count, at)
    write(target, content, at)
    return len(content)


@contextmanager
def explaining_lack_of_space(where: Path, what: str = "", needed: str = "") -> Iterator[None]:
    """ENOSPC in the block becomes NoSpace, which says how much there is; ``what`` names the
    place for people."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        free = format_size(free_space(where))
        raise NoSpace(what or str(where), needed or f"more than {free}", free) from error


def free_space(where: Path) -> int:
    """Bytes that we may still write there, or where it will be made."""
    there = next(each for each in (where, *where.parents) if each.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize


def is_shared(where: Path) -> bool:
    """Whether it lies on a file system that other hosts may have mounted, too."""
    there = os.stat(nearest_existing(where)).st_dev
    device = f"{os.major(there)}:{os.minor(there)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        mount, _, kind = line.partition(" - ")  # proc(5)
        if mount.split()[2] == device:
            return _OF_THE_NETWORK.fullmatch(kind.split()[0]) is not None
    return False


def usage(where: Path) -> PoolUsage:
    """Of the file system, as we may use it: less what it keeps for root, or for others."""
    found = os.statvfs(where)
    taken = found.f_frsize * (found.f_blocks - found.f_bfree)
    free = found.f_frsize * found.f_bavail
    return PoolUsage(capacity=taken + free, allocation=taken, available=free)


def own_space(path: Path) -> int:
    """What the removal of a file would free; of what is not there, nothing. A link or a device is
    no file (B47), and the bytes of a hard link are somebody else's, too."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return 0
    is_alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    return found.st_blocks * _BLOCK if is_alone else 0


def taken_space(path: Path) -> int:
    """What a file takes on disk, holes left out."""
    return path.stat().st_blocks * _BLOCK


def entries(directory: Path) -> list[Path]:
    """What is in a directory, sorted; nothing in one that is not there. One that we may not look
    into is an error, never empty."""
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileNotReadable(directory, error.strerror or str(error)) from error


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def is_file_name(name: str) -> bool:
    """Whether a file can be called so, here and everywhere."""
    return "/" not in name and len(os.fsencode(name)) <= _LONGEST_NAME


def remove(path: Path) -> None:
    """Removing what is gone is not an error."""
    path.unlink(missing_ok=True)


def is_open(path: Path) -> bool:
    """Whether any process that we may look at has this file open."""
    return bool(find_open([path]))


def find_open(paths: Iterable[Path]) -> set[Path]:
    """Those of these files that any process that we may look at has open."""
    wanted = {(found.st_dev, found.st_ino): path for path in paths if (found := _stat(path))}
    found_open = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if wanted else ():
        with suppress(OSError):  # ended, or not ours to look at
            found = descriptor.stat()
            if path := wanted.get((found.st_dev, found.st_ino)):
                found_open.add(path)
    return found_open


def _stat(path: Path) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return path.stat()
    return None
