"""The hard floor: irreversible commands that need a question in every mode and under every rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ouro.safety.shell.command import Command, Redirect, Word
from ouro.safety.shell.parse import ShellLine
from ouro.safety.shell.paths import HARMLESS_DEVICES, Places, removes_too_much
from ouro.safety.shell.reading import git_reads, git_subcommand, may_name
from ouro.safety.shell.tables import names
from ouro.safety.shell.writing import written_paths

_RIGHTS = names(
    """
    sudo doas su pkexec run0 runuser visudo passwd useradd usermod userdel chpasswd
    """
)
_MACHINE = re.compile(
    r"mkfs(\..*)?|mke2fs|wipefs|fdisk|sfdisk|parted|mkswap|blkdiscard|diskutil|mount|umount|losetup|cryptsetup|shutdown"
    r"|reboot|halt|poweroff|init|telinit|systemctl|service|launchctl|crontab|at|iptables|nft|ufw|insmod|modprobe|sysctl|kexec"
)
_FETCHERS = names("curl wget fetch aria2c nc ncat netcat socat http https lynx")
_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|deno|bun|php|lua)[\d.]*")
_FINAL = {  # consecutive words, ignoring options between them
    "npm publish, yarn publish, yarn npm publish, pnpm publish, cargo publish, poetry publish, uv publish, twine upload"
    ", gem push": "publishes a package",
    "npm unpublish, cargo yank": "withdraws a package",
    "gh release delete": "deletes a release",
    "gh repo delete": "deletes a repository",
    "terraform destroy, tofu destroy, pulumi destroy": "destroys machines",
    "terraform apply, tofu apply": "changes machines",
    "kubectl delete, helm uninstall": "deletes from a cluster",
    "docker system prune, docker volume rm, docker volume prune": "deletes images and volumes",
    "aws s3 rm, gsutil rm, aws s3 rb": "deletes from a store",
    "dropdb": "drops a database",
    "redis-cli flushall": "empties a database",
    "ouro": "starts another agent",
}
_GIT_FINAL = {
    "filter-branch": "rewrites history",
    "filter-repo": "rewrites history",
    "update-ref": "moves references",
    "replace": "rewrites history",
    "prune": "deletes objects",
}


def floor(line: ShellLine, places: Places) -> str:
    """Why the user must be asked in every mode; empty if not."""
    for redirect in line.redirects:
        if reason := _redirect(redirect, places):
            return reason
    for command in line.commands:
        if reason := _command(command, places):
            return f"{command.program} {reason}" if not reason.startswith("it ") else reason
    fetches = any(command.program in _FETCHERS for command in line.commands)
    if fetches and (line.opaque or any(_runs_input(command) for command in line.commands)):
        return "it runs what it fetches from the network"
    return ""


def _redirect(redirect: Redirect, places: Places) -> str:
    if redirect.duplicates:
        return ""
    for path in places.named(redirect.target.text):
        if str(path).startswith("/dev/") and str(path) not in HARMLESS_DEVICES:
            return f"it opens the device {path}"
        if (
            redirect.writes
            and (reason := places.workspace.protection(path))
            and redirect.target.text not in HARMLESS_DEVICES
        ):
            return f"it writes to {places.workspace.shown(path)}: {reason}"
        if places.holds_keys(path):
            return f"it reads {places.workspace.shown(path)}, which holds keys"
    return ""


def _command(command: Command, places: Places) -> str:
    name = command.program
    if name in _RIGHTS and command.kind != "guess":
        return "acts with the rights of another user"
    if command.kind != "guess" and _MACHINE.fullmatch(name):
        return "changes the machine itself"
    if name == "git":
        return _git(command)
    texts = [word.text for word in command.words]
    called = " ".join([name, *_operands(texts[1:])]) + " "
    for begins, reason in _FINAL.items():
        if called.startswith(tuple(f"{begin} " for begin in begins.split(", "))):
            return reason
    return next(filter(None, (_removal(command, places), _killing(command), _paths(command, places))), "")


def _operands(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if not text.startswith("-")]


def _removal(command: Command, places: Places) -> str:
    name, words = command.program, command.arguments
    targets = [word for word in words if not word.text.startswith("-")]
    if name in ("rm", "shred", "chmod", "chown", "chgrp") and _recursive(words):
        verb = "changes" if name.startswith("ch") else "removes"
        for word in targets[1:] if name.startswith("ch") else targets:
            if reason := removes_too_much(places, word):
                return f"{verb} {reason}"
        lost = places.lost and any(not word.text.startswith(("/", "~")) for word in targets)
        return f"{verb} files in a folder that is not known" if lost else ""
    if name == "mv":
        return next((f"moves {whole}" for word in targets[:-1] if (whole := places.whole(word.text))), "")
    if name in ("find", "gfind") and any(word.text == "-delete" for word in words):
        return _find_deletes(words, places)
    if name == "rsync" and any(word.text.startswith("--del") for word in words):
        return "deletes what is missing in the source"
    return ""


def _find_deletes(words: Sequence[Word], places: Places) -> str:
    starts = []
    for word in words:
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    is_limited = any(re.match(r"-(i?name|i?path|i?regex|mtime|mmin|newer|empty|size)", word.text) for word in words)
    for word in starts or [Word(".")]:
        for path in places.named(word.text):
            if not word.exact or (places.is_outside(path) and not places.is_temporary(path)):
                return f"deletes below {word.text}"
        if not is_limited and places.whole(word.text):
            return f"deletes everything below {word.text}"
    return ""


def _recursive(words: Sequence[Word]) -> bool:
    return any(re.match(r"-[a-zA-Z]*[rR]|--r", word.text) for word in words) or any(
        not word.exact for word in words[:1]
    )


def _killing(command: Command) -> str:
    texts = [word.text for word in command.arguments]
    if command.program == "kill" and any(text in ("-1", "1") for text in texts[-1:]) and texts != ["-1"]:
        return "ends every process"
    if command.program in ("killall", "pkill"):
        return "ends processes by name, others' among them"
    if command.program == "dd" and any(re.match(r"of=/dev/(?!null)", text) for text in texts):
        return "writes to a device"
    return ""


def _paths(command: Command, places: Places) -> str:
    shown = places.workspace.shown
    for word in written_paths(command):
        for path in places.named(_folder_of(word)):
            if reason := places.workspace.protection(path):
                return f"writes to {shown(path)}: {reason}"
    for word in command.arguments:
        for text in (name.lstrip("@") for name in may_name(word)):
            if text.startswith(("/", "~")) or "/" in text:
                for path in places.named(text):
                    if places.holds_keys(path) or (places.is_above_keys(path) and _reads_all_below(command)):
                        return f"reaches {shown(path)}, which holds keys"
    return ""


def _reads_all_below(command: Command) -> bool:
    is_recursive = any(re.match(r"-[a-zA-Z]*[rRa]|--(recursive|archive)", word.text) for word in command.arguments)
    return command.program in ("rg", "tar", "zip", "rsync") or (
        command.program in ("grep", "cp", "scp") and is_recursive
    )


def _folder_of(word: Word) -> str:
    return re.split(r"[*?\[]", word.text)[0].rpartition("/")[0] or "." if word.glob else word.text


def _runs_input(command: Command) -> bool:
    given = [word for word in command.arguments if not word.text.startswith("-") or word.text in ("-c", "-e")]
    computed = any(re.search(r"[$<]\(|`", word.text) for word in command.arguments)
    return bool(_INTERPRETERS.fullmatch(command.program)) and ((command.piped and not given) or computed)


# -- git


def _git(command: Command) -> str:
    texts = [word.text for word in command.arguments]
    at, _ = git_subcommand(texts)
    if at >= len(texts):
        return ""
    subcommand, rest = texts[at], texts[at + 1 :]
    if subcommand in _GIT_FINAL:
        return f"{subcommand} {_GIT_FINAL[subcommand]}"
    return next((f"{subcommand} {reason}" for reason in _git_reasons(subcommand, rest)), "")


def _git_reasons(subcommand: str, rest: Sequence[str]) -> Iterator[str]:
    operands = _operands(rest)
    match subcommand:
        case "push" if _has(rest, "fd", "--force", "--mirror", "--delete", "--prune") or any(
            text[:1] in "+:" for text in operands
        ):
            yield "overwrites or deletes commits of others"
        case "reset" if _has(rest, "", "--hard", "--merge", "--keep"):
            yield "discards uncommitted changes"
        case "clean" if _has(rest, "fdxX", "--force"):
            yield "deletes untracked files"
        case "checkout" | "restore" | "switch" if _discards(subcommand, rest):
            yield "discards uncommitted changes"
        case "branch" if _has(rest, "D", "--delete") or _has(rest, "d"):
            yield "deletes a branch"
        case "tag" if _has(rest, "df", "--delete", "--force"):
            yield "deletes or moves a tag"
        case "stash" if operands[:1] in (["drop"], ["clear"]):
            yield "discards stashed changes"
        case "reflog" if operands[:1] in (["expire"], ["delete"]):
            yield "deletes the record of earlier commits"
        case "gc" if _has(rest, "", "--prune"):
            yield "deletes objects"
        case "worktree" if operands[:1] == ["remove"] and _has(rest, "f", "--force"):
            yield "discards uncommitted changes"
        case "config" if not git_reads(subcommand, rest):
            yield "changes settings of git"
        case "remote" if operands[:1] in (["add"], ["set-url"], ["rename"]):
            yield "changes where commits go"


def _discards(subcommand: str, rest: Sequence[str]) -> bool:
    if _has(rest, "f", "--force", "--discard-changes"):
        return True
    if subcommand == "restore":
        return not _has(rest, "S", "--staged") or _has(rest, "W", "--worktree")
    return subcommand == "checkout" and ("--" in rest or "." in rest)


def _has(texts: Sequence[str], letters: str, *names: str) -> bool:
    """Whether one of the options is given: abbreviated, with a value, or in a group of letters."""
    for text in texts:
        name = text.partition("=")[0]
        if name.startswith("--"):
            if len(name) > len("--x") and any(full.startswith(name) or name.startswith(full) for full in names):
                return True
        elif letters and re.match(rf"-[a-zA-Z]*[{letters}]", text):
            return True
    return False
