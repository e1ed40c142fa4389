"""`ouro attach`: a background session on the full screen, or in the plain prompt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ouro.errors import HostGone, UsageError
from ouro.frontends.background.remote import remote_session
from ouro.session import OpenRequest, OpenSession, Session
from ouro.session.background_record import BackgroundPlace, BackgroundRecord, find_record
from ouro.settings_sources import load_settings
from ouro.utils.sections import replace_fields

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp
    from ouro.frontends.tui.screen_settings import ScreenSettings


def record_to_attach(words: str) -> BackgroundRecord:
    """The record of the session that `words` name. Blocks. Raises UsageError if there is no such
    session, or if it does not run.
    """
    record = find_record(words)
    if not BackgroundPlace(record.id).is_alive:
        raise UsageError(
            f"{record.short_id} does not run any more.",
            f"Continue it with `ouro --resume {record.short_id}`.",
        )
    return record


def attach_screen(record: BackgroundRecord, screen_settings: ScreenSettings) -> int:
    """Show the session on the full screen until the user leaves; returns the exit code."""
    from ouro.frontends.tui import first_frame
    from ouro.frontends.tui.full_screen import run_tui

    # These are for a session that begins: this one runs already.
    screen_settings = replace_fields(
        screen_settings, welcomes=False, shows_start=False, syncs=False
    )
    frame = first_frame.draw(screen_settings)
    return run_tui(
        _make_opener(record),
        OpenRequest(record.id),
        first_message="",
        frame=frame,
        app_kind=_app_kind,
    )


def _app_kind() -> type[OuroApp]:
    """The class of the full screen for a session that is attached."""
    from ouro.frontends.tui.attached_app import AttachedApp

    return AttachedApp


def attach_plain(record: BackgroundRecord) -> int:
    """Show the session in the plain prompt until the user leaves; returns the exit code."""
    from ouro.frontends.background.attached_prompt import run_attached_prompt

    return asyncio.run(run_attached_prompt(_make_opener(record), load_settings().tui))


def _make_opener(record: BackgroundRecord) -> OpenSession:
    """Return a function for front ends that open a session: it attaches to the session of this
    record instead.
    """

    async def open_session(_request: OpenRequest) -> Session:
        """Attach to the session. Raises HostGone, with advice if it has ended."""
        try:
            return await remote_session(record)
        except HostGone as error:
            hint = f"If it has ended: `ouro --resume {record.short_id}`."
            raise HostGone(error.message, hint) from error

    return open_session
