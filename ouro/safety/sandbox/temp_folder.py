"""TempFolder: the /tmp of confined commands."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir

_PREFIX = "ouro-"


class TempFolder:
    """A folder that is deleted with its session.

    A record of it in `state_dir` is locked while its ouro lives: `remove_left_temp_folders` deletes
    the folder of a killed one.
    """

    def __init__(self, state_dir: Path) -> None:
        import tempfile  # imported late: it imports random

        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
        self._record: Path | None = None
        try:
            record = ensure_private_dir(_records_dir(state_dir)) / self.path.name
            self._file = record.open("x", encoding="utf-8")
            self._record = record
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.write(str(self.path))
            self._file.flush()
        except OSError as error:  # it is deleted with the session all the same
            log.warning("no record of a temporary folder: %s", error)

    def remove(self) -> None:
        import shutil  # imported late: few sessions need it

        shutil.rmtree(self.path, ignore_errors=True)
        if self._record is not None:
            self._record.unlink(missing_ok=True)
            self._file.close()


def remove_left_temp_folders(state_dir: Path) -> None:
    """Delete the folders of killed ouro processes. Blocks."""
    import shutil  # imported late: few sessions need it

    for record in _records_dir(state_dir).glob(f"{_PREFIX}*"):
        with suppress(OSError), record.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = Path(file.read())
            if folder.is_absolute() and folder.name == record.name:
                shutil.rmtree(folder, ignore_errors=True)
            record.unlink(missing_ok=True)


def _records_dir(state_dir: Path) -> Path:
    return state_dir / "temp"
