"""The list of sessions at the plain prompt, from which the user opens one."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ouro.errors import OuroError
from ouro.frontends.plain.line_questions import LineQuestions
from ouro.frontends.plain.printer import Printer
from ouro.frontends.session_format import (
    format_figures,
    now,
    preview_lines,
    session_title,
)
from ouro.frontends.session_matches import ALL, SessionMatch, SessionMatches
from ouro.session import SessionCatalog, SessionInfo
from ouro.session.opening import OpenRequest

MAX_LISTED = 15
_HELP = (
    "Type a number to open a session, `copy N` for a copy, `look N` to preview it, words to search,"
    " `all` for {}."
)
_SHOWN_HEADLESS, _HIDDEN_HEADLESS = (
    "Sessions of scripts are shown, too: `headless` hides them.",
    "{:,} of scripts (headless) are hidden: `headless` shows them.",
)
_CHOICE_BY_NUMBER = re.compile(r"(?:(copy|look)\s+)?(\d{1,3})")
"""Such as `3`, `copy 3` and `look 3`."""


async def ask_session(
    printer: Printer, questions: LineQuestions, catalog: SessionCatalog, only: Collection[str] = ()
) -> OpenRequest | None:
    """Print the sessions, and ask until the user opens a session, or a copy of one. Returns the
    request for that; None if the user enters an empty line. Until then the user can search, and
    preview sessions. `only` has the ids of the sessions to list; if it is empty, all are listed.
    """
    matches = SessionMatches(await catalog.sessions(), catalog.is_here, only)
    printed_matches = _print_matches(printer, matches)
    while line := await questions.ask("session: ", str.strip):
        choice = _CHOICE_BY_NUMBER.fullmatch(line)
        if choice is None:  # words to search for, or `all`
            await _change_search(catalog, matches, line)
            printed_matches = _print_matches(printer, matches)
            continue
        verb, number = choice[1], int(choice[2])
        if not 1 <= number <= len(printed_matches):
            printer.say(f"Type a number from 1 to {len(printed_matches)}.", "warning")
            continue
        info = printed_matches[number - 1].info
        if verb != "look":
            return OpenRequest(info.id, fork=verb == "copy")
        await _print_preview(printer, catalog, info)
    return None


async def _change_search(catalog: SessionCatalog, matches: SessionMatches, line: str) -> None:
    """Search for the typed words. If the line is `all` or `headless`, search for the same words as
    before, but in the next scope, or with or without the sessions of scripts.
    """
    if line == "all":
        matches.next_scope()
    elif line == "headless":
        matches.toggle_headless()
    else:
        await _search(catalog, matches, line)
        return
    await _search(catalog, matches, matches.query)


async def _search(catalog: SessionCatalog, matches: SessionMatches, words: str) -> None:
    """Limit `matches` to sessions with these words in the title, the id or a message."""
    matches.set_search(words)
    if not matches.query:
        return
    async for hit in catalog.search(matches.in_scope, matches.query):
        matches.add_hit(hit)


def _print_matches(printer: Printer, matches: SessionMatches) -> Sequence[SessionMatch]:
    """Print the first MAX_LISTED matches with their numbers, how many there are, and what the user
    can type. Returns the printed matches.
    """
    all_matches = matches.matches()
    printed_matches = all_matches[:MAX_LISTED]
    heading = f"Sessions, {matches.scope_text}"
    if matches.query:
        heading += f", with “{matches.query}”"
    printer.print_choices(
        f"{heading}: {len(all_matches):,}", [_match_line(match) for match in printed_matches]
    )
    left_out = len(all_matches) - len(printed_matches)
    if left_out:
        printer.say(f"… and {left_out:,} more. Type words of a title or message.")
    if matches.shows_headless:
        printer.say(_SHOWN_HEADLESS)
    elif matches.hidden_count:
        printer.say(_HIDDEN_HEADLESS.format(matches.hidden_count))
    other_scope = "the sessions of this project" if matches.scope == ALL else "all projects"
    printer.say(_HELP.format(other_scope))
    return printed_matches


async def _print_preview(printer: Printer, catalog: SessionCatalog, info: SessionInfo) -> None:
    """Print the beginning and the end of a session, or why it cannot be read."""
    try:
        preview = await catalog.preview(info)
    except (OuroError, OSError) as error:
        printer.say(str(error), "warning")
        return
    for speaker, text in preview_lines(preview, 80):
        printer.say(f"{speaker}: {text}" if speaker else text)


def _match_line(match: SessionMatch) -> str:
    snippet = f" — … {match.snippet} …" if match.snippet else ""
    return f"{session_title(match.info)} ({format_figures(match.info, now())}){snippet}"
