"""Sessions on disk: list, show, export, import, rename, trash, repair."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import asdict

from ouro.commands.action import MAX_COUNT, Answer, confirm
from ouro.commands.render import (
    CodeSpan,
    CommandText,
    Quote,
    Title,
    View,
    ViewItem,
    date_and_time,
    line,
    print_document,
    table,
)
from ouro.errors import SessionError, SessionInUse, UsageError
from ouro.memory.backend import SessionInfo
from ouro.memory.sessions.session_catalog import find_session
from ouro.memory.transcript import make_title
from ouro.messages import Usage
from ouro.utils.files import write_document
from ouro.utils.git import remote_address
from ouro.utils.ouro_paths import expand_home, get_home, get_sessions_dir, tilde
from ouro.utils.path_encoding import text_path
from ouro.utils.text import byte_size, dollars, plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext
    from ouro.memory.session_sync import SessionSyncReport

_LIST_LIMIT = 50
"""How many sessions `list` prints without `--max`."""
_MAX_LISTED = 20
"""How many sessions a question about them lists."""
_MAX_QUOTED = 8
"""Lines of a text that `show` prints."""
_MAX_NAMED = 5
"""Sessions that one line names."""


async def list_sessions(
    context: ShellContext, words: Sequence[str], every: bool, limit: int | None
) -> Answer:
    """List the sessions of this folder, or, if `every`, of all folders.

    Args:
        words: only sessions that have them in the title or in a message; none for all.
        limit: how many at most; None: with `--json` all, else the first `_LIST_LIMIT`.
    """
    if limit is None and not context.as_json:
        limit = _LIST_LIMIT
    sessions = await _listed_sessions(context, words, every, limit)
    if context.as_json:
        return Answer([_session_data(info) for info in sessions[:limit]], view=[])
    if sessions:
        view = table(_list_row(info, with_project=every) for info in sessions[:limit])
        if limit is not None and len(sessions) > limit:
            view.append(_more_hint(words, every, limit))
        return Answer(value=[], view=view)
    if words:
        return Answer(value=[], view=[line("No matches in titles or messages.")])
    all_sessions = await context.catalog.sessions()
    none_note = f"No session{'' if every else ' of this folder'} yet."
    others_note = f" {len(all_sessions):,} of other folders: "
    others = [others_note, CommandText("sessions list --all")] if all_sessions else []
    return Answer(value=[], view=[line(none_note, *others)])


async def _listed_sessions(
    context: ShellContext, words: Sequence[str], every: bool, limit: int | None
) -> list[SessionInfo]:
    """The sessions to list: pinned ones first, then those used last. If there are more than `limit`
    (None: no limit), at least one more is returned, so that the caller can tell.

    Args:
        words: only sessions that match these words; empty: all.
        every: list the sessions of all projects, not only those of this one.
    """
    catalog = context.catalog
    if limit is not None and not words:  # without reading the list of all sessions
        return await catalog.first_sessions(limit + 1, every=every)
    sessions = await catalog.sessions()
    if not every:
        sessions = [info for info in sessions if catalog.may_be_here(info.project)]
    if words:
        sessions = await catalog.matching(sessions, " ".join(words))
    return sorted(sessions, key=lambda info: not info.pinned)


def _more_hint(words: Sequence[str], every: bool, limit: int) -> ViewItem:
    """A line with the command that lists ten times as many sessions."""
    arguments = ["--max", str(min(10 * limit, MAX_COUNT)), *words]
    if every:
        arguments.insert(0, "--all")
    return line("There are more: ", CommandText(f"sessions list {shlex.join(arguments)}"))


def _list_row(info: SessionInfo, *, with_project: bool) -> Sequence[str]:
    """The table row of a session: id, time, messages, cost, with `with_project` its folder, and title
    with tags.
    """
    return (
        CodeSpan(info.short_id),
        date_and_time(info.updated_at),
        f"{plural(info.messages, 'message'):>14}",
        f"{dollars(info.cost):>8}",
        *([info.project] if with_project else []),
        f"{info.title}  {_tags(info)}".rstrip(),
    )


async def show(context: ShellContext, session: str) -> Answer:
    """Show the facts about a session, its summary, first message and last answer."""
    info = await context.store.get_session_stats((await context.catalog.find(session)).id)
    excerpt = await context.catalog.preview(info)
    rows = [
        ("title", info.title),
        ("id", info.id),
        ("folder", info.project),
        ("model", info.model),
        ("started", date_and_time(info.created_at)),
        ("last used", date_and_time(info.updated_at)),
        ("messages", str(info.messages)),
        ("branch", info.branch),
        ("files changed", str(info.files or "")),
        ("tags", _tags(info)),
        ("used by", "only scripts" if info.headless else ""),
        ("cost", dollars(info.cost)),
        ("file", f"{get_sessions_dir() / info.folder / 'session.yaml'} ({info.size:,} bytes)"),
    ]
    view: View = [
        *table((name, value) for name, value in rows if value),
        *(line(f"! {notice}") for notice in excerpt.notices),
    ]
    answers = [text for role, text in excerpt.last if role == "assistant"]
    for title, text in (
        ("summary:", excerpt.summary),
        ("first message:", excerpt.first),
        ("last answer:", answers[-1] if answers else ""),
    ):
        if text:
            view += [Title(title), _quote_begin(text)]
    return Answer(_session_data(info), view)


def _quote_begin(text: str) -> Quote:
    """The first lines of a text, each cut if it is long, and how many more there are."""
    lines = text.strip().splitlines()
    quoted = [f"  {row[:200]}" for row in lines[:_MAX_QUOTED]]
    if len(lines) > _MAX_QUOTED:
        quoted.append(f"  … {len(lines) - _MAX_QUOTED} more lines")
    return Quote("\n".join(quoted))


async def export(
    context: ShellContext,
    session: str,
    output: str,
    to: Literal["markdown", "html", "json"] | None,
    force: bool,
    agent: Literal["", "claude", "codex"] = "",
    last: bool = False,
) -> Answer | None:
    """Write a session to a file, or print it and return None.

    Args:
        output: the file; empty to print.
        to: the format; None: that of the ending of the file; printed, JSON with `--json`, else
            Markdown.
        agent: write it for this agent instead, by default where it looks for sessions.
        last: only the last answer, as Markdown.

    Raises:
        UsageError: the options contradict each other, or the file exists and not `force`.
    """
    info = await context.catalog.find(session)
    path = expand_home(output) if output else None
    if agent:
        _check_agent_options(agent, has_format=to is not None, last=last)
        return await _export_to_agent(context, info, agent, path, force)
    # Imported late: a list of sessions needs no format.
    from ouro.commands.export import answer_document, document, format_of

    if to:
        chosen_format = to
    elif path:
        chosen_format = format_of(path)
    else:
        chosen_format = "json" if context.as_json else "markdown"
    make_document = answer_document if last else document
    pieces = make_document(await context.store.read_whole(info.id), chosen_format)
    if path is None:
        print_document(pieces)
        return None
    write_document(path, pieces, force=force)
    return Answer({"file": output, "format": chosen_format}, [line(f"Wrote {output}.")])


def _check_agent_options(agent: str, *, has_format: bool, last: bool) -> None:
    """Raises UsageError for options that do not fit an export for an agent."""
    if has_format:
        raise UsageError(f"--to {agent} has a format of its own.", "Leave out --format.")
    if last:
        raise UsageError(f"--to {agent} writes the whole session.", "Leave out --last.")


async def _export_to_agent(
    context: ShellContext,
    info: SessionInfo,
    agent: Literal["claude", "codex"],
    path: Path | None,
    force: bool,
) -> Answer:
    """Write a session in the format of another agent; without a path (None) where that agent looks for
    its sessions.
    """
    # Imported late: only this command needs them.
    from ouro.commands.export.agent_formats import session_for_agent
    from ouro.importers.importer import ImportLedger

    agent_session = session_for_agent(await context.store.read_whole(info.id), agent)
    path = path or agent_session.path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_document(path, agent_session.lines, force=force)
    # `ouro sessions import` skips the copy as long as the other agent adds no messages to it.
    ledger = ImportLedger()
    ledger.record_import(path.absolute(), info.id)
    ledger.save()
    view = [
        line(f"Wrote {tilde(path)}."),
        line("Continue there, in the same folder: ", CodeSpan(agent_session.command)),
    ]
    return Answer({"file": str(path), "format": agent, "command": agent_session.command}, view)


async def rename(context: ShellContext, session: str, title: str) -> Answer:
    """Set the title of a session. Raises UsageError for a title without words."""
    new_title = make_title(title)
    if not new_title:
        raise UsageError("The title is empty.")
    session_info = await context.catalog.find(session)
    await context.catalog.rename(session_info.id, new_title)
    info = await context.store.get_session_stats(session_info.id)
    return Answer(
        _session_data(info), [line(f"{session_info.short_id} is now called {new_title}.")]
    )


async def tag(context: ShellContext, session: str, words: Sequence[str]) -> Answer:
    """Add tags to a session, and remove those written as `-x`. The words `pin` and `unpin` pin it or end
    that; the last one of them counts.
    """
    from ouro.session.session_labels import read_tags

    session_info = await context.catalog.find(session)
    pins = [word for word in words if word in ("pin", "unpin")]
    added_tags, removed_tags = read_tags(" ".join(word for word in words if word not in pins))
    remaining_tags = [tag for tag in session_info.tags if tag not in removed_tags]
    tags = dict.fromkeys([*remaining_tags, *added_tags])
    pinned = pins[-1] == "pin" if pins else session_info.pinned
    await context.catalog.label(session_info, list(tags), pinned=pinned)
    info = await context.store.get_session_stats(session_info.id)
    return Answer(_session_data(info), [line(_tags(info) or "no tags")])


def _tags(info: SessionInfo) -> str:
    tags = [f"#{tag}" for tag in info.tags]
    return " ".join([*tags, *(["pinned"] if info.pinned else [])])


async def remove(context: ShellContext, sessions: Sequence[str], yes: bool, purge: bool) -> Answer:
    """Move the named sessions to the trash; with `purge` delete them, also those that are in the trash.
    The user is asked about each. With `yes` nobody is asked, and the exit code is 1 if a session
    could not be removed.
    """
    deleted = await context.store.list_deleted() if purge else []
    candidates = [*await context.catalog.sessions(), *deleted]
    # By id: two queries may name the same session.
    named_sessions: dict[str, SessionInfo] = {}
    for query in sessions:
        named = find_session(candidates, query, context.catalog.is_here)
        named_sessions[named.id] = named
    removed = []
    for info in named_sessions.values():
        is_in_trash = info in deleted
        if await _ask_and_remove(context, info, is_in_trash, is_sure=yes, for_good=purge):
            removed.append(info)
    head = "Deleted" if purge else "Moved to the trash:"
    view = [line(f"{head} {info.short_id} {info.title}") for info in removed]
    if removed and not purge:
        view.append(line("Restore: ", CommandText(f"sessions restore {removed[-1].short_id}")))
    value = {"removed": [info.id for info in removed], "for_good": purge}
    exit_code = int(yes and len(removed) < len(named_sessions))
    return Answer(value, view, exit_code)


async def _ask_and_remove(
    context: ShellContext, info: SessionInfo, is_in_trash: bool, *, is_sure: bool, for_good: bool
) -> bool:
    """Ask, unless `is_sure`, then move a session to the trash; if `for_good`, delete it from there.
    Returns whether this was done: not if the user declines, or the session is open.
    """
    session = f"“{info.title}” ({info.short_id}, {_figures(info)})"
    question = f"Move to the trash: {session}?"
    if for_good:
        question = f"Delete {session}? This cannot be undone."
    if not await confirm(context, question, "Yes", assume_yes=is_sure):
        return False
    if not is_in_trash and not await _move_to_trash(context, info):
        return False
    if for_good:
        await context.store.purge_session(info.id)
    return True


async def _move_to_trash(context: ShellContext, info: SessionInfo) -> bool:
    """Move a session to the trash; returns whether it was moved. An open session stays, with a
    warning.
    """
    try:
        await context.store.delete_session(info.id)
    except SessionInUse as error:
        context.say(f"{info.short_id} {info.title}: {error.message}", "warning")
        return False
    return True


async def restore(context: ShellContext, session: str) -> Answer:
    """Restore a session from the trash. List the trash if the name is empty."""
    deleted = await context.store.list_deleted()
    if not session:
        value = [
            {"id": info.id, "title": info.title, "updated_at": info.updated_at} for info in deleted
        ]
        return Answer(value, _list_view(deleted) or [line("The trash is empty.")])
    info = find_session(
        deleted, session, context.catalog.is_here, hint="`ouro sessions restore` lists the trash."
    )
    await context.store.restore_session(info.id)
    return Answer({"restored": info.id}, [line(f"Restored {info.short_id} {info.title}.")])


async def clean_up(context: ShellContext, days: int | None, yes: bool) -> Answer:
    """Move sessions that were not used for some days to the trash, after a list and a question, unless
    `yes`. If no user can be asked, only list them.

    Args:
        days: None for the setting `sessions.keep_days`. Raises UsageError if that is not set.
    """
    days = context.folder.settings.sessions.keep_days if days is None else days
    if days is None:
        raise UsageError("`sessions.keep_days` is not set: sessions are kept.", "Pass --days 90.")
    unused = await _unused_sessions(context, days)
    value = {"days": days, "old": [info.id for info in unused], "moved": list[str]()}
    if not unused:
        none_note = f"Every session was used in the last {plural(days, 'day')}."
        return Answer(value, [line(none_note)])
    if not yes:
        context.show(_list_view(unused))
        if not context.can_ask:
            return Answer(value, [line("Nothing was moved: pass --yes to confirm.")])
        if not await confirm(context, _question_about(unused, days), "Yes"):
            return Answer(value, [line("Nothing was moved.")])
    moved_sessions = [info for info in unused if await _move_to_trash(context, info)]
    value["moved"] = [info.id for info in moved_sessions]
    head = f"Moved {plural(len(moved_sessions), 'session')} to the trash. Restore one: "
    return Answer(value, [line(head, CommandText("sessions restore ID"))])


def _question_about(old: Sequence[SessionInfo], days: int) -> str:
    """The question before old sessions are moved to the trash, with their number and size."""
    size = sum(info.size for info in old)
    sessions = f"{plural(len(old), 'session')} ({size:,} bytes)"
    return f"Move {sessions}, not used for {plural(days, 'day')}, to the trash?"


async def _unused_sessions(context: ShellContext, days: int) -> list[SessionInfo]:
    """The sessions that were not used in the last `days` days."""
    start = datetime.now(UTC) - timedelta(days=days)
    # The form of the timestamps in session files, so that texts can be compared.
    start_text = start.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return [info for info in await context.catalog.sessions() if info.updated_at < start_text]


async def sync(context: ShellContext, remote: str, encrypt: bool, plain: bool) -> Answer:
    """Synchronize all sessions with a git remote. Only the user starts this, nothing in the
    background.

    Args:
        remote: its address; empty for the one that `_known_remote` finds.
        encrypt: encrypt a new remote, with a key that is made here.
        plain: do not encrypt, although there is a key. Raises UsageError for both.
    """
    # Imported late: only this command needs them.
    from ouro.memory.session_remote import last_remote
    from ouro.memory.session_sync import sync_sessions

    if encrypt and plain:
        raise UsageError("--encrypt and --plain exclude each other.")
    always_encrypts = context.folder.settings.sessions.encrypt
    address = remote_address(remote, context.cwd)
    if not address:
        address = _known_remote(context, last_remote(get_home() / "sessions.git"))
    sessions = await context.store.list_sessions()
    folders = dict.fromkeys([context.cwd, *(text_path(info.project) for info in sessions)])
    existing_folders = [folder for folder in folders if folder.is_dir()]
    with context.synchronizing():  # not in a thread: Ctrl+C ends it at any moment
        report = sync_sessions(
            address,
            existing_folders,
            context.sync_progress,
            encrypt=encrypt or always_encrypts,
            plain=plain,
        )
    return Answer(report, [line(text) for text in _describe_sync(report)])


def _known_remote(context: ShellContext, last: str) -> str:
    """The remote to sync with: that of the settings, else the one of the `last` sync (empty if there
    was none), else the remote of memory. Raises UsageError if none of them is known.
    """
    settings = context.folder.settings
    address = settings.sessions.remote or last or settings.memory.remote
    if not address:
        raise UsageError(
            "The sessions have no remote yet.",
            "Name your own git repository, or set `sessions.remote`.",
            ["sessions sync git@example.org:me/sessions.git"],
        )
    return address


def _describe_sync(report: SessionSyncReport) -> list[str]:
    """Lines about what was sent, received and restored, and about forked, damaged and skipped
    sessions.
    """
    lines = [
        *report.notices,
        f"{plural(len(report.sent), 'session')} sent ({byte_size(report.bytes_sent)}),"
        f" {len(report.received)} received.",
    ]
    if report.restored:
        names = ", ".join(name[:8] for name in report.restored[:_MAX_NAMED])
        ellipsis = ", …" if len(report.restored) > _MAX_NAMED else ""
        lines.append(
            f"The remote had lost messages of {plural(len(report.restored), 'session')}"
            f" ({names}{ellipsis}): they were sent again."
        )
    lines += [
        f"{fork[:8]} is a fork with the local messages: others were added elsewhere."
        for fork in report.forks
    ]
    lines += [
        f"{damaged[:8]} is damaged at the remote and has messages that are not here: nothing was"
        " taken. Run the sync on the machine that wrote them."
        for damaged in report.damaged
    ]
    lines += [
        f"{skipped[:8]} was left out: it is open or cannot be read." for skipped in report.skipped
    ]
    return lines


async def repair(context: ShellContext, session: str) -> Answer:
    """Repair a session, or all if the name is empty, and rebuild the index. A session that cannot be
    repaired is left out, and the exit code is then 1.
    """
    if session:
        chosen = [await context.catalog.find(session)]
    else:
        chosen = await context.store.list_sessions()
    rows: list[tuple[str, str]] = []
    repaired: dict[str, list[str]] = {}
    left_out: list[str] = []
    for info in chosen:
        try:
            repairs = list(await context.store.repair_session(info.id))
        except SessionError as error:
            # Open in another process, or written by a newer ouro. The others are still repaired.
            rows.append((info.id[:8], f"Left out: {error.message}"))
            left_out.append(info.id)
            continue
        if repairs:
            repaired[info.id] = repairs
            rows += [(info.id[:8], text) for text in repairs]
    count = await context.store.rebuild_index()
    undamaged = len(chosen) - len(repaired) - len(left_out)
    summary = f"{undamaged} of {len(chosen)} had no damage. The index was rebuilt: {plural(count, 'session')}."
    value = {"repaired": repaired, "left_out": left_out, "sessions": count}
    return Answer(value, [*table(rows), line(summary)], int(bool(left_out)))


def _session_data(info: SessionInfo) -> dict[str, Any]:
    """A session as `--json` prints it. Its usage is summed by day and model, over all purposes."""
    sums: dict[tuple[str, str], tuple[int, Usage]] = {}  # calls and usage, by day and model
    for daily_usage in info.spent:
        key = (daily_usage.day, daily_usage.model)
        calls, usage = sums.get(key, (0, Usage()))
        sums[key] = (calls + daily_usage.calls, usage + daily_usage.usage)
    spent = [
        {"day": day, "model": model, "calls": calls, **asdict(usage)}
        for (day, model), (calls, usage) in sums.items()
    ]
    return {**asdict(info), "cost": info.cost, "spent": spent}


def _list_view(sessions: Sequence[SessionInfo]) -> View:
    """A view of the first sessions, and of how many more there are."""
    view = table((info.short_id, _figures(info), info.title) for info in sessions[:_MAX_LISTED])
    if len(sessions) > _MAX_LISTED:
        view.append(line(f"… and {len(sessions) - _MAX_LISTED} more"))
    return view


def _figures(info: SessionInfo) -> str:
    """When a session was last used, its size, and its cost if it is known."""
    sizes = [plural(info.messages, "message"), f"{info.size:,} bytes"]
    return " · ".join(filter(None, [date_and_time(info.updated_at), *sizes, dollars(info.cost)]))
