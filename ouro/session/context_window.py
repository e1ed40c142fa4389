"""ContextWindow: what fills the model's window, and how the user makes room in it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.agent.compactor import Compactor, Review
from ouro.agent.environment import Environment
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.system_prompt import prompt_sections
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
_TODO_LINE = late_pattern(r"- (?P<box>\[[ >x]\]) (?P<text>.+)")


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
        """The text that is added to the model's summary: the todos, the running background jobs,
        the environment, and a hint at the search in older messages.
        """
        running = [f"- {job.id}: {job.command}" for job in self.jobs.list() if job.running]
        background = "\n".join(["## Running in the background", *running]) if running else ""
        hint = SEARCH_HINT if self.has_search else ""
        texts = (format_plan(self.plan.items), background, await self.environment.whole(), hint)
        return "\n\n".join(filter(None, texts))


class ContextWindow(msgspec.Struct, frozen=True, eq=False):
    """Reports what fills the window; compacts, pins, drops and restores messages in it."""

    compactor: Compactor
    """It has the transcript, the models and the constant part of the requests."""
    tasks: SessionTasks

    def report(self) -> WindowReport:
        """What fills the window now, and what a compaction would leave; nothing about that if it
        would not make the request smaller. The estimates of the groups are scaled so that they add
        up to the tokens that the provider has counted.
        """
        estimates = self._estimate_groups()
        estimate_sum = sum(estimates.values())
        # The provider may count less than the estimate of what each request has besides messages.
        tokens = max(self.compactor.memory.tokens, self.compactor.memory.constant)
        parts = tuple(
            (name, size * tokens // max(1, estimate_sum))
            for name, size in estimates.items()
            if size
        )
        outlook = None
        if plan := self.compactor.plan():
            tokens_after = self.compactor.tokens_after(plan)
            if tokens_after < tokens:
                outlook = Outlook(len(plan.covered), len(plan.kept), tokens_after)
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
        """Compact the messages; yields events as a turn does.

        Args:
            keep: what the user wants to keep in particular.
            review: receives the summary before it is used, and returns the one to use. It is only
                called if `compaction.review` is on.
            probe: whether the model is asked afterwards about what was cut, to report what was lost.
        """
        options = {}  # without `review` the compactor uses the summary as it is
        if review is not None and self.compactor.settings.review:
            options = {"review": review}
        return self.tasks.run(
            lambda emit: self.compactor.compact(keep, emit, **options, probe=probe)
        )

    def aside(self, question: str, show: Callable[[str], None]) -> AsyncGenerator[Event, None]:
        """Ask a question outside of the session, as `ask_aside` does, and call `show` with the
        answer. Yields events as a turn does: TurnFinished comes last.
        """

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
        answer = await ask_and_record(models, memory, purpose="btw", messages=request, tools=tools)
        return answer.strip() or "The model gave no answer."

    def pinnable(self) -> tuple[ContextItem, ...]:
        """The messages that are sent and can be pinned, oldest first: those that the user wrote,
        and answers with text.
        """
        pinnable = []
        for entry in self._transcript.sent_entries():
            message = entry.message
            is_answer = message.role == "assistant" and bool(message.text.strip())
            has_words = is_answer or is_own_words(message)
            # The number is 0 if the message was added to the file by hand: a pin cannot name it.
            if entry.number and has_words:
                message_item = next(self._list_items(entry))  # before its notes and outputs
                pinnable.append(message_item)
        return tuple(pinnable)

    async def pin(self, number: int, pinned: bool = True) -> None:
        """Pin a message, or unpin it if `pinned` is False. Every compaction keeps pinned messages
        verbatim, as far as they fit.

        Raises:
            UsageError: `number` is not one of `pinnable`.
            SaveFailed: the change could not be written to disk.
        """
        if number not in {message.number for message in self.pinnable()}:
            raise UsageError(
                f"Message {number} is not among those that are sent. `/pin` shows them."
            )
        await self.compactor.memory.record(PinRecord(number, self.compactor.memory.now(), pinned))

    def items(self) -> tuple[ContextItem, ...]:
        """The items of the session that are sent, and those that the user dropped; oldest first."""
        entries = self._transcript.sendable_entries()
        return tuple(chain.from_iterable(map(self._list_items, entries)))

    async def drop(self, ids: Collection[str], *, restore: bool = False) -> tuple[int, int]:
        """Drop these items from the request, or restore them if `restore`. An answer is dropped
        with its calls and outputs, a message with the notes that were sent with it. The session
        file keeps them. Returns the tokens of the request before and after, estimated.

        Raises:
            UsageError: an item is not among `items`, the agent is at work, or the session is read-only.
            SaveFailed: the change could not be written to disk.
        """
        memory = self.compactor.memory
        if self.tasks.running:
            raise UsageError("The agent is at work.", "Interrupt it, or wait until it is done.")
        if memory.read_only:
            raise UsageError("This session is open read-only.", "/fork continues in a copy.")

        # Find the items whose state changes.
        items = {item.id: item for item in self.items()}
        chosen = self._find_chosen(ids, items)
        changed = []
        for item in items.values():
            # `chosen` has ids of items, and numbers of messages for all that is sent with them.
            is_chosen = item.id in chosen or str(item.number) in chosen
            if is_chosen and item.is_dropped == restore:
                changed.append(item)
        before = memory.tokens
        if not changed:
            return before, before

        # Record the change.
        changed_tokens = sum(item.tokens for item in changed)
        after = self._estimate_tokens(changed_tokens if restore else -changed_tokens)
        record = DropRecord(
            memory.next_number,
            at=memory.now(),
            items=tuple(sorted(chosen)),
            restored=restore,
            tokens=(before, after),
        )
        try:
            await memory.record(record)
        finally:  # the record may be in force although it could not be written
            if not restore:  # context that was sent with the items must be sent again
                self.compactor.on_compacted()
        return before, after

    def _find_chosen(self, ids: Collection[str], items: Mapping[str, ContextItem]) -> set[str]:
        """The ids of the items to drop or restore, and the numbers of the messages that must be
        dropped or restored with them. Raises UsageError for an id that is not in `items`.
        """
        chosen: set[str] = set()
        for item_id in ids:
            if item_id not in items:
                raise UsageError(f"`{item_id}` is not in the request.", commands=["context"])
            chosen |= self._with_results(items[item_id])
        return chosen

    def _estimate_tokens(self, change: int) -> int:
        """The tokens of the request after `change` estimated tokens were added (or, if negative,
        left out). The estimate is scaled by what the provider has counted for the request before.
        """
        memory = self.compactor.memory
        whole = memory.constant + estimate_messages(memory.context())
        return memory.tokens * max(0, whole + change) // max(1, whole)

    def _with_results(self, item: ContextItem) -> set[str]:
        """The id of an item, and the numbers of the messages that are dropped or restored with it:
        a message goes with the tool results that follow it. An output or a note goes alone, unless
        its message is dropped: then the whole message is restored, since it is sent as one.
        """
        entries = self._transcript.sendable_entries()
        numbers = [entry.number for entry in entries]
        chosen, index = {item.id}, numbers.index(item.number)
        belongs_to_message = item.kind in ("output", "note")
        if belongs_to_message and str(item.number) not in self._transcript.dropped_items:
            return chosen
        # An output is in a message of results: go to the answer that made the call.
        while belongs_to_message and entries[index].message.role == "tool":
            index -= 1
        results = takewhile(lambda entry: entry.message.role == "tool", entries[index + 1 :])
        return chosen | {str(entry.number) for entry in (entries[index], *results)}

    def _list_items(self, entry: MessageRecord) -> Iterator[ContextItem]:
        """Yields a message as an item, then the notes that were sent with it, and its tool outputs.
        A message of only tool outputs is not an item itself.
        """
        is_message_dropped = str(entry.number) in self._transcript.dropped_items
        notes = self._loaded_notes(entry)
        if entry.message.role != "tool":
            note_tokens = sum(note.tokens for note in notes)
            yield self._item_of_message(entry, note_tokens, is_message_dropped)

        dropped_ids = self._transcript.dropped_items
        for item in (*_note_items(entry, notes), *_output_items(entry)):
            yield replace(item, is_dropped=is_message_dropped or item.id in dropped_ids)

    def _loaded_notes(self, entry: MessageRecord) -> list[RecalledItem]:
        """The notes that are sent with a message. A message that a compaction keeps is sent without
        them.
        """
        record = self._transcript.recalled.get(entry.number)
        compaction = self._transcript.compaction
        is_sent_without = compaction is not None and entry.number in compaction.kept
        if record is None or is_sent_without:
            return []
        return [item for item in record.items if item.state == "loaded"]

    def _item_of_message(
        self, entry: MessageRecord, note_tokens: int, is_dropped: bool
    ) -> ContextItem:
        """A message as an item; its size is without `note_tokens`, as its notes are items of their
        own. A message without text is described by its calls or its picture.
        """
        message = entry.message
        text = message.text.strip()
        if not text and message.tool_calls:
            text = f"calls {', '.join(call.name for call in message.tool_calls)}"
        elif not text:
            text = "(a picture)" if message.parts_of(Image) else "added by ouro"
        size = max(0, estimate_messages([message]) - note_tokens)
        kind: Literal["you", "ouro"] = "ouro" if message.role == "assistant" else "you"
        pinned = entry.number in self._transcript.pins
        return ContextItem(
            str(entry.number),
            entry.number,
            kind,
            text,
            tokens=size,
            is_dropped=is_dropped,
            is_pinned=pinned,
        )

    @property
    def _transcript(self) -> Transcript:
        return self.compactor.memory.transcript

    def _estimate_groups(self) -> Mapping[str, int]:
        """About how many tokens each group of the request takes, by its name, in the order of the
        request: the parts of the system prompt, the tools, the summary, and the messages by kind.
        """
        sizes = {
            name: estimate(text)
            for name, text in prompt_sections(self.compactor.system_prompt.text)
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
                if isinstance(part, ToolReply):
                    sizes["pictures"] += TOKENS_A_PICTURE * len(part.images)
        # The summary is sent as a message that ouro has added: it would be counted twice.
        sizes["added by ouro"] = max(0, sizes["added by ouro"] - sizes["summary"])
        return sizes

    def _describe_largest(self, whole: int) -> str:
        """The largest message in words, for the user. Empty if there is none, or it takes less than
        the share LARGE of the `whole` request (in tokens).
        """
        largest, size = None, 0
        for entry in self._transcript.sent_entries():
            entry_size = estimate_messages([entry.message])
            if largest is None or entry_size > size:
                largest, size = entry, entry_size
        if largest is None or size < whole * LARGE:
            return ""
        kind = _describe_kind(largest.message)
        return f"{kind} at message {largest.number}, about {size:,} tokens"


def _note_items(entry: MessageRecord, notes: Sequence[RecalledItem]) -> Iterator[ContextItem]:
    """Yields these notes of a message as items, as if none were dropped."""
    context = "\n".join(part.text for part in entry.message.parts_of(Context))
    for note in notes:
        # The line of a note, as recall has written it: `- [id] (details) text`.
        line = re.search(rf"^\W+\[{re.escape(note.id)}\] \(.*?\) (.*)", context, re.MULTILINE)
        yield ContextItem(
            f"{entry.number}:{note.id}",
            entry.number,
            kind="note",
            text=line[1] if line else note.id,
            tokens=note.tokens,
            is_dropped=False,
        )


def _output_items(entry: MessageRecord) -> Iterator[ContextItem]:
    """Yields the tool outputs of a message as items, as if none were dropped."""
    for reply in entry.message.parts_of(ToolReply):
        summary = reply.display.summary if reply.display else reply.text
        yield ContextItem(
            f"{OUTPUT_PREFIX}{reply.call_id}",
            entry.number,
            kind="output",
            text=f"{reply.name}: {summary}",
            tokens=estimate_messages([Message("tool", (reply,))]),
            is_dropped=False,
        )


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
    """The todos as text for the model, under the heading of the plan; empty without todos."""
    if not todos:
        return ""
    return "\n".join(
        [_PLAN_HEADING, *(f"- {_BOX_OF_STATE[todo.state]} {todo.text}" for todo in todos)]
    )


def find_plan(memory: MemoryManager) -> tuple[Todo, ...]:
    """The last todos of the agent in the loaded messages; without any, those in the current
    summary. Empty if there are none at all.
    """
    for message in reversed(memory.messages()):
        for reply in reversed(message.parts_of(ToolReply)):
            if reply.display and isinstance(reply.display.body, Todos):
                return reply.display.body.items
    compaction = memory.transcript.compaction
    if compaction is None:
        return ()
    # The last heading: `format_plan` is added to the summary after the model's own words.
    _, heading, after_heading = compaction.summary.rpartition(f"{_PLAN_HEADING}\n")
    if not heading:
        return ()
    plan_lines = after_heading.partition("\n\n")[0].splitlines()
    matches = (_TODO_LINE.fullmatch(line) for line in plan_lines)
    return tuple(Todo(match["text"], _STATE_OF_BOX[match["box"]]) for match in matches if match)


async def load_plan(plan: TodoPlan, memory: MemoryManager, emit: Emit) -> None:
    """Load everything that is sent, and correct the todos in `plan`: at first only the messages for
    the screen were read. An event is emitted if they changed.
    """
    await memory.pager.finish_loading()
    todos = find_plan(memory)
    if todos != plan.items:
        plan.items = todos
        emit(TodosChanged(todos))
