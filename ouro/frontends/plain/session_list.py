"""The list of sessions at the plain prompt, of which the user opens one."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ouro.errors import OuroError
from ouro.frontends.plain.line_questions import LineQuestions
from ouro.frontends.plain.printer import Printer
from ouro.frontends.session_format import (
    ALL,
    SessionMatch,
    SessionMatches,
    format_figures,
    now,
    preview_lines,
    title_of,
)
from ouro.session import SessionCatalog, SessionInfo
from ouro.session.opening import OpenRequest

MAX_LISTED = 15
_HELP = (
    "Type a number to open a session, `copy N` for a copy, `look N` to preview it, words to search,"
    " `all` for {}."
)
_NUMBERED = re.compile(r"(?:(copy|look)\s+)?(\d{1,3})")


async def ask_session(
    printer: Printer, questions: LineQuestions, catalog: SessionCatalog, only: Collection[str] = ()
) -> OpenRequest | None:
    """Ask for a session until one is picked; None if the line is empty."""
    matches = SessionMatches(await catalog.sessions(), catalog.is_here, only)
    await _find(catalog, matches, "")
    listed = _print_matches(printer, matches)
    while line := await questions.ask("session: ", str.strip):
        chosen = _NUMBERED.fullmatch(line)
        if chosen is None:
            await _change_search(catalog, matches, line)
            listed = _print_matches(printer, matches)
            continue
        verb, number = chosen[1], int(chosen[2])
        if not 1 <= number <= len(listed):
            printer.say(f"Type a number from 1 to {len(listed)}.", "warning")
            continue
        info = listed[number - 1].info
        if verb != "look":
            return OpenRequest(info.id, fork=verb == "copy")
        await _print_preview(printer, catalog, info)
    return None


async def _change_search(catalog: SessionCatalog, matches: SessionMatches, line: str) -> None:
    """Search for the typed words; for `all`, search for the same words in the next scope."""
    if line == "all":
        matches.next_scope()
        await _find(catalog, matches, matches.query)
        return
    await _find(catalog, matches, line)


async def _find(catalog: SessionCatalog, matches: SessionMatches, words: str) -> None:
    """Limit `matches` to sessions with these words in the title, the id or a message."""
    matches.look_for(words)
    if not matches.query:
        return
    async for hit in catalog.search(matches.in_scope, matches.query):
        matches.add(hit)


def _print_matches(printer: Printer, matches: SessionMatches) -> Sequence[SessionMatch]:
    """Print the first matches with their numbers, and what can be typed. Returns those printed."""
    all_matches = matches.matches()
    listed = all_matches[:MAX_LISTED]
    heading = f"Sessions, {matches.scope}"
    if matches.query:
        heading += f", with “{matches.query}”"
    printer.choices(f"{heading}: {len(all_matches):,}", [_line(match) for match in listed])
    left_out = len(all_matches) - len(listed)
    if left_out:
        printer.say(f"… and {left_out:,} more. Type words of a title or message.")
    other_scope = "the sessions of this project" if matches.scope == ALL else "all projects"
    printer.say(_HELP.format(other_scope))
    return listed


async def _print_preview(printer: Printer, catalog: SessionCatalog, info: SessionInfo) -> None:
    """Print the beginning and the end of a session, or why it cannot be read."""
    try:
        preview = await catalog.preview(info)
    except (OuroError, OSError) as error:
        printer.say(str(error), "warning")
        return
    for who, words in preview_lines(preview, 80):
        printer.say(f"{who}: {words}" if who else words)


def _line(match: SessionMatch) -> str:
    snippet = f" — … {match.snippet} …" if match.snippet else ""
    return f"{title_of(match.info)} ({format_figures(match.info, now())}){snippet}"
