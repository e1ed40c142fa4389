"""Processes that begin with their modules loaded: a server has loaded them, and forks for each.

The server has one thread, does nothing else, and belongs to the process that started it: what it
forks has the limits, the user and the namespaces that a process of its client would have.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

_HEAD = struct.Struct("=I")
"""The length of a message; descriptors go with it."""
_MAX_DESCRIPTORS = 8
_START_TIMEOUT = 60.0
"""Seconds until the server has loaded its modules, maybe beside much other work."""
_CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_COULD_NOT_START = 127
"""The exit code of a forked process that could not become the requested one."""


class NoForkServer(OSError):
    """The server is not there, or could not start the process."""


class ForkedProcess:
    """A process that a ForkServer started. It leads a session and a group of its own."""

    def __init__(self, pid: int, descriptor: int, server: ForkServer) -> None:
        self.pid = pid
        self._descriptor = descriptor
        """A pidfd: it can be read when the process has ended."""
        self._server = server

    def wait(self) -> None:
        """Block until the process has ended, then release its id; until then no other process gets
        this id. Call it once.
        """
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        poller.poll()
        os.close(self._descriptor)
        self._server.forget(self.pid)


class ForkServer:
    """The client of a server; threads may share it. The first process starts the server.

    Args:
        program: the command that starts the server; the number of a descriptor is added.
    """

    def __init__(self, program: Sequence[str]) -> None:
        """Nothing is started yet: the first process starts the server."""
        self._program = tuple(program)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        """The server; None while there is none."""
        self._channel: socket.socket | None = None
        """The socket to the server."""
        # Without pidfd_open the end of a process that is no child cannot be awaited.
        self._is_usable = hasattr(os, "pidfd_open")

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        *,
        output: int,
        errors: int,
        keep: Sequence[int] = (),
    ) -> ForkedProcess:
        """Start a process without input, which inherits the descriptors `keep`.

        Raises:
            NoForkServer: this system cannot have one, or the process could not be started.
        """
        environment = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
        request = _Request([os.fsencode(word) for word in words], os.fsencode(folder), environment)
        with self._lock:
            if not self._is_usable:
                raise NoForkServer("no fork server")
            try:
                channel = self._channel or self._connect()
                process = self._start(channel, request, (output, errors, *keep))
            except OSError as error:
                self._end()
                raise NoForkServer(str(error)) from error
        if process is None:
            raise NoForkServer("the process could not be started")
        return process

    def forget(self, pid: int) -> None:
        """Ask the server to release the id of a process that has ended, so that the system may use it
        again.
        """
        with self._lock, suppress(OSError):
            if self._channel is not None:
                _send(self._channel, pid)

    def close(self) -> None:
        """End the server, if it was started. What it started goes on."""
        with self._lock:
            self._end()

    def _connect(self) -> socket.socket:
        """Start the server, and wait until it has loaded its modules; returns the socket to it."""
        channel, server_end = socket.socketpair()
        self._channel = channel
        with server_end:
            self._process = subprocess.Popen(
                [*self._program, str(server_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(server_end.fileno(),),
                start_new_session=True,  # Ctrl+C is for its client
            )
        channel.settimeout(_START_TIMEOUT)
        _receive(channel)  # it has loaded its modules
        channel.settimeout(None)
        return channel

    def _start(
        self, channel: socket.socket, request: _Request, descriptors: Sequence[int]
    ) -> ForkedProcess | None:
        """Ask the server for a process. Returns None if it could not start one, because the folder
        is gone. Raises OSError: the server is gone.
        """
        # The process waits until this client knows it. Else, if the server is killed in between,
        # the caller would start another one, and two would be at work.
        go_reader, go_writer = os.pipe()
        with os.fdopen(go_reader, "rb") as reader, os.fdopen(go_writer, "wb", 0) as writer:
            _send(channel, request, (reader.fileno(), *descriptors))
            answer = _receive(channel)
            if not answer.descriptors:
                return None
            writer.write(b"1")
        return ForkedProcess(answer.content, answer.descriptors[0], self)

    def _end(self) -> None:
        """Kill the server and close the socket. It is not used again."""
        self._is_usable = False
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Request(NamedTuple):
    words: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]


class _Message(NamedTuple):
    content: Any
    descriptors: list[int]


def wait_for_fork(descriptor: int) -> list[str]:
    """Serve the client at the other end of a socket, and fork a process for each of its requests.

    Returns only in the forked processes, each time with the words of the command line. In the server
    it never returns: the process ends when the client closes the socket, or has ended.
    """
    channel = socket.socket(fileno=descriptor)
    _send(channel, content=0)  # all modules are loaded
    while True:
        try:
            content, descriptors = _receive(channel)
        except OSError:
            os._exit(0)
        if isinstance(content, int):  # the client has seen the end of this process
            os.waitpid(content, 0)
            continue
        request = _Request(*content)
        if _fork_for_client(channel, request, descriptors):
            return [os.fsdecode(word) for word in request.words]


def _fork_for_client(channel: socket.socket, request: _Request, descriptors: Sequence[int]) -> bool:
    """Fork a process for a request. Returns True in the new process, and False in the server.

    The server answers the client with the id and a descriptor of the process as soon as the process
    has its folder and its session. If the process could not get its folder, the answer has no
    descriptor.
    """
    ready_reader, ready_writer = os.pipe()
    pid = os.fork()
    if not pid:
        channel.close()
        os.close(ready_reader)
        _begin_process(request, descriptors, ready_writer)
        return True
    # Closed before the client knows the process. If one of them holds a lock, it is then released
    # as soon as the process ends.
    for received in descriptors:
        os.close(received)
    os.close(ready_writer)
    is_ready = os.read(ready_reader, 1)
    os.close(ready_reader)
    if is_ready:
        process = os.pidfd_open(pid)
        _send(channel, pid, (process,))
        os.close(process)
    else:
        os.waitpid(pid, 0)
        _send(channel, pid)
    return False


def _begin_process(request: _Request, descriptors: Sequence[int], ready_writer: int) -> None:
    """Turn this new process into the requested one, and wait until the client knows its id. Ends
    the process if the folder is gone, or the client.
    """
    is_known = b""
    with suppress(OSError, ValueError):
        go_reader = _apply_request(request, descriptors)
        os.write(ready_writer, b"1")
        os.close(ready_writer)
        is_known = os.read(go_reader, 1)
        os.close(go_reader)
    if not is_known:
        os._exit(_COULD_NOT_START)


def _apply_request(request: _Request, descriptors: Sequence[int]) -> int:
    """Give this process the session, folder, output and variables of a request. Raises OSError if the
    folder is gone.

    Returns a descriptor from which one byte can be read as soon as the client knows this process.
    """
    os.setsid()
    os.chdir(request.folder)
    go_reader, output, errors, *_ = descriptors
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.environb.clear()
    os.environb.update(request.environment)
    return go_reader


def _send(channel: socket.socket, content: object, descriptors: Sequence[int] = ()) -> None:
    """Send a message. The descriptors go with its head."""
    data = msgspec.msgpack.encode(content)
    socket.send_fds(channel, [_HEAD.pack(len(data))], list(descriptors))
    channel.sendall(data)


def _receive(channel: socket.socket) -> _Message:
    """The next message. Raises NoForkServer if the other end is gone."""
    head, descriptors, _, _ = socket.recv_fds(
        channel, _HEAD.size, _MAX_DESCRIPTORS, _CLOSED_ON_EXEC
    )
    if len(head) < _HEAD.size:
        raise NoForkServer("the other end is gone")
    (missing,) = _HEAD.unpack(head)
    data = b""
    while missing:
        piece = channel.recv(missing)
        if not piece:
            raise NoForkServer("the other end is gone")
        data += piece
        missing -= len(piece)
    return _Message(msgspec.msgpack.decode(data), descriptors)
