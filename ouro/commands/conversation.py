"""Commands on the session and its repository: new, resume, rename, copy, export, tasks, subagents, init, review."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ouro.commands.front_end import FrontEnd
from ouro.commands.render import block, code, escape, facts, todo_list
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Replied
from ouro.memory.backend import MessageRecord, WholeSession
from ouro.messages import ToolReply
from ouro.session import OpenRequest
from ouro.utils.git import Git, GitError, find_root
from ouro.utils.runtime import tilde
from ouro.utils.text import clean, dollars, one_line, plural

WRITE_AGENTS_MD = """\
Read at most some thirty files, the most telling ones first; then write. Say in your answer what you did not check."""
IMPROVE_AGENTS_MD = """\
The file has {lines} lines already. Check each of its statements: correct what is no longer true, add what is missing,
keep what its authors wrote on purpose, in their words and order. Change it with `edit`, only the lines that have to
change, so that the user reads a diff: do not rewrite it. If nothing has to change, change nothing. Tell in your
answer what you changed, and why."""

UNCOMMITTED = "the changes in this working tree that are not committed yet, new files among them"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MAX_DIFF = 200_000
"""Characters."""
MAX_NEW_FILES = 200
GIT_SECONDS = 20.0


async def clear(front_end: FrontEnd) -> None:
    before = front_end.session
    was = before.status()
    await front_end.open(OpenRequest())
    session = front_end.session
    if session is before:  # the front end has shown the reason
        return
    front_end.say(f"A new session. The one before: /resume {before.id}")
    now = session.status()
    if was.mode != now.mode:
        session.set_mode(was.mode)
    if (was.model, was.effort) != (now.model, now.effort):
        await session.set_model(was.model, was.effort if was.can_think else None)
    front_end.redraw()


async def resume(front_end: FrontEnd, argument: str) -> None:
    request = OpenRequest(argument) if argument else await front_end.pick_session(front_end.session.session_catalog)
    if request is not None:
        await front_end.open(request)


async def rename(front_end: FrontEnd, argument: str) -> None:
    title = " ".join(clean(argument).split())
    if title:
        front_end.session.rename(title)
    else:
        title = await front_end.session.titles.find()
    front_end.say(f"This session is now called “{title}”.")
    front_end.redraw()


async def exit_(front_end: FrontEnd) -> None:
    running = [task for task in front_end.session.tasks() if task.is_running and task.outlives_turn]
    if running:
        titles = ", ".join(one_line(task.title)[:40] for task in running[:3])
        choices = [Choice("leave", "end them and leave"), Choice("stay", "stay")]
        title = f"{plural(len(running), 'background task')} still {'runs' if len(running) == 1 else 'run'}: {titles}"
        if await front_end.choose(title, choices) != "leave":
            return
    front_end.leave()


async def copy(front_end: FrontEnd) -> None:
    answers = [event.message.text for event in front_end.session.scrollback.shown() if isinstance(event, Replied)]
    last = next((text for text in reversed(answers) if text.strip()), "")
    if not last:
        raise UsageError("There is no answer to copy yet.")
    how = front_end.copy(last)
    front_end.say(f"The last answer ({len(last):,} characters): {'copied ' if how.startswith('with') else ''}{how}.")


async def export(front_end: FrontEnd, argument: str) -> None:
    from ouro.commands.export import document, format_of
    from ouro.utils.files import write_document

    session = front_end.session
    words = argument.split()
    force = "--force" in words
    named = " ".join(word for word in words if word != "--force")
    if (ending := named.removeprefix(".")) in ("", "md", "markdown", "html", "json"):
        named = f"ouro-{session.id[:8]}.{ending or 'md'}"
    path = session.cwd / Path(named).expanduser()

    whole = await session.transcript.whole()
    await asyncio.to_thread(lambda: write_document(path, document(whole, format_of(path)), force=force))
    front_end.say(f"Written to {path}.")


async def todos(front_end: FrontEnd) -> None:
    plan = front_end.session.todos
    front_end.show(todo_list(plan) if plan else "There is no plan at the moment.")


async def tasks(front_end: FrontEnd, argument: str) -> None:
    session = front_end.session
    action, _, task = argument.partition(" ")
    if action == "kill" and (task := task.strip()):
        await session.kill_task(task)
        front_end.say(f"Ended {task}.")
        return
    if argument:
        raise UsageError("/tasks lists them; /tasks kill ID ends one.")
    rows = [(task.id, f"{escape(task.title)} — {escape(task.state)}") for task in session.tasks()]
    front_end.show(facts(*rows) or "No background jobs and no subagents.")


async def agents(front_end: FrontEnd, argument: str) -> None:
    subagents = front_end.session.workbench.subagents
    if argument:
        info = await subagents.transcript_of(argument)
        whole = await subagents.store.read_whole(info.id)
        front_end.show(await asyncio.to_thread(lambda: "\n\n".join(_transcript(whole))))
        front_end.say(f"{info.title}. The agent can ask it more: tell it what.")
        return
    kinds = []
    for spec in subagents.specs.values():
        place = f", {code(tilde(Path(spec.path)))}" if spec.path else ""
        kinds.append((spec.name, f"{escape(spec.description)} — {spec.source}{place}"))
    own = []
    for info in (await subagents.saved()).values():
        name, _, task = info.title.partition(": ")
        cost = "" if info.cost is None else f", {dollars(info.cost)}"
        own.append((name, f"{escape(task)} — {plural(info.messages, 'message')}{cost}"))
    shown = f"\n\n**Subagents of this session**\n\n{facts(*own)}\n\n{code('/agents ID')} shows one." if own else ""
    front_end.show(f"**Kinds of subagents**\n\n{facts(*kinds)}{shown}")


def _transcript(whole: WholeSession) -> Iterator[str]:
    messages = [record.message for record in whole.records() if isinstance(record, MessageRecord)]
    replies = {reply.call_id: reply for message in messages for reply in message.parts_of(ToolReply)}
    for message in messages:
        if message.role != "tool" and (text := clean(message.text).strip()):
            yield f"**Task**: {escape(text)}" if message.role == "user" else escape(text)
        lines = []
        for call in message.tool_calls:
            reply = replies.get(call.id)
            about = next((str(value) for value in call.arguments.values() if isinstance(value, str)), "")
            summary = reply.display.summary if reply and reply.display else ""
            sign = "✗" if reply is None or reply.failed else "✓"
            shown = code(one_line(f"{call.name} {about}", 100))
            lines.append(f"- {sign} {shown} {escape(one_line(summary, 80))}".rstrip())
        if lines:
            yield "\n".join(lines)


async def init(cwd: Path, argument: str) -> str:
    path = find_root(cwd) / "AGENTS.md"
    lines = len(path.read_text("utf-8", "replace").splitlines()) if path.is_file() else 0
    task, how = "write `AGENTS.md`", WRITE_AGENTS_MD
    if lines:
        task, how = "improve `AGENTS.md`", IMPROVE_AGENTS_MD.format(lines=lines)
    text = _prompt("init.md").format(task=task, how=how)
    return f"{text}\n\nMind in particular: {argument}" if argument else text


async def review(cwd: Path, argument: str) -> str:
    git, name = Git(cwd, GIT_SECONDS), argument.removeprefix("#")
    what, how = argument or UNCOMMITTED, "`git status`, `git diff HEAD`, the new files"
    if name.isdecimal():
        what, how = f"pull request {name}", f"`gh pr view {name}`, `gh pr diff {name}`"
    elif argument and not argument.startswith("-"):
        is_base = await asyncio.to_thread(git.ask, "rev-parse", "--verify", "--quiet", f"{argument}^{{commit}}")
        how = f"`git diff {argument}...HEAD`" if is_base else "find it first"
        what = f"what this branch changes since `{argument}`" if is_base else argument
    return _prompt("review.md").format(what=what, how=how)


def _prompt(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


async def diff(front_end: FrontEnd, argument: str) -> None:
    """The changes since the last commit; with a number, since before that many messages, with hunk ids for `/undo`."""
    if argument and not argument.isdigit():
        raise UsageError(f"`{argument}` is not a number of messages: `/diff 1` shows what the last one changed.")
    if argument:
        text, since = await front_end.session.rewind.diff(int(argument)), "then"
    else:
        text, since = await changes(front_end.session.cwd), "the last commit"
    if len(text) > MAX_DIFF:
        text = f"{text[:MAX_DIFF]}\n… cut: the diff is too large"
    front_end.show(block(text, "diff") if text.strip() else f"No changes since {since}.")
    if argument and text.strip():
        back = "" if argument == "1" else f" {argument}"
        front_end.say(f"/undo FILE{back} undoes one file of it, /undo FILE#ID{back} one hunk.")


async def changes(folder: Path) -> str:
    """The unified diff of the working tree against the last commit, with untracked files.

    Raises:
        UsageError: the folder is not in a git repository, or git fails.
    """
    try:
        return await asyncio.to_thread(_changes, Git(folder, GIT_SECONDS))
    except GitError as error:
        raise UsageError(f"git did not tell what has changed: {error}.") from error


def _changes(git: Git) -> str:
    if not git.ask("rev-parse", "--git-dir"):
        raise UsageError("This folder is not in a git repository, so there is no diff.")
    base = "HEAD" if git.ask("rev-parse", "--verify", "--quiet", "HEAD") else EMPTY_TREE
    known = git.ask("diff", base)
    names = git.paths("--others", "--exclude-standard")
    new = [git.ask("diff", "--no-index", "--", "/dev/null", name) for name in names[:MAX_NEW_FILES]]
    if len(names) > MAX_NEW_FILES:
        new.append(f"… and {len(names) - MAX_NEW_FILES} more new files")
    return "".join((known, *new))
