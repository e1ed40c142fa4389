"""Rewrite a history without a text: afterwards no object of the old one can be read.

The history is whole at each moment: new commits are made beside the old ones, then the branches are moved, and only
then unreachable objects are dropped. A killed run is repeated from the start, and gives the same commits.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.git.history import rename_commits
from ouro.memory.long_term.git.process import DURABLE_PACKS, last_line
from ouro.memory.long_term.git.repository import GitRepository, PlainIndex
from ouro.utils.files import write_private

_WORK = "refs/ouro/rewriting"
_KEPT_REFS = "refs/ouro/kept"
"""Refs for commits that no branch led to, but that could still be found."""
_FORGOTTEN = "forgotten"
_LEFT_BY_GIT = ("ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "AUTO_MERGE", "COMMIT_EDITMSG", "MERGE_MSG", "SQUASH_MSG")
_BATCH = 2_000
_STALE_LOCK_SECONDS = 3.0
_ENTRY = re.compile(rb"[0-7]{5,6} ([^\0]+)\0.{20}", re.DOTALL)
Change = Callable[[bytes], bytes]


def forgotten_commits(repo: GitRepository) -> frozenset[str]:
    """The commits that were removed from this history; no remote may bring them back."""
    return frozenset(repo.own(_FORGOTTEN).split())


def objects(repo: GitRepository) -> Iterator[bytes]:
    """What each object in the git directory says, reachable or not; raises MemoryUnusable where one cannot be read."""
    listed = repo.git("cat-file", "--batch-check=%(objectname) %(objecttype)", "--batch-all-objects").decode()
    ids = [line.split()[0] for line in listed.splitlines()]
    for start in range(0, len(ids), _BATCH):
        yield from _contents(repo, ids[start : start + _BATCH])


def _contents(repo: GitRepository, ids: list[str]) -> Iterator[bytes]:
    answer = repo.git("cat-file", "--batch", given="".join(f"{commit}\n" for commit in ids).encode())
    at = 0
    for _ in ids:
        end = answer.index(b"\n", at)
        _, kind, size = answer[at:end].split()
        yield _words(kind.decode(), answer[end + 1 : end + 1 + int(size)])
        at = end + 2 + int(size)


def _words(kind: str, content: bytes) -> bytes:
    """Without the ids of other objects, which may contain any text by chance."""
    if kind == "tree":
        return b"\n".join(_ENTRY.findall(content))
    return content if kind == "blob" else content.partition(b"\n\n")[2]


def rewrite(
    repo: GitRepository, in_file: Change, in_words: Change, in_name: Change, accept: Callable[[str], None]
) -> int:
    """Rewrite the history; returns how many commits changed. Call it while `alone`.

    Args:
        in_file, in_words, in_name: return a file, a commit message and a file name without the text.
        accept: called with the commit that replaces the accepted one.

    Raises:
        MemoryUnusable, OSError: git failed, or a file could not be written; the history is whole.
    """
    _wait_for_locks(repo)
    for name in repo.git("for-each-ref", "--format=%(refname)", _WORK).decode().split():
        repo.git("update-ref", "--no-deref", "-d", name)
    refs = _refs(repo)
    accepted = repo.own("accepted").partition("\n")[0]
    for number, commit in enumerate([*_loose_ends(repo), *([accepted] if _is_there(repo, accepted) else [])]):
        refs.setdefault(f"{_KEPT_REFS}/{number}-{commit[:12]}", commit)
    if not refs:
        return 0
    for name, commit in refs.items():
        repo.git("update-ref", "--no-deref", name, commit)
    made = _import(repo, _Stream(_export(repo), in_file, in_words, in_name))
    changed = {old: new for old, new in made.items() if old != new}
    old = forgotten_commits(repo) | changed.keys()
    write_private(repo.own_dir / _FORGOTTEN, "".join(f"{commit}\n" for commit in sorted(old)))
    rename_commits(repo, changed)
    if accepted in made:
        accept(made[accepted])
    _move(repo, {name: made.get(commit, commit) for name, commit in refs.items()})
    drop_unreachable(repo)
    return len(changed)


def drop_unreachable(repo: GitRepository) -> None:
    """Remove reflogs and unreachable objects; raises MemoryUnusable where git fails. Call it while `alone`."""
    shutil.rmtree(repo.git_dir / "logs", ignore_errors=True)
    for name in _LEFT_BY_GIT:
        (repo.git_dir / name).unlink(missing_ok=True)
    for pattern in ("fast_import_crash_*", "objects/pack/tmp_*", "objects/*/tmp_obj_*", "objects/pack/*.keep"):
        for path in repo.git_dir.glob(pattern):
            path.unlink(missing_ok=True)
    (repo.git_dir / "objects" / "info" / "commit-graph").unlink(missing_ok=True)
    (repo.git_dir / "index").unlink(missing_ok=True)  # git counts what is in it as reachable
    repo.git(*DURABLE_PACKS, "repack", "-a", "-d", "-q", "--no-write-bitmap-index")
    repo.git("prune", "--expire=now")
    if head := repo.head().commit:
        PlainIndex(repo).rebuild(head)


def _refs(repo: GitRepository) -> dict[str, str]:
    lines = repo.git("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)").decode().splitlines()
    refs = {line.split()[0]: line.split()[-1] for line in lines}
    head = repo.head()
    return refs if head.ref or not head.commit else {**refs, "HEAD": head.commit}


def _loose_ends(repo: GitRepository) -> list[str]:
    """Unreachable commits: undone with plain git, and found by the reflog."""
    done = repo.run("fsck", "--no-reflogs", "--dangling", "--no-progress")
    found = {line.split()[-1] for line in done.stdout.decode().splitlines() if line.startswith("dangling commit ")}
    return sorted(found - forgotten_commits(repo))  # those were being dropped when ouro was killed


def _wait_for_locks(repo: GitRepository) -> None:
    """A running git holds a lock on a ref for milliseconds; an older one was left by a killed git."""
    while locks := [*repo.git_dir.glob("*.lock"), *(repo.git_dir / "refs").rglob("*.lock")]:
        for lock in locks:
            with suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                    lock.unlink()
        time.sleep(0.05)


def _is_there(repo: GitRepository, commit: str) -> bool:
    return bool(commit) and repo.run("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def _export(repo: GitRepository) -> bytes:
    return repo.git(
        "fast-export", "--all", "--full-tree", "--show-original-ids", "--reencode=no", "--signed-tags=strip",
        "--tag-of-filtered-object=drop", "--fake-missing-tagger",
    )  # fmt: skip


def _import(repo: GitRepository, stream: _Stream) -> dict[str, str]:
    """Old commit -> the one that takes its place."""
    marks = repo.own_dir / "rewriting.marks"
    given = b"".join(stream.lines())
    flags = ("fast-import", "--quiet", "--force", "--date-format=raw-permissive", f"--export-marks={marks}")
    done = repo.run(*DURABLE_PACKS, *flags, given=given)
    if done.returncode:
        for report in repo.git_dir.glob("fast_import_crash_*"):
            report.unlink(missing_ok=True)  # it quotes its input
        raise MemoryUnusable(f"The history in {repo.git_dir} cannot be rewritten: {last_line(done.stderr)}")
    try:
        ids = dict(line.split() for line in marks.read_text().splitlines())
    finally:
        marks.unlink(missing_ok=True)
    return {old: ids[mark] for mark, old in stream.commits.items() if mark in ids}


def _move(repo: GitRepository, refs: dict[str, str]) -> None:
    lines = [f"update {name} {commit}\n" for name, commit in refs.items() if name != "HEAD"]
    listed = repo.git("for-each-ref", "--format=%(refname)", _WORK).decode().split()
    lines += [f"delete {name}\n" for name in listed]
    repo.git("update-ref", "--no-deref", "--stdin", given="".join(lines).encode())
    if "HEAD" in refs:
        repo.git("update-ref", "--no-deref", "HEAD", refs["HEAD"])
    tip = repo.head().commit
    with suppress(OSError):
        (repo.own_dir / "tip").write_text(f"{tip}\n")


class _Stream:
    """The output of fast-export, changed on its way to fast-import."""

    def __init__(self, data: bytes, in_file: Change, in_words: Change, in_name: Change) -> None:
        self._data = data
        self._at = 0
        self._in_file, self._in_words, self._in_name = in_file, in_words, in_name
        self.commits: dict[str, str] = {}
        """Mark -> the old commit."""

    def lines(self) -> Iterator[bytes]:
        within, mark = b"", ""
        while self._at < len(self._data):
            line = self._line()
            word, _, rest = line.rstrip(b"\n").partition(b" ")
            if word in (b"blob", b"commit", b"tag", b"reset"):
                within = word
            if word == b"commit" or word == b"reset":
                line = b"%s %s/%s\n" % (word, _WORK.encode(), rest.replace(b"refs/", b"") or b"head")
            elif word == b"mark":
                mark = rest.decode()
            elif word == b"original-oid":
                if within == b"commit":
                    self.commits[mark] = rest.decode()
                continue
            elif word == b"data":
                yield from self._content(int(rest), self._in_file if within == b"blob" else self._in_words)
                continue
            elif within == b"commit" and word == b"M":
                line = self._named(line)
            yield line

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at) + 1 or len(self._data)
        line, self._at = self._data[self._at : end], end
        return line

    def _content(self, size: int, change: Change) -> Iterator[bytes]:
        content = change(self._data[self._at : self._at + size])
        self._at += size
        yield b"data %d\n%s" % (len(content), content)

    def _named(self, line: bytes) -> bytes:
        mode, blob, name = line.rstrip(b"\n").split(b" ", 3)[1:]
        if name.startswith(b'"'):
            plain = name[1:-1].replace(b'\\"', b'"').replace(b"\\\\", b"\\")
            changed = self._in_name(plain)
            quoted = b'"%s"' % changed.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            return line if changed == plain else b"M %s %s %s\n" % (mode, blob, quoted)
        return b"M %s %s %s\n" % (mode, blob, self._in_name(name))
