"""Records, outside of the git history, of the turns to which commits without trailers belong: the
agent commits in the shell as a user would. And of saves whose commit is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, ORIGIN, SESSION, TURN, TurnRef
from ouro.utils.decoding import decode_json
from ouro.utils.files import append_private, write_private
from ouro.utils.text import whole_number

_TURNS_RECORD = "turns"
"""The record with a line for each commit without trailers: its id, and the session, turn and
message in which it was made.
"""
_OPEN_TURN_RECORD = "turn"
"""The record with the turn that runs now."""
_SYNC_MARK = "sync"
"""Stands instead of a turn for a commit that came from another machine."""
_SAVES_RECORD = "saves"
"""The record of the saves that may have no commit yet, as JSON."""
_MAX_SAVES = 100
"""The most saves in the record: without git none is ever committed."""
Trailers = Mapping[str, str]


class UncommittedSave(msgspec.Struct, frozen=True):
    """Files that ouro wrote together, and the trailers of their commit."""

    contents: Mapping[str, str]
    """The blob of each file, by name; GONE for one that was removed."""
    trailers: Trailers


def record_save(repo: GitRepository, save: UncommittedSave) -> None:
    """Record a save before its files are written: if ouro is killed before the commit, the next
    start knows whose words they are.
    """
    _write_saves(repo, [*read_saves(repo), save][-_MAX_SAVES:])


def drop_saves(repo: GitRepository, committed: Sequence[UncommittedSave]) -> None:
    """Drop saves from the record, because they are committed."""
    _write_saves(repo, [save for save in read_saves(repo) if save not in committed])


def read_saves(repo: GitRepository) -> list[UncommittedSave]:
    """The saves that may have no commit, oldest first; none if the record is damaged."""
    text = repo.read_record(_SAVES_RECORD)
    try:
        return decode_json(text, list[UncommittedSave]) if text else []
    except msgspec.DecodeError:
        return []


def _write_saves(repo: GitRepository, saves: Sequence[UncommittedSave]) -> None:
    if saves:
        repo.write_record(_SAVES_RECORD, msgspec.json.encode(saves).decode(), durable=False)
        return
    with suppress(OSError):
        (repo.own_dir / _SAVES_RECORD).unlink()


def record_turn(repo: GitRepository, since: str, trailers: Trailers) -> None:
    """Record, outside of the repository, that the commits after `since` (empty: all) and the
    uncommitted changes belong to the turn with these trailers.
    """
    turn = f"{trailers.get(SESSION, '')} {trailers.get(TURN) or 0} {trailers.get(MESSAGE) or 0}".strip()
    repo.write_record(_OPEN_TURN_RECORD, turn)
    head = repo.head().commit
    if head != since:
        ids = repo.git("rev-list", f"{since}..{head}" if since else head).decode().split()
        _record_commits(repo, ids, turn)


def record_sync(repo: GitRepository, commits: str) -> None:
    """Record that a range of commits (git notation) came from another machine, not from a turn
    here.
    """
    format_ = f"--format=%H %(trailers:key={ORIGIN},valueonly,separator=%x2C)"
    lines = [line.strip() for line in repo.git("log", format_, commits).decode().splitlines()]
    # A line with a blank is a commit with its origin: nothing needs to be recorded for it.
    without_origin = [line for line in lines if " " not in line]
    _record_commits(repo, without_origin, _SYNC_MARK)


def end_turn(repo: GitRepository) -> None:
    """Record that no turn runs any more."""
    if repo.read_record(_OPEN_TURN_RECORD):
        repo.write_record(_OPEN_TURN_RECORD, "")


def open_turn(repo: GitRepository) -> TurnRef:
    """The turn that ran when ouro was killed, to which its uncommitted changes belong; a turn
    without a session if none ran.
    """
    words = repo.read_record(_OPEN_TURN_RECORD).split()
    session, turn, message = [*words, "", "", ""][:3]  # the record may be missing or damaged
    return TurnRef(session, whole_number(turn) or 0, whole_number(message) or 0)


def rename_commits(repo: GitRepository, renamed: Mapping[str, str]) -> None:
    """Update the recorded turns after the history was rewritten; `renamed`: old commit -> new
    commit.
    """
    lines = ""
    for line in repo.read_record(_TURNS_RECORD).splitlines():
        commit, _, turn = line.partition(" ")
        lines += f"{renamed.get(commit, commit)} {turn}\n"
    write_private(repo.own_dir / _TURNS_RECORD, lines)


def _record_commits(repo: GitRepository, commits: Iterable[str], turn: str) -> None:
    """Record the turn, or `_SYNC_MARK`, for each commit for which nothing is recorded yet."""
    recorded = read_recorded_turns(repo)
    lines = "".join(f"{commit} {turn}\n" for commit in commits if commit not in recorded)
    append_private(repo.own_dir / _TURNS_RECORD, lines)


def read_recorded_turns(repo: GitRepository) -> dict[str, Trailers]:
    """Commit -> the trailers of the turn that is recorded for it."""
    turns: dict[str, Trailers] = {}
    for line in repo.read_record(_TURNS_RECORD).splitlines():
        if line.strip():
            commit, *words = line.split()
            turns[commit] = _turn_trailers(words)
    return turns


def _turn_trailers(words: list[str]) -> Trailers:
    """The trailers that a line of the record stands for. `words` are the words after the commit:
    either `_SYNC_MARK`, or the session, turn and message of a turn of the agent. The number 0 is an
    unknown one, and is left out.
    """
    if words == [_SYNC_MARK]:
        return {ORIGIN: _SYNC_MARK}
    fields = zip((SESSION, TURN, MESSAGE), words, strict=False)
    return {ORIGIN: "agent", **{name: value for name, value in fields if value != "0"}}
