"""A process that keeps what the last turn changed after ouro has ended, so that the user does not
wait for it at the exit.
"""

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
from ouro.safety.checkpoints.finish_after_exit import main
main(*sys.argv[1:4])
"""


def finish_later(checkpoints: Checkpoints) -> None:
    """Start a process that records the changes of turns whose ouro process has ended (`main`). Does
    not wait for it. If it cannot be started, the next start of ouro records them.
    """
    places = [str(checkpoints.root), str(checkpoints.folder.parent)]
    # The last arguments become `sys.path` of the process.
    words = [*places, str(checkpoints.max_file_bytes), *filter(None, sys.path)]
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *words],
            cwd=checkpoints.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def needs_recovery(checkpoints: Checkpoints) -> bool:
    """Whether something is left to be finished: a turn in this workspace or an undo of this session
    was cut off, or another process records the changes of a turn of this session now. Starts no
    process.
    """
    has_cut_turn = next(cut_turns(checkpoints.folder), None) is not None
    if has_cut_turn or checkpoints.has_turn_elsewhere():
        return True
    plan_file = checkpoints.folder / UNDOING_FOLDER / checkpoints.session
    return plan_file.exists() and not checkpoints.is_undoing


def has_question(checkpoints: Checkpoints) -> bool:
    """Whether an undo left files about which the user has not decided yet."""
    name = f"{checkpoints.session}{QUESTION_SUFFIX}"
    return (checkpoints.folder / UNDOING_FOLDER / name).exists()


def main(root: str, base: str, max_file_bytes: str) -> None:
    """Record the changes of turns whose ouro process has ended. This runs in the process that
    `finish_later` starts.
    """
    os.nice(LOWEST_PRIORITY)
    with suppress(OSError, CheckpointError):  # the next start tries again, and reports what fails
        no_session = ""  # `recover` handles the turns of all sessions
        Checkpoints(
            Path(root), base=Path(base), session=no_session, max_file_bytes=int(max_file_bytes)
        ).recover()
