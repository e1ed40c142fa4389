"""A process that keeps what a turn changed after ouro has ended: the exit waits for no checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ouro.safety.checkpoints.checkpoint_repository import LOWEST_PRIORITY, CheckpointError
from ouro.safety.checkpoints.checkpoints import Checkpoints
from ouro.safety.checkpoints.turn_journal import cut_turns
from ouro.safety.checkpoints.undo import QUESTION_SUFFIX, UNDOING_FOLDER

# The search path is that of this process: a module of the workspace is never imported.
_PROGRAM = """
import sys
sys.path[:] = sys.argv[4:]
from ouro.safety.checkpoints.finish import main
main(*sys.argv[1:4])
"""


def finish_later(checkpoints: Checkpoints) -> None:
    """Start a process that keeps what the turns of ended processes changed."""
    places = [str(checkpoints.root), str(checkpoints.folder.parent)]
    words = [*places, str(checkpoints.max_file_bytes), *filter(None, sys.path)]
    with suppress(OSError):  # the next start does it
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *words],
            cwd=checkpoints.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def needs_recovery(checkpoints: Checkpoints) -> bool:
    """Whether a turn or an undo in this workspace was cut off; starts no process."""
    if next(cut_turns(checkpoints.folder), None) is not None or checkpoints.has_turn_elsewhere():
        return True
    plan_file = checkpoints.folder / UNDOING_FOLDER / checkpoints.session
    return plan_file.exists() and not checkpoints.is_undoing


def has_question(checkpoints: Checkpoints) -> bool:
    """Whether an undo left files about which the user has not decided yet."""
    return (
        checkpoints.folder / UNDOING_FOLDER / f"{checkpoints.session}{QUESTION_SUFFIX}"
    ).exists()


def main(root: str, base: str, max_file_bytes: str) -> None:
    """Keep what the turns of ended processes changed; the program of the process."""
    os.nice(LOWEST_PRIORITY)
    with suppress(OSError, CheckpointError):  # the next start does it, and reports what fails
        Checkpoints(Path(root), Path(base), "", int(max_file_bytes)).recover()
