"""What a resume shows before the first call (its cost, the changes since), and how the session
continues: with all messages or a part. Opening it is in `opening`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from ouro.agent.compactor import compaction_record
from ouro.display import Todo
from ouro.errors import SessionError
from ouro.events import Emit, Event, Notice, TurnFinished
from ouro.llm import ModelSource, ModelSpec
from ouro.memory.backend import CompactionRecord, MessageRecord, SessionInfo
from ouro.memory.compaction import MAX_TAIL, is_own_words, scale_tokens
from ouro.memory.long_term import SessionMemory
from ouro.memory.short_term import make_sendable, replace_by_summary
from ouro.memory.tokens import estimate_messages
from ouro.messages import Context, Message, Usage
from ouro.safety import Permissions
from ouro.session.context_window import ContextWindow
from ouro.tools.todo import TodoPlan
from ouro.utils.git import Git, GitError, branch_in_note, git_branch
from ouro.utils.path_encoding import path_text
from ouro.utils.text import local_time

if TYPE_CHECKING:
    from ouro.session.opening import Part

TAIL_TURNS = 3
"""How many turns the choice "the last turns" has."""
MAX_TAIL_SHARE = 0.9
"""The share of all tokens from which the last turns are not worth a choice."""
MIN_ASKED_TOKENS = 2_000
"""With fewer tokens the user is never asked how much of the session is sent."""
MIN_ASKED_CACHED_TOKENS = 8_000
"""The same limit while the provider has the session in its cache, so that sending it is cheap."""
ANTHROPIC_CACHE_SECONDS = 300
"""How long Anthropic keeps a prompt in its cache."""
_GIT_TIMEOUT = 1.5
_MAX_SUBJECTS = 3
_MAX_COMMITS = 1_000
CacheState = Literal["warm", "cold", "probably warm", "probably cold", "unknown"]


class RepositoryChanges(msgspec.Struct, frozen=True):
    """What changed in the git repository since the session was last used."""

    branch: str
    branch_then: str
    """The branch at that time; empty if it is unknown."""
    commits: int
    subjects: tuple[str, ...]
    """The subjects of the newest commits."""
    changed: int
    """The number of files that differ from the last commit now."""


class Tail(msgspec.Struct, frozen=True):
    """The last turns, if they are much less than the whole."""

    turns: int
    tokens: int
    """About how many tokens the first call would send."""


class MemorySince(msgspec.Struct, frozen=True):
    """What other sessions changed in long-term memory since this one was last used."""

    changes: Mapping[str, int]
    """The number of changes in each scope that has any."""
    is_held: bool = False
    """Whether the session uses memory as it was at that time: the changes are not sent."""


class ResumeCard(msgspec.Struct, frozen=True):
    """What the user sees before the first model call of a resumed session."""

    info: SessionInfo
    tokens: int
    """The tokens of the first call."""
    cache: CacheState
    price: float | None
    """The price of the first call without its answer, in US dollars, with the present cache; None
    if unknown.
    """
    price_cold: float | None
    """The price of that call with an empty cache."""
    repository: RepositoryChanges | None
    """The changes in the repository; None outside of one, or if git took too long."""
    memory: MemorySince
    folder: str
    """The working folder, if it is not the folder of the session; else empty."""
    todos: tuple[Todo, ...]
    in_the_middle: bool
    """Whether the session ended before the agent had answered."""
    tail: Tail | None
    """The last turns as a choice; None if they are nearly all that is sent."""
    is_long: bool
    """Whether the session is so long that the user is asked how to continue."""


class Resumed(msgspec.Struct, eq=False):
    """A resumed session: what it reports, and how it continues."""

    info: SessionInfo
    """The state of the session when it was resumed."""
    cwd: Path
    window: ContextWindow
    session_memory: SessionMemory
    models: ModelSource
    permissions: Permissions
    plan: TodoPlan
    is_part_chosen: bool = False
    """Whether the user has chosen by `--part` which part is sent: then no question asks for it."""

    async def card(self) -> ResumeCard:
        """Collect what the user sees of a resumed session before the first model call. Waits until
        all messages that are sent are loaded. git is asked what changed, for a limited time.
        """
        info, memory = self.info, self.window.compactor.memory
        await memory.pager.finish_loading()
        entries = memory.transcript.sent_entries()
        messages = [entry.message for entry in entries]
        repository, changes = await asyncio.gather(
            asyncio.to_thread(
                repository_changes, self.cwd, info.updated_at, _last_branch(messages)
            ),
            asyncio.to_thread(self.session_memory.changes_since, info.updated_at),
        )
        spec = self.models.main.spec
        # What a server on this machine has in its cache does not depend on the time.
        cache = "unknown" if spec.on_this_machine else _cache_state(spec.name, info)
        size, tokens = estimate_messages(messages), memory.tokens
        is_cached = cache in ("warm", "probably warm")
        min_size = MIN_ASKED_CACHED_TOKENS if is_cached else MIN_ASKED_TOKENS
        return ResumeCard(
            # The permission mode that is in force now, not the one that was saved. If none was
            # saved, the card shows none.
            info=replace(info, mode=self.permissions.mode if info.mode else ""),
            tokens=tokens,
            cache=cache,
            price=_price_of_call(spec, tokens, cached=is_cached),
            price_cold=_price_of_call(spec, tokens, cached=False),
            repository=repository,
            memory=MemorySince(changes, self.session_memory.is_held),
            folder="" if info.project == path_text(self.cwd) else path_text(self.cwd),
            todos=tuple(todo for todo in self.plan.items if todo.state != "done"),
            in_the_middle=bool(messages) and not _ends_turn(messages[-1]),
            tail=self._find_tail(entries),
            is_long=size >= min_size and not self.is_part_chosen,
        )

    def continue_with(self, part: Part) -> AsyncGenerator[Event, None]:
        """Continue with the part of the session that the user chose: from now on only it is sent.
        For `summary` the session is compacted. Yields events as a turn does. Raises UsageError if a
        turn runs.
        """
        if part == "summary":
            return self.window.compact("")

        async def continue_with_part(emit: Emit) -> None:
            """Send only the last turns (`tail`), or memory as it was then (`then`). For `full`
            nothing is left out.
            """
            last_used = self.info.updated_at
            if part == "tail":
                await self._send_only_tail(emit)
            elif part == "then":
                await asyncio.to_thread(self.session_memory.hold, last_used, self.info.id)
                when = local_time(last_used)
                emit(Notice(f"Memory is as it was then ({when}): later changes are not sent."))

        return self.window.tasks.run(continue_with_part)

    async def continue_silently_with(self, part: Part) -> None:
        """Continue with the part of the session that the user chose by `--part`, such as its last
        turns, before anything is shown: the events are dropped. Raises SessionError with the text
        of the first notice of an error, or with the reason why a compaction failed.
        """
        self.is_part_chosen = True
        async with aclosing(self.continue_with(part)) as events:
            async for event in events:
                problem = ""
                if isinstance(event, Notice) and event.level == "error":
                    problem = event.text
                elif isinstance(event, TurnFinished) and event.outcome == "failed":
                    problem = event.detail
                if problem:
                    hint = "Without `--part` it continues with all messages."
                    raise SessionError(problem, hint)

    async def _send_only_tail(self, emit: Emit) -> None:
        """Leave everything before the last turns out of all further requests, without a summary of
        it. It stays in the session. If there is nothing before them, only a notice says so.
        """
        memory = self.window.compactor.memory
        await memory.pager.finish_loading()
        entries = memory.transcript.sent_entries()
        tail_start = _find_tail_start(entries)
        if not tail_start:
            emit(Notice("Nothing is left out: the last turns are all there is."))
            return
        left_out = entries[:tail_start]
        pinned_messages = [
            entry.message for entry in left_out if entry.number in memory.transcript.pins
        ]
        record = self._make_record(left_out, await self.window.compactor.environment())
        tail = [entry.message for entry in entries[tail_start:]]
        request = make_sendable(replace_by_summary(pinned_messages, record.summary, tail))
        tokens_before = memory.tokens
        tokens_after = scale_tokens(
            tokens_before, sent=memory.context(), will_be_sent=request, constant=memory.constant
        )
        record = replace(record, tokens=(tokens_before, tokens_after))
        await self.window.compactor.save(record, emit)

    def _make_record(
        self, left_out: Sequence[MessageRecord], environment_text: str
    ) -> CompactionRecord:
        """The record of a compaction that leaves these messages out. Its text says that instead of
        a summary; the summary of an earlier compaction and the pinned messages stay.

        Args:
            environment_text: what those messages said, and the model still has to know.
        """
        memory = self.window.compactor.memory
        earlier_compaction = memory.transcript.compaction
        numbers = [entry.number for entry in left_out if entry.number]
        first = earlier_compaction.covers[0] if earlier_compaction else numbers[0]
        texts = [
            earlier_compaction.summary if earlier_compaction else "",
            f"{len(left_out)} earlier messages of this session were left out here, without a"
            " summary of them.",
            environment_text,
        ]
        return replace(
            compaction_record(memory, "manual"),
            covers=(first, max(numbers)),
            kept=tuple(number for number in numbers if number in memory.transcript.pins),
            summary="\n\n".join(filter(None, texts)),
            messages=len(left_out),
        )

    def _find_tail(self, entries: Sequence[MessageRecord]) -> Tail | None:
        """The last turns as a choice, with the tokens of a request that has only them. None if
        there is nothing before them, or they are nearly all that is sent.
        """
        tail_start = _find_tail_start(entries)
        if not tail_start:
            return None
        memory = self.window.compactor.memory
        tail = [entry.message for entry in entries[tail_start:]]
        tokens_after = scale_tokens(
            memory.tokens,
            sent=memory.context(),
            will_be_sent=make_sendable(tail),
            constant=memory.constant,
        )
        if tokens_after >= memory.tokens * MAX_TAIL_SHARE:
            return None
        return Tail(sum(is_own_words(message) for message in tail), tokens_after)


def _last_branch(messages: Sequence[Message]) -> str:
    """The git branch that the last context of the environment names; empty if none does."""
    for message in reversed(messages):
        for part in message.parts_of(Context):
            if branch := branch_in_note(part.text):
                return branch
    return ""


def _ends_turn(message: Message) -> bool:
    """Whether the agent had answered, so that its turn was complete."""
    return message.role == "assistant" and not message.cut and not message.tool_calls


def repository_changes(cwd: Path, since: str, branch_then: str) -> RepositoryChanges | None:
    """What changed in the repository of a folder. None outside of one, or if git failed or took too
    long. Blocks.

    Args:
        since: the time, as ISO 8601.
        branch_then: the branch at that time; empty if it is unknown.
    """
    branch = git_branch(cwd)
    if not branch:
        return None
    git = Git(cwd, _GIT_TIMEOUT)
    try:
        # The position of HEAD at that time. A younger clone has no such entry: git returns its
        # oldest one.
        head_then = git.ask("rev-parse", "--quiet", "--verify", f"HEAD@{{{since}}}").strip()
        log_lines = ""
        if head_then:
            since_then = f"{head_then}..HEAD"
            log_lines = git.ask("log", f"--max-count={_MAX_COMMITS}", "--format=%h %s", since_then)
        status_lines = git.read("status", "--porcelain", "--untracked-files=normal")
    except GitError:
        return None
    commits = log_lines.splitlines()
    return RepositoryChanges(
        branch=branch,
        branch_then=branch_then,
        commits=len(commits),
        subjects=tuple(commits[:_MAX_SUBJECTS]),
        changed=len(status_lines.splitlines()),
    )


def _find_tail_start(entries: Sequence[MessageRecord]) -> int:
    """The index of the message that begins the last turns. These are at most TAIL_TURNS; fewer if
    they have more than MAX_TAIL tokens, but at least one. 0 if there is no message of the user, or
    the last turns are all messages.
    """
    # A message that was added to the file by hand may have no number (0): it begins no tail.
    starts = [
        index for index, entry in enumerate(entries) if entry.number and is_own_words(entry.message)
    ]
    for index in starts[-TAIL_TURNS:]:
        if estimate_messages([entry.message for entry in entries[index:]]) <= MAX_TAIL:
            return index
    return starts[-1] if starts else 0


def _cache_state(model: str, info: SessionInfo) -> CacheState:
    """Whether the provider still has the session in its cache, as far as the model and the age of
    the session show. Another model than `info.model` has nothing of it.
    """
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(info.updated_at)).total_seconds()
    except (ValueError, TypeError):  # the file was edited by hand
        seconds = float("inf")
    is_recent = seconds < ANTHROPIC_CACHE_SECONDS
    if model != info.model:
        return "cold"
    if "claude" in model:  # only Anthropic says how long it keeps a prompt
        return "warm" if is_recent else "cold"
    return "probably warm" if is_recent else "probably cold"


def _price_of_call(spec: ModelSpec, tokens: int, *, cached: bool) -> float | None:
    """The price of a request with so many tokens in US dollars, without its answer; None if the
    prices of the model are not known.

    Args:
        cached: whether all of it is read from the provider's cache; otherwise it is written to it.
    """
    if not spec.prices:
        return None
    if cached:
        return spec.prices.cost(Usage(input=tokens, cached=tokens))
    return spec.prices.cost(Usage(input=tokens, cache_written=tokens))
