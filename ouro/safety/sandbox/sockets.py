"""Finds sockets that have a path, such as those of docker, ssh-agent and databases.

Namespaces and read-only mounts do not keep a command from connecting to one: only another file in
its place does.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

_LISTED = "/proc/net/unix"
_COLUMNS_BEFORE_PATH = 7
_PATH_IN_VARIABLE = re.compile(r"/[^\s:;,]+")
_WELL_KNOWN = (
    "/var/lib/docker.sock",
    "/var/lib/incus/unix.socket",
    "/var/lib/libvirt/libvirt-sock",
    "/var/lib/lxd/unix.socket",
    "/var/lib/mysql/mysql.sock",
    "/var/snap/lxd/common/lxd/unix.socket",
    "~/.docker.sock",
    "~/.podman.sock",
)
"""Those of containers and virtual machines may be in another namespace, which does not list them."""
_OF_PROCESS = "/proc/self/"
_found_by_owner: dict[str, str] = {}
"""Inodes of sockets whose path depends on their process -> the path, or an empty one if unknown."""


def find_sockets(
    environment: Mapping[str, str], own: Sequence[str], is_reachable: Callable[[str], bool]
) -> list[str]:
    """The sockets that a command must not reach: those that programs have open, others beside them
    (OpenSSH renames its own), those that variables name, and well-known ones. Blocks.

    Args:
        environment: the variables that commands get.
        own: folders where commands make sockets: only those that are open are hidden there.
        is_reachable: whether a command could open this path.
    """
    named = chain(_named_by(environment), map(os.path.expanduser, _WELL_KNOWN))
    listed = set(map(os.path.realpath, filter(is_reachable, _list_sockets())))
    folders = {os.path.dirname(path) for path in listed}  # noqa: PTH120
    beside = (_in_folder(folder) for folder in folders if not is_below(folder, own))
    there = filter(os.path.lexists, filter(is_reachable, named))
    candidates = chain(listed, map(os.path.realpath, there))
    found = {*filter(_is_socket, candidates), *chain.from_iterable(beside)}
    return sorted(filter(is_reachable, found))


def _list_sockets() -> Iterator[str]:
    """The paths of the sockets that programs have open in this network namespace."""
    try:
        with open(_LISTED, "rb") as file:  # noqa: PTH123 - before each command
            lines = file.read().splitlines()[1:]
    except OSError:
        return
    columns = (line.split(None, _COLUMNS_BEFORE_PATH) for line in lines)
    named = (found for found in columns if len(found) > _COLUMNS_BEFORE_PATH)
    bound = {(os.fsdecode(found[7]), os.fsdecode(found[6])) for found in named}
    own = {inode: path for path, inode in bound if _depends_on_process(path)}
    yield from (path for path, inode in bound if inode not in own and path[0] == "/")
    _find_by_owner(own)
    yield from filter(None, _found_by_owner.values())


def _depends_on_process(path: str) -> bool:
    """Whether it is relative, or names an open folder, as for paths that are too long."""
    return path[0] not in "/@" or path.startswith(_OF_PROCESS)


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders, or below it."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _named_by(environment: Mapping[str, str]) -> Iterator[str]:
    """The paths in variables such as SSH_AUTH_SOCK and DOCKER_HOST."""
    for name, value in environment.items():
        if "sock" in f"{name}={value}".lower() or value.startswith("unix:"):
            yield from _PATH_IN_VARIABLE.findall(value.replace("//", "/"))


def _find_by_owner(paths: Mapping[str, str]) -> None:
    """Remember where these sockets are, by inode: in the folder of the process that has it open.
    Few programs bind such a path.
    """
    for gone in _found_by_owner.keys() - paths.keys():
        del _found_by_owner[gone]
    wanted = {f"socket:[{inode}]": inode for inode in paths.keys() - _found_by_owner.keys()}
    if not wanted:
        return
    _found_by_owner.update(dict.fromkeys(wanted.values(), ""))
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - only names
        for target in _open_files(pid) & wanted.keys():
            place = _place_for(pid, paths[wanted[target]])
            if _is_socket(place):
                _found_by_owner[wanted[target]] = place


def _place_for(pid: str, path: str) -> str:
    below = path.replace(_OF_PROCESS, "") if path.startswith(_OF_PROCESS) else f"cwd/{path}"
    return os.path.realpath(f"/proc/{pid}/{below}")


def _open_files(pid: str) -> set[str]:
    """What the descriptors of a process lead to; empty for a process of another user."""
    folder = f"/proc/{pid}/fd"
    found = set()
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            found.add(os.readlink(f"{folder}/{name}"))  # noqa: PTH115
    except OSError:
        return found  # it has ended, or is of another user
    return found


def _in_folder(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if _is_socket_entry(entry)]
    except OSError:
        return []


def _is_socket_entry(entry: os.DirEntry[str]) -> bool:
    is_other = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
    return not is_other and _is_socket(entry.path)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
