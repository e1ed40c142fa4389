"""A seccomp filter (classic BPF) that refuses the system calls which leave a sandbox of mounts or
of Landlock.

The numbers are those of Linux's tables for x86_64 and aarch64 (`asm/unistd_64.h`,
`asm-generic/unistd.h`); from 424 on both are the same. On other processors there is no filter, and
therefore no sandbox.
"""

from __future__ import annotations

import platform
import socket
import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ouro.utils.files import write_private

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED_CALLS = {
    # name: (x86_64, aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
}
_SOCKET, _CONNECT, _IOCTL, _CLONE, _CLONE3 = (41, 198), (42, 203), (16, 29), (56, 220), (435, 435)
_SET_LIMIT, _PROCESS_LIMIT = (160, 164), (302, 261)
"""Numbers of system calls that are tested by their arguments: x86_64, aarch64."""
_RESIDENT_LIMIT = 5
"""RLIMIT_RSS."""
_X32_CALLS = 0x4000_0000
"""The bit in the numbers of the calls of x32."""
_NEW_USER_NAMESPACE = 0x1000_0000
"""CLONE_NEWUSER."""
_TYPES_INTO_TERMINAL = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of BPF."""
_ALLOW, _KILL, _ERROR = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
"""Results of the filter; an error has its number in the lower bits."""
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT = 16, 24
_THIRD_ARGUMENT, _THIRD_ARGUMENT_UPPER = 32, 36
"""Offsets in `struct seccomp_data`; for an argument that of its lower half, as both processors are
little-endian.
"""


def seccomp_filter(
    *, internet: bool, connects: bool, keeps_tag: bool = False, machine: str = ""
) -> bytes:
    """Returns the filter as bytes, an array of `struct sock_filter`; empty on a processor without a
    table of system calls.

    Args:
        internet: whether internet sockets are allowed: the network is shared, or it is an empty
            one.
        connects: whether `connect` is allowed.
        keeps_tag: whether a process cannot set its limit of resident memory. The kernel ignores
            this limit, and ouro knows the processes of a command by it (X2).
        machine: the processor, as `platform.machine` names it; empty: this one.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return b""
    return _program(internet, connects, keeps_tag, machine)


@cache
def _program(internet: bool, connects: bool, keeps_tag: bool, machine: str) -> bytes:
    """Returns the instructions of the filter, as bytes. A system call that none of them tests is
    allowed. The parameters are those of `seccomp_filter`.
    """
    column = list(_ARCHITECTURES).index(machine)
    families = [socket.AF_UNIX, *((socket.AF_INET, socket.AF_INET6) if internet else ())]
    denied = sorted(numbers[column] for numbers in _DENIED_CALLS.values())
    if not connects:
        denied.append(_CONNECT[column])
    program = [
        # A call of another architecture has other numbers: it ends the process.
        *_load(_ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, if_false=0),
        _return(_KILL),
        *_load(_NUMBER_OFFSET),
        # The second set of numbers of x86_64, for programs with short pointers.
        *_return_if(_JUMP_AT_LEAST, _X32_CALLS, _ERROR | _ENOSYS),
        *_return_if_one_of(denied, _ERROR | _EPERM),
        # The flags of clone3 are in memory, which a filter cannot read. glibc then uses clone.
        *_return_if(_JUMP_EQUAL, _CLONE3[column], _ERROR | _ENOSYS),
        *(_refuse_tag_changes(column) if keeps_tag else ()),
        *_for_call(
            _CLONE[column],
            [
                *_load(_FIRST_ARGUMENT),
                *_return_if(_JUMP_BITS, _NEW_USER_NAMESPACE, _ERROR | _EPERM),
                _return(_ALLOW),
            ],
        ),
        *_for_call(
            _IOCTL[column],
            [
                *_load(_SECOND_ARGUMENT),
                *_return_if_one_of(_TYPES_INTO_TERMINAL, _ERROR | _EPERM),
                _return(_ALLOW),
            ],
        ),
        *_for_call(
            _SOCKET[column],
            [
                *_load(_FIRST_ARGUMENT),
                *_return_if_one_of(families, _ALLOW),
                _return(_ERROR | _EAFNOSUPPORT),
            ],
        ),
        _return(_ALLOW),
    ]
    return b"".join(program)


def _refuse_tag_changes(column: int) -> list[bytes]:
    """Returns instructions that refuse to set the limit of resident memory, and allow to read it.

    `setrlimit` always sets. `prlimit` sets if its third argument, the address of a new limit, is
    not null; it is tested in two halves. `column` is the column of the processor in the tables above.
    """
    # Each skips the instruction after it if the test is true.
    skip_if_resident_limit = _instruction(_JUMP_EQUAL, _RESIDENT_LIMIT, 1, if_false=0)
    refuse = _return(_ERROR | _EPERM)
    skip_if_null = _instruction(_JUMP_EQUAL, value=0, if_true=1, if_false=0)
    return [
        *_for_call(
            _SET_LIMIT[column],
            [
                *_load(_FIRST_ARGUMENT),
                *_return_if(_JUMP_EQUAL, _RESIDENT_LIMIT, _ERROR | _EPERM),
                _return(_ALLOW),
            ],
        ),
        *_for_call(
            _PROCESS_LIMIT[column],
            [
                *_load(_SECOND_ARGUMENT),
                skip_if_resident_limit,
                _return(_ALLOW),
                *_load(_THIRD_ARGUMENT),
                skip_if_null,
                refuse,
                *_load(_THIRD_ARGUMENT_UPPER),
                skip_if_null,
                refuse,
                _return(_ALLOW),
            ],
        ),
    ]


def filter_file(folder: Path, *, internet: bool, connects: bool, keeps_tag: bool = False) -> Path:
    """Returns the file in `folder` that holds the filter, which is written if it is missing or
    differs. The parameters are those of `seccomp_filter`.

    Raises:
        OSError: the file cannot be written.
    """
    words = ["seccomp", "internet" if internet else "local", "connects" if connects else "alone"]
    path = folder / "-".join([*words, "tagged"] if keeps_tag else words)
    data = seccomp_filter(internet=internet, connects=connects, keeps_tag=keeps_tag)
    if not path.exists() or path.read_bytes() != data:
        write_private(path, data)
    return path


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Returns one instruction. For a jump, `if_true` and `if_false` are the numbers of instructions
    that it skips if its test is true or false.
    """
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _return(value: int) -> bytes:
    """The instruction that ends the filter with a result."""
    return _instruction(_RETURN, value)


def _load(offset: int) -> list[bytes]:
    """Returns the instruction that loads a word of the system call, which the next instructions
    test. It is in a list, because filters are joined from lists of instructions.
    """
    return [_instruction(_LOAD, offset)]


def _return_if(test: int, value: int, result: int) -> list[bytes]:
    """Instructions that end the filter with a result if the loaded word passes a test."""
    return [_instruction(test, value, if_true=0, if_false=1), _return(result)]


def _return_if_one_of(values: Iterable[int], result: int) -> list[bytes]:
    """Instructions that end the filter with a result if the loaded word is one of these."""
    lines: list[bytes] = []
    for value in values:
        lines += _return_if(_JUMP_EQUAL, value, result)
    return lines


def _for_call(number: int, lines: list[bytes]) -> list[bytes]:
    """Returns the instructions `lines`, and before them a jump over them for every system call but
    the one with this number.

    `lines` must end with a return: they load another word, and the instructions after them need the
    number of the call, which was loaded before.
    """
    return [_instruction(_JUMP_EQUAL, number, if_true=0, if_false=len(lines)), *lines]
