"""Rewrite a history without a text: afterwards no object of the old one can be read.

The history is complete at each moment: first new commits are made, then the branches are moved to
them, and only then unreachable objects are dropped. A killed run is repeated from the start, and
makes the same commits.
"""

from __future__ import annotations

import io
import re
import shutil
import time
from collections.abc import Callable, Iterator

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.git.process import DURABLE_PACKS, last_line
from ouro.memory.long_term.git.repository import TIP, GitRepository, rebuild_index
from ouro.memory.long_term.git.turn_records import rename_commits
from ouro.utils.files import write_private

_WORKING_REFS = "refs/ouro/rewriting"
"""Below it are the refs of the new commits while a rewrite runs."""
_KEPT_REFS = "refs/ouro/kept"
"""Refs for commits that were on no branch, but could still be found."""
_FORGOTTEN_RECORD = "forgotten"
_LEFT_BY_GIT = (
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "AUTO_MERGE",
    "COMMIT_EDITMSG",
    "MERGE_MSG",
    "SQUASH_MSG",
    "fast_import_crash_*",
    "objects/pack/tmp_*",
    "objects/*/tmp_obj_*",
    "objects/pack/*.keep",
    "objects/info/commit-graph",
)
"""Files in a git directory that may hold the text although no object does."""
_BATCH_OBJECTS = 2_000
_TREE_ENTRY = re.compile(rb"[0-7]{5,6} ([^\0]+)\0.{20}", re.DOTALL)
"""An entry of a tree object: mode, name, NUL, 20 bytes of an id."""
ChangeBytes = Callable[[bytes], bytes]


def read_forgotten_commits(repo: GitRepository) -> frozenset[str]:
    """The commits that were removed from this history; no remote may bring them back."""
    return frozenset(repo.read_record(_FORGOTTEN_RECORD).split())


def read_object_texts(repo: GitRepository) -> Iterator[bytes]:
    """Yield the text of each object in the git directory, reachable or not: the content of a file,
    the names in a folder, the message of a commit or tag. Ids of other objects, which could contain
    a short text by chance, are left out. Raises MemoryUnusable if an object cannot be read.
    """
    output = repo.git("cat-file", "--batch-check=%(objectname)", "--batch-all-objects")
    ids = output.decode().split()
    for start in range(0, len(ids), _BATCH_OBJECTS):
        for kind, content in repo.read_objects(ids[start : start + _BATCH_OBJECTS]):
            if kind == "blob":
                yield content
            elif kind == "tree":
                yield b"\n".join(_TREE_ENTRY.findall(content))
            else:
                _, _, message = content.partition(b"\n\n")
                yield message


def rewrite_history(
    repo: GitRepository,
    clean_file: ChangeBytes,
    clean_words: ChangeBytes,
    clean_name: ChangeBytes,
    accepted: str,
    accept: Callable[[str], None],
) -> None:
    """Rewrite all commits without a text, move the branches to the new ones, record which commits
    were forgotten, and drop the old objects. The history stays complete if this fails. Call it
    under `hold_lock`.

    Args:
        clean_file, clean_words, clean_name: return a file, a commit message and a file name without the text.
        accepted: the accepted commit; empty if there is none.
        accept: called with the commit that replaces it.
    """
    # Remove what killed processes left.
    while repo.drop_stale_locks():
        time.sleep(0.05)
    for name in _working_refs(repo):
        repo.git("update-ref", "--no-deref", "-d", name)

    # Write all commits again: the refs make each of them reachable.
    refs = _refs_to_rewrite(repo, accepted)
    if not refs:
        return
    for name, commit in refs.items():
        repo.git("update-ref", "--no-deref", name, commit)
    replacements = _write_replacements(repo, clean_file, clean_words, clean_name)
    changed_commits = {old: new for old, new in replacements.items() if old != new}

    # Record what was forgotten, and use the new commits in the place of the old ones.
    forgotten = read_forgotten_commits(repo) | changed_commits.keys()
    forgotten_lines = "".join(f"{commit}\n" for commit in sorted(forgotten))
    write_private(repo.own_dir / _FORGOTTEN_RECORD, forgotten_lines)
    rename_commits(repo, changed_commits)
    if accepted in replacements:
        accept(replacements[accepted])
    _move_refs(repo, {name: replacements.get(commit, commit) for name, commit in refs.items()})
    repo.write_record(TIP, repo.head().commit, durable=False)
    drop_unreachable(repo)


def _working_refs(repo: GitRepository) -> list[str]:
    """The names of the refs below `_WORKING_REFS`: those of a rewrite that has not ended."""
    return repo.git("for-each-ref", "--format=%(refname)", _WORKING_REFS).decode().split()


def _refs_to_rewrite(repo: GitRepository, accepted: str) -> dict[str, str]:
    """The refs whose history is rewritten, with their commits: all refs, a HEAD without a branch,
    and new refs below `_KEPT_REFS` for the accepted commit and the commits that no ref reaches.
    """
    refs = {}
    ref_lines = repo.git("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)")
    for line in ref_lines.decode().splitlines():
        name, *ids = line.split()
        refs[name] = ids[-1]  # of a tag object the second id, which is that of its commit
    head = repo.head()
    if head.commit and not head.ref:
        refs["HEAD"] = head.commit
    loose = sorted(_find_loose_commits(repo))
    if accepted and repo.run("cat-file", "-e", f"{accepted}^{{commit}}").returncode == 0:
        loose.append(accepted)
    for number, commit in enumerate(loose):
        refs.setdefault(f"{_KEPT_REFS}/{number}-{commit[:12]}", commit)
    return refs


def _find_loose_commits(repo: GitRepository) -> set[str]:
    """The ends of the branches of commits that no ref reaches, because they were undone with plain
    git; without those that were forgotten.
    """
    fsck = repo.run("fsck", "--no-reflogs", "--dangling", "--no-progress")
    loose = set()
    for line in fsck.stdout.decode().splitlines():
        if line.startswith("dangling commit "):
            loose.add(line.split()[-1])
    return loose - read_forgotten_commits(repo)  # ouro was killed while it dropped these


def _move_refs(repo: GitRepository, new_commits: dict[str, str]) -> None:
    """Set the refs to their new commits (`new_commits`: by the name of the ref), HEAD last, and
    remove the working refs.
    """
    updates = []
    for name, commit in new_commits.items():
        if name != "HEAD":
            updates.append(f"update {name} {commit}\n")
    updates += [f"delete {name}\n" for name in _working_refs(repo)]
    repo.git("update-ref", "--no-deref", "--stdin", stdin="".join(updates).encode())
    if "HEAD" in new_commits:
        repo.git("update-ref", "--no-deref", "HEAD", new_commits["HEAD"])


def drop_unreachable(repo: GitRepository) -> None:
    """Remove reflogs and unreachable objects; raises MemoryUnusable if git fails. Call it under
    `hold_lock`.
    """
    shutil.rmtree(repo.git_dir / "logs", ignore_errors=True)
    for pattern in _LEFT_BY_GIT:
        for path in repo.git_dir.glob(pattern):
            path.unlink(missing_ok=True)
    head = repo.head().commit
    has_new_index = bool(head) and rebuild_index(repo, head)
    if not has_new_index:  # objects in an old index count as reachable
        (repo.git_dir / "index").unlink(missing_ok=True)
    repo.git(*DURABLE_PACKS, "repack", "-a", "-d", "-q", "--no-write-bitmap-index")
    repo.git("prune", "--expire=now")


def _write_replacements(
    repo: GitRepository, clean_file: ChangeBytes, clean_words: ChangeBytes, clean_name: ChangeBytes
) -> dict[str, str]:
    """Write all commits again without the text, on refs below `_WORKING_REFS`. Returns old commit ->
    its replacement, which is the same one if nothing in it changes. Raises MemoryUnusable.
    """
    exported = repo.git(
        "fast-export",
        "--all",
        "--full-tree",
        "--show-original-ids",
        "--reencode=no",
        "--signed-tags=strip",
        "--tag-of-filtered-object=drop",
        "--fake-missing-tagger",
    )
    commits: dict[str, str] = {}  # mark -> old id; `_change_export` fills it
    changed_export = b"".join(
        _change_export(exported, clean_file, clean_words, clean_name, commits)
    )
    marks = repo.own_dir / "rewriting.marks"
    flags = ("--force", "--date-format=raw-permissive", f"--export-marks={marks}")
    fast_import = repo.fast_import(changed_export, *flags, durable=True)
    if fast_import.returncode:
        raise MemoryUnusable(
            f"The history in {repo.git_dir} cannot be rewritten: {last_line(fast_import.stderr)}"
        )
    try:
        new_ids = dict(line.split() for line in marks.read_text().splitlines())  # by mark
    finally:
        marks.unlink(missing_ok=True)
    return {old_id: new_ids[mark] for mark, old_id in commits.items() if mark in new_ids}


def _change_export(
    exported: bytes,
    clean_file: ChangeBytes,
    clean_words: ChangeBytes,
    clean_name: ChangeBytes,
    commits: dict[str, str],
) -> Iterator[bytes]:
    """Yield the output of `git fast-export` with every file, message and name changed by these
    functions: it is the input of `git fast-import`. The refs in it are below `_WORKING_REFS`.

    Adds to `commits` for each commit: its mark -> its old id.
    """
    stream = io.BytesIO(exported)
    within = b""  # the kind of object to which the line belongs
    mark = ""
    while line := stream.readline():
        word, _, rest = line.rstrip(b"\n").partition(b" ")
        if word in (b"blob", b"commit", b"tag", b"reset"):
            within = word
        if word in (b"commit", b"reset"):
            # `refs/heads/main` becomes `heads/main` below `_WORKING_REFS`.
            ref = rest.replace(b"refs/", b"") or b"head"
            yield b"%s %s/%s\n" % (word, _WORKING_REFS.encode(), ref)
        elif word == b"original-oid":  # not yielded: the new object has another id
            if within == b"commit":
                commits[mark] = rest.decode()
        elif word == b"data":
            content = stream.read(int(rest))
            content = clean_file(content) if within == b"blob" else clean_words(content)
            yield b"data %d\n%s" % (len(content), content)
        elif within == b"commit" and word == b"M":
            mode, blob, name = rest.split(b" ", 2)
            yield b"M %s %s %s\n" % (mode, blob, _change_name(name, clean_name))
        else:
            if word == b"mark":
                mark = rest.decode()
            yield line


def _change_name(name: bytes, clean_name: ChangeBytes) -> bytes:
    """Change a file name that is in the form of `git fast-export`: in quotes, with `\\` before some
    characters, if it has unusual ones. Returns the new name in this form.
    """
    if not name.startswith(b'"'):
        return clean_name(name)
    unquoted = name[1:-1].replace(b'\\"', b'"').replace(b"\\\\", b"\\")
    new_name = clean_name(unquoted)
    if new_name == unquoted:
        return name
    return b'"%s"' % new_name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
