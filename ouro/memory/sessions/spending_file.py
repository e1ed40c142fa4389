"""SpendingFile: what was spent outside of the sessions that are kept: for vectors, by commands."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ouro.errors import SaveFailed
from ouro.memory.backend import CostRecord, Spent
from ouro.memory.sessions.spending import Spending
from ouro.utils.log import log
from ouro.utils.private_files import write_private
from ouro.utils.runtime import ensure_private_dir

FILE_NAME = "spent.json"


class SpendingFile:
    """One JSON array beside the sessions: a row for each day and model. Blocks on the disk.

    Several processes may add to it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def add(self, cost: CostRecord) -> None:
        """Count a model call.

        Raises:
            SaveFailed: it could not be written.
        """
        try:
            ensure_private_dir(self._path.parent)
            with self._alone():
                spending = Spending(self.spent())
                spending.add(cost.at, cost.model, cost.usage)
                rows = [msgspec.json.encode(each).decode() for each in spending.spent()]
                write_private(self._path, "[\n" + ",\n".join(rows) + "\n]\n")
        except OSError as error:
            raise SaveFailed(f"Not saved in {self._path}: {error.strerror or error}.") from error

    def spent(self) -> tuple[Spent, ...]:
        """By day and model. A file that cannot be read is set aside, and said so in the log."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return ()
        try:
            return msgspec.json.decode(data, type=tuple[Spent, ...])
        except msgspec.MsgspecError as error:
            aside = self._path.with_suffix(".aside.json")
            log.warning("%s holds something else (%s): it is kept as %s", self._path, error, aside)
            self._path.replace(aside)
            return ()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
