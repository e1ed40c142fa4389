"""Review comments of a pull request, from `gh` or a file: each becomes a pending note with its link.

Other people wrote them (M20): none is used before the user accepts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ouro.errors import UsageError
from ouro.memory.long_term.entry_lookup import all_entries
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.notes.note import note_text
from ouro.memory.long_term.placement import note_category, place
from ouro.memory.long_term.remember import clean_text, make_note
from ouro.memory.long_term.supersession import fold_words
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.memory.long_term.editor import MemoryEditor

_REASON = "other people wrote it in a review"
_MAX_COMMENTS = 200
_MAX_BODY = 2_000
_MIN_WORDS = 3
"""`LGTM` and `nit: typo` teach nothing."""
_NOT_THE_COMMENT = late_pattern(r"(?m)^>[^\n]*\n?|```[a-z]*\n[^`]{0,4000}```|<!--.{0,2000}?-->")
"""Quotations, code blocks and invisible HTML comments."""
_WEB_ADDRESS = late_pattern(r"https?://[^\s<>\"']{1,300}")


class ReviewComment(msgspec.Struct, frozen=True):
    """A comment of a pull request."""

    text: str
    link: str
    place: str = ""
    """`src/api.py:12`, if it is about a line."""
    author: str = ""


class ProposedReview(msgspec.Struct, frozen=True):
    """What became of the comments."""

    proposals: tuple[str, ...]
    """The ids of the pending changes, one for each comment."""
    known: int
    """The number of comments that are remembered or pending already, or say too little."""
    refused: int
    """The number of comments with a secret."""


def read_comments(data: bytes) -> list[ReviewComment]:
    """The first `_MAX_COMMENTS` comments in the JSON of `gh api …/pulls/N/comments` or `gh pr view
    --json comments,reviews`, without quotations and code. Replies and comments of few words are
    left out. Raises UsageError if it is no such JSON.
    """
    comments: list[ReviewComment] = []
    for document in _decode_documents(data):
        for item in _find_comments(document):
            body = item.get("body")
            if not isinstance(body, str) or item.get("in_reply_to_id"):
                continue
            text = clean(_NOT_THE_COMMENT.sub("", body[:_MAX_BODY])).strip()
            # A script without blanks has one word: its characters are counted.
            if len(text.split()) >= _MIN_WORDS or len(text) >= 5 * _MIN_WORDS:
                comments.append(_make_comment(item, text))
    return comments[:_MAX_COMMENTS]


def propose_comments(editor: MemoryEditor, comments: Sequence[ReviewComment]) -> ProposedReview:
    """Make each comment a pending note of the repository, or of the user if the memory of the
    repository is off. Nothing of it is used before the user accepts it. What is remembered or
    pending already, and a comment with a secret, is left out. Blocks.
    """
    scope: Scope = "repo" if "repo" in editor.names else "user"
    scope_memory = editor.scope(scope)
    edits = chain.from_iterable(proposal.edits for proposal in scope_memory.proposals())
    texts = [entry.text for entry in all_entries(editor, archived=True)]
    texts += [edit.after or "" for edit in edits]
    known_text = " ".join(map(fold_words, texts))
    ids: list[str] = []
    known = refused = 0
    for comment in comments:
        if fold_words(comment.text) in known_text:
            known += 1
        elif scope_memory.store.secret_in(comment.text):
            refused += 1
        else:
            edit = _edit_that_adds(editor, scope, comment)
            sources = (comment.link or comment.place or "a review",)
            ids.append(scope_memory.propose([edit], _REASON, sources, editor.moment).id)
            known_text += f" {fold_words(comment.text)}"
    return ProposedReview(tuple(ids), known, refused)


def _edit_that_adds(editor: MemoryEditor, scope: Scope, comment: ReviewComment) -> FileEdit:
    """The edit that adds a comment as a note, with its link and its author."""
    full_text = f"About {comment.place}: {comment.text}" if comment.place else comment.text
    text = clean_text(full_text)
    placement = replace(place(text, editor.names), scope=scope, is_note=True)
    placement = replace(placement, category=note_category(text, placement.category, scope))
    extra = {"link": comment.link, "reviewer": comment.author}
    note = make_note(editor, placement)
    note = replace(
        note, trigger="import", extra={name: value for name, value in extra.items() if value}
    )
    return FileEdit(note.file_name, before=None, after=note_text(note))


def _decode_documents(data: bytes) -> Iterator[Any]:
    """Yield the JSON documents that follow each other, because `gh --paginate` prints one list a
    page. Raises UsageError if it is no JSON.
    """
    import json

    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    decoder, offset = json.JSONDecoder(), 0
    try:
        while offset < len(text):
            if text[offset].isspace():
                offset += 1
                continue
            document, offset = decoder.raw_decode(text, offset)
            yield document
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "The comments cannot be read: this is not the JSON of `gh`.",
            "Make it with: gh api repos/OWNER/NAME/pulls/12/comments > comments.json",
        ) from error


def _find_comments(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the comments of a document: of a list, or of the lists `comments` and `reviews`. Raises
    UsageError if it has none.
    """
    if isinstance(document, Mapping):
        values = (document.get("comments"), document.get("reviews"))
        lists = [value for value in values if isinstance(value, list)]
        document = [*chain.from_iterable(lists)]
    if not isinstance(document, list):
        raise UsageError("The comments cannot be read: there is no list of comments in it.")
    yield from (item for item in document if isinstance(item, Mapping))


def _make_comment(item: Mapping[str, Any], text: str) -> ReviewComment:
    """The comment with this text, and the place, link and author in its JSON; a link that is no
    address of the web is left out.
    """
    user = item.get("user") or item.get("author") or {}
    author = user.get("login", "") if isinstance(user, Mapping) else ""
    path, line = item.get("path"), item.get("line") or item.get("original_line")
    place = one_line(clean(str(path)), 200) if path else ""
    if place and isinstance(line, int):
        place = f"{place}:{line}"
    link = str(item.get("html_url") or item.get("url") or "")
    is_link = _WEB_ADDRESS.fullmatch(link) is not None
    return ReviewComment(
        text, link=link if is_link else "", place=place, author=one_line(clean(str(author)), 60)
    )
