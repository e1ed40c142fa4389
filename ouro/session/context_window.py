"""ContextWindow: what fills the model's window, and how the user makes room in it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Literal

import msgspec

from ouro.agent.compactor import Compactor, Review
from ouro.agent.environment import Environment
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.system_prompt import prompt_parts
from ouro.display import Todo, Todos, TodoState
from ouro.errors import UsageError
from ouro.events import Emit, Event, TodosChanged
from ouro.memory.backend import DropRecord, MessageRecord, PinRecord, RecalledItem
from ouro.memory.compaction import is_own_words
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import OUTPUT_PREFIX
from ouro.memory.side_calls import ask_and_record
from ouro.memory.tokens import TOKENS_A_PICTURE, estimate, estimate_messages
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.session.session_tasks import SessionTasks
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.todo import TodoPlan
from ouro.utils.late_pattern import late_pattern

SEARCH_HINT = "The earlier messages can be searched with `memory_search`."
ASIDE = """\
[This message is from ouro, the program that you run in. The user asks something outside of the conversation. Neither
the question nor your answer will be part of it. Answer from what you know, briefly. Do not call a tool. If the last
results above say that ouro ended before they were saved, those calls are still running.]

{question}"""
LARGE = 0.2
"""The share of what is sent from which a single message is reported as large."""
_PLAN_HEADING = "## Plan"
_BOX_OF_STATE: dict[TodoState, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}
_STATE_OF_BOX = {box: state for state, box in _BOX_OF_STATE.items()}
_TODO_LINE = late_pattern(r"- (\[[ >x]\]) (.+)")


class Outlook(msgspec.Struct, frozen=True):
    """What a compaction would do now."""

    covered: int
    """Messages that a summary would replace."""
    kept: int
    """The number of these messages that would stay verbatim."""
    tokens: int
    """About how many tokens would be left."""


class WindowReport(msgspec.Struct, frozen=True):
    """What fills the model's window. All sizes are tokens; those of `parts` are estimates that add
    up to `tokens`.
    """

    parts: tuple[tuple[str, int], ...]
    """Name and size, in the order of the request."""
    tokens: int
    window: int
    limit: int
    """The tokens at which automatic compaction starts; 0: it is off."""
    outlook: Outlook | None
    """None if there is nothing to compact."""
    largest: str = ""
    """The largest single message, if it takes much; else empty."""


class ContextItem(msgspec.Struct, frozen=True):
    """A message, a tool output or a recalled note that is sent, or was sent until the user dropped
    it.
    """

    id: str
    """The id in the notation of DropRecord."""
    number: int
    """The number of its message."""
    kind: Literal["you", "ouro", "output", "note"]
    text: str
    tokens: int
    """About how many tokens it takes, without its outputs and notes."""
    is_dropped: bool
    is_pinned: bool = False


class SentContext(msgspec.Struct, frozen=True, eq=False):
    """Context that is sent only once, next to the messages; and again after older messages left the
    request.
    """

    environment: Environment
    instructions: ProjectInstructions
    plan: TodoPlan
    jobs: ShellJobs
    has_search: bool
    """Whether the agent can search older messages."""

    def clear(self) -> None:
        """Let the context be sent again, because the request does not contain it any more."""
        self.environment.clear()
        self.instructions.clear()

    async def for_summary(self) -> str:
        """The text that is added to the model's summary: the plan, background jobs, the
        environment.
        """
        running = [f"- {job.id}: {job.command}" for job in self.jobs.list() if job.running]
        background = "\n".join(["## Running in the background", *running]) if running else ""
        hint = SEARCH_HINT if self.has_search else ""
        texts = (format_plan(self.plan.items), background, await self.environment.whole(), hint)
        return "\n\n".join(filter(None, texts))


class ContextWindow(msgspec.Struct, frozen=True, eq=False):
    compactor: Compactor
    """It has the transcript, the models and the constant part of the requests."""
    tasks: SessionTasks

    def report(self) -> WindowReport:
        """What fills the window now, and what a compaction would leave."""
        estimates = self._estimate_groups()
        estimate_sum = sum(estimates.values())
        tokens = max(self.compactor.memory.tokens, self.compactor.memory.constant)
        parts = tuple(
            (name, size * tokens // max(1, estimate_sum))
            for name, size in estimates.items()
            if size
        )
        plan = self.compactor.plan()
        tokens_after = self.compactor.tokens_after(plan) if plan else 0
        outlook = (
            Outlook(len(plan.covered), len(plan.kept), tokens_after)
            if plan and tokens_after < tokens
            else None
        )
        return WindowReport(
            parts,
            tokens,
            self.compactor.window,
            self.compactor.limit,
            outlook,
            self._describe_largest(estimate_sum),
        )

    def compact(
        self, keep: str, review: Review | None = None, *, probe: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Compact the messages; yields the events, as of a turn.

        Args:
            keep: what the user wants to keep in particular.
            review: receives the summary before it is used, if `compaction.review` is on.
            probe: ask the model about what was cut, and report what was lost.
        """
        review_argument = (
            {"review": review} if review is not None and self.compactor.settings.review else {}
        )
        return self.tasks.run(
            lambda emit: self.compactor.compact(keep, emit, **review_argument, probe=probe)
        )

    def aside(self, question: str, show: Callable[[str], None]) -> AsyncGenerator[Event, None]:
        """Ask a question as `ask_aside` does; yields events, as of a turn, and `show` gets the answer."""

        async def show_answer(_emit: Emit) -> None:
            show(await self.ask_aside(question))

        return self.tasks.run(show_answer)

    async def ask_aside(self, question: str) -> str:
        """The model's answer to a question that does not become part of the session. Raises
        ModelError.
        """
        memory, models = self.compactor.memory, self.compactor.models()
        question_message = Message("user", (Context(ASIDE.format(question=question)),))
        # The tools are sent although none may be called: so the request begins with what the
        # provider has in its cache.
        tools = self.compactor.tools.specs(models[0].spec)
        request = [self.compactor.system_prompt, *memory.context(), question_message]
        answer = await ask_and_record(models, memory, "btw", request, tools=tools)
        return answer.strip() or "The model gave no answer."

    def pinnable(self) -> tuple[ContextItem, ...]:
        """The messages that are sent and can be pinned, oldest first."""
        return tuple(
            next(self._list_items(entry))
            for entry in self._transcript.sent_entries()
            if entry.number
            and (
                is_own_words(message := entry.message)
                or (message.role == "assistant" and message.text.strip())
            )
        )

    async def pin(self, number: int, pinned: bool = True) -> None:
        """Pin a message, so that every compaction keeps it verbatim, as far as pinned messages fit; or
        unpin it.

        Raises UsageError if there is no such message in the request, and SaveFailed.
        """
        if number not in {message.number for message in self.pinnable()}:
            raise UsageError(
                f"Message {number} is not among those that are sent. `/pin` shows them."
            )
        await self.compactor.memory.record(PinRecord(number, self.compactor.memory.now(), pinned))

    def items(self) -> tuple[ContextItem, ...]:
        """The items of the session that are sent, and those that the user dropped; in order."""
        entries = self._transcript.sendable_entries()
        return tuple(chain.from_iterable(map(self._list_items, entries)))

    async def drop(self, ids: Collection[str], *, restore: bool = False) -> tuple[int, int]:
        """Drop these items from the request, or restore them; an answer with its calls and outputs.
        The session file keeps them. Returns the tokens of the request before and after.

        Raises:
            UsageError: an item is not among `items`, the agent is at work, or the session is read-only.
            SaveFailed: it is not on disk yet.
        """
        memory = self.compactor.memory
        if self.tasks.running:
            raise UsageError("The agent is at work.", "Interrupt it, or wait until it is done.")
        if memory.read_only:
            raise UsageError("This session is open read-only.", "/fork continues in a copy.")
        items = {item.id: item for item in self.items()}
        chosen = self._find_chosen(ids, items)
        changed = []
        for item in items.values():
            is_chosen = item.id in chosen or str(item.number) in chosen
            if is_chosen and item.is_dropped == restore:
                changed.append(item)
        before = memory.tokens
        if not changed:
            return before, before
        size = sum(item.tokens for item in changed)
        after = self._estimate_tokens(size if restore else -size)
        record = DropRecord(
            memory.next_number, memory.now(), tuple(sorted(chosen)), restore, (before, after)
        )
        await memory.record(record)
        if not restore:
            self.compactor.on_compacted()
        return before, after

    def _find_chosen(self, ids: Collection[str], items: Mapping[str, ContextItem]) -> set[str]:
        """The ids of the named items and of what belongs to them. Raises UsageError for an unknown id."""
        chosen: set[str] = set()
        for item_id in ids:
            if item_id not in items:
                raise UsageError(f"`{item_id}` is not in the request.", commands=["context"])
            chosen |= self._with_results(items[item_id])
        return chosen

    def _estimate_tokens(self, change: int) -> int:
        """The tokens of the request after a change by so many estimated tokens."""
        memory = self.compactor.memory
        whole = memory.constant + estimate_messages(memory.context())
        return memory.tokens * max(0, whole + change) // max(1, whole)

    def _with_results(self, item: ContextItem) -> set[str]:
        """The id of an item, and of what belongs to it: an answer has its tool results, a message what
        was sent with it.
        """
        entries = self._transcript.sendable_entries()
        numbers = [entry.number for entry in entries]
        chosen, index = {item.id}, numbers.index(item.number)
        belongs_to_message = item.kind in ("output", "note")
        if belongs_to_message and str(item.number) not in self._transcript.dropped_items:
            return chosen
        while belongs_to_message and entries[index].message.role == "tool":
            index -= 1
        results = takewhile(lambda entry: entry.message.role == "tool", entries[index + 1 :])
        return chosen | {str(entry.number) for entry in (entries[index], *results)}

    def _list_items(self, entry: MessageRecord) -> Iterator[ContextItem]:
        """Yields a message as an item, then the notes that were sent with it, and its tool outputs. A
        message of only tool outputs is not an item itself.
        """
        message, dropped = entry.message, self._transcript.dropped_items
        is_message_dropped = str(entry.number) in dropped
        notes = self._loaded_notes(entry)
        if message.role != "tool":
            yield self._item_of_message(
                entry, sum(note.tokens for note in notes), is_message_dropped
            )
        context = "\n".join(part.text for part in message.parts_of(Context))
        for note in notes:
            match = re.search(rf"^\W+\[{re.escape(note.id)}\] \(.*?\) (.*)", context, re.MULTILINE)
            text, item_id = (match[1] if match else note.id), f"{entry.number}:{note.id}"
            is_dropped = is_message_dropped or item_id in dropped
            yield ContextItem(item_id, entry.number, "note", text, note.tokens, is_dropped)
        for reply in message.parts_of(ToolReply):
            summary = reply.display.summary if reply.display else reply.text
            size, item_id = (
                estimate_messages([Message("tool", (reply,))]),
                f"{OUTPUT_PREFIX}{reply.call_id}",
            )
            is_dropped, text = is_message_dropped or item_id in dropped, f"{reply.name}: {summary}"
            yield ContextItem(item_id, entry.number, "output", text, size, is_dropped)

    def _loaded_notes(self, entry: MessageRecord) -> list[RecalledItem]:
        """The notes that are sent with a message."""
        record, compaction = (
            self._transcript.recalled.get(entry.number),
            self._transcript.compaction,
        )
        is_sent_without = compaction is not None and entry.number in compaction.kept
        if record is None or is_sent_without:
            return []
        return [item for item in record.items if item.state == "loaded"]

    def _item_of_message(
        self, entry: MessageRecord, note_tokens: int, is_dropped: bool
    ) -> ContextItem:
        """A message as an item, without the tokens of its notes."""
        message = entry.message
        calls = ", ".join(call.name for call in message.tool_calls)
        description = "(a picture)" if message.parts_of(Image) else "added by ouro"
        text = message.text.strip() or (f"calls {calls}" if calls else description)
        size = max(0, estimate_messages([message]) - note_tokens)
        kind: Literal["you", "ouro"] = "ouro" if message.role == "assistant" else "you"
        pinned = entry.number in self._transcript.pins
        return ContextItem(str(entry.number), entry.number, kind, text, size, is_dropped, pinned)

    @property
    def _transcript(self) -> Transcript:
        return self.compactor.memory.transcript

    def _estimate_groups(self) -> Mapping[str, int]:
        """About how many tokens each group takes, by its name, in the order of the request."""
        sizes = {
            name: estimate(text) for name, text in prompt_parts(self.compactor.system_prompt.text)
        }
        sizes["tools"] = self.compactor.tool_tokens
        compaction = self._transcript.compaction
        sizes["summary"] = estimate(compaction.summary) if compaction else 0
        names = (
            "your messages",
            "added by ouro",
            "answers",
            "thinking",
            "tool calls",
            "tool outputs",
            "pictures",
        )
        sizes |= dict.fromkeys(names, 0)
        for message in self.compactor.memory.context():
            for part in message.parts:
                name, size = _group_and_size(part, message.role)
                sizes[name] += size
                sizes["pictures"] += (
                    TOKENS_A_PICTURE * len(part.images) if isinstance(part, ToolReply) else 0
                )
        sizes["added by ouro"] = max(0, sizes["added by ouro"] - sizes["summary"])
        return sizes

    def _describe_largest(self, whole: int) -> str:
        """The largest message for the user; empty if it takes less than LARGE of the whole."""
        sizes = [
            (estimate_messages([entry.message]), entry) for entry in self._transcript.sent_entries()
        ]
        size, entry = max(sizes, key=lambda item: item[0], default=(0, None))
        if entry is None or size < whole * LARGE:
            return ""
        return f"{_describe_kind(entry.message)} at message {entry.number}, about {size:,} tokens"


def _describe_kind(message: Message) -> str:
    """The kind of a message in words: `the output of shell, read`, `your message`."""
    if tools := dict.fromkeys(reply.name for reply in message.parts_of(ToolReply)):
        return f"the output of {', '.join(tools)}"
    return "your message" if message.role == "user" else "the answer"


def _group_and_size(part: Part, role: str) -> tuple[str, int]:
    """The group of `_estimate_groups` that a part belongs to, and its tokens."""
    match part:
        case Text(text):
            return ("answers" if role == "assistant" else "your messages"), estimate(text)
        case Context(text):
            return "added by ouro", estimate(text)
        case Image():
            return "pictures", TOKENS_A_PICTURE
        case ToolReply():
            return "tool outputs", estimate(part.text)
        case Thinking() | ToolCall():
            name = "thinking" if isinstance(part, Thinking) else "tool calls"
            return name, estimate_messages([Message("assistant", (part,))])


def format_plan(todos: Sequence[Todo]) -> str:
    """The plan as text for the model; empty without todos."""
    if not todos:
        return ""
    return "\n".join(
        [_PLAN_HEADING, *(f"- {_BOX_OF_STATE[todo.state]} {todo.text}" for todo in todos)]
    )


def find_plan(memory: MemoryManager) -> tuple[Todo, ...]:
    """The last todos of the agent that are loaded; otherwise those in the current summary."""
    for message in reversed(memory.messages()):
        for reply in reversed(message.parts_of(ToolReply)):
            if reply.display and isinstance(reply.display.body, Todos):
                return reply.display.body.items
    compaction = memory.transcript.compaction
    # The last one in the summary: the added text comes after the model's own words.
    _, heading, plan_lines = (
        compaction.summary.rpartition(f"{_PLAN_HEADING}\n") if compaction else ("", "", "")
    )
    matches = (_TODO_LINE.fullmatch(line) for line in plan_lines.partition("\n\n")[0].splitlines())
    return (
        tuple(Todo(match[2], _STATE_OF_BOX[match[1]]) for match in matches if match)
        if heading
        else ()
    )


async def load_plan(plan: TodoPlan, memory: MemoryManager, emit: Emit) -> None:
    """Load everything that is sent, and correct the plan: at first only the messages for the screen
    were read.
    """
    await memory.pager.finish_loading()
    todos = find_plan(memory)
    if todos != plan.items:
        plan.items = todos
        emit(TodosChanged(todos))
