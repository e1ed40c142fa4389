"""The log file, in which secrets are masked."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from ouro.utils.ouro_paths import ensure_private_dir, get_log_path

log = logging.getLogger("ouro")
_MAX_LOG = 1_000_000
"""Bytes of a log file before the next one is begun."""
_OLD_LOGS = 4
"""Full log files that are kept."""
_file_handlers: list[logging.Handler] = []
"""The handler of ouro's log file; empty until `start_log`. In a program that uses ouro as a
library, the root logger has handlers of the program instead.
"""


def start_log(debug: bool = False) -> None:
    """Write the log of ouro and its libraries to `~/.ouro/logs/ouro.log` (0600), at most five files
    of 1 MB. `debug`: whether also messages of the level DEBUG are written.

    If the file cannot be written, nothing is logged, because the screen belongs to the front end.
    """
    # A failing log (full disk) must not print to the screen; messages for the user are events.
    logging.raiseExceptions = False
    handler = _PrivateFile(get_log_path(), delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    _file_handlers[:] = [handler]
    root.handlers[:] = [handler]  # no other handler: it could print to the screen
    root.setLevel(logging.WARNING)
    log.setLevel(logging.DEBUG if debug else logging.INFO)


def mask_log(mask: Callable[[str], str]) -> None:
    """Mask the secrets in all that ouro logs, and in all that is written to its file. What other
    loggers of the program write elsewhere stays as it is.
    """

    def mask_record(record: logging.LogRecord) -> bool:
        """Mask a record before it is written. Always True: a filter that is False drops it."""
        record.msg, record.args = mask(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = mask(logging.Formatter().formatException(record.exc_info))
        return True

    for log_or_handler in (log, *_file_handlers):
        log_or_handler.filters = [mask_record]


class _PrivateFile(logging.FileHandler):
    """A log file that is created, with its folder, when there is something to log. Full files are
    renamed to `.1` to `.4`.

    `logging.handlers` would do it, and import pickle and three other modules in each start.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Never raises: without the file it is lost."""
        with suppress(OSError):
            self._rotate_if_full()
            super().emit(record)

    def _rotate_if_full(self) -> None:
        """Rename a full file to `.1`, the older ones by one each, and begin a new one."""
        if self.stream is None:
            self.stream = self._open()
        if os.fstat(self.stream.fileno()).st_size < _MAX_LOG:
            return
        self.stream.close()
        names = [self.baseFilename, *(f"{self.baseFilename}.{n}" for n in range(1, _OLD_LOGS + 1))]
        for number in range(_OLD_LOGS, 0, -1):  # from the oldest, which is overwritten
            with suppress(FileNotFoundError):
                os.replace(names[number - 1], names[number])  # noqa: PTH105
        self.stream = self._open()

    def _open(self) -> TextIOWrapper:
        """Open the file, which only the user can read, and make its folder. Raises OSError."""
        ensure_private_dir(Path(self.baseFilename).parent)
        stream = super()._open()
        os.fchmod(stream.fileno(), 0o600)
        return stream
