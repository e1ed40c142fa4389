"""The permission mode of a resumed session: `auto` is offered again, never restored in silence."""

from __future__ import annotations

from typing import cast

import msgspec

from ouro.display import Question
from ouro.events import Reply
from ouro.safety import Mode
from ouro.session.session import Session
from ouro.settings import MODES_BY_WIDTH

CONTINUE_AUTO = "Continue in auto"


class StartMode(msgspec.Struct, frozen=True):
    """The mode in which a session starts."""

    mode: Mode
    offers_auto: bool = False
    """Whether the session was left in `auto`, which is wider than `mode`, and the user is asked."""


def start_mode(saved: str, configured: Mode) -> StartMode:
    """The mode in which a session starts: the saved one, or the configured one if none was saved. A
    saved `auto` is only offered to the user, unless it is also configured.

    Args:
        saved: the mode in which the session was left; empty for a new one.
        configured: the mode of the settings.
    """
    if saved not in MODES_BY_WIDTH:
        return StartMode(configured)
    mode = cast("Mode", saved)
    if mode == "auto" and configured != "auto":
        return StartMode(configured, offers_auto=True)
    return StartMode(mode)


async def offer_auto(session: Session) -> None:
    """Ask whether a session that was left in `auto` continues in it."""
    mode_now = session.status().mode
    text = (
        "This session was in mode auto: it changed files and ran commands without asking. Continue"
        " in it?"
    )
    question = Question(text, (f"Stay in {mode_now}", CONTINUE_AUTO))
    answer = await session.turn.tasks.ask("mode:auto", question)
    if not isinstance(answer, Reply) or session.status().mode != mode_now:
        return  # the user has changed the mode meanwhile
    # The present mode is set, too: that saves it, so that the next resume does not ask again.
    session.set_mode("auto" if CONTINUE_AUTO in answer.answers else mode_now)
