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
    """The mode in which a session starts; `offers_auto`: it was left in `auto`, which is wider."""

    mode: Mode
    offers_auto: bool = False


def start_mode(saved: str, configured: Mode) -> StartMode:
    """The mode of a session that was left in `saved` (empty: a new one)."""
    if saved not in MODES_BY_WIDTH:
        return StartMode(configured)
    mode = cast("Mode", saved)
    if mode == "auto" and configured != "auto":
        return StartMode(configured, offers_auto=True)
    return StartMode(mode)


async def offer_auto(session: Session) -> None:
    """Ask whether a session that was left in `auto` continues in it."""
    present = session.status().mode
    text = (
        "This session was in mode auto: it changed files and ran commands without asking. Continue"
        " in it?"
    )
    question = Question(text, (f"Stay in {present}", CONTINUE_AUTO))
    answer = await session.turn.tasks.ask("mode:auto", question)
    if not isinstance(answer, Reply) or session.status().mode != present:
        return  # the user has changed the mode meanwhile
    session.set_mode("auto" if CONTINUE_AUTO in answer.answers else present)
