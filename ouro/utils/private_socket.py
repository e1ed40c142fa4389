"""Unix sockets that only processes of the same user may use."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ouro.errors import HostGone, SocketRefused
from ouro.utils.ouro_paths import ensure_private_dir, tilde

MAX_ADDRESS = 100
"""Bytes of a path that fit into the address of a socket everywhere: Linux has 107, macOS 103."""
BACKLOG = 16
"""Connections that wait until they are accepted."""
CONNECT_TIMEOUT = 2.0
_XUCRED_SIZE = 76
"""Of `struct xucred` on macOS and BSD."""


def own_uid() -> int:
    return os.getuid()


def peer_uid(connection: socket.socket) -> int:
    """The user whose process is at the other end. Raises OSError: the system does not name it."""
    if hasattr(socket, "SO_PEERCRED"):
        ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        _, uid, _ = struct.unpack("iII", ucred)
        return int(uid)
    xucred = connection.getsockopt(0, 1, _XUCRED_SIZE)  # SOL_LOCAL, LOCAL_PEERCRED
    _, uid = struct.unpack_from("=II", xucred)
    return int(uid)


def is_own_peer(connection: socket.socket) -> bool:
    """Whether the process at the other end is of this user; False if the system does not say it."""
    try:
        return peer_uid(connection) == own_uid()
    except (OSError, struct.error):
        return False


def ensure_private_folder(folder: Path) -> Path:
    """Make the folder if there is none, and let only this user into it; returns it.

    Raises:
        SocketRefused: it is a link, no folder, or another user's.
    """
    ensure_private_dir(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise SocketRefused(f"{tilde(folder)} is not a folder.", "Move it away; nothing was done.")
    _refuse_other_owner(folder, status.st_uid)
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def has_socket(path: Path) -> bool:
    """Whether a socket of this user is there.

    Raises:
        SocketRefused: something else is there.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(status.st_mode):
        raise SocketRefused(f"{tilde(path)} is not a socket.", "Move it away; nothing was done.")
    _refuse_other_owner(path, status.st_uid)
    return True


def _refuse_other_owner(path: Path, owner: int) -> None:
    """Raise SocketRefused if a path belongs to another user."""
    if owner != own_uid():
        raise SocketRefused(
            f"{tilde(path)} belongs to the user with the number {owner}, not to you.",
            "It was neither used nor changed.",
        )


def listen(path: Path) -> socket.socket:
    """A listening socket at this path, for this user only. No file may be at the path.

    Raises:
        SocketRefused: the folder is not private.
        OSError: it cannot be made.
    """
    ensure_private_folder(path.parent)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(path) as address:
            server.bind(address)
        path.chmod(0o600)  # the folder has kept others away until here
        server.listen(BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def connect(path: Path) -> socket.socket:
    """A connection to the socket at this path.

    Raises:
        SocketRefused: it, or the process behind it, is not of this user.
        HostGone: no process listens there.
    """
    if not has_socket(path):
        raise HostGone(f"There is no socket {tilde(path)}.")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_TIMEOUT)
        with _address(path) as address:
            connection.connect(address)
        if not is_own_peer(connection):
            raise SocketRefused(
                f"The process behind {tilde(path)} is not yours.", "Nothing was sent to it."
            )
        connection.setblocking(False)
    except OSError as error:
        connection.close()
        raise HostGone(
            f"No process listens at {tilde(path)}: {error.strerror or error}."
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a path as the address of a socket, which must be short. For a long path, the address names
    the descriptor of its folder (Linux), which is open inside this context.
    """
    if len(os.fsencode(path)) <= MAX_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
