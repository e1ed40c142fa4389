"""Provenance: checks without a model whether text written into memory is in the user's own words
(M1).

As long as nothing from outside is in the transcript, what the agent writes is trusted. After the
first text from outside (a tool result, a long paste, a summary) a line is trusted only if all its
words are in one message of the user; anything else is pending. A file that the turn did not write
is foreign, with any content (M3). See docs/memory.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from fnmatch import fnmatchcase
from itertools import chain, product, starmap
from pathlib import Path
from typing import NamedTuple

from ouro.memory.long_term.git.files import MemoryFiles, is_memory_name
from ouro.messages import ATTACHED, PIPED, Context, Image, Message, Text, ToolCall, ToolReply
from ouro.utils.git import branch_in_note
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import fold

OWN_LINE = "I ran this in a shell:"
"""Starts a message with the output of the user's shell line: those words come from a program."""
MAX_OWN_WORDS = 1_000
"""A message with more characters counts as pasted material, not as the user's own words."""
_FILE_TOOLS = {"read", "write", "edit", "notebook_edit", "apply_patch"}
_TOOLS_WITHOUT_FILES = {"todo", "ask_user"}
_READING_TOOLS = {"read", "grep", "glob", "memory_search"}
_SHELL_ARGUMENT = r"""(?:"[^"$`\\]*"|'[^']*'|[^\s"'$`;&|<>()\\]+)"""
_NAMES_OF_PASTED = {PIPED: "standard input", ATTACHED: "an attached file", OWN_LINE: "a shell line"}
"""How a message begins that is not in the user's own words, and what it is."""
_MAX_BRANCH_WORDS = 3
_GIT_COMMAND = (
    rf"git\s+-C\s+({_SHELL_ARGUMENT})\s+(?:add|commit|status|rm|mv)(?:\s+{_SHELL_ARGUMENT})*"
)
"""An allowed git command. Its group is the folder, the argument of `-C`."""
_ALLOWED_GIT_LINE = late_pattern(rf"\s*{_GIT_COMMAND}(?:\s*&&\s*{_GIT_COMMAND})*\s*")
"""A shell line with only allowed git commands, which run without a question."""
_PATCHED_FILE = late_pattern(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
"""The line of a patch that names a file."""
_INSERTED_TEXT = late_pattern(r'^<(command|resource|summary|attached) name="([^"]*)"', re.MULTILINE)
"""A custom command, a server's resource, the summary of another session: text from a file, a server
or a model.
"""
_SENTENCE_END = late_pattern(r"(?<=[.!?;])\s+|\n")
_WORD = late_pattern(r"[^\W_]+")
_SCRIPT_WITHOUT_BLANKS = late_pattern(r"[\u0e00-\u0eff\u2e80-\uffdc]")
"""Scripts without blanks between words."""
_NEGATIONS = {
    "no",
    "not",
    "never",
    "dont",
    "without",
    "kein",
    "keine",
    "nicht",
    "nie",
    "niemals",
    "ne",
    "pas",
    "jamais",
}
_WORDS_WITHOUT_CONTENT = {
    "a",
    "an",
    "and",
    "are",
    "as",
    "at",
    "be",
    "been",
    "by",
    "can",
    "could",
    "default",
    "do",
    "does",
    "for",
    "from",
    "has",
    "have",
    "i",
    "in",
    "is",
    "it",
    "its",
    "like",
    "likes",
    "me",
    "my",
    "of",
    "on",
    "or",
    "our",
    "please",
    "prefer",
    "prefers",
    "preference",
    "preferred",
    "project",
    "remember",
    "repo",
    "repository",
    "s",
    "should",
    "so",
    "t",
    "that",
    "the",
    "their",
    "them",
    "then",
    "they",
    "this",
    "to",
    "us",
    "use",
    "user",
    "users",
    "uses",
    "using",
    "want",
    "wants",
    "wanted",
    "was",
    "we",
    "were",
    "will",
    "with",
    "would",
    "you",
    "your",
    "always",
    "person",
}
"""Words without a meaning of their own, and words with which statements to remember begin."""


class Sentence(NamedTuple):
    """What is compared of a sentence."""

    words: frozenset[str]
    """Its content words."""
    is_negative: bool
    """Whether it negates them."""


class Provenance:
    """Finds in a transcript the source of words that were written into memory.

    Args:
        folders: the memory folders of which all is trusted.
        cwd: the paths of tools are relative to it.
        is_whole: the messages are all there are; the words of a summary are not the user's.
        is_confined: whether the command of a call (by its id) could not write into memory.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        folders: Sequence[Path] = (),
        cwd: Path = Path(),
        *,
        is_whole: bool = True,
        is_confined: Callable[[str], bool] = lambda _call: False,
    ) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._cwd = cwd
        earlier = () if is_whole else ("what came earlier",)
        self.sources = (*earlier, *_find_sources(messages, self._is_trusted))
        """The sources from outside in the transcript, as they are shown to the user; the latest is
        last.
        """
        sentences_of_user = (
            _SENTENCE_END.split(message.text) for message in messages if _is_own(message)
        )
        self._messages = [list(map(_parse_sentence, sentences)) for sentences in sentences_of_user]
        """The sentences of each message of the user."""
        turn = _last_turn(messages)
        calls = chain.from_iterable(message.tool_calls for message in turn)
        self._calls = [
            call for call in calls if call.name not in {*_READING_TOOLS, *_TOOLS_WITHOUT_FILES}
        ]
        """The calls of the last turn that may have written files."""
        unknown_calls = [call for call in self._calls if not self._knows_writing(call, is_confined)]
        self.knows_all_writing = bool(turn) and not unknown_calls
        """Whether everything that the calls of this turn wrote into memory is known: file tools
        record their writes.
        """

    def reason_to_confirm(self, before: str, after: str) -> str:
        """The reason why the user has to confirm a change of a memory file from the text `before`
        to `after`. Empty if it is trusted: nothing came from outside, or each new line is in words
        of the user, and each line that is gone may be removed.
        """
        if not self.sources:
            return ""
        from ouro.utils.line_changes import line_changes  # needed only for a change

        old_lines, new_lines = before.splitlines(), after.splitlines()
        for start, end, new_start, new_end in line_changes(old_lines, new_lines):
            removed, added = old_lines[start:end], new_lines[new_start:new_end]
            for line in added:
                if not self._is_covered(line):
                    return f"`{line.strip()[:80]}` is not in the user's own words"
            for line in removed:
                if not self._may_remove(line, added):
                    return f"the user did not ask to remove `{line.strip()[:80]}`"
        return ""

    def has_moved(self, name: str) -> bool:
        """Whether a shell line of the turn that has only allowed git commands
        (`_ALLOWED_GIT_LINE`) removes or moves the memory file with this name.
        """
        lines = (str(call.arguments.get("command")) for call in self._calls if call.name == "shell")
        return any(_ALLOWED_GIT_LINE.fullmatch(line) and _moves_file(line, name) for line in lines)

    def _is_covered(self, line: str) -> bool:
        """Whether all content words of a line are in one message of the user, which negates them as
        the line does. A line without such words is covered.
        """
        sentence = _parse_sentence(line)
        if not sentence.words:
            return True
        return any(
            _covers(message, sentence.words, is_negative=sentence.is_negative)
            for message in self._messages
        )

    def _may_remove(self, line: str, new_lines: Sequence[str]) -> bool:
        """Whether a line may be removed: it has no content words, one of the new lines has one of
        them, or one message of the user has all of them.
        """
        words = _parse_sentence(line).words
        if not words:
            return True
        for new_line in new_lines:
            if _have_common_word(words, _parse_sentence(new_line).words):
                return True
        return any(_covers(message, words) for message in self._messages)

    def _knows_writing(self, call: ToolCall, is_confined: Callable[[str], bool]) -> bool:
        """Whether everything that a call wrote into memory is known: file tools record it, and a
        confined command, or a call that touches only trusted memory, wrote nothing else.
        """
        is_confined_shell = call.name == "shell" and is_confined(call.id)
        return call.name in _FILE_TOOLS or is_confined_shell or self._is_trusted(call)

    def _is_trusted(self, call: ToolCall) -> bool:
        """Whether a call brought in nothing from outside of the trusted memory. That is so for a
        tool that uses no file, for a file tool if all its paths are of trusted memory, and for a
        shell line with only allowed git commands in folders of trusted memory.
        """
        if call.name in _TOOLS_WITHOUT_FILES:
            return True
        if call.name in _FILE_TOOLS:
            paths = _paths_of(call)
            return bool(paths) and all(map(self._is_memory, paths))
        line = call.arguments.get("command")
        if call.name != "shell" or not isinstance(line, str):
            return False
        if not _ALLOWED_GIT_LINE.fullmatch(line):
            return False
        # The group of the pattern: the folder behind each `-C`, perhaps in quotes.
        quoted_folders = re.findall(_GIT_COMMAND, line)
        return all(self._is_memory(folder.strip("\"'")) for folder in quoted_folders)

    def _is_memory(self, text: str) -> bool:
        """Whether the path of a tool call is one of the trusted folders, or a memory file in one,
        which need not exist.

        Other files in these folders are not checked for approval, so their text counts as
        untrusted.
        """
        try:
            path = (self._cwd / Path(text).expanduser()).resolve()
        except (ValueError, RuntimeError, OSError):  # not a path: NUL, `~nobody`, a symlink loop
            return False
        for folder in self._folders:
            if not path.is_relative_to(folder):
                continue
            name = str(path.relative_to(folder))
            may_be_read = not path.exists() or MemoryFiles(folder).find(name) is not None
            if path == folder or (is_memory_name(name) and may_be_read):
                return True
        return False


def _paths_of(call: ToolCall) -> list[str]:
    """The paths in the arguments of a file tool: those that a patch names, else its `path`."""
    patch = call.arguments.get("input")
    if isinstance(patch, str):
        return [path.strip() for path in _PATCHED_FILE.findall(patch)]
    path = call.arguments.get("path")
    return [path.strip()] if isinstance(path, str) else []


def _moves_file(line: str, name: str) -> bool:
    """Whether a shell line, which must match `_ALLOWED_GIT_LINE`, removes or moves the memory file
    with this name: by its name, its folder, or a pattern.
    """
    from shlex import split  # few turns change memory by commands

    folder, _, base = name.rpartition("/")
    for command in line.split("&&"):
        verb, *patterns = split(command)[3:]  # after `git -C FOLDER`
        if verb not in ("rm", "mv"):
            continue
        for pattern in patterns:
            file_pattern = pattern.rstrip("/")
            if any(fnmatchcase(path, file_pattern) for path in (name, base, folder or ".")):
                return True
    return False


def _last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages of the last turn: the user's last prompt, and all after it. A message that the
    user sent during tool calls is no prompt. Empty if there is no prompt.
    """
    for index in range(len(messages) - 1, -1, -1):
        is_prompt = messages[index].role == "user" and messages[index].text
        if is_prompt and (not index or messages[index - 1].role != "tool"):
            return messages[index:]
    return ()


def own_words(messages: Sequence[Message]) -> tuple[str, ...]:
    """The messages that the user has typed, oldest first; without what was pasted or piped in."""
    return tuple(message.text for message in messages if message.text and _is_own(message))


def _is_own(message: Message) -> bool:
    """Whether a message is one that the user has typed: it is not too long for that, and does not
    begin as output of a shell, a pipe or an attached file does.
    """
    text = message.text
    return (
        message.role == "user"
        and len(text) <= MAX_OWN_WORDS
        and not text.startswith((OWN_LINE, PIPED, ATTACHED))
    )


def _find_sources(messages: Sequence[Message], trusts: Callable[[ToolCall], bool]) -> Iterator[str]:
    """Yield what came into the transcript from outside, as it is shown to the user: parts of
    messages, then the tool calls that `trusts` does not trust, message by message. Calls without a
    result come last.
    """
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "user":
            yield from _sources_of_user(message)
        yield from _sources_of_context(message)
        for reply in message.parts_of(ToolReply):
            call = calls.pop(reply.call_id, None)  # call ids may be repeated
            if call is None:
                yield reply.name
            elif not trusts(call):
                yield _describe_call(call)
        if not message.cut:
            calls |= {call.id: call for call in message.tool_calls}
    for call in calls.values():
        # A call without a result has no output yet, but it may have written a file.
        if call.name not in _READING_TOOLS and not trusts(call):
            yield _describe_call(call)


def _sources_of_user(message: Message) -> Iterator[str]:
    """Yield what in a message of the user is not the user's own words: a pasted text by what it is,
    and pictures.
    """
    if message.parts_of(Text) and message.text and not _is_own(message):
        names = (name for start, name in _NAMES_OF_PASTED.items() if message.text.startswith(start))
        yield next(names, "a long message")
    if message.parts_of(Image):
        yield "a picture"


def _sources_of_context(message: Message) -> Iterator[str]:
    """Yield what ouro added to a message from files, servers, models or git."""
    contexts = message.parts_of(Context)
    if any(_names_git_state(part.text) for part in contexts):
        yield "the git state"
    for part in contexts:
        for kind, name in _INSERTED_TEXT.findall(part.text):
            yield f"the {kind} {name}"


def _names_git_state(text: str) -> bool:
    """Whether an environment block holds text about git that others wrote.

    A branch name of up to three words does not count. Blocks of earlier versions had file names and
    commit subjects.
    """
    if "\nGit state at this moment:" in text:
        return True
    branch = branch_in_note(text) if "\nGit branch: " in text else ""
    return len(re.findall(r"[^\W_]+", branch)) > _MAX_BRANCH_WORDS


def _describe_call(call: ToolCall) -> str:
    """A tool call as the user sees it: the tool, and its path, command, pattern or address."""
    keys = ("path", "command", "pattern", "url")
    subject = next((str(call.arguments[key]) for key in keys if key in call.arguments), "")
    return f"{call.name} {' '.join(subject.split())[:60]}".strip()


def _parse_sentence(text: str) -> Sentence:
    """The content words of a text in lower case, and whether it negates them. In scripts without
    blanks each character is a word.
    """
    folded = fold(text).replace("\u2019", "'").replace("n't", " not")
    words = set(chain.from_iterable(map(_split_script, _WORD.findall(folded))))
    content_words = frozenset(words - _WORDS_WITHOUT_CONTENT - _NEGATIONS)
    return Sentence(content_words, is_negative=bool(words & _NEGATIONS))


def _split_script(word: str) -> Sequence[str]:
    """The characters of a word in a script without blanks; else the word alone."""
    # The pattern takes 3 ms to compile, a hundredth of a start.
    has_no_blanks = not word.isascii() and _SCRIPT_WITHOUT_BLANKS.search(word)
    return [*word] if has_no_blanks else [word]


def _covers(
    message: Sequence[Sentence], words: frozenset[str], *, is_negative: bool | None = None
) -> bool:
    """Whether a message says all of these words, also in inflected forms. Only the sentences with
    at least one of the words are looked at. With `is_negative` one of these sentences must negate
    (True), or none of them (False); None does not ask for that.
    """
    sentences = [sentence for sentence in message if _have_common_word(words, sentence.words)]
    words_of_user = frozenset[str]().union(*(sentence.words for sentence in sentences))
    if not all(_have_common_word({word}, words_of_user) for word in words):
        return False
    if is_negative is None:
        return True
    return is_negative == any(sentence.is_negative for sentence in sentences)


def _have_common_word(some: Set[str], others: Set[str]) -> bool:
    """Whether a word is in both, or an inflected form of it: `test`, `tests`, `testing`."""
    if not some.isdisjoint(others):
        return True
    return any(starmap(_is_inflected, product(some, others)))


def _is_inflected(word: str, other: str) -> bool:
    """Whether the longer of two words is the shorter one with an ending of at most three letters;
    words of less than four letters have none.
    """
    short, long = sorted((word, other), key=len)
    return len(short) >= 4 and len(long) - len(short) <= 3 and long.startswith(short)
