"""LateCheckpoints: checkpoints that are opened when they are needed; and their folder.

A module of its own: each session imports it, and the rest of the package only at a tool call.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ouro.safety.checkpoints.checkpoints import Checkpoints


def checkpoint_folder(root: Path, base: Path) -> Path:
    """Returns the folder in `base` for the checkpoints of the workspace `root`. It may not
    exist.
    """
    root = Path(os.path.realpath(root))
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return base / f"{root.name[:40]}-{digest}"


class LateCheckpoints:
    """Makes the `Checkpoints` of a session when they are first needed: an answer without a tool
    call then imports none of their ten modules. The arguments are those of `Checkpoints`.
    """

    def __init__(self, root: Path, base: Path, session: str, max_file_bytes: int) -> None:
        self._arguments = (root, base, session, max_file_bytes)
        self._making = threading.Lock()
        """Held while `opened` is made."""
        self.folder = checkpoint_folder(root, base)
        self.opened: Checkpoints | None = None
        """The checkpoints; None until they are used for the first time."""

    def open(self) -> Checkpoints:
        """Make the checkpoints at the first call; returns the same object each time. Blocks."""
        from ouro.safety.checkpoints.checkpoints import Checkpoints

        with self._making:
            if self.opened is None:
                self.opened = Checkpoints(*self._arguments)
            return self.opened
