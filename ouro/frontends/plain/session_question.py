"""SessionQuestion: pick a session at the plain prompt, from a numbered list or by search words."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ouro.errors import OuroError
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import LineQuestions
from ouro.frontends.session_lines import figures, now, preview_lines, title
from ouro.frontends.session_matches import ALL, SessionMatch, SessionMatches
from ouro.session import SessionCatalog
from ouro.session.opening import OpenRequest

MAX_LISTED = 15
_HELP = "Type a number to open a session, `copy N` for a copy, `look N` to preview it, words to search, `all` for {}."
_NUMBERED = re.compile(r"(?:(copy|look)\s+)?(\d{1,3})")


class SessionQuestion:
    """Asks for a session until one is picked or the line is empty."""

    def __init__(self, printer: Printer, questions: LineQuestions, session_catalog: SessionCatalog) -> None:
        self._printer = printer
        self._questions = questions
        self._session_catalog = session_catalog

    async def ask(self, search: str = "", only: Collection[str] = ()) -> OpenRequest | None:
        """The picked session; None for an empty line."""
        sessions = await self._session_catalog.sessions()
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
                self._printer.say(f"Type a number from 1 to {len(listed)}.", "warning")
            elif line == "all":
                matches.next_scope()
                listed = await self._list(matches, matches.query)
            else:
                listed = await self._list(matches, line)

    async def _list(self, matches: SessionMatches, words: str) -> Sequence[SessionMatch]:
        """Print the matches: by title, then by what was said."""
        matches.look_for(words)
        if matches.query:
            async for hit in self._session_catalog.search(matches.in_scope, matches.query):
                matches.add(hit)
        found = matches.matches()
        listed = found[:MAX_LISTED]
        heading = f"Sessions, {matches.scope}" + (f", with “{matches.query}”" if matches.query else "")
        self._printer.choices(f"{heading}: {len(found):,}", [_line(match) for match in listed])
        if len(found) > MAX_LISTED:
            self._printer.say(f"… and {len(found) - MAX_LISTED:,} more. Type words of a title or message.")
        self._printer.say(_HELP.format("the sessions of this project" if matches.scope == ALL else "all projects"))
        return listed

    async def _look(self, match: SessionMatch) -> None:
        try:
            preview = await self._session_catalog.preview(match.info)
        except (OuroError, OSError) as error:
            self._printer.say(str(error), "warning")
            return
        for who, words in preview_lines(preview, 80):
            self._printer.say(f"{who}: {words}" if who else words)


def _line(match: SessionMatch) -> str:
    said = f" — … {match.snippet} …" if match.snippet else ""
    return f"{title(match.info)} ({figures(match.info, now())}){said}"
