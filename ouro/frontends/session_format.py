"""Sessions as text, the same on every front end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ouro import __version__
from ouro.session.opening import Part
from ouro.utils.git import find_root
from ouro.utils.text import byte_size, clean, dollars, one_line, plural, without_marks

if TYPE_CHECKING:
    from ouro.session import (
        RepositoryChanges,
        ResumeCard,
        Session,
        SessionExcerpt,
        SessionInfo,
        Status,
    )

_AGE_UNITS = ((60, 60, "min"), (3600, 24, "h"), (86400, 14, "d"))
"""For each unit of an age: its seconds, the number at which the next unit begins, and its name."""
_HIGH_CONTEXT_SHARE = 0.8
"""The share of the context window from which on the status line warns: a compaction is near."""
LEFT_BRANCH = "This message is on a branch that was left by a rewind."
_SPEAKERS = {"user": "you", "assistant": "ouro"}
_MAX_PREVIEWED = 40
"""So many lines of a message are read for a preview, which shows four."""


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
        warning = "! " if share >= _HIGH_CONTEXT_SHARE else ""
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
        "transcript_path": str(session.memory.outputs.parent / "session.yaml"),
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
    """The title of a session in one line. It may be the first words of a message: it has no marks
    of Markdown.
    """
    return " ".join(without_marks(clean(info.title)).split()) or "(no title)"


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
    Each message is cut to about four lines of `width`, and has no marks of Markdown.
    """
    lines = [("", " ".join(clean(preview.summary).split()))] if preview.summary else []
    messages = [("user", preview.first)] if preview.first else []
    for role, text in (*messages, *preview.last):
        start = without_marks(text[: _MAX_PREVIEWED * width])
        lines.append((_SPEAKERS.get(role, role), one_line(start, 4 * width)))
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
    since the session, the last choice uses memory as it was then, unless the session does so anyway
    (`is_held`).
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
    price_without_cache = ""
    if "warm" in card.cache:  # also `probably warm`
        price_without_cache = f"; else {dollars(card.price_cold)}"
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
