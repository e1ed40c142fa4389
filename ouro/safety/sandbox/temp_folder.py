"""TempFolder: the /tmp of confined commands."""

from __future__ import annotations

import os
from pathlib import Path

from ouro.safety.sandbox.process_record import PREFIX, ProcessRecord, left_records
from ouro.utils.log import log


class TempFolder:
    """A folder that is deleted with its session.

    `state_dir` has a record of it: `remove_left_temp_folders` deletes the folder of a killed ouro.
    """

    def __init__(self, state_dir: Path) -> None:
        import tempfile  # imported late: it imports random

        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX)))
        self._record: ProcessRecord | None = None
        """Its record; None if that could not be written."""
        try:
            self._record = ProcessRecord(_records_dir(state_dir), self.path.name, str(self.path))
        except OSError as error:  # it is deleted with the session all the same
            log.warning("no record of a temporary folder: %s", error)

    def remove(self) -> None:
        """Delete the folder and its record."""
        import shutil  # imported late: few sessions need it

        shutil.rmtree(self.path, ignore_errors=True)
        if self._record is not None:
            self._record.remove()


def remove_left_temp_folders(state_dir: Path) -> None:
    """Delete the temporary folders of killed ouro processes, and their records. Blocks."""
    import shutil  # imported late: few sessions need it

    for record in left_records(_records_dir(state_dir)):
        folder = Path(record.about)
        # A damaged record must not name another folder.
        if folder.is_absolute() and folder.name == record.path.name:
            shutil.rmtree(folder, ignore_errors=True)
        record.path.unlink(missing_ok=True)


def _records_dir(state_dir: Path) -> Path:
    return state_dir / "temp"
