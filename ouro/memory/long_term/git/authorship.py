"""Which turn a commit is from that does not say so: the agent commits in the shell as a person would, without trailers.

It is noted beside the history, out of reach of what runs in a shell; the commit stays as it was made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, ORIGIN, SESSION, TURN
from ouro.utils.files import write_private

_TURNS = "turns"
_OPEN = "turn"
_SYNC = "sync"
Trailers = Mapping[str, str]


def note_turn(repo: GitRepository, since: str, trailers: Trailers) -> None:
    """The commits after `since` are of a turn, and so is what was written and is not committed yet.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    repo.keep(_OPEN, _line(trailers))
    head = repo.head().commit
    if head == since:
        return
    _note(repo, repo.git("rev-list", f"{since}..{head}" if since else head).decode().split(), _line(trailers))


def note_sync(repo: GitRepository, commits: str) -> None:
    """What came from another machine is of no turn here: a range of commits, as git takes it.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    listed = repo.git("log", f"--format=%H %(trailers:key={ORIGIN},valueonly,separator=%x2C)", commits).decode()
    _note(repo, [line.strip() for line in listed.splitlines() if " " not in line.strip()], _SYNC)


def _note(repo: GitRepository, commits: Iterable[str], line: str) -> None:
    known = authors(repo)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(repo.own_dir / _TURNS, flags, 0o600), "w") as file:
        file.write("".join(f"{each} {line}\n" for each in commits if each not in known))


def end_turn(repo: GitRepository) -> None:
    """All that was written in it is committed."""
    if repo.own(_OPEN):
        repo.keep(_OPEN, "")


def open_turn(repo: GitRepository) -> Trailers:
    """Of the turn in which ouro was killed, for what it has left uncommitted."""
    return _trailers(repo.own(_OPEN).split())


def authors(repo: GitRepository) -> dict[str, Trailers]:
    """Commit -> the trailers that it would have."""
    parted: Iterable[list[str]] = (line.split() for line in repo.own(_TURNS).splitlines())
    return {words[0]: _trailers(words[1:]) for words in parted if words}


def carry_over(repo: GitRepository, renamed: Mapping[str, str]) -> None:
    """The history was written anew: old commit -> new one."""
    known = authors(repo)
    if not renamed.keys().isdisjoint(known):
        lines = [f"{renamed.get(each, each)} {_line(trailers)}\n" for each, trailers in known.items()]
        write_private(repo.own_dir / _TURNS, "".join(lines))


def _line(trailers: Trailers) -> str:
    if trailers.get(ORIGIN) == _SYNC:
        return _SYNC
    return f"{trailers.get(SESSION, '')} {trailers.get(TURN) or 0} {trailers.get(MESSAGE) or 0}".strip()


def _trailers(words: list[str]) -> Trailers:
    if words == [_SYNC]:
        return {ORIGIN: _SYNC}
    named = zip((SESSION, TURN, MESSAGE), words, strict=False)
    return {ORIGIN: "agent", **{name: value for name, value in named if value != "0"}}
