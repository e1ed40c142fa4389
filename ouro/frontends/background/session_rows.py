"""The cells and marks with which lists show a background session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ouro.frontends.background.background_sessions import AgentRow, RowState
from ouro.frontends.session_format import format_age
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import clean, dollars, one_line

MARKS: Mapping[RowState, str] = {
    "waiting": "?",
    "working": "●",
    "idle": "○",
    "silent": "!",
    "refused": "!",
    "ended": "–",
}
MAX_TITLE = 32


def row_cells(row: AgentRow, now: datetime | None = None) -> tuple[str, ...]:
    """The cells of a list row: id, state, age, cost, folder, title, and the question or the last
    line.
    """
    return (
        row.record.short_id,
        f"{MARKS[row.state]} {row.state}",
        format_age(row.record.started_at, now or datetime.now(UTC)),
        dollars(row.cost),
        one_line(folder_name(row), 24),
        one_line(clean(row.title), MAX_TITLE),
        one_line(clean(row.line), 90),
    )


def folder_name(row: AgentRow) -> str:
    """The name of the session's folder. The folder `/` has no name, so its path is returned."""
    return clean(Path(row.record.cwd).name or tilde(Path(row.record.cwd)))
