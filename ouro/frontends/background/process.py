"""The process of a background session: how it is started, and what it runs."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import OuroError, TrustNeeded
from ouro.frontends.background.host import SessionHost
from ouro.frontends.headless.input import handle_signals
from ouro.session import Draft, OpenRequest, OpenSession
from ouro.session.background_record import Claim
from ouro.utils.decoding import decode_json
from ouro.utils.lenient_json import dump_json
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir, get_log_path
from ouro.utils.processes import send_signal

START_TIMEOUT = 120.0
"""Seconds until the session is open: a machine may be busy, and settings may name slow servers."""


class StartReport(msgspec.Struct):
    """What the new process reports once: the session that it hosts, or why there is none."""

    id: str = ""
    model: str = ""
    error: str = ""
    exit_code: int = 1
    trust: dict[str, Any] | None = None
    """The folder that is not trusted, and the files that ouro would obey."""


class StartFailed(OuroError):
    """The process of a background session could not open its session."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def start_host(flag: str, flags: Mapping[str, Any], folder: Path) -> StartReport:
    """Start a process that opens a session with these flags, and return what it reports. Blocks.

    The flags go through a pipe, because a list of processes shows command lines, and one of the
    flags is the prompt.

    Args:
        flag: the flag of `ouro` that makes the process a host.
        flags: the flags of the session by name, without `flag`.
        folder: the working folder of the session.

    Raises:
        StartFailed: the process has ended, or reports nothing.
    """
    ensure_private_dir(get_log_path().parent)
    with get_log_path().open("ab") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ouro", flag],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            cwd=folder,
            start_new_session=True,  # it outlives this terminal
        )
    assert process.stdin is not None
    assert process.stdout is not None

    # Send the flags, and read the report.
    with process.stdout as report_stream:
        try:
            with suppress(BrokenPipeError), process.stdin as flag_stream:
                flag_stream.write(dump_json(flags, is_ascii=True).encode())
            line = _read_report_line(report_stream.fileno())
        except BaseException:
            send_signal(process.pid, signal.SIGKILL, group=True)
            raise
    try:
        return decode_json(line, StartReport)
    except msgspec.DecodeError as error:
        send_signal(process.pid, signal.SIGTERM, group=True)
        raise StartFailed(
            "The process of the background session did not start. ouro.log may say why."
        ) from error


def _read_report_line(descriptor: int) -> bytes:
    """The first line of a stream, with its line end. If the stream ends before, or START_TIMEOUT passes,
    it is what was read until then, without a line end.
    """
    received, deadline = b"", time.monotonic() + START_TIMEOUT
    while not received.endswith(b"\n"):
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0 or not select.select([descriptor], [], [], seconds_left)[0]:
            break
        block = os.read(descriptor, 65_536)
        if not block:
            break
        received += block
    return received


def read_start() -> dict[str, Any]:
    """The flags that `start_host` has sent to this process."""
    flags = json.load(sys.stdin)
    return flags if isinstance(flags, dict) else {}


async def run_host(
    open_session: OpenSession,
    request: OpenRequest,
    message: str,
    idle_minutes: float,
    report_to: int,
) -> int:
    """Open a session and host it until it ends; returns the exit code.

    Args:
        message: the first prompt; empty for none.
        report_to: the descriptor on which to write a StartReport. It is closed afterwards.
    """
    _leave_terminal()
    try:
        session = await open_session(request)
        try:
            host = SessionHost(session, Claim(session.id), idle_minutes=idle_minutes)
            server = await host.listen()
        except BaseException:
            await session.close()
            raise
    except (OuroError, OSError) as error:
        _report(report_to, _failure_report(error))
        return error.exit_code if isinstance(error, OuroError) else 1
    _report(report_to, StartReport(session.id, session.status().model))
    if message:
        host.turns.say(Draft(message))
    return await serve(host, server)


async def serve(host: SessionHost, server: asyncio.Server) -> int:
    """Serve until the session ends, or a signal comes; returns the exit code."""
    with handle_signals(lambda _number: host.end("signal"), signal.SIGTERM, signal.SIGINT):
        # A host has no terminal: this signal is about that of the process which started it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reason = await host.serve(server)
    log.info("the background session %s has ended: %s", host.session.id, reason)
    return 0


def _leave_terminal() -> None:
    """Connect standard input and output with the null device. The flags were read from standard
    input, so it is not needed any more. Standard error stays, because it is the log.
    """
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _report(descriptor: int, report: StartReport) -> None:
    """Write the report and close its descriptor."""
    with suppress(OSError):  # who started it does not wait any more
        os.write(descriptor, msgspec.json.encode(report) + b"\n")
    os.close(descriptor)


def _failure_report(error: OuroError | OSError) -> StartReport:
    """A report of why the session could not be opened. If its folder is not trusted, the report has
    what the user must be asked. Commands in it begin with `ouro `, because no session is open in
    which to type them with `/`.
    """
    if isinstance(error, TrustNeeded):
        trust = {
            "folder": str(error.folder),
            "files": [str(file) for file in error.files],
            "summary": list(error.summary),
        }
        return StartReport(error=str(error), exit_code=error.exit_code, trust=trust)
    if isinstance(error, OuroError):
        return StartReport(error=error.text("ouro "), exit_code=error.exit_code)
    return StartReport(error=str(error))


def trust_error_of(report: StartReport) -> TrustNeeded | None:
    """The question about trust in a report, as the error that asks it. None if the report has none."""
    trust = report.trust
    if trust is None:
        return None
    files = [Path(file) for file in trust.get("files", ())]
    return TrustNeeded(Path(trust.get("folder", ".")), files, trust.get("summary", ()))
