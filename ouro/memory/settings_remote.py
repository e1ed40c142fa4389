"""SettingsRemote: the git branch over which the settings of a user are synchronized between
machines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ouro.errors import MemoryUnusable, SessionError, UsageError
from ouro.memory.long_term.git.process import (
    OTHERS_PUSH,
    LostPush,
    import_stream,
    last_line,
    read_lost_push,
)
from ouro.memory.long_term.git.remote_wait import Progress, lock_for_sync, wait_for_remote
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.session_remote import sync_error
from ouro.utils.decoding import decode_json

BRANCH = "refs/heads/ouro-settings"
_FILE = "settings.json"
"""The file on the branch."""
_STATE_NAME = "settings"
_REMOTE_RECORD = "remote"
_SYNC_TRIES = 5
_MAX_FILE_BYTES = 64_000
"""Maximum bytes of the file: settings are short, and the remote may be anyone's."""
_MAX_FETCH_BYTES = 4 << 20


class SettingsState(msgspec.Struct):
    """What is known of the exchanges before."""

    base: dict[str, str] = {}
    """The values that both sides had after the last exchange, by the name of the setting."""
    kept: dict[str, str | None] = {}
    """The values here that the user kept against a received one, by name: they are not sent. None:
    the setting had no value.
    """


class SettingsExchange(msgspec.Struct, frozen=True):
    """What an exchange received and sent."""

    received: Mapping[str, str]
    """New values at the remote. None of them is in use before the user agrees."""
    sent: tuple[str, ...]
    """The names of the settings that were sent."""


class SettingsRemote:
    """The branch with the settings: a copy of it in `folder`, and its remote. It blocks."""

    def __init__(self, folder: Path, address: str, progress: Progress = lambda _what: None) -> None:
        if not address or address.startswith("-"):
            raise UsageError(
                f"`{address}` is not a remote.", "Name your own git repository: a URL or a folder."
            )
        self._repository = GitRepository(folder)
        self._repository.create()
        self._address = address
        self._progress = progress

    def exchange(self, settings_here: Mapping[str, str]) -> SettingsExchange:
        """Send the settings that changed here; returns those that changed at the remote, and what
        was sent. A setting that changed on both sides is received, and not sent.

        Args:
            settings_here: the values of all settings that are synchronized, by name.

        Raises:
            MemoryUnusable: the remote cannot be reached, or its file cannot be read.
            SessionError: the remote stays locked, or other machines keep pushing.
        """
        with lock_for_sync(self._repository, self._progress):
            lost_push = OTHERS_PUSH
            for _ in range(_SYNC_TRIES):
                tip, theirs = self._fetch()
                state = self._repository.load_state(_STATE_NAME, SettingsState)
                received, sent = compare_settings(settings_here, theirs, state)
                after = _merge_settings(settings_here, theirs, sent)
                if sent and (lost := self._push(tip, after)):
                    lost_push = lost
                    continue
                # `base` has the values on which both sides agreed last. For a received setting it
                # stays as it was: the user has not decided yet whether the new value is used.
                agreed = {name: value for name, value in after.items() if name not in received}
                undecided = {name: value for name, value in state.base.items() if name in received}
                state.base = agreed | undecided
                self._repository.save_state(_STATE_NAME, state)
                self._repository.write_record(_REMOTE_RECORD, self._address)
                return SettingsExchange(received, tuple(sorted(sent)))
        raise SessionError(f"The settings are not sent: {lost_push.reason}.", lost_push.hint)

    def answer(self, name: str, received: str, kept: str | None, *, used: bool) -> None:
        """Record the user's answer about a received setting, so that it is not asked again.

        Args:
            received: the value at the remote.
            kept: the value here; None if the setting had none.
            used: whether the user took the received value. If not, `kept` is not sent against it.
        """
        state = self._repository.load_state(_STATE_NAME, SettingsState)
        state.base[name] = received
        state.kept.pop(name, None)
        if not used:
            state.kept[name] = kept
        self._repository.save_state(_STATE_NAME, state)

    def _fetch(self) -> tuple[str, dict[str, str]]:
        """Fetch the branch; returns its commit and its settings. The commit is empty if the remote
        does not have the branch. There are no settings if the branch does not have their file.

        Raises:
            MemoryUnusable: the remote cannot be reached, or its file cannot be read.
        """
        ls_remote = self._run_remote("ls-remote", "--", self._address, BRANCH)
        if not ls_remote.strip():
            return "", {}
        tip = ls_remote.split()[0].decode()
        flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1")
        command = ("-c", "fetch.fsckObjects=true", "fetch", *flags, "--", self._address, BRANCH)
        self._run_remote(*command, max_bytes=_MAX_FETCH_BYTES)
        blob = self._repository.list_files("-r", tip).get(_FILE, "")
        if not blob:
            return tip, {}
        if self._repository.read_sizes([blob])[0] > _MAX_FILE_BYTES:
            raise MemoryUnusable(f"{_FILE} of the remote has over {_MAX_FILE_BYTES:,} bytes.")
        data = self._repository.read_blobs([blob])[blob]
        try:
            return tip, decode_json(data, dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MemoryUnusable(f"{_FILE} of the remote cannot be read: {error}.") from error

    def _push(self, tip: str, settings: Mapping[str, str]) -> LostPush | None:
        """Commit the settings on top of the commit `tip` (empty: none) and push. Returns None if it
        was pushed; otherwise why the push lost against that of another machine.
        """
        data = msgspec.json.format(msgspec.json.encode(dict(sorted(settings.items()))), indent=2)
        ref = "refs/heads/sending"
        parents = [tip] if tip else []
        stream = import_stream(
            ref, parents, changes={_FILE: data}, message="Settings", seconds=time.time()
        )
        fast_import = self._repository.fast_import(stream, "--done", "--force")
        if fast_import.returncode:
            raise MemoryUnusable(f"Settings are not sent: {last_line(fast_import.stderr)}")
        commit = fast_import.stdout.decode().split()[0]
        self._repository.run("update-ref", "-d", ref)  # it was only needed for the import
        target = ("--quiet", "--no-verify", "--", self._address, f"{commit}:{BRANCH}")
        on_wait = wait_for_remote(self._address, self._progress)
        push = self._repository.run_remote("push", *target, on_wait=on_wait)
        if push.returncode:
            if lost := read_lost_push(push.stderr):
                return lost
            raise self._remote_error(push.stderr)
        return None

    def _run_remote(self, *arguments: str, max_bytes: int = 0) -> bytes:
        """Run git with the remote; returns its output. Raises MemoryUnusable if it fails. At most
        `max_bytes` are received (0: without a limit).
        """
        on_wait = wait_for_remote(self._address, self._progress)
        done = self._repository.run_remote(*arguments, max_bytes=max_bytes, on_wait=on_wait)
        if done.returncode:
            raise self._remote_error(done.stderr)
        return done.stdout

    def _remote_error(self, output: bytes) -> MemoryUnusable:
        """Returns the error for what git printed about the remote."""
        return sync_error("Settings", self._address, output)


def compare_settings(
    settings_here: Mapping[str, str], settings_there: Mapping[str, str], state: SettingsState
) -> tuple[dict[str, str], set[str]]:
    """Returns the values that changed at the remote, by name; and the names of those that changed
    only here and are to be sent.

    A value that the user kept against a received one is not sent. A value that was removed at the
    remote is neither received nor sent.
    """
    received: dict[str, str] = {}
    sent: set[str] = set()
    for name in {*settings_here, *settings_there, *state.base}:
        value_here, value_there = settings_here.get(name), settings_there.get(name)
        value_before = state.base.get(name)
        if value_here == value_there:
            continue
        was_kept = name in state.kept and state.kept[name] == value_here
        has_changed_there = value_there != value_before
        if has_changed_there and value_there is not None:
            received[name] = value_there
        elif not has_changed_there and not was_kept:
            sent.add(name)
    return received, sent


def _merge_settings(
    settings_here: Mapping[str, str], settings_there: Mapping[str, str], sent: set[str]
) -> dict[str, str]:
    """Returns the settings that the remote has after the settings with the names `sent` were sent.
    One that has no value here is removed.
    """
    unchanged = {name: value for name, value in settings_there.items() if name not in sent}
    return unchanged | {name: settings_here[name] for name in sent if name in settings_here}


def last_settings_remote(folder: Path) -> str:
    """Returns the address that settings were last synchronized with; empty if there is none.
    `folder` is the repository of `SettingsRemote`.
    """
    return GitRepository(folder).read_record(_REMOTE_RECORD)
