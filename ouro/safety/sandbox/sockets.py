"""Finds sockets that have a path, such as those of docker, ssh-agent and databases.

Namespaces and read-only mounts do not keep a command from connecting to one: only another file in
its place does.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_SOCKET_LIST = "/proc/net/unix"
_COLUMNS_BEFORE_PATH = 7
"""Columns of a line of that list before the path; the last of them is the inode."""
_PATH_IN_VARIABLE = re.compile(r"/[^\s:;,]+")
_WELL_KNOWN_SOCKETS = (
    "/var/lib/docker.sock",
    "/var/lib/incus/unix.socket",
    "/var/lib/libvirt/libvirt-sock",
    "/var/lib/lxd/unix.socket",
    "/var/lib/mysql/mysql.sock",
    "/var/snap/lxd/common/lxd/unix.socket",
    "~/.docker.sock",
    "~/.podman.sock",
)
"""Sockets that are hidden although the system may not list them: those of containers and virtual
machines may be in another namespace.
"""
_PROCESS_FOLDER = "/proc/self/"
_NOT_FOUND = ""
_paths_by_inode: dict[str, str] = {}
"""The absolute path of each socket that was bound by a path which depends on its process, by the
inode; `_NOT_FOUND` if it was looked for in vain.
"""


def find_sockets(
    environment: Mapping[str, str], workspace: Sequence[str], is_reachable: Callable[[str], bool]
) -> list[str]:
    """Returns the paths of the sockets that a command must not reach, sorted. Blocks.

    These are: the sockets that programs have open, other sockets in the same folders (OpenSSH
    renames its own), the sockets that variables name, and well-known ones.

    Args:
        environment: the variables that commands get.
        workspace: folders where commands make sockets: there only the open ones are returned.
        is_reachable: whether a command could open this path; others are not returned.
    """
    open_sockets = set(map(os.path.realpath, filter(is_reachable, _list_sockets())))
    candidates = set(open_sockets)
    well_known = map(os.path.expanduser, _WELL_KNOWN_SOCKETS)
    for path in (*_paths_in_variables(environment), *well_known):
        if is_reachable(path) and os.path.lexists(path):
            candidates.add(os.path.realpath(path))
    sockets = set(filter(_is_socket, candidates))
    for folder in {os.path.dirname(path) for path in open_sockets}:  # noqa: PTH120
        if not is_below(folder, workspace):
            sockets.update(_sockets_in_folder(folder))
    # Once more, because links were followed since.
    return sorted(filter(is_reachable, sockets))


def _list_sockets() -> Iterator[str]:
    """Yields the paths of the sockets that programs have open in this network namespace, and that
    have a file. Nothing if the system does not list them.
    """
    try:
        with open(_SOCKET_LIST, "rb") as file:  # noqa: PTH123 - before each command
            lines = file.read().splitlines()[1:]
    except OSError:
        return
    rows = (line.split(None, _COLUMNS_BEFORE_PATH) for line in lines)
    # A socket without a path has a column less.
    with_path = (fields for fields in rows if len(fields) > _COLUMNS_BEFORE_PATH)
    paths_and_inodes = {(os.fsdecode(fields[7]), os.fsdecode(fields[6])) for fields in with_path}
    relative = {inode: path for path, inode in paths_and_inodes if _depends_on_process(path)}
    for path, inode in paths_and_inodes:
        if inode not in relative and path[0] == "/":  # not an abstract one, which has no file
            yield path
    _update_relative_sockets(relative)  # in `_paths_by_inode`
    yield from (path for path in _paths_by_inode.values() if path != _NOT_FOUND)


def _depends_on_process(path: str) -> bool:
    """Whether the path by which a socket was bound leads elsewhere in another process: it is
    relative, or goes through `/proc/self`, as programs write a path that is too long.
    """
    is_relative = path[0] not in "/@"  # `@` begins an abstract one, which is not a file
    return is_relative or path.startswith(_PROCESS_FOLDER)


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders, or below it."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _paths_in_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths in variables that name a socket, such as SSH_AUTH_SOCK and DOCKER_HOST."""
    for name, value in environment.items():
        if "sock" in f"{name}={value}".lower() or value.startswith("unix:"):
            yield from _PATH_IN_VARIABLE.findall(value.replace("//", "/"))


def _update_relative_sockets(paths: Mapping[str, str]) -> None:
    """Put the absolute path of each of these sockets into `_paths_by_inode`, and remove the sockets
    that are gone from it.

    The path of such a socket depends on the process that bound it, so the process that has the
    socket open is looked for. This is only done if there is a new socket, because all processes
    must be searched; few programs bind such a path.

    Args:
        paths: the paths by which the sockets were bound, by their inodes.
    """
    for gone_inode in _paths_by_inode.keys() - paths.keys():
        del _paths_by_inode[gone_inode]
    inodes_by_target = {
        f"socket:[{inode}]": inode for inode in paths.keys() - _paths_by_inode.keys()
    }
    if not inodes_by_target:
        return
    _paths_by_inode.update(dict.fromkeys(inodes_by_target.values(), _NOT_FOUND))
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - only names
        for target in _open_files(pid) & inodes_by_target.keys():
            path = _resolve_for_process(pid, paths[inodes_by_target[target]])
            if _is_socket(path):
                _paths_by_inode[inodes_by_target[target]] = path


def _resolve_for_process(pid: str, path: str) -> str:
    """Returns the real path of a path that the process `pid` uses: relative to its folder, or below
    `/proc/self`. Returns `_NOT_FOUND` if nothing is there, or the process has ended.
    """
    is_below_process = path.startswith(_PROCESS_FOLDER)
    below = path.replace(_PROCESS_FOLDER, "") if is_below_process else f"cwd/{path}"
    try:
        return os.path.realpath(f"/proc/{pid}/{below}", strict=True)
    except OSError:
        return _NOT_FOUND


def _open_files(pid: str) -> set[str]:
    """Returns what the descriptors of a process lead to, such as `socket:[1234]`; empty for a
    process of another user.
    """
    folder = f"/proc/{pid}/fd"
    targets = set()
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            targets.add(os.readlink(f"{folder}/{name}"))  # noqa: PTH115
    except OSError:
        return targets  # it has ended, or is of another user
    return targets


def _sockets_in_folder(folder: str) -> list[str]:
    """The sockets in a folder; empty if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if _is_socket_entry(entry)]
    except OSError:
        return []


def _is_socket_entry(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is a socket. Most are files or folders: `scandir` knows that
    without another call.
    """
    is_file_or_folder = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
    return not is_file_or_folder and _is_socket(entry.path)


def _is_socket(path: str) -> bool:
    """Whether there is a socket at a path, and not a link to one."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
