"""Stands in front of each tool that reads bytes which are not ours, and becomes that tool.

system/process.py starts a Python of its own with ``main(["FACT=VALUE", …, "--", "TOOL", …])`` for
every call. This imports few modules and none of ours: it has about ten milliseconds. What is done
and why is in docs/decisions/0019-confined-tools.md.
"""

import ctypes
import errno
import os
import resource
import stat
import struct
import sys

NOBODY = 65534
"""The kernel's overflow id: on an NFS server that squashes root, root's files are this user's."""

_NUMBERS = ("parent", "memory", "cpu", "network")
_NOT_STARTED = 126
"""A status that no tool ends with: qemu-img means something by 1, 2 and 3."""

# linux/sched.h, linux/mount.h, linux/prctl.h, linux/capability.h
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 30
_CLONE_THREAD = 1 << 16
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 8, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 38, 47, 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION = 0x20080522
_SIGKILL, _SIGSTOP = 9, 19  # the module signal takes two milliseconds to import

# linux/mount.h, linux/fcntl.h; the numbers of new calls are the same on every machine.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _MOVE_EMPTY_PATH, _MOUNT_ATTR_IDMAP = 1, 4, 1 << 20
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000

_OF_OWNER = 6
"""The owner's bits in a mode, the lowest of them."""
Owner = tuple[int, int]

_ROOT = "/proc"
"""Where the tool's root is put together, in a mount namespace of its own: a mount point on every
host, and none that has files to hand over."""
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
    *("/etc/alternatives", "/etc/ld.so.cache"),
)
_DEVICES = ("/dev/null", "/dev/urandom")
_RESOLVER = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/services")

# linux/landlock.h
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY, _TRUNCATE = 1, 2, 4, 8, 1 << 14

# Calls that reach other processes or more of the kernel than an image tool has to: x86-64, arm64.
_DENIED = {
    "fork": (57, None),
    "vfork": (58, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
}
_SOCKET = (41, 198)
_CLONE, _CLONE3, _TGKILL = (56, 220), (435, 435), (234, 131)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Which column, and linux/audit.h's number."""
_X32 = 0x40000000

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _EQUALS, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026

_LIBC = ctypes.CDLL(None, use_errno=True)


def main(words: list[str]) -> None:
    end = words.index("--")
    facts = [each.partition("=")[::2] for each in words[:end]]
    reads = [value for key, value in facts if key == "read"]
    writes = [value for key, value in facts if key == "write"]
    numbers = {key: int(value) for key, value in facts if key in _NUMBERS}
    try:
        _confine(reads, writes, numbers)
        os.execvp(words[end + 1], words[end + 1 :])
    except OSError as error:
        place = error.filename or words[end + 1]
        print(f"{place}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_STARTED)


def _confine(reads: list[str], writes: list[str], numbers: dict[str, int]) -> None:
    is_root, network = os.geteuid() == 0, bool(numbers["network"])
    handed = dict.fromkeys([*reads, *(_RESOLVER if network else ())], False)
    handed |= dict.fromkeys(writes, True)
    handed = {path: writable for path, writable in handed.items() if os.path.exists(path)}
    closed = {path for path, writable in handed.items() if is_root and _is_closed(path, writable)}
    maps = _owner_maps(closed)
    os.umask(0o022)
    alone = _leave_host(is_root=is_root, network=network)
    if alone:
        closed = _make_root(handed, closed, maps)
        os.chroot(_ROOT)
    os.chdir("/")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if not alone:
        _restrict_paths(handed)
    _drop_privileges(is_root=is_root, overrides=bool(closed))
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)  # after the change of the user, which clears it
    if os.getppid() != numbers["parent"]:
        raise OSError(errno.ESRCH, "whoever started it has ended")
    _filter_calls(network=network)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, numbers["cpu"])
    _limit(resource.RLIMIT_AS, numbers["memory"])


def _is_closed(path: str, writable: bool) -> bool:
    """Whether its mode denies the user nobody what the tool needs."""
    found = os.stat(path)
    shift = _OF_OWNER if found.st_uid == NOBODY else 3 if found.st_gid == NOBODY else 0
    return not _allows(found.st_mode >> shift, writable)


def _allows(bits: int, writable: bool) -> bool:
    wanted = 6 if writable else 4
    return bits & wanted == wanted


def _owner_maps(paths: set[str]) -> dict[Owner, int]:
    """For each owner of these files a user namespace in which that owner is nobody: a mount that
    is mapped by it shows the file as nobody's own. Empty where no such namespace is granted."""
    owners = {(found.st_uid, found.st_gid) for found in map(os.stat, paths)}
    return {owner: found for owner in owners if (found := _owner_map(owner)) is not None}


def _owner_map(owner: Owner) -> int | None:
    """A descriptor of it; the namespace is made by a child, which stops until it is done with."""
    child = os.fork()
    if not child:
        if _LIBC.unshare(_CLONE_NEWUSER) == 0:
            os.kill(os.getpid(), _SIGSTOP)
        os._exit(1)
    if not os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]):
        return None
    try:
        for kind, id in zip(("uid", "gid"), owner, strict=True):
            _write(f"/proc/{child}/{kind}_map", f"{id} {NOBODY} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.kill(child, _SIGKILL)
        os.waitpid(child, 0)


def _leave_host(*, is_root: bool, network: bool) -> bool:
    """Enter new namespaces, with an empty root to fill; False if this process may make none."""
    user, group = os.geteuid(), os.getegid()
    kinds = _CLONE_NEWNS | _CLONE_NEWIPC
    kinds |= 0 if network else _CLONE_NEWNET
    kinds |= 0 if is_root else _CLONE_NEWUSER
    try:
        _check(_LIBC.unshare(kinds))
        if not is_root:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        _mount(None, _ROOT, None, _MS_PRIVATE)  # nothing that comes below is seen outside
        _mount("tmpfs", _ROOT, "tmpfs", _MS_NOSUID, "mode=0755,size=1m")
    except OSError:
        return False
    return True


def _make_root(handed: dict[str, bool], closed: set[str], maps: dict[Owner, int]) -> set[str]:
    """The system's programs, what was handed over, and nothing else. What stays closed."""
    for path in _SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), f"{_ROOT}{path}")
        elif os.path.exists(path):
            _show(path, writable=False)
    for path, writable in {**dict.fromkeys(_DEVICES, True), **handed}.items():
        if path in closed and _show_as_own(path, writable, maps):
            closed = closed - {path}
        else:
            _show(path, writable=writable)
    _mount(None, _ROOT, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)
    return closed


def _show_as_own(path: str, writable: bool, maps: dict[Owner, int]) -> bool:
    """As a file of the user nobody: a device by a new node, a file by a mapped mount. False where
    the file system has no such mounts, or its own owner could not open the file either."""
    found = os.stat(path)
    try:
        if stat.S_ISBLK(found.st_mode):
            inside = _place(path)
            os.mknod(inside, stat.S_IFBLK | (0o600 if writable else 0o400), found.st_rdev)
            os.chown(inside, NOBODY, NOBODY)
            return True
        userns = maps.get((found.st_uid, found.st_gid))
        if userns is None or not _allows(found.st_mode >> _OF_OWNER, writable):
            return False
        _show_mapped(path, writable, userns)
        return True
    except OSError:
        return False


def _show_mapped(path: str, writable: bool, userns: int) -> None:
    source, empty = os.fsencode(path), ctypes.c_char_p(b"")
    tree = _check(_LIBC.syscall(_OPEN_TREE, _AT_FDCWD, source, _OPEN_TREE_CLONE | os.O_CLOEXEC))
    try:
        flags = _MOUNT_ATTR_IDMAP | _MS_NOSUID | (0 if writable else _MS_RDONLY)
        wanted = struct.pack("4Q", flags, 0, 0, userns)
        size = ctypes.c_size_t(len(wanted))
        _check(_LIBC.syscall(_MOUNT_SETATTR, tree, empty, _AT_EMPTY_PATH, wanted, size))
        inside = os.fsencode(_mount_point(path))
        _check(_LIBC.syscall(_MOVE_MOUNT, tree, empty, _AT_FDCWD, inside, _MOVE_EMPTY_PATH))
    finally:
        os.close(tree)


def _show(path: str, *, writable: bool) -> None:
    """Under its own path, whatever links lead there."""
    inside = _mount_point(path)
    _mount(path, inside, None, _MS_BIND | _MS_REC)
    kept = os.statvfs(inside).f_flag & (_MS_RDONLY | _MS_NODEV | _MS_NOEXEC)
    flags = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | kept | (0 if writable else _MS_RDONLY)
    _mount(None, inside, None, flags)


def _mount_point(path: str) -> str:
    inside = _place(path)
    if os.path.isdir(path):
        os.makedirs(inside, exist_ok=True)
    elif not os.path.exists(inside):
        os.close(os.open(inside, os.O_CREAT | os.O_CLOEXEC, 0o444))
    return inside


def _place(path: str) -> str:
    inside = f"{_ROOT}{path}"
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    return inside


def _drop_privileges(*, is_root: bool, overrides: bool) -> None:
    """Nobody, with no capability; the one exception opens what was handed over and is closed."""
    for capability in range(64):
        if not (overrides and capability == _CAP_DAC_OVERRIDE):
            _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # the kernel does not have them all
    if not is_root:
        return
    _prctl(_PR_SET_KEEPCAPS, int(overrides))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    kept = 1 << _CAP_DAC_OVERRIDE if overrides else 0
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _check(_LIBC.capset(header, struct.pack("6I", kept, kept, kept, 0, 0, 0)))
    if overrides:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)


def _restrict_paths(handed: dict[str, bool]) -> None:
    """Landlock, where namespaces are refused to us; does nothing on a kernel without it."""
    version = _LIBC.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    handled = (1 << 13) - 1 | (_TRUNCATE if version >= 3 else 0)
    attribute = struct.pack("Q", handled)
    rules = _check(_LIBC.syscall(_LANDLOCK_CREATE_RULESET, attribute, ctypes.c_size_t(8), 0))
    for path in filter(os.path.exists, _SYSTEM):
        _allow(rules, path, _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    for path, writable in {**dict.fromkeys(_DEVICES, True), **handed}.items():
        write = (_WRITE_FILE | _TRUNCATE) & handled if writable else 0
        _allow(rules, path, _READ_FILE | write)
    _check(_LIBC.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    may = rights if os.path.isdir(path) else rights & ~_READ_DIRECTORY
    rule = struct.pack("=Qi", may, place)
    _check(_LIBC.syscall(_LANDLOCK_ADD_RULE, rules, 1, rule, 0), path)
    os.close(place)


def _filter_calls(*, network: bool) -> None:
    """seccomp(2): no process but this one, threads allowed; no socket unless the tool needs one.
    clone3 hides its flags in memory, so it does not exist: the C library then calls clone."""
    if os.uname().machine not in _MACHINES:
        return
    column, machine = _MACHINES[os.uname().machine]
    denied = [*_DENIED.values(), *(() if network else (_SOCKET,))]
    code = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUALS, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for number in (each[column] for each in denied):
        if number is not None:
            code += [(_EQUALS, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    code += [
        (_EQUALS, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _ENOSYS),
        (_EQUALS, 0, 4, _TGKILL[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUALS, 0, 1, os.getpid()),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
        (_EQUALS, 0, 3, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_HAS_BITS, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    program = struct.pack("HP", len(code), ctypes.addressof(packed))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(program))


def _limit(what: int, most: int) -> None:
    _, allowed = resource.getrlimit(what)
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(what, (most, most))


def _prctl(*arguments: int | ctypes.c_char_p) -> None:
    words = [
        each if isinstance(each, ctypes.c_char_p) else ctypes.c_ulong(each) for each in arguments
    ]
    _check(_LIBC.prctl(*words, *[ctypes.c_ulong(0)] * (5 - len(words))))


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    words = [os.fsencode(each) if each else None for each in (source, target, kind, options)]
    done = _LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _check(done, target.removeprefix(_ROOT))


def _check(done: int, path: str | None = None) -> int:
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return done


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
