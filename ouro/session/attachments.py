"""Attachments: what a message names with `@` goes to the model with it, as if it had been read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.agent.loop import Prompt
from ouro.agent.mentions import Mention, find_mentions
from ouro.errors import OuroError
from ouro.events import Emit, Notice
from ouro.safety import Allow, Ask, Deny, Effect, Permissions
from ouro.tools.files_seen import BinaryFileError, FilesSeen
from ouro.utils.git import Git, GitError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import byte_size, clean, plural

MAX_CHARACTERS = 600_000
"""The maximum of all attachments of a message together; the read tool limits each file."""
MAX_LISTED = 300
_MAX_MENTIONS = 200
_GIT_SECONDS = 2.0
_SNIFFED_BYTES = 8192
_PICTURE_SUFFIX = late_pattern(r"(?i:\.(?:gif|jpe?g|png|webp))")
"""The ending of a file that is sent as an image instead."""
_KEY_FILE = late_pattern(
    r"(?i:\.env(?:\.(?!example$|sample$|template$|dist$).+)?|id_(?:rsa|dsa|ecdsa|ed25519)"
    r"|.+\.(?:pem|key|p12|pfx|jks|keystore)|\.netrc|\.npmrc|\.pypirc|credentials(?:\.json)?)"
)
_EXPLANATION = (
    "The user attached this to the message. The files count as read: change them without reading"
    " them again."
)


class Attachment(msgspec.Struct, frozen=True):
    """One thing that a message names; with a `problem` it is not sent."""

    name: str
    size: str = ""
    """`31 lines`, `12 KB`, `40 files`."""
    problem: str = ""

    def __str__(self) -> str:
        detail = self.problem or self.size
        return f"{self.name} ({detail})" if detail else self.name


class ReadMention(NamedTuple):
    """The result of reading one mention: what the user sees, and the text for the model."""

    item: Attachment
    text: str = ""
    """Empty if it is not sent."""


class Attached(msgspec.Struct, frozen=True):
    """All that a message names, read."""

    text: str = ""
    """The text for the model; empty if there is nothing."""
    items: tuple[Attachment, ...] = ()
    files: tuple[str, ...] = ()
    """The names of the files and folders, if anything is sent: their instructions belong to it."""

    @property
    def report(self) -> str:
        """What was attached and what was not, in one line; empty if nothing was named."""
        sent = ", ".join(str(item) for item in self.items if not item.problem)
        refused = ", ".join(str(item) for item in self.items if item.problem)
        sent_text = f"Attached: {sent}." if sent else ""
        refused_text = f"Not attached: {refused}." if refused else ""
        return f"{sent_text} {refused_text}".strip()

    @property
    def has_problem(self) -> bool:
        """Whether something that was named is not sent."""
        return any(item.problem for item in self.items)


ReadText = Callable[[str], Awaitable[str]]
"""Returns a note or the excerpt of a session by its id or words. Raises OuroError."""


class Attachments:
    """Reads what a message names, within the permission rules.

    Args:
        readers: the functions that read notes and sessions, by the kind of the mention: `note`,
            `session`.
        instructions_for: returns the project instructions for paths that are used for the first time.
        read_resources: returns the content of resources of MCP servers that a message names.
    """

    def __init__(
        self,
        seen: FilesSeen,
        permissions: Permissions,
        readers: Mapping[str, ReadText],
        instructions_for: Callable[[Sequence[str]], str],
        read_resources: Callable[[str], Awaitable[str]],
    ) -> None:
        self._workspace = permissions.workspace
        self._permissions = permissions
        self._seen = seen
        self._readers = readers
        self._instructions_for = instructions_for
        self.read_resources = read_resources
        self._previewed: dict[str, Attachment] = {}
        """The notes and sessions that `preview` has found, by the name in the mention."""

    async def read(self, text: str) -> Attached:
        """Read everything that a message names: files, folders, notes, sessions and resources of
        MCP servers. What cannot be read has a problem in the result; nothing is raised for it. The
        instructions for the files are not in it: see `take_instructions`.
        """
        mentions = self.find(text)
        resources = await self.read_resources(text)
        if not mentions:
            return Attached(resources)

        # Files are read together in a thread, all else one by one; then all is in order again.
        files = [mention for mention in mentions if mention.kind == "file"]
        read_files = await asyncio.to_thread(self._attach_files, files)
        read_mentions = dict(zip(files, read_files, strict=True))
        for mention in mentions:
            if mention.kind != "file":
                read_mentions[mention] = await self._attach_memory(mention)
        in_order = [read_mentions[mention] for mention in mentions]
        attached = _join_attachments(in_order, files)
        return replace(attached, text="\n\n".join(filter(None, (attached.text, resources))))

    async def attach_to(self, prompt: Prompt, emit: Emit) -> Prompt:
        """Returns the message with what it names, as context. Emits notices about what was
        attached. Used for a message that steers a running turn.
        """
        attached = await self.read(prompt.text)
        for notice in notices_about(attached):
            emit(notice)
        texts = (prompt.context, attached.text, self.take_instructions(attached))
        return replace(prompt, context="\n\n".join(filter(None, texts)))

    def take_instructions(self, attached: Attached) -> str:
        """The project instructions for attached files that were not sent yet; empty if there are none.
        They count as sent from now on: call it when the message is sent.
        """
        return self._instructions_for(attached.files)

    def find(self, text: str) -> list[Mention]:
        """The mentions of a message that can be attached, at most `_MAX_MENTIONS`, in their order.
        A word after `@` that names no file is an ordinary word, and left out. Left out are also
        files that the message has already, or that are sent as images, and resources of MCP
        servers: `read_resources` finds them itself.
        """
        if "@" not in text:
            return []
        attachable: list[Mention] = []
        for mention in find_mentions(text, self._exists)[:_MAX_MENTIONS]:
            is_text_file = mention.kind == "file" and self._is_new_text(mention, text)
            if is_text_file or mention.kind in self._readers:
                attachable.append(mention)
        return attachable

    async def preview(self, text: str) -> tuple[Attachment, ...]:
        """What `read` would attach, and what it would refuse, in the order of the message. Only the
        size and the first bytes of files are read.
        """
        mentions, file_previews = await asyncio.to_thread(self._preview_files, text)
        other_previews = {
            mention: await self._preview_other(mention)
            for mention in mentions
            if mention.kind != "file"
        }
        return tuple(other_previews.get(mention) or file_previews[mention] for mention in mentions)

    def _preview_files(self, text: str) -> tuple[Sequence[Mention], dict[Mention, Attachment]]:
        """The mentions of a message, and what would be attached of each file. Blocks."""
        mentions = self.find(text)
        files = [mention for mention in mentions if mention.kind == "file"]
        ignored = self._ignored_names(files)
        return mentions, {mention: self._preview_file(mention, ignored) for mention in files}

    async def _preview_other(self, mention: Mention) -> Attachment:
        """Preview a note or a session, with its size. One that was found is not looked up again,
        because the preview is repeated while the user types.
        """
        if mention.name not in self._previewed:
            preview = (await self._attach_memory(mention)).item
            if preview.problem:
                return preview
            if len(self._previewed) > _MAX_MENTIONS:  # a long session must not fill the memory
                self._previewed.clear()
            self._previewed[mention.name] = preview
        return self._previewed[mention.name]

    def _is_new_text(self, mention: Mention, text: str) -> bool:
        """Whether a mention is a file that is neither in the text already nor sent as an image."""
        is_embedded = f"<file path='{mention.shown}'>" in text
        return (
            self._exists(mention.name)
            and not is_embedded
            and not _PICTURE_SUFFIX.fullmatch(self._path(mention).suffix)
        )

    def _exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name, also outside of the workspace."""
        try:
            return os.path.lexists(self._workspace.resolve(name))
        except OSError:  # a name that is too long
            return False

    def _path(self, mention: Mention) -> Path:
        return self._workspace.resolve(mention.name)

    def _preview_file(self, mention: Mention, ignored: frozenset[str]) -> Attachment:
        """What would be attached of a file or folder: its size, or the problem for which it is
        refused. Only its first bytes are read.
        """
        if problem := self._admit_file(mention, ignored):
            return Attachment(mention.shown, problem=problem)
        path = self._path(mention)
        try:
            if path.is_dir():
                return Attachment(mention.shown, "folder")
            with self._workspace.open(mention.name) as file:
                start, size = file.read(_SNIFFED_BYTES), os.fstat(file.fileno()).st_size
        except (OSError, OuroError) as error:
            return Attachment(mention.shown, problem=_short_reason(error))
        if _is_binary(start, is_whole=size <= len(start)):
            return Attachment(mention.shown, problem="binary")
        lines = plural(mention.last - mention.first + 1, "line") if mention.first else ""
        return Attachment(mention.shown, lines or byte_size(size))

    def _admit_file(self, mention: Mention, ignored: frozenset[str]) -> str:
        """Decide whether a file may be read. Returns why not, or an empty text if it may. A file
        outside of the workspace is then granted for the running task: by naming it the user has
        allowed it.
        """
        path = self._path(mention)
        if _KEY_FILE.fullmatch(path.name):
            return "may hold keys"
        if path.is_dir():
            return ""  # only its names are sent
        decision = self._permissions.decide("read", Effect.READ, [mention.name])
        if isinstance(decision, Deny):
            return "a rule denies it"
        if isinstance(decision, Ask) and self._workspace.protection(path):
            return self._workspace.protection(path)
        # Without a `rule` that the answer `always` would add, a rule of the user demands the
        # question each time. To name the file is not the answer to it.
        is_asked_each_time = isinstance(decision, Ask) and not decision.rule
        if is_asked_each_time:
            return "a rule asks first: the agent can ask you"
        if mention.name in ignored:
            return "ignored by git"
        if not isinstance(decision, Allow):  # outside the workspace, but named by the user
            self._workspace.grant(path, "read")
        return ""

    def _ignored_names(self, mentions: Sequence[Mention]) -> frozenset[str]:
        """The names among `mentions` that git ignores. Files outside of the workspace are not
        looked up; if git fails, none counts as ignored. Blocks.
        """
        names = [mention.name for mention in mentions if mention.kind == "file"]
        names_inside = [
            name for name in names if self._workspace.is_inside(self._workspace.resolve(name))
        ]
        if not names_inside:
            return frozenset()
        options = ("--others", "--ignored", "--exclude-standard", "--")
        try:
            ignored_paths = set(
                Git(self._workspace.root, _GIT_SECONDS).paths(*options, *names_inside)
            )
        except GitError:
            return frozenset()
        return frozenset(name for name in names_inside if os.path.normpath(name) in ignored_paths)

    def _attach_files(self, mentions: Sequence[Mention]) -> list[ReadMention]:
        """Read or list each of these files and folders. Blocks."""
        ignored = self._ignored_names(mentions)
        return [self._attach_file(mention, ignored) for mention in mentions]

    def _attach_file(self, mention: Mention, ignored: frozenset[str]) -> ReadMention:
        """Read a file, which then counts as read by the model; or list a folder. If that is refused
        or fails, the result has the problem.
        """
        if problem := self._admit_file(mention, ignored):
            return ReadMention(Attachment(mention.shown, problem=problem))
        try:
            if self._path(mention).is_dir():
                return self._list_folder(mention)
            from ouro.tools.read import Read, ReadArgs  # late: few messages name a file

            names_lines = bool(mention.first)  # otherwise the whole file is meant
            line_count = mention.last - mention.first + 1 if names_lines else None
            args = ReadArgs(mention.name, mention.first or 1, line_count)
            result = Read(self._seen).read_now(args)
        except (OSError, OuroError) as error:
            return ReadMention(Attachment(mention.shown, problem=_short_reason(error)))
        cut_note = ", cut" if result.is_cut and not names_lines else ""
        item = Attachment(mention.shown, f"{result.display.summary}{cut_note}")
        return ReadMention(item, result.text)

    def _list_folder(self, mention: Mention) -> ReadMention:
        """The names of the files in a folder, without those that a rule denies."""
        from ouro.utils.project_files import list_project_files

        all_names = list_project_files(self._path(mention))
        names = [name for name in all_names if not self._is_denied(mention, name)]
        rest_note = f"\n… {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
        cut_note = f", {MAX_LISTED} listed" if rest_note else ""
        listing = "\n".join(names[:MAX_LISTED]) or "(no files)"
        item = Attachment(mention.shown, f"{plural(len(names), 'file')}{cut_note}")
        return ReadMention(item, listing + rest_note)

    def _is_denied(self, folder: Mention, name: str) -> bool:
        """Whether a rule denies a file of a folder."""
        path = self._path(folder) / name
        return bool(self._permissions.find_path_rule("deny", "read", Effect.READ, path, path))

    async def _attach_memory(self, mention: Mention) -> ReadMention:
        """Read a note or the excerpt of a session."""
        try:
            read = self._readers[mention.kind]
            text = await read(mention.name.partition(":")[2])
        except (OuroError, OSError) as error:
            return ReadMention(Attachment(mention.shown, problem=_short_reason(error)))
        return ReadMention(Attachment(mention.shown, f"{len(text):,} characters"), text)


def _join_attachments(read_mentions: Sequence[ReadMention], files: Sequence[Mention]) -> Attached:
    """Join all that was read to one text for the model. An attachment that is longer than what is left
    of MAX_CHARACTERS is not sent.

    Args:
        files: the mentions of files and folders.
    """
    items, texts, characters_left = [], [], MAX_CHARACTERS
    for item, text in read_mentions:
        if text and len(text) > characters_left:
            item = Attachment(item.name, problem="no room: the message is full")  # noqa: PLW2901
        elif text:
            characters_left -= len(text)
            body = clean(text).replace("</attached", "< /attached")
            # `trust/provenance.py` recognizes this tag: the text does not count as the user's.
            texts.append(f'<attached name="{item.name}">\n{body}\n</attached>')
        items.append(item)
    if not texts:
        return Attached(text="", items=tuple(items))
    names = tuple(mention.name for mention in files)
    return Attached("\n\n".join((_EXPLANATION, *texts)), tuple(items), names)


def notices_about(attached: Attached, missing: Sequence[str] = ()) -> list[Notice]:
    """The notices about the attachments of a message, and about the names in `missing`: those of
    files that do not exist. Empty if there is nothing to report.
    """
    notices = []
    if missing:
        text = f"There is no file {', '.join(missing)}. The message was sent as it is."
        notices.append(Notice(text, "warning"))
    if attached.items:
        notices.append(Notice(attached.report, "warning" if attached.has_problem else "info"))
    return notices


def _is_binary(start: bytes, *, is_whole: bool) -> bool:
    """Whether a file is not text, by its first bytes; `is_whole` if it has no others."""
    from ouro.utils.text_files import NotTextError, decode_text

    # The last character may be cut in the middle: up to three bytes of it are left out.
    max_cut = 0 if is_whole else 3
    for cut in range(max_cut + 1):
        try:
            decode_text(start[: len(start) - cut])
        except NotTextError:
            continue
        return False
    return True


def _short_reason(error: Exception) -> str:
    """The reason of an error in a few words."""
    if isinstance(error, BinaryFileError):
        return "binary"
    text = error.message if isinstance(error, OuroError) else str(error)
    return text.split("\n")[0].rstrip(".")[:120]
