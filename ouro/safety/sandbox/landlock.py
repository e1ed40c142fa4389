"""Applies Landlock and a seccomp filter to itself, then executes a command. Run as a file, without
ouro. It runs before each command: `pathlib` and `typing` would take a third of its time.

It is a separate program because `preexec_fn` is not safe with threads. Landlock's rules and their
numbers are from `linux/landlock.h`.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The numbers of Landlock's system calls.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _VERSION = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_RESOLVE_UNIX, _RESOLVE_UNIX_FROM_ABI = 1 << 16, 9
"""Reaching a socket by its path; those of the command itself need no right."""
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_RIGHTS_BY_ABI = {
    1: (1 << 13) - 1,
    2: (1 << 14) - 1,
    3: (1 << 15) - 1,
    5: (1 << 16) - 1,
    _RESOLVE_UNIX_FROM_ABI: (1 << 17) - 1,
}
_DENIED_RIGHTS = _MAKE_DEVICES | _IOCTL_DEVICE | _RESOLVE_UNIX
"""Rights that no command has in the folders it may change: root could make a device of a disk."""
_TCP, _TCP_FROM_ABI = 0b11, 4
_SCOPES, _SCOPES_FROM_ABI = 0b11, 6
"""Abstract Unix sockets and signals reach only the processes of the command."""
_RIGHTS_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_DEVICE_FOLDER = "/dev"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - multiprocessing's locks are there
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_INSTRUCTION_BYTES = 8
"""The size of `struct sock_filter`, one instruction of a filter."""
_FILTER_PROGRAM = "HxxxxxxP"
"""`struct sock_fprog`: the number of instructions, padding, and a pointer to the first one."""
CANNOT = 126
"""Exit code of the helper if the confinement could not be applied."""


def leaves_sockets(version: int) -> bool:
    """Whether this version cannot keep a command from sockets with a path."""
    return version < _RESOLVE_UNIX_FROM_ABI


def abi() -> int:
    """Returns the version of Landlock in the kernel; 0 if there is none."""
    no_size, flags = ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)
    version = int(_libc().syscall(_CREATE_RULESET, None, no_size, flags))
    return max(0, version)  # -1 is an error


def _libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def _restrict(plan: dict[str, Any], version: int) -> None:
    """Confine this process permanently: only what the rules below allow is left.

    Args:
        plan: as in `main`.
        version: the version of Landlock in the kernel.

    Raises:
        OSError: a step of it failed.
    """
    handled = _RIGHTS_BY_ABI[max(abi for abi in _RIGHTS_BY_ABI if abi <= version)]
    ruleset = _create_ruleset(handled, version, refuses_tcp=not plan["network"])

    # All folders can be listed. Files can be read, except below hidden places.
    _allow(ruleset, "/", _READ_DIR)
    hidden = tuple(f"{place}/" for place in plan["hidden"])
    inside_hidden = (path for path in plan["visible"] if path.startswith(hidden))
    for path in (*_all_but("/", (*plan["hidden"], _DEVICE_FOLDER)), *inside_hidden):
        _allow(ruleset, path, _READ_RIGHTS & handled)

    # Writable places and devices.
    for path in (*plan["writable"], _SHARED_MEMORY):
        # In the folder of a hidden file nothing can be created or removed.
        for place in _all_but(path, plan["hidden"]):
            _allow(ruleset, place, handled & ~_DENIED_RIGHTS)
    for path in _DEVICES:
        _allow(ruleset, path, (_READ_FILE | _WRITE_FILE | _IOCTL_DEVICE) & handled)

    # From here on the rules hold, for this process and all that it starts.
    _check_result(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check_result(_libc().syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    os.close(ruleset)


def _create_ruleset(handled: int, version: int, *, refuses_tcp: bool) -> int:
    """Make a ruleset with as many fields as this version of Landlock knows; returns its descriptor.

    Args:
        handled: the rights that a process has only where a rule gives them.
        refuses_tcp: whether no TCP port can be bound or connected to.
    """
    fields = [handled]
    if version >= _TCP_FROM_ABI:
        fields.append(_TCP if refuses_tcp else 0)
    if version >= _SCOPES_FROM_ABI:
        fields.append(_SCOPES)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    size = ctypes.c_size_t(len(attributes))
    return _check_result(_libc().syscall(_CREATE_RULESET, attributes, size, ctypes.c_uint32(0)))


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule to the ruleset that gives these rights at the path and below it. A path that
    cannot be opened gets none.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # it does not exist (any more): then there is nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _RIGHTS_OF_FILES  # the kernel refuses rights of folders for a file
        rule = struct.pack("=Qi", rights, descriptor)
        _check_result(
            _libc().syscall(
                _ADD_RULE,
                ctypes.c_int(ruleset),
                ctypes.c_int(_PATH_BENEATH),
                rule,
                ctypes.c_uint32(0),
            )
        )
    finally:
        os.close(descriptor)


def _all_but(folder: str, hidden: Sequence[str]) -> Iterator[str]:
    """Yields paths that together hold everything in `folder` except the `hidden` places. Rules can
    only allow, so these are the paths to allow.

    If nothing in the folder is hidden, it is `folder` itself. If `folder` is hidden, nothing is
    yielded. Folders that hold something hidden, and links, are not yielded themselves.
    """
    if folder in hidden:
        return
    prefix = folder.rstrip("/") + "/"
    if not any(place.startswith(prefix) for place in hidden):
        yield folder
        return
    try:
        names = os.listdir(folder)  # noqa: PTH208 - only names, and for many folders
    except OSError:
        return
    for name in names:
        if not os.path.islink(prefix + name):  # noqa: PTH114 - the target has a rule of its own
            yield from _all_but(prefix + name, hidden)


def _check_result(result: int) -> int:
    """Returns the result of a system call. Raises OSError if it is an error (below 0)."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _install_seccomp_filter(path: str) -> None:
    """Install the filter in a file for this process and what it executes.

    Raises:
        OSError: the file cannot be read, or the kernel refuses the filter.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - see the top
        instructions = file.read()
    program = ctypes.create_string_buffer(instructions, len(instructions))
    count = len(instructions) // _INSTRUCTION_BYTES
    header = struct.pack(_FILTER_PROGRAM, count, ctypes.addressof(program))
    _check_result(_libc().prctl(_SET_SECCOMP, _SECCOMP_FILTER, header, 0, 0))


def main(plan_text: str, argv: Sequence[str]) -> int:
    """Confine this process and execute `argv`; returns an exit code only if that failed.

    `plan_text` is JSON with the paths `hidden`, `visible` and `writable`, the folder `temp`, the
    file `filter`, and whether there is a `network`.
    """
    plan = json.loads(plan_text)
    if plan["temp"]:
        os.environ["TMPDIR"] = plan["temp"]
    try:
        _restrict(plan, abi())
        _install_seccomp_filter(plan["filter"])
        os.execvp(argv[0], list(argv))  # noqa: S606
    except OSError as error:
        print(f"The command could not be confined: {error}", file=sys.stderr)  # noqa: T201
    return CANNOT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
