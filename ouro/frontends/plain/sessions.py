"""Picking a session at the plain prompt: a numbered list, and words to search with."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence

from ouro.errors import OuroError
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import Questions
from ouro.frontends.session_lines import figures, now, preview_lines, title
from ouro.frontends.session_matches import ALL, Match, SessionMatches
from ouro.session import SessionCatalog
from ouro.session.opening import OpenRequest

LISTED = 15
_HELP = "A number goes on with it, `copy N` with a copy, `look N` says what is in it; words search, `all` lists {}."
_NUMBERED = re.compile(r"(?:(copy|look)\s+)?(\d{1,3})")


class SessionQuestion:
    """Asks which session, until one is picked or the person would rather not."""

    def __init__(self, printer: Printer, questions: Questions, session_catalog: SessionCatalog) -> None:
        self._printer = printer
        self._questions = questions
        self._session_catalog = session_catalog

    async def ask(self, search: str = "", only: Collection[str] = ()) -> OpenRequest | None:
        """The session that is picked; None for an empty line."""
        sessions = await asyncio.to_thread(self._session_catalog.sessions)
        matches = SessionMatches(sessions, self._session_catalog.is_here, only)
        listed = await self._list(matches, search)
        while True:
            line = await self._questions.ask("session: ", str.strip)
            chosen = _NUMBERED.fullmatch(line)
            if not line:
                return None
            if chosen and 1 <= int(chosen[2]) <= len(listed):
                info = listed[int(chosen[2]) - 1].info
                if chosen[1] != "look":
                    return OpenRequest(info.id, fork=chosen[1] == "copy")
                await self._look(listed[int(chosen[2]) - 1])
            elif chosen:
                self._printer.say(f"There are {len(listed)} in the list.", "warning")
            elif line == "all":
                matches.next_scope()
                listed = await self._list(matches, matches.query)
            else:
                listed = await self._list(matches, line)

    async def _list(self, matches: SessionMatches, words: str) -> Sequence[Match]:
        """Print what fits: by title, then by what was said."""
        matches.look_for(words)
        if matches.query:
            async for hit in self._session_catalog.search(matches.in_scope, matches.query):
                matches.add(hit)
        found = matches.matches()
        listed = found[:LISTED]
        heading = f"Sessions, {matches.scope}" + (f", with “{matches.query}”" if matches.query else "")
        self._printer.choices(f"{heading}: {len(found):,}", [_line(each) for each in listed])
        if len(found) > LISTED:
            self._printer.say(f"… and {len(found) - LISTED:,} more: say some words of the one you mean.")
        self._printer.say(_HELP.format("this project's" if matches.scope == ALL else "those of all projects"))
        return listed

    async def _look(self, match: Match) -> None:
        try:
            preview = await asyncio.to_thread(self._session_catalog.preview, match.info)
        except (OuroError, OSError) as error:
            self._printer.say(str(error), "warning")
            return
        for who, words in preview_lines(preview, 80):
            self._printer.say(f"{who}: {words}" if who else words)


def _line(match: Match) -> str:
    said = f" — … {match.snippet} …" if match.snippet else ""
    return f"{title(match.info)} ({figures(match.info, now())}){said}"
