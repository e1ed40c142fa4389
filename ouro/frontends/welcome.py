"""The welcome of the first start."""

from __future__ import annotations

import os

from ouro.utils.ouro_paths import get_memory_dir, history_name, tilde

TYPE_CHECKING = False  # without `typing`, which the first frame does not need
if TYPE_CHECKING:
    from ouro.session import Session

_TIPS = """\
**Welcome to ouro.** Three tips:

1. Write what you want: `explain this repository`, `fix the failing test`. ouro asks before it changes a file or
   runs a command that has an effect. `Shift+Tab` changes how much it asks, `Esc` interrupts it, `/undo` restores
   the files.
2. `/` lists the commands, `@` names a file, `!` runs a shell line, `?` shows the keys."""
_MEMORY = """
3. ouro remembers what holds beyond one session: your preferences, decisions, facts about the project. It writes
   them as Markdown into `{folder}` on this machine, and shows each change when it is made. `/memory` shows all of
   it, `/memory undo` undoes a change, `/remember TEXT` saves something now, `/memory off` turns it off."""
_NO_MEMORY = """
3. Long-term memory is off: nothing is remembered beyond this session."""


def is_first_start() -> bool:
    """Whether the user has never sent a message."""
    return not os.path.exists(history_name())


def welcome(session: Session) -> str:
    """The welcome as Markdown: three tips, of which the last says what memory does, or that it is off."""
    is_on = session.session_memory.manager is not None
    return _TIPS + (_MEMORY.format(folder=tilde(get_memory_dir())) if is_on else _NO_MEMORY)
