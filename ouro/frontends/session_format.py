"""Sessions as text, and the search in a list of sessions; the same on every front end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ouro import __version__
from ouro.session.opening import Part
from ouro.utils.git import find_root
from ouro.utils.text import byte_size, clean, dollars, one_line, plural

if TYPE_CHECKING:
    from ouro.session import (
        RepositoryChanges,
        ResumeCard,
        Session,
        SessionExcerpt,
        SessionHit,
        SessionInfo,
        Status,
    )

_AGE_UNITS = ((60, 60, "min"), (3600, 24, "h"), (86400, 14, "d"))
"""For each unit of an age: its seconds, the number at which the next unit begins, and its name."""
LEFT_BRANCH = "This message is on a branch that was left by a rewind."
_SPEAKERS = {"user": "you", "assistant": "ouro"}


def format_age(at: str, now: datetime) -> str:
    """The time from `at` to `now`, such as `now`, `5 min`, `3 h` or `2 d`. After two weeks it is
    the date of `at`.

    `at` is a time in the form of ISO 8601. If it is any other text, its first ten characters are
    returned.
    """
    try:
        seconds = (now - datetime.fromisoformat(at)).total_seconds()
    except (ValueError, TypeError):  # the file was edited by hand
        return clean(at)[:10]
    if seconds < 60:
        return "now"
    for unit, next_unit_at, name in _AGE_UNITS:
        if seconds < unit * next_unit_at:
            return f"{int(seconds // unit)} {name}"
    return at[:10]


def format_tokens(number: int) -> str:
    """Tokens in a few letters: `840`, `1.2k`, `84k`, `1.2M`."""
    if number < 1000:
        return str(number)
    amount, unit = number / 1000, "k"
    if number >= 999_500:  # `k` would round it to `1000k`
        amount, unit = number / 1e6, "M"
    if amount >= 9.95:  # two digits tell enough
        return f"{amount:.0f}{unit}"
    return f"{amount:.1f}".removesuffix(".0") + unit


def status_items(status: Status) -> dict[str, str]:
    """The texts of the status line by their names in `tui.status`. A text is empty if there is
    nothing to show.
    """
    effort = "" if status.effort == "off" else f" ({status.effort})"
    context = ""
    if status.window:
        share = status.context / status.window
        warning = "! " if share >= 0.8 else ""
        context = f"{warning}{share:.0%} of {format_tokens(status.window)}"
    usage = status.usage
    tokens, cost = "", ""
    if usage.input or usage.output:
        cached = f" ({format_tokens(usage.cached)} cached)" if usage.cached else ""
        tokens = f"↑{format_tokens(usage.input)}{cached} ↓{format_tokens(usage.output)}"
        cost = dollars(usage.cost)
    return {
        "model": clean(status.model.rpartition("/")[2]) + effort,
        "mode": status.mode,
        "saved": "" if status.is_saved else "not saved",
        "branch": one_line(status.branch, 30),
        "context": context,
        "tokens": tokens,
        "cost": cost,
        "memories": plural(status.memories, "memory", "memories") if status.memories else "",
        "jobs": plural(status.jobs, "job") if status.jobs else "",
        "goal": status.standing.goal,
        "loops": plural(status.standing.loops, "loop") if status.standing.loops else "",
        "sandbox": _sandbox_text(status.sandbox),
    }


def _sandbox_text(name: str) -> str:
    """How commands are confined, for the status line; empty if it is not known yet.

    `name`: the name of what confines the commands. It is shown only if it runs a container.
    """
    if name in ("none", "off"):
        return "no sandbox"
    if name in ("podman", "docker"):
        return f"in {name}"
    return "sandboxed" if name else ""


def script_state(session: Session) -> dict[str, Any]:
    """The state of a session as JSON for the user's status command. The fields have the names that
    Claude Code uses.
    """
    status, usage = session.status(), session.status().usage
    used = round(100 * status.context / status.window, 1) if status.window else None
    name = status.model.rpartition("/")[2]
    return {
        "hook_event_name": "Status",
        "session_id": session.id,
        "session_name": session.title,
        "transcript_path": str(session.transcript.outputs.parent / "session.yaml"),
        "cwd": str(session.cwd),
        "model": {"id": status.model, "display_name": name},
        "workspace": {"current_dir": str(session.cwd), "project_dir": str(find_root(session.cwd))},
        "version": __version__,
        "output_style": {"name": session.extensions.styles.name},
        # A number also if no price is known: scripts format it.
        "cost": {"total_cost_usd": usage.cost or 0.0, "is_known": usage.cost is not None},
        "context_window": {
            "total_input_tokens": usage.input,
            "total_output_tokens": usage.output,
            "context_window_size": status.window,
            "used_percentage": used,
            "remaining_percentage": None if used is None else round(100 - used, 1),
        },
        "permission_mode": status.mode,
        "effort": status.effort,
        "git_branch": status.branch,
    }


ITEMS_WITH_SCRIPT = ("mode", "goal", "loops", "saved", "jobs", "queued")
"""The items that the status line still shows if the user's status command prints a line."""


def session_title(info: SessionInfo) -> str:
    """The title of a session in one line."""
    return " ".join(clean(info.title).split()) or "(no title)"


def session_labels(info: SessionInfo) -> str:
    """The branch, the number of changed files and the tags of a session: `main · 3 files ·
    #parser`.
    """
    files = plural(info.files, "file") if info.files else ""
    tags = " ".join(f"#{tag}" for tag in info.tags)
    return " · ".join(filter(None, [one_line(info.branch, 30), files, clean(tags)]))


def format_figures(info: SessionInfo, now: datetime) -> str:
    """The age, the number of messages, the size, the cost and the labels of a session."""
    parts = [
        format_age(info.updated_at, now),
        plural(info.messages, "message"),
        byte_size(info.size),
        dollars(info.cost),
        session_labels(info),
        "copy" if info.fork_of else "",
        "pinned" if info.pinned else "",
    ]
    return " · ".join(part for part in parts if part)


def preview_lines(preview: SessionExcerpt, width: int) -> list[tuple[str, str]]:
    """The summary, and the first and last messages of a session, as pairs of a speaker and a text.
    Each message is cut to about four lines of `width`.
    """
    lines = [("", " ".join(clean(preview.summary).split()))] if preview.summary else []
    if preview.first:
        lines.append(("you", one_line(preview.first, 4 * width)))
    lines += [(_SPEAKERS.get(role, role), one_line(text, 4 * width)) for role, text in preview.last]
    return lines or [("", "The session is empty.")]


def now() -> datetime:
    return datetime.now(UTC)


def card_lines(card: ResumeCard, now: datetime) -> list[tuple[str, str]]:
    """The resume card of a session as pairs of a name and a text. Facts without a text are left
    out.
    """
    moved = f"was in {clean(card.info.project)}, now in {clean(card.folder)}" if card.folder else ""
    last_used = [
        _age_text(card, now),
        plural(card.info.messages, "message"),
        byte_size(card.info.size),
    ]
    rows = [
        ("last used", " · ".join(last_used)),
        ("about", " ".join(clean(card.info.summary).split())),
        ("first call", _first_call(card)),
        ("repository", _repository_changes(card.repository)),
        ("memory", _memory_changes(card)),
        ("folder", moved),
        ("mode", _unusual_mode(card)),
        ("open", _unfinished(card)),
    ]
    return [(name, words) for name, words in rows if words]


def card_line(card: ResumeCard, now: datetime) -> str:
    """The resume card in one line."""
    parts = [
        _age_text(card, now),
        _first_call(card),
        _repository_changes(card.repository),
        _memory_changes(card),
    ]
    if card.folder:
        parts.append(f"in {clean(card.folder)} now")
    if mode := _unusual_mode(card):
        parts.append(f"mode {mode}")
    parts.append(_unfinished(card))
    return f"Resumed: {' · '.join(filter(None, parts))}"


def card_choices(card: ResumeCard) -> list[tuple[Part, str]]:
    """The parts of a session with which it can be resumed, each with its label. The first one is
    the default. A short session can only be resumed with all its messages. If memory has changed
    since the session, the last choice uses memory as it was then.
    """
    choices: list[tuple[Part, str]] = [("full", f"full: {format_tokens(card.tokens)} tokens")]
    if card.tail is not None:
        turns = "last turn" if card.tail.turns == 1 else f"last {card.tail.turns} turns"
        choices.append(("tail", f"tail: {turns}, {format_tokens(card.tail.tokens)}"))
        price = "one call" if card.price is None else f"made for {dollars(card.price)}"
        choices.append(("summary", f"summary: {price}"))
    if card.memory.changes and not card.memory.is_held:
        choices.append(("then", "memory as it was"))
    return choices


def _age_text(card: ResumeCard, now: datetime) -> str:
    """How long ago the session was used: `now`, `3 h ago`, or a date."""
    age = format_age(card.info.updated_at, now)
    is_date = "-" in age
    return age if is_date or age == "now" else f"{age} ago"


def _unusual_mode(card: ResumeCard) -> str:
    """The mode of the session; empty for the usual one."""
    return "" if card.info.mode in ("", "ask") else card.info.mode


def _first_call(card: ResumeCard) -> str:
    """What the first call after a resume needs: its tokens, the state of the provider's cache, and
    its price if that is known. If the cache is still warm, also the price without the cache.
    """
    size = f"{format_tokens(card.tokens)} tokens"
    if card.cache == "unknown":
        return size
    if card.price is None or card.price_cold is None:
        return f"{size}, the provider's cache is {card.cache}"
    price_without_cache = f"; else {dollars(card.price_cold)}" if "warm" in card.cache else ""
    return f"{size}, {dollars(card.price)} (cache {card.cache}{price_without_cache})"


def _repository_changes(changes: RepositoryChanges | None) -> str:
    """What has changed in the repository since the session; empty if nothing has."""
    if changes is None:
        return ""
    parts = []
    if changes.branch_then and changes.branch_then != changes.branch:
        parts.append(f"on {clean(changes.branch)} now, on {clean(changes.branch_then)} then")
    if changes.changed:
        parts.append(f"{plural(changes.changed, 'file')} not committed")
    if changes.commits:
        subjects = "; ".join(clean(subject) for subject in changes.subjects)
        parts.append(f"{plural(changes.commits, 'commit')} since: {subjects}")
    return ", ".join(parts)


def _memory_changes(card: ResumeCard) -> str:
    """How many changes memory has had since the session, for each scope. It also says if the
    session still uses memory as it was then. Empty if there is neither.
    """
    changes = card.memory.changes
    if not changes:
        return "as it was" if card.memory.is_held else ""
    scopes = ", ".join(f"{scope} {count}" for scope, count in changes.items())
    count = plural(sum(changes.values()), "change")
    if card.memory.is_held:
        return f"as it was, without {count} since ({scopes})"
    return f"{count} of memory since ({scopes})"


def _unfinished(card: ResumeCard) -> str:
    """What the session has left open: a turn without an answer, and the number of its todos with
    the text of the first one. Empty if there is neither.
    """
    parts = ["the last turn has no answer"] if card.in_the_middle else []
    if card.todos:
        parts.append(
            f"{plural(len(card.todos), 'todo')} open:"
            f" {' '.join(clean(card.todos[0].text).split())[:60]}"
        )
    return ", ".join(parts)


MIN_SIMILARITY = 80
"""The minimum similarity (0 to 100) of a title that matches."""
MAX_SIMILAR = 50
MIN_FUZZY_LETTERS = 4
"""The minimum length of a search: shorter ones are similar to too many titles."""
Scope = str
THESE, PROJECT, ALL = "these", "this project", "all projects"


class SessionMatch(NamedTuple):
    """A session in the list. `snippet` has the words that were found in its messages."""

    info: SessionInfo
    snippet: str = ""


class SessionMatches:
    """Narrows a list of sessions down to those that match a search. Their order stays.

    It has no widget and reads no disk.
    """

    def __init__(
        self,
        sessions: Sequence[SessionInfo],
        is_here: Callable[[str], bool],
        only: Collection[str] = (),
    ) -> None:
        self._is_here = is_here
        self._only = frozenset(only)
        """Ids that the list is limited to; empty: no limit."""
        self._words: tuple[str, ...] = ()
        """The searched words, without tags."""
        self._tags: tuple[str, ...] = ()
        """The tags that a session must have, each with its `#`."""
        self._hits: dict[str, str] = {}
        """The sessions whose messages contain the words: by id, the text around the match."""
        self.is_fuzzy = False
        """Whether similar titles match, too; see `find_similar`."""
        self.scope: Scope = THESE if only else PROJECT
        self.set_sessions(sessions)
        if self.scope == PROJECT and not self.in_scope:
            self._set_scope(ALL)

    @property
    def scope_text(self) -> str:
        """The scope as it is shown. If all projects are listed because this one has no sessions, it
        says so.
        """
        has_none_here = not any(self._is_here(info.project) for info in self.sessions)
        if self.scope == ALL and self.sessions and has_none_here:
            return f"none in this folder · {ALL}"
        return self.scope

    @property
    def query(self) -> str:
        """The words that titles and messages are searched for."""
        return " ".join(self._words)

    @property
    def is_narrowed(self) -> bool:
        return bool(self._words or self._tags)

    def set_sessions(self, sessions: Sequence[SessionInfo]) -> None:
        """Replace the sessions of the list."""
        self.sessions = list(sessions)
        self._set_scope(self.scope)

    def next_scope(self) -> None:
        """Change to the next scope. The scopes are the given sessions (if there are any), this
        project, and all projects; after the last one comes the first again.
        """
        scopes = [THESE, PROJECT, ALL] if self._only else [PROJECT, ALL]
        self._set_scope(scopes[(scopes.index(self.scope) + 1) % len(scopes)])

    def set_search(self, text: str) -> bool:
        """From now on search for the words of `text`. Returns False if they are the same as before."""
        typed_words = text.lower().split()
        tags = tuple(word for word in typed_words if word.startswith("#"))
        words = tuple(word for word in typed_words if not word.startswith("#"))
        if (words, tags) == (self._words, self._tags):
            return False
        if words != self._words:
            self._hits = {}
        self._words, self._tags = words, tags
        return True

    def add_hit(self, hit: SessionHit) -> None:
        """Add a session whose messages contain the words."""
        self._hits.setdefault(hit.session_id, hit.snippet)

    def matches(self) -> list[SessionMatch]:
        """The sessions of the scope that match the search. Without a search, they are all sessions.

        First are the sessions that match by title or id, then those with a match in their messages,
        then those with a similar title. The first two groups keep the order of the list, and the
        last is sorted by similarity. A word `#x` keeps only sessions with this tag.
        """
        matches = self._by_words()
        if not self._tags:
            return matches
        # Imported late: the screen appears before the modules of a session are loaded.
        from ouro.session import has_tags

        return [match for match in matches if has_tags(match.info, self._tags)]

    def _by_words(self) -> list[SessionMatch]:
        """The sessions of the scope that match the words, whatever their tags are; all without words.
        First are those that match by name, then by their messages, then by a similar title.
        """
        if not self._words:
            return [SessionMatch(info) for info in self.in_scope]
        places = self._find_by_name()
        if self._hits:
            places += [index for index, info in enumerate(self.in_scope) if info.id in self._hits]
        if self.is_fuzzy and len(self.query) >= MIN_FUZZY_LETTERS:
            places += find_similar(self.query, self._titles)
        infos = [self.in_scope[index] for index in dict.fromkeys(places)]
        return [SessionMatch(info, self._hits.get(info.id, "")) for info in infos]

    def _find_by_name(self) -> list[int]:
        """The places in the scope of the sessions that match by name. A single word first names the
        sessions whose id begins with it. If there are none, and for several words, it is the sessions
        that have all words in their titles.
        """
        if len(self._words) == 1:
            start = self._words[0]
            by_id = [place for place, info in enumerate(self.in_scope) if info.id.startswith(start)]
            if by_id:
                return by_id
        return [
            place
            for place, title in enumerate(self._titles)
            if all(word in title for word in self._words)
        ]

    def _set_scope(self, scope: Scope) -> None:
        """Show the sessions of this scope, the pinned ones first."""
        self.scope = scope
        is_in_scope: dict[Scope, Callable[[SessionInfo], bool]] = {
            THESE: lambda info: info.id in self._only,
            PROJECT: lambda info: self._is_here(info.project),
            ALL: lambda _info: True,
        }
        in_scope = filter(is_in_scope[scope], self.sessions)
        self.in_scope = sorted(in_scope, key=lambda info: not info.pinned)
        self._titles = [info.title.lower() for info in self.in_scope]


def find_similar(query: str, titles: Sequence[str]) -> list[int]:
    """The places of the most similar titles, best first. The first call imports rapidfuzz: run it
    in a thread.
    """
    from rapidfuzz import fuzz, process

    best = process.extract(
        query,
        titles,
        scorer=fuzz.partial_ratio,
        processor=None,
        score_cutoff=MIN_SIMILARITY,
        limit=MAX_SIMILAR,
    )
    return [place for _title, _score, place in best]
