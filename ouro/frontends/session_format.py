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

_UNITS = ((60, 60, "min"), (3600, 24, "h"), (86400, 14, "d"))
"""For each unit: its seconds, the number of units from which on the next unit is used, and its
name.
"""
LEFT_BRANCH = "This message is on a branch that was left by a rewind."
_WHO = {"user": "you", "assistant": "ouro"}


def format_age(at: str, now: datetime) -> str:
    """The age: `now`, `5 min`, `3 h`, `2 d`, then the date."""
    try:
        seconds = (now - datetime.fromisoformat(at)).total_seconds()
    except (ValueError, TypeError):  # the file was edited by hand
        return clean(at)[:10]
    if seconds < 60:
        return "now"
    for unit, most, sign in _UNITS:
        if seconds < unit * most:
            return f"{int(seconds // unit)} {sign}"
    return at[:10]


def format_tokens(number: int) -> str:
    """Tokens in a few letters: `840`, `1.2k`, `84k`, `1.2M`."""
    if number < 1000:
        return str(number)
    many, sign = (number / 1000, "k") if number < 999_500 else (number / 1e6, "M")
    return (f"{many:.1f}".removesuffix(".0") if many < 9.95 else f"{many:.0f}") + sign


def status_items(status: Status) -> dict[str, str]:
    """The texts of the status line by their names in `tui.status`; empty if there is nothing to
    show.
    """
    usage, share = status.usage, status.context / status.window if status.window else 0.0
    cached = f" ({format_tokens(usage.cached)} cached)" if usage.cached else ""
    spent = usage.input or usage.output
    return {
        "model": (
            clean(status.model.rpartition("/")[2])
            + ("" if status.effort == "off" else f" ({status.effort})")
        ),
        "mode": status.mode,
        "saved": "" if status.is_saved else "not saved",
        "branch": one_line(status.branch, 30),
        "context": (
            f"{'! ' if share >= 0.8 else ''}{share:.0%} of {format_tokens(status.window)}"
            if status.window
            else ""
        ),
        "tokens": (
            f"↑{format_tokens(usage.input)}{cached} ↓{format_tokens(usage.output)}" if spent else ""
        ),
        "cost": dollars(usage.cost) if spent else "",
        "memories": plural(status.memories, "memory", "memories") if status.memories else "",
        "jobs": plural(status.jobs, "job") if status.jobs else "",
        "goal": status.standing.goal,
        "loops": plural(status.standing.loops, "loop") if status.standing.loops else "",
        "sandbox": _sandbox(status.sandbox),
    }


def _sandbox(name: str) -> str:
    """Whether commands run in a sandbox; `/status` names the program."""
    if name in ("none", "off"):
        return "no sandbox"
    if name in ("podman", "docker"):
        return f"in {name}"
    return "sandboxed" if name else ""


def script_state(session: Session) -> dict[str, Any]:
    """The state of a session for `tui.status_command`; the fields are those of Claude Code."""
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


BESIDE_SCRIPT = ("mode", "goal", "loops", "saved", "jobs", "queued")
"""What the status line shows beside the line of the user's command."""


def title_of(info: SessionInfo) -> str:
    return " ".join(clean(info.title).split()) or "(no title)"


def labels_of(info: SessionInfo) -> str:
    """Branch, number of changed files and tags: `main · 3 files · #parser`."""
    files = plural(info.files, "file") if info.files else ""
    tags = " ".join(f"#{tag}" for tag in info.tags)
    return " · ".join(filter(None, [one_line(info.branch, 30), files, clean(tags)]))


def format_figures(info: SessionInfo, now: datetime) -> str:
    parts = [
        format_age(info.updated_at, now),
        plural(info.messages, "message"),
        byte_size(info.size),
    ]
    parts += [dollars(info.cost), labels_of(info), "copy" if info.fork_of else ""]
    return " · ".join(filter(None, [*parts, "pinned" if info.pinned else ""]))


def preview_lines(preview: SessionExcerpt, width: int) -> list[tuple[str, str]]:
    """Speaker and text of the summary and of the first and last messages, cut to about four lines
    of `width`.
    """
    lines = [("", " ".join(clean(preview.summary).split()))] if preview.summary else []
    if preview.first:
        lines.append(("you", one_line(preview.first, 4 * width)))
    lines += [(_WHO.get(role, role), one_line(text, 4 * width)) for role, text in preview.last]
    return lines or [("", "The session is empty.")]


def now() -> datetime:
    return datetime.now(UTC)


def card_lines(card: ResumeCard, now: datetime) -> list[tuple[str, str]]:
    last_used = [_ago(card, now), plural(card.info.messages, "message"), byte_size(card.info.size)]
    rows = [
        ("last used", " · ".join(last_used)),
        ("about", " ".join(clean(card.info.summary).split())),
        ("first call", _first_call(card)),
        ("repository", _repository(card.repository)),
        ("memory", _memory(card)),
        (
            "folder",
            (
                f"was in {clean(card.info.project)}, now in {clean(card.folder)}"
                if card.folder
                else ""
            ),
        ),
        ("mode", _mode(card)),
        ("open", _unfinished(card)),
    ]
    return [(name, words) for name, words in rows if words]


def card_line(card: ResumeCard, now: datetime) -> str:
    parts = [_ago(card, now), _first_call(card), _repository(card.repository), _memory(card)]
    if card.folder:
        parts.append(f"in {clean(card.folder)} now")
    if mode := _mode(card):
        parts.append(f"mode {mode}")
    parts.append(_unfinished(card))
    return f"Resumed: {' · '.join(filter(None, parts))}"


def card_choices(card: ResumeCard) -> list[tuple[Part, str]]:
    """The parts to resume with, and their labels; the first is the default."""
    choices: list[tuple[Part, str]] = [("full", f"full: {format_tokens(card.tokens)} tokens")]
    if card.tail is not None:
        turns = "last turn" if card.tail.turns == 1 else f"last {card.tail.turns} turns"
        choices.append(("tail", f"tail: {turns}, {format_tokens(card.tail.tokens)}"))
        price = "one call" if card.price is None else f"made for {dollars(card.price)}"
        choices.append(("summary", f"summary: {price}"))
    if card.memory.changes and not card.memory.is_held:
        choices.append(("then", "memory as it was"))
    return choices


def _ago(card: ResumeCard, now: datetime) -> str:
    ago = format_age(card.info.updated_at, now)
    return ago if "-" in ago or ago == "now" else f"{ago} ago"


def _mode(card: ResumeCard) -> str:
    return "" if card.info.mode in ("", "ask") else card.info.mode


def _first_call(card: ResumeCard) -> str:
    size = f"{format_tokens(card.tokens)} tokens"
    if card.price is None or card.price_cold is None:
        return f"{size}, the provider's cache is {card.cache}"
    cold = f"; else {dollars(card.price_cold)}" if "warm" in card.cache else ""
    return f"{size}, {dollars(card.price)} (cache {card.cache}{cold})"


def _repository(news: RepositoryChanges | None) -> str:
    """What has changed in the repository since the session; empty if nothing has."""
    if news is None:
        return ""
    parts = []
    if news.branch_then and news.branch_then != news.branch:
        parts.append(f"on {clean(news.branch)} now, on {clean(news.branch_then)} then")
    if news.changed:
        parts.append(f"{plural(news.changed, 'file')} not committed")
    if news.commits:
        subjects = "; ".join(clean(subject) for subject in news.subjects)
        parts.append(f"{plural(news.commits, 'commit')} since: {subjects}")
    return ", ".join(parts)


def _memory(card: ResumeCard) -> str:
    """What has changed in memory since the session, and whether it is held as it was."""
    changes = card.memory.changes
    if not changes:
        return "as it was" if card.memory.is_held else ""
    of = ", ".join(f"{scope} {count}" for scope, count in changes.items())
    count = plural(sum(changes.values()), "change")
    return (
        f"as it was, without {count} since ({of})"
        if card.memory.is_held
        else f"{count} of memory since ({of})"
    )


def _unfinished(card: ResumeCard) -> str:
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
    """A session in the list, with the found words of its messages."""

    info: SessionInfo
    snippet: str = ""


class SessionMatches:
    """Narrows a list of sessions down, in its order. Holds no widget and reads no disk."""

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
        self._tags: tuple[str, ...] = ()
        self._hits: dict[str, str] = {}
        self.is_fuzzy = False
        """Whether similar titles match, too; see `find_similar`."""
        self.scope: Scope = THESE if only else PROJECT
        self.change(sessions)
        if self.scope == PROJECT and not self.in_scope:
            self._enter(ALL)

    @property
    def query(self) -> str:
        """The words that titles and messages are searched for."""
        return " ".join(self._words)

    @property
    def is_narrowed(self) -> bool:
        return bool(self._words or self._tags)

    def change(self, sessions: Sequence[SessionInfo]) -> None:
        self.sessions = list(sessions)
        self._enter(self.scope)

    def next_scope(self) -> None:
        """Switch the scope: the given sessions, this project, all projects, and again from the
        first.
        """
        scopes = [THESE, PROJECT, ALL] if self._only else [PROJECT, ALL]
        self._enter(scopes[(scopes.index(self.scope) + 1) % len(scopes)])

    def look_for(self, text: str) -> bool:
        """Search other words; returns False if they are the same."""
        typed = text.lower().split()
        tags = tuple(word for word in typed if word.startswith("#"))
        words = tuple(word for word in typed if not word.startswith("#"))
        if (words, tags) == (self._words, self._tags):
            return False
        if words != self._words:
            self._hits = {}
        self._words, self._tags = words, tags
        return True

    def add(self, hit: SessionHit) -> None:
        self._hits.setdefault(hit.session_id, hit.snippet)

    def matches(self) -> list[SessionMatch]:
        """The matching sessions: by title or id, then by messages, each pinned and last used first;
        then by similarity. `#x`: only those with that tag.
        """
        found = self._by_words()
        if not self._tags:
            return found
        # Imported late: the screen appears before the modules of a session are loaded.
        from ouro.session import has_tags

        return [match for match in found if has_tags(match.info, self._tags)]

    def _by_words(self) -> list[SessionMatch]:
        """The sessions of the scope with the words in title, id or messages; then similar titles."""
        if not self._words:
            return [SessionMatch(info) for info in self.in_scope]
        found = self._named()
        if self._hits:
            found += [place for place, info in enumerate(self.in_scope) if info.id in self._hits]
        if self.is_fuzzy and len(self.query) >= MIN_FUZZY_LETTERS:
            found += find_similar(self.query, self._titles)
        infos = [self.in_scope[place] for place in dict.fromkeys(found)]
        return [SessionMatch(info, self._hits.get(info.id, "")) for info in infos]

    def _named(self) -> list[int]:
        """The places of the sessions whose id starts with the only word, else of those with all
        words in the title.
        """
        named = [
            place
            for place, title in enumerate(self._titles)
            if all(word in title for word in self._words)
        ]
        if len(self._words) > 1:
            return named
        start = self._words[0]
        return [
            place for place, info in enumerate(self.in_scope) if info.id.startswith(start)
        ] or named

    def _enter(self, scope: Scope) -> None:
        """Use a scope: keep its sessions, the pinned ones first."""
        self.scope = scope
        belongs: dict[Scope, Callable[[SessionInfo], bool]] = {
            THESE: lambda info: info.id in self._only,
            PROJECT: lambda info: self._is_here(info.project),
            ALL: lambda _info: True,
        }
        in_scope = filter(belongs[scope], self.sessions)
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
