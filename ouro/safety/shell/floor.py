"""The hard floor: what the user is asked about in every mode, whatever the rules say. It has
commands that cannot be undone, what reaches keys, and changes of long-term memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ouro.safety.shell.command import Command, Redirect, ShellLine, Word
from ouro.safety.shell.fetched_files import check_fetched
from ouro.safety.shell.fetches import check_fetch
from ouro.safety.shell.paths import HARMLESS_DEVICES, Places, before_pattern
from ouro.safety.shell.read_only import (
    ReadOptions,
    find_starts,
    git_lists,
    git_words,
    only_reads,
    read_options,
)
from ouro.safety.shell.tables import UNKNOWN, CommandRow, names, rows
from ouro.safety.workspace import FetchedFiles, GuardedMemory, Workspace

_FINAL_COMMANDS = """
# commands, some only with one of these options | what they do
npm publish, yarn publish, yarn npm publish, pnpm publish, cargo publish, poetry publish, uv publish, twine upload,
    gem push | publishes a package
npm unpublish, cargo yank | withdraws a package
gh release delete | deletes a release
gh repo delete | deletes a repository
terraform destroy, tofu destroy, pulumi destroy | destroys machines
terraform apply, tofu apply | changes machines
kubectl delete, helm uninstall | deletes from a cluster
docker system prune, docker volume rm, docker volume prune | deletes images and volumes
aws s3 rm, aws s3 rb, gsutil rm | deletes from a store
dropdb | drops a database
redis-cli flushall | empties a database
rsync --delete | deletes what is missing in the source
killall, pkill | ends processes by name, others' among them
ouro, python ouro -m, python3 ouro -m | starts another agent
git push -f -d --force --mirror --delete --prune | overwrites or deletes commits of others
git reset --hard --merge --keep, git checkout -f --force -- ., git switch -f --force --discard-changes,
    git restore -W --worktree, git worktree remove -f --force | discards uncommitted changes
git clean -f -d -x -X --force | deletes untracked files
git branch -D -d --delete -f --force -M -C | deletes or overwrites a branch
git checkout -B, git switch -C --force-create | overwrites a branch
git tag -d -f --delete --force | deletes or moves a tag
git stash drop, git stash clear | discards stashed changes
git reflog expire, git reflog delete | deletes the record of earlier commits
git gc --prune, git prune | deletes objects
git filter-branch, git filter-repo, git replace | rewrites history
git update-ref | moves references
git remote add, git remote set-url, git remote rename | changes where commits go
"""
_COMMANDS_WITH_HOOKS = names("commit push merge rebase am pull")
"""The subcommands of git that have the option `--no-verify`."""
_NO_VERIFY_OF_COMMIT = re.compile(r"-[^-mFCctSu]*n")
"""`-n` of `git commit`, also after other letters; not the value of an option, as in `-mname`."""
_COMMIT_OPTION_WITH_VALUE = re.compile(
    r"-[^-mFCctSu]*[mFCct]"
    r"|--(message|file|author|date|template|cleanup|reuse-message|reedit-message|fixup|squash|trailer)"
)
"""An option of `git commit` whose value is the next word, as in `-am MESSAGE`."""
_RIGHTS_CHANGERS = names(
    "sudo doas su pkexec run0 runuser visudo passwd useradd usermod userdel chpasswd"
)
_MACHINE_COMMAND = re.compile(
    r"mkfs(\..*)?|mke2fs|wipefs|fdisk|sfdisk|parted|mkswap|blkdiscard|diskutil|mount|umount|losetup|cryptsetup|shutdown"
    r"|reboot|halt|poweroff|init|telinit|systemctl|service|launchctl|crontab|at|iptables|nft|ufw|insmod|modprobe|sysctl|kexec"
)
_MODE_CHANGERS = names("chmod chown chgrp")
_REMOVERS = names("rm shred")
_RENAMERS = names("rm unlink rmdir mv ln")
"""They change names of files, and not their contents."""
_EVERYTHING_IN_FOLDER = re.compile(r"(\./)*(\.?\*+|\.\[.*|\?+\*?)(/\*+)*")
"""A pattern that matches all files of a folder, or all hidden ones: `*`, `./*`, `.[!.]*`, `*/*`."""
_RECURSIVE_READERS = names("rg ag ack ugrep tar zip 7z 7za 7zz rsync")


class _FinalCommand(NamedTuple):
    """One command of the table above."""

    beginning: str
    """The words that it begins with, ignoring options between them; each with a space after it."""
    options: tuple[str, ...]
    """It must have one of these; empty: it need not have any."""
    reason: str
    """What it does."""


@cache
def _final_commands() -> tuple[_FinalCommand, ...]:
    """Returns the commands of the table above, in its order."""
    final_commands = []
    # An indented line continues the one before it. The first line explains the table.
    lines = re.sub(r"\n    +", " ", _FINAL_COMMANDS).strip().splitlines()[1:]
    for line in lines:
        commands, _, reason = line.partition(" | ")
        for command in commands.split(","):
            texts = command.split()
            # `.` is an operand, of `git checkout -- .`, but is treated as an option here.
            options = tuple(text for text in texts if text[0] in "-.")
            names_of_command = texts[: len(texts) - len(options)]  # the options come last
            beginning = " ".join([*names_of_command, ""])
            final_commands.append(_FinalCommand(beginning, options, reason))
    return tuple(final_commands)


class CommandCheck(NamedTuple):
    """One row of the floor: what is asked about each command in every mode."""

    name: str
    find: Callable[[Command, Places], str]
    """Returns the reason of the question; empty if the check does not apply."""


def floor(line: ShellLine, places: Places, fetched: FetchedFiles | None = None) -> str:
    """Returns why the user must be asked about a line in every mode, whatever the rules say; empty
    if not. Changes of long-term memory are in `memory_reason`.

    Args:
        fetched: what earlier lines have fetched from the network.
    """
    for command in line.commands:
        for check in COMMAND_CHECKS:
            if reason := check.find(command, places):
                return f"{command.program} {reason}"
    for path, is_written, opener in places.opened_paths(line):
        if reason := _check_path(path, is_written, command=opener, places=places):
            return reason
    return check_fetch(line) or check_fetched(line, places, fetched)


def _check_pattern_of_keys(command: Command, places: Places) -> str:
    """Returns why a pattern of files, such as `~/*`, needs a question: keys are below the folder
    where it starts. Empty if no pattern of the command reaches keys.
    """
    for word in command.arguments:
        starts = places.paths_of(before_pattern(word.text)) if word.glob else ()
        if any(map(places.is_above_keys, starts)):
            return f"reaches what {word.text} matches, which may hold keys"
    return ""


def _check_folder_of_keys(command: Command, places: Places) -> str:
    """Returns why a command needs a question: it reads all files below its folder, and `cd` may
    have changed to a folder with keys below it. Empty if the command needs no question for that.
    """
    # The first folder is the root of the workspace; the others are from `cd`.
    above = next(filter(places.is_above_keys, places.folders[1:]), None)
    if above is None or not reads_all_below(command):
        return ""
    return f"reaches {places.workspace.shown(above)}, which holds keys"


def _check_path(path: Path, is_written: bool, command: Command | None, places: Places) -> str:
    """Returns why opening a path needs a question; empty if it needs none. It is opened by
    `command`, or by a redirection if `command` is None. git may write protected paths, because its
    commands are judged elsewhere.
    """
    if command is None and _is_foreign_device(path, places):
        return f"it opens the device {path}"
    is_git = command is not None and command.program == "git"
    in_place = command is None or command.program not in _RENAMERS
    reason = places.workspace.protection(path, in_place=in_place) if is_written else ""
    if reason and not is_git:
        return f"it writes to {places.workspace.shown(path)}: {reason}"
    if _reaches_keys(path, command, places):
        return f"it reaches {places.workspace.shown(path)}, which holds keys"
    return ""


def _reaches_keys(path: Path, command: Command | None, places: Places) -> bool:
    """Whether a command that opens a path, or a redirection (`command` is None), may read keys
    there or below it.
    """
    if command is None:
        return places.holds_keys(path)
    if places.is_above_keys(path) and reads_all_below(command):
        return True
    return command.program != "git" and places.holds_keys(path)


def _is_foreign_device(path: Path, places: Places) -> bool:
    """Whether a path is in /dev, and neither a harmless device nor a file of the workspace."""
    name = str(path)
    if not name.startswith("/dev/") or name in HARMLESS_DEVICES:
        return False
    is_shared_memory = name.startswith("/dev/shm/")  # noqa: S108 - a workspace may be there
    return not (is_shared_memory and places.workspace.is_inside(path))


def _check_irreversible(command: Command, _places: Places) -> str:
    """Returns what a command does that cannot be undone; empty if nothing of the kind is known."""
    name = command.program
    # A guess may begin at any word, so that one of these names may be an argument.
    if command.kind != "guess":
        if name in _RIGHTS_CHANGERS:
            return "acts with the rights of another user"
        if _MACHINE_COMMAND.fullmatch(name):
            return "changes the machine itself"
    words = command.arguments
    if name == "git":
        words = tuple(git_words(words))
    options = read_options(words, UNKNOWN)
    texts = [word.text for word in words]
    if reason := _find_final(name, texts, options):
        return f"{texts[0]} {reason}" if name == "git" else reason
    if name == "git" and texts:
        return _check_git(texts[0], texts[1:], options)
    return _check_processes_and_devices(name, texts)


def _find_final(name: str, texts: Sequence[str], given: ReadOptions) -> str:
    """Returns what a command of the table of final commands does; empty if it is not in the table,
    or has none of the options that the table demands.

    Args:
        name: the name of the program.
        texts: its arguments.
        given: its options.
    """
    without_options = [text for text in texts if not text.startswith("-")]
    beginning = " ".join([name, *without_options, ""])
    for final in _final_commands():
        if not beginning.startswith(final.beginning):
            continue
        has_option = given.has(*(option.lstrip("-") for option in final.options))
        has_word = not set(final.options).isdisjoint(texts)  # such as `.`
        if not final.options or has_option or has_word:
            return final.reason
    return ""


def _check_processes_and_devices(name: str, texts: Sequence[str]) -> str:
    """Returns what `kill` or `dd` does that cannot be undone; empty if nothing."""
    # To kill, the process -1 is every process, and 1 is init: without it no other continues.
    # `kill -1` alone has only a signal, and names no process.
    if name == "kill" and texts != ["-1"] and texts[-1:] in (["-1"], ["1"]):
        return "ends every process"
    if name == "dd" and any(re.match(r"of=/dev/(?!null)", text) for text in texts):
        return "writes to a device"
    return ""


def _check_git(subcommand: str, rest: Sequence[str], options: ReadOptions) -> str:
    """Returns what a git subcommand, with the arguments `rest`, loses or changes permanently; empty
    if nothing.
    """
    if _skips_hooks(subcommand, rest):
        return f"{subcommand} skips the hooks of the repository"
    # `+branch` overwrites a branch, `:branch` deletes it.
    if subcommand == "push" and any(text[:1] in ("+", ":") for text in rest):
        return "push overwrites or deletes commits of others"
    if subcommand == "restore" and not options.has("S", "staged"):
        return "restore discards uncommitted changes"
    if subcommand == "config" and not git_lists(subcommand, rest):
        return "config changes settings of git"
    return ""


def _skips_hooks(subcommand: str, arguments: Sequence[str]) -> bool:
    """Whether a git subcommand runs without the hooks that check its work. git takes a long option
    also if only its beginning is given.
    """
    if subcommand not in _COMMANDS_WITH_HOOKS:
        return False
    options = _without_values(arguments) if subcommand == "commit" else arguments
    for text in options:
        if text.startswith("--no-v") and "--no-verify".startswith(text):
            return True
        if subcommand == "commit" and _NO_VERIFY_OF_COMMIT.match(text):
            return True
    return False


def _without_values(arguments: Sequence[str]) -> Iterator[str]:
    """Yields the arguments of `git commit` without the values of options that are words of their
    own: a message may look like an option.
    """
    words = iter(arguments)
    for word in words:
        yield word
        if _COMMIT_OPTION_WITH_VALUE.fullmatch(word):
            next(words, None)


def _check_removal(command: Command, places: Places) -> str:
    """Returns why a command needs a question because of what it removes or moves, or of which it
    changes the mode or the owner. Empty if it needs none.
    """
    if command.program in _MODE_CHANGERS or command.program in _REMOVERS:
        return _check_recursive(command, places)
    if command.program == "mv":
        return _check_mv(command, places)
    if command.program in ("find", "gfind"):
        return _check_find_delete(command, places)
    return ""


def _check_recursive(command: Command, places: Places) -> str:
    """Returns why a command such as `rm -r` or `chmod -R` needs a question: what it removes or
    changes with all that is below it. Empty if it needs none, or is not recursive.
    """
    words = command.arguments
    if not _may_be_recursive(words):
        return ""
    operands = [word for word in words if not word.text.startswith("-")]
    verb, targets = "removes", operands
    if command.program in _MODE_CHANGERS:
        verb, targets = "changes", operands[1:]  # the first one is the mode or the owner
    for word in targets:
        if reason := _check_target(word, places):
            return f"{verb} {reason}"
    has_relative = any(not word.text.startswith(("/", "~")) for word in operands)
    return f"{verb} files in a folder that is not known" if places.lost and has_relative else ""


def _may_be_recursive(words: Sequence[Word]) -> bool:
    """Whether the arguments of a command have an option such as `-r`. Also if bash computes the
    first word: it may become such an option.
    """
    is_first_known = not words or words[0].exact
    return not is_first_known or read_options(words, UNKNOWN).has("r", "R", "recursive")


def _check_mv(command: Command, places: Places) -> str:
    """Returns why `mv` needs a question: it moves the workspace, a repository, a folder above them,
    or a folder with keys. Empty if it needs none.
    """
    options = read_options(command.arguments, rows()["mv"])
    names_target_first = options.has("t", "target-directory")
    sources = options.operands if names_target_first else options.operands[:-1]
    for word in sources:
        if whole := places.find_whole_folder(word.text):
            return f"moves {whole}"
    for word in sources:
        if any(map(places.is_above_keys, places.paths_of(word.text))):
            return f"moves {word.text}, which holds keys"
    return ""


def _check_find_delete(command: Command, places: Places) -> str:
    """Returns why `find -delete` needs a question: it deletes outside of the workspace, or below a
    computed folder, or everything in a whole folder without a test that limits it. Empty if it
    needs none, and for another command.
    """
    words = command.arguments
    if not any(word.text == "-delete" for word in words):
        return ""
    tests = r"-(i?name|i?path|i?regex|mtime|mmin|newer|empty|size)"
    is_limited = any(re.match(tests, word.text) for word in words)
    for word in find_starts(words) or [Word(".")]:
        if not word.exact or any(map(places.is_elsewhere, places.paths_of(word.text))):
            return f"deletes below {word.text}"
        if not is_limited and places.find_whole_folder(word.text):
            return f"deletes everything below {word.text}"
    return ""


def _check_target(word: Word, places: Places) -> str:
    """Returns why a question is needed before what a word names is removed or changed, with all
    that is below it. Empty if none is needed.

    A question is needed for a computed word, for everything in a folder, for a whole folder as in
    `Places.find_whole_folder`, and for paths outside of the workspace.
    """
    if not word.exact and not word.glob:
        return f"{word.text}, which is not known"
    if _EVERYTHING_IN_FOLDER.fullmatch(word.text):
        return f"{word.text}: everything in the folder"
    start = before_pattern(word.text) if word.glob else word.text
    matches_everything = re.fullmatch(r"\.?\*+(/.*)?", word.text[len(start) :])
    names_folder = not word.glob or matches_everything
    if names_folder and (whole := places.find_whole_folder(start)):
        return whole
    for path in places.paths_of(start):
        if places.is_elsewhere(path):
            return f"{places.workspace.shown(path)}, outside the workspace"
    return ""


def reads_all_below(command: Command) -> bool:
    """Whether a command reads the files in its folders and in all folders below them: by its
    nature, by an option such as `-r`, or because `find` runs it for files below a folder.
    """
    if command.program in _RECURSIVE_READERS or any(word.under for word in command.arguments):
        return True
    if command.program == "git":  # also outside of a repository, as with --no-index
        return any(word.text in ("grep", "diff") for word in git_words(command.arguments)[:1])
    may_be_recursive = command.program in ("grep", "egrep", "fgrep", "cp", "scp")
    return may_be_recursive and read_options(command.arguments, UNKNOWN).has(
        "r", "R", "a", "recursive", "archive"
    )


_MEMORY_PATH = re.compile(r"\.ouro/+memory\b")


def memory_git(command: Command, places: Places) -> GuardedMemory | None:
    """Returns the memory on which a command runs git, such as `git -C FOLDER commit -m TEXT`, if
    that is safe: the subcommand and its options are listed, and its operands are memory files. None
    for any other command.
    """
    row = _row_for_memory(command)
    if row is None or not all(word.exact for word in command.arguments):
        return None
    _, folder, subcommand, *rest = command.arguments
    memory = _memory_of(folder.text, places)
    options = read_options(rest, row)
    if memory is None or options.unlisted or not _is_safe_in_memory(subcommand.text, options):
        return None
    for word in options.operands:
        if not _is_in_memory(word.text, subcommand.text, memory):
            return None
    return memory


def _row_for_memory(command: Command) -> CommandRow | None:
    """Returns the row of the table for `git -C FOLDER SUBCOMMAND`; None if the command is not of
    this form, or the subcommand is not allowed in memory.
    """
    if command.name != "git" or command.kind != "plain":
        return None
    if command.assignments or command.piped:
        return None
    texts = [word.text for word in command.arguments]
    if texts[:1] != ["-C"] or not texts[2:]:
        return None
    row = rows().get(f"git-{texts[2]}")
    return row if row is not None and row.operands == "memory" else None


def _memory_of(text: str, places: Places) -> GuardedMemory | None:
    """Returns the memory whose folder a path names. None if it names any other folder, such as one
    below it, or if it may name several folders.
    """
    paths = set(places.paths_of(text))
    if len(paths) != 1:
        return None
    path = paths.pop()
    memory = places.workspace.memory_at(path)
    return memory if memory is not None and path == memory.path else None


def _is_safe_in_memory(subcommand: str, options: ReadOptions) -> bool:
    """Whether a subcommand of git, with these options, opens no editor and discards no changes."""
    if subcommand == "commit":
        return options.has("m", "message")  # otherwise it opens an editor
    return subcommand != "restore" or options.has("S", "staged")


def _is_in_memory(text: str, subcommand: str, folder: GuardedMemory) -> bool:
    """Whether an operand of git names a memory file in this folder. Some subcommands may also get
    the whole folder or its archive.
    """
    may_take_folder = subcommand in ("add", "commit", "restore")
    if may_take_folder and text in (".", "archive", "archive/"):
        return True
    is_pattern = re.search(r"[:*?\[\\]", text)  # this includes git's pathspec magic
    return not is_pattern and folder.is_memory_file(Path(os.path.normpath(folder.path / text)))


def memory_reason(line: ShellLine, text: str, places: Places) -> str:
    """Returns why a line needs a question in every mode because of what it does with long-term
    memory. Empty if it does nothing with memory, only reads it, or runs git as in `memory_git`.

    Args:
        text: the line as it was written.
    """
    workspace = places.workspace
    if not workspace.memory:
        return ""
    if any(_writes_memory(redirect, places) for redirect in line.redirects):
        return "it writes into long-term memory without the file tools"
    # The command that a wrapper such as `env` runs is in the line itself.
    commands = [command for command in line.commands if command.kind != "wrapper"]
    for command in _commands_on_memory(commands, places):
        if reason := _check_on_memory(command, places):
            return reason
    is_named_by_command = any(_names_memory(command, places) for command in commands)
    if _any_mentions_memory([text], workspace) and not is_named_by_command:
        return "it names long-term memory in a way that is not understood"
    return ""


def _writes_memory(redirect: Redirect, places: Places) -> bool:
    """Whether a redirection writes into long-term memory."""
    if not redirect.writes:
        return False
    return any(map(places.workspace.memory_at, places.paths_of(redirect.target.text)))


def _commands_on_memory(commands: Sequence[Command], places: Places) -> Sequence[Command]:
    """Returns the commands that may do something with memory: those that name it, and later ones
    that get their input from a pipe. If the line changes to a folder in or above memory, returns
    all commands.
    """
    if any(_is_near(folder, places.workspace) for folder in places.folders[1:]):
        return commands
    on_memory: list[Command] = []
    is_named = False
    for command in commands:
        names_memory = _names_memory(command, places)
        is_named = is_named or names_memory  # here, or in a command before it
        # A command that receives the path of memory from a pipe may do anything with it.
        if names_memory or (is_named and command.piped):
            on_memory.append(command)
    return on_memory


def _check_on_memory(command: Command, places: Places) -> str:
    """Returns why a command that does something with long-term memory needs a question; empty if it
    only reads, or runs git safely there.
    """
    if folder := memory_git(command, places):
        if reason := folder.find_tampering():
            return f"it runs git on long-term memory, but {reason}"
    elif not only_reads(command) or command.settings:
        return f"{command.program} may change long-term memory without the file tools"
    return ""


def _is_near(folder: Path, workspace: Workspace) -> bool:
    """Whether a folder is in memory, or above memory. The workspace and the folders above it do not
    count.
    """
    if workspace.memory_at(folder):
        return True
    above = any(folder in memory.path.parents for memory in workspace.memory)
    return above and folder not in (workspace.root, *workspace.root.parents)


def _names_memory(command: Command, places: Places) -> bool:
    """Whether a word, the here-document or an assignment of a command names long-term memory, as
    text or as a path.
    """
    texts = [command.stdin or "", *(setting.value.text for setting in command.assignments)]
    texts += [word.text for word in command.words]
    paths = chain.from_iterable(map(places.paths_of_word, command.words))
    return _any_mentions_memory(texts, places.workspace) or any(
        map(places.workspace.memory_at, paths)
    )


def _any_mentions_memory(texts: Sequence[str], workspace: Workspace) -> bool:
    """Whether one of the texts contains the path of a memory folder, or of ouro's records of it."""
    names: list[str] = []
    for folder in workspace.memory:
        names += [str(folder.path), workspace.shown(folder.path)]
        if folder.state_dir is not None:
            names.append(str(folder.state_dir.parent))
    return any(_MEMORY_PATH.search(text) or _holds_one(text, names) for text in texts)


def _holds_one(text: str, names: Sequence[str]) -> bool:
    return any(name in text for name in names)


COMMAND_CHECKS = (
    CommandCheck("irreversible", _check_irreversible),
    CommandCheck("removal", _check_removal),
    CommandCheck("pattern above keys", _check_pattern_of_keys),
    CommandCheck("folder above keys", _check_folder_of_keys),
)
"""The floor for each command of a line, in this order."""
