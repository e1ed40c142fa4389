"""StandingWork: the goal and repeated messages of a session; which survive the end of ouro."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ouro.events import Emit, Notice
from ouro.memory.manager import MemoryManager
from ouro.session.goal import Goal, GoalCaps, GoalPursuit
from ouro.session.repeated_messages import RepeatedMessages
from ouro.utils.files import write_private
from ouro.utils.lenient_json import read_state
from ouro.utils.log import log
from ouro.utils.text import one_line

FILE = "standing.json"
"""The file in the folder of the session. `ouro sessions sync` does not send it: a command of a goal
runs only where it was typed.
"""


class KeptGoal(msgspec.Struct, frozen=True):
    """A goal, as it is saved."""

    condition: str
    command: str = ""
    caps: GoalCaps = GoalCaps()


class KeptMessage(msgspec.Struct, frozen=True):
    """A repeated message, as it is saved."""

    text: str
    seconds: float


class KeptWork(msgspec.Struct, frozen=True):
    """What survives the end of ouro."""

    goal: KeptGoal | None = None
    messages: tuple[KeptMessage, ...] = ()


class StandingWork:
    """The goal and the repeated messages of one session."""

    def __init__(
        self, goal: GoalPursuit, memory: MemoryManager, emit: Emit, *, is_saved: bool
    ) -> None:
        self.goal = goal
        self.repeated = RepeatedMessages()
        self._memory = memory
        self._emit = emit
        self._is_saved = is_saved
        """Whether the session is saved, so that what is kept can be written into its folder."""
        self._loaded = KeptWork()
        """What the session kept when it was closed last."""
        self._unstarted: tuple[KeptMessage, ...] = ()
        """Kept messages that are not repeated in this session, because no user is there to end
        them. They are kept again for the next time.
        """

    def end(self, task_id: str) -> bool:
        """End the goal (the id is `goal`) or the repeated message with this id. Returns False if
        there is neither.
        """
        if task_id == "goal":
            return self.goal.clear() is not None
        if not any(message.id == task_id for message in self.repeated.list()):
            return False
        self.repeated.end(task_id)
        return True

    def save(self) -> None:
        """Write what is kept into the folder of the session; if nothing is, delete the file. Called
        at the end of the session. A failure is logged. Blocks.
        """
        path, kept_work = self._path, self._work_to_keep()
        try:
            has_folder = path.parent.is_dir()  # not without messages: it cannot be resumed
            if not self._is_saved or not has_folder:
                return
            if kept_work == KeptWork():
                path.unlink(missing_ok=True)
            else:
                write_private(path, msgspec.json.encode(kept_work))
        except OSError as error:
            log.warning("%s was not written: %s", path, error)

    def load(self) -> None:
        """Read what the session has kept, for `restore`. Blocks."""
        if self._is_saved:
            self._loaded = read_state(self._path, KeptWork)

    def restore(self, *, repeats: bool) -> None:
        """Repeat the messages that were kept, and set the goal that was kept, but paused.

        Args:
            repeats: whether a user is there, who can end a repeated message. Otherwise the messages
                are only kept for the next time.
        """
        if repeats:
            self._repeat_kept_messages()
        else:
            self._unstarted = self._loaded.messages
        if self._loaded.goal is not None:
            self._offer_goal(self._loaded.goal)

    def _repeat_kept_messages(self) -> None:
        """Repeat the messages that were kept, each after its interval, and show a notice about it."""
        for message in self._loaded.messages:
            self.repeated.add(message.text, message.seconds, is_kept=True, first_in=message.seconds)
            text = f"Kept: the loop “{one_line(message.text, 60)}”. `/tasks` ends it."
            self._emit(Notice(text))

    def _offer_goal(self, kept_goal: KeptGoal) -> None:
        """Set the goal that was kept, paused, and tell the user how to continue it."""
        goal = Goal(
            kept_goal.condition, kept_goal.command, kept_goal.caps, is_kept=True, is_paused=True
        )
        self.goal.begin(goal)
        text = (
            f"Kept, and paused: the goal “{one_line(goal.title, 80)}”."
            " `/goal resume` continues it, `/goal clear` ends it."
        )
        self._emit(Notice(text))

    def _work_to_keep(self) -> KeptWork:
        """The goal and the repeated messages that survive the end of ouro, as the user has set it."""
        goal = self.goal.goal
        kept_goal = None
        if goal is not None and goal.is_kept:
            kept_goal = KeptGoal(goal.condition, goal.command, goal.caps)
        messages = (
            KeptMessage(message.text, message.seconds)
            for message in self.repeated.list()
            if message.is_kept
        )
        return KeptWork(kept_goal, (*self._unstarted, *messages))

    @property
    def _path(self) -> Path:
        return self._memory.outputs.parent / FILE
