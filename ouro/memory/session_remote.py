"""SessionRemote: the git branch over which sessions are synchronized; each blob can be sealed
(encrypted) with a key.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ouro.errors import MemoryUnusable, SessionError, UsageError
from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.git.process import (
    LostPush,
    explain_remote_failure,
    import_stream,
    last_line,
    read_lost_push,
    without_password,
)
from ouro.memory.long_term.git.remote_wait import Progress, wait_for_remote
from ouro.memory.long_term.git.repository import GitRepository
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.log import log

BRANCH = "refs/heads/ouro-sessions"
FORMAT = 1
_FORMAT_FILE = "format"
_KNOWN_TEXT = b"ouro sessions"
"""The text that the file `format` has, sealed with the key: it shows whether a key is the right one."""
_REMOTE_RECORD = "remote"
_NEWEST_RECORD = "newest"
"""The record of the newest state that was seen, sealed where the remote is sealed."""
_TRANSFER_TIMEOUT = 3_600.0
"""Seconds for a fetch or a push: the first one may be a gigabyte."""
_ASK_TIMEOUT = 120.0
_MIN_WHOLE_BLOB = 1 << 16
"""From so many bytes on git stores a blob without delta compression, which took most of the time
without effect.
"""
_IMPORT_FLAGS = ("--done", "--date-format=raw", f"--big-file-threshold={_MIN_WHOLE_BLOB}")
_PUSH_COMMAND = (
    "-c",
    "pack.window=0",
    "-c",
    f"core.bigFileThreshold={_MIN_WHOLE_BLOB}",
    "push",
    "--quiet",
    "--no-verify",
)
_SEALED_RECORD = "sealed"
"""The record of the last remote that was sealed: if it is not any more, nothing is sent to it."""
_STATE_FILE = "state"
"""On a sealed branch: its `_BranchState`, sealed with the key."""
_WENT_BACK = (
    "The remote went back: it does not have all that it had at the last sync (a restored backup, a"
    " force push, or its host)."
)
_EMPTIED = "The remote is empty, and had sessions at the last sync."
_FORGED = (
    "The remote does not match its sealed state: an older ouro wrote to it, or another program"
    " changed it."
)
_KEY_BYTES, _NONCE_BYTES = 32, 12
_MAX_READ_BYTES = 1 << 30
"""Maximum bytes of the records, or the outputs, of a session."""
_MAX_BLOB_BYTES = 256 << 20
"""Maximum bytes of an unpacked blob: a small blob of a hostile remote could unpack to any size."""


class _Format(msgspec.Struct):
    """The file `format` of the branch; `check` is a known text, sealed with the key."""

    format: int = FORMAT
    sealed: bool = False
    check: bytes = b""


class _BranchState(msgspec.Struct, frozen=True):
    """What the last writer with the key left on the branch."""

    generation: int = 0
    """Grows by one with each commit: an old state cannot pass for a new one."""
    digest: str = ""
    """The digest of all paths and blobs, by `_digest_of`."""


class _NewestState(msgspec.Struct, frozen=True):
    """What this machine saw last at a remote."""

    address: str = ""
    tip: str = ""
    generation: int = 0


class SessionRemote:
    """The branch with the sessions: a copy of it in the repository `folder`, and the remote at
    `address`. `key_file` has the key, if blobs are sealed. Everything blocks.
    """

    def __init__(
        self,
        folder: Path,
        key_file: Path,
        address: str,
        progress: Progress = lambda _what: None,
    ) -> None:
        if not address or address.startswith("-"):
            raise UsageError(
                f"`{address}` is not a remote.", "Name your own git repository: a URL or a folder."
            )
        self.repository = GitRepository(folder)
        self.repository.create()
        self.tip = ""
        """The last known commit of the branch."""
        self._key_file = key_file
        self._address = address
        self.progress = progress
        self._key = b""
        self._files: dict[str, str] = {}
        """Path -> blob of the branch at `tip`."""
        self._state = _BranchState()
        self._committed_files, self._committed_state = self._files, self._state
        """Files and state of the last commit, which count as those of the branch when it is pushed.
        """
        self.notices: tuple[str, ...] = ()
        """What the last fetch found wrong with the remote as a whole."""

    def fetch(self, *, encrypt: bool, plain: bool = False) -> dict[str, str]:
        """Fetch what is new; returns the ids of the blobs of the branch by their paths, empty if
        the remote has no such branch.

        The branch is then compared with its state at the last synchronization: `notices` says if it
        was set back or forged.

        Args:
            encrypt: whether what is sent to an empty remote is sealed (encrypted), with a new key
                if there is none.
            plain: whether it is sent unsealed (not encrypted) although this machine has a key.

        Raises:
            UsageError: the branch is sealed and the key is missing or wrong, or it is not sealed
                but should be.
            MemoryUnusable: the remote cannot be reached.
        """
        self.repository.drop_leftovers(older_than=_TRANSFER_TIMEOUT)
        ls_remote = self._remote("ls-remote", "--", self._address, BRANCH, timeout=_ASK_TIMEOUT)
        self.tip = ls_remote.split()[0].decode() if ls_remote.strip() else ""
        must_seal = self._must_seal(encrypt=encrypt, plain=plain)
        if not self.tip:
            self._begin_branch(must_seal=must_seal)
            return {}
        flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--force")
        self._remote(
            "-c",
            "fetch.fsckObjects=true",
            "fetch",
            *flags,
            "--",
            self._address,
            f"{BRANCH}:{BRANCH}",
        )
        files = self.repository.list_files("-r", self.tip)
        self._choose_key(files, must_seal=must_seal)
        self.repository.write_record(_REMOTE_RECORD, self._address)
        self._files = files
        self._check_state()
        return files

    def _begin_branch(self, *, must_seal: bool) -> None:
        """Begin without files, because the remote does not have the branch. If blobs must be
        sealed, the key is read, or made if there is none.
        """
        self._key = b""
        if must_seal:
            if not self._key_file.exists():
                key = base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()
                write_private(self._key_file, f"{key}\n")
            self._key = self._read_key()
        self._files, self._state = {}, _BranchState()
        had_branch = bool(self._load_newest().tip)  # at the last synchronization
        self.notices = (_EMPTIED,) if had_branch else ()

    def record_newest_state(self) -> None:
        """Record the state of the branch as the newest one. Call it after a whole synchronization:
        if one is killed, the next one still notices that the remote went back.
        """
        newest = msgspec.json.encode(_NewestState(self._address, self.tip, self._state.generation))
        if self._key:
            newest = base64.b64encode(self.seal(_NEWEST_RECORD, newest))
        self.repository.write_record(_NEWEST_RECORD, newest.decode())

    def _load_newest(self) -> _NewestState:
        """Returns the newest state of this remote that was recorded; an empty one if none is known,
        or it cannot be read.
        """
        text = self.repository.read_record(_NEWEST_RECORD)
        try:
            data = text.encode()
            if self._key:
                data = self.unseal(_NEWEST_RECORD, base64.b64decode(text))
            newest = decode_json(data, _NewestState)
        except (UsageError, ValueError, zlib.error):
            return _NewestState()
        return newest if newest.address == self._address else _NewestState()

    def _check_state(self) -> None:
        """Compare the branch with the newest state that was seen here, and with its own sealed
        state; `notices` then says if the remote went back, or was changed by another program.
        """
        newest = self._load_newest()
        self._state = self._read_state()
        went_back = self._state.generation < newest.generation or not self._has_commit(newest.tip)
        is_forged = bool(self._state.generation) and self._state.digest != _digest_of(self._files)
        notices = []
        if went_back:
            notices.append(_WENT_BACK)
        if is_forged:
            notices.append(_FORGED)
        self.notices = tuple(notices)

    def _read_state(self) -> _BranchState:
        """Returns the sealed state on the branch; an empty one if there is none, or it cannot be
        read.
        """
        blob = self._files.get(_STATE_FILE, "")
        if not self._key or not blob:
            return _BranchState()
        try:
            data = self.read({_STATE_FILE: blob})[_STATE_FILE]
            return decode_json(data, _BranchState)
        except (UsageError, ValueError) as error:
            log.warning("sessions: the state of the remote cannot be read: %s", error)
            return _BranchState()

    def _has_commit(self, commit: str) -> bool:
        """Whether the branch contains a commit. True if that cannot be known, because the commit is
        not here any more.
        """
        try:
            return self.repository.is_ancestor(commit, self.tip)
        except MemoryUnusable:
            return True

    def read(self, blobs: Mapping[str, str]) -> dict[str, bytes]:
        """Returns the decrypted content of each blob, by path; `blobs` has their ids by path.

        Raises:
            UsageError: another program changed one.
            SessionError: they are too large.
        """
        self._require_small(blobs)
        contents = self.repository.read_objects(list(blobs.values()))
        return {
            path: self.unseal(path, data) for path, (_, data) in zip(blobs, contents, strict=True)
        }

    def read_chunks(self, blobs: Mapping[str, str]) -> list[bytes | None]:
        """Returns the decrypted content of each chunk, in the order of `blobs`; None for a chunk
        that another program changed or moved. Raises SessionError if the chunks are too large.

        Args:
            blobs: the path of each chunk on the branch -> the id of its blob in git.
        """
        self._require_small(blobs)
        contents = self.repository.read_objects(list(blobs.values()))
        pairs = zip(blobs, contents, strict=True)
        return [self._open_chunk(path, data) for path, (_, data) in pairs]

    def _open_chunk(self, path: str, data: bytes) -> bytes | None:
        """Returns the decrypted content of a chunk; None if its name, which has the hash of `data`,
        does not fit, or it cannot be decrypted.
        """
        name = path.rpartition("/")[2]
        if chunk_name(int(name.partition("-")[0]), data) != name:
            return None
        try:
            return self.unseal(path, data)
        except UsageError:  # another program changed it, or moved it to another place
            return None

    def _require_small(self, blobs: Mapping[str, str]) -> None:
        """Raise SessionError if the blobs have more than `_MAX_READ_BYTES` together."""
        if sum(self.repository.read_sizes(list(blobs.values()))) > _MAX_READ_BYTES:
            raise SessionError(
                f"A session of the remote has over {_MAX_READ_BYTES >> 20:,} MB: {next(iter(blobs))}."
            )

    def commit(self, changes: Mapping[str, bytes | None], message: str) -> str:
        """Make a commit on top of the tip; returns its id. The branch here moves only when the
        commit is pushed. Raises MemoryUnusable if git fails.

        Args:
            changes: path -> the sealed content of a file; None: the file is removed.
        """
        # Add the format to the first commit of the branch.
        if not self.tip:
            about = _Format(sealed=bool(self._key), check=self.seal(_FORMAT_FILE, _KNOWN_TEXT))
            changes = {**changes, _FORMAT_FILE: msgspec.json.encode(about)}

        # The files after it. If the branch is sealed, their digest is one of them: `fetch` then
        # notices a branch that was set back or forged.
        files = {**self._files}
        for path, data in changes.items():
            files.pop(path, "")
            if data is not None:
                files[path] = blob_id(data)
        state = _BranchState(self._state.generation + 1, _digest_of(files)) if self._key else None
        if state is not None:
            sealed = self.seal(_STATE_FILE, msgspec.json.encode(state))
            changes = {**changes, _STATE_FILE: sealed}
            files[_STATE_FILE] = blob_id(sealed)
        self._committed_files, self._committed_state = files, state or _BranchState()

        # Commit, on a reference that is only needed for the import.
        ref = f"refs/heads/sending-{uuid.uuid4().hex}"
        stream = import_stream(
            ref,
            parents=[self.tip] if self.tip else [],
            changes=changes,
            message=message,
            seconds=time.time(),
        )
        done = self.repository.fast_import(stream, *_IMPORT_FLAGS, durable=True)
        self.repository.run("update-ref", "-d", ref)
        if done.returncode:
            raise MemoryUnusable(f"Sessions are not sent: {last_line(done.stderr)}")
        return done.stdout.decode().split()[0]

    def push(self, commit: str) -> LostPush | None:
        """Push a commit. Returns None if it was pushed; otherwise why it lost against another push,
        so that it has to be tried again after another fetch. Raises MemoryUnusable if the push
        fails.
        """
        target = ("--", self._address, f"{commit}:{BRANCH}")
        on_wait = wait_for_remote(self._address, self.progress)
        done = self.repository.run_remote(
            *_PUSH_COMMAND, *target, timeout=_TRANSFER_TIMEOUT, on_wait=on_wait
        )
        if done.returncode:
            if lost := read_lost_push(done.stderr):
                return lost
            raise self._remote_error(done.stderr)
        self.repository.git("update-ref", BRANCH, commit)
        if self._key:
            self.repository.write_record(_SEALED_RECORD, self._address)
        self.repository.write_record(_REMOTE_RECORD, self._address)
        self.tip = commit
        self._files, self._state = self._committed_files, self._committed_state
        return None

    def seal(self, path: str, data: bytes) -> bytes:
        """Returns the bytes of a blob for the branch: `data` as it is without a key, otherwise
        compressed and encrypted (AES-256-GCM). It is bound to its path: at another path it cannot
        be opened.
        """
        if not self._key:
            return data
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # needed only with a key

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key).encrypt(nonce, zlib.compress(data), _bound_path(path))

    def unseal(self, path: str, data: bytes) -> bytes:
        """Returns the content of a blob from its bytes on the branch. Raises UsageError if it was
        sealed with another key or for another path, or is too large.
        """
        if not self._key:
            return data
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            packed = AESGCM(self._key).decrypt(nonce, sealed, _bound_path(path))
        except (InvalidTag, ValueError) as error:
            hint = (
                f"It is another key, or the remote was changed. Copy {self._key_file.name} from the"
                " other machine."
            )
            raise UsageError(
                f"`{path}` of the remote cannot be opened with {self._key_file}.", hint
            ) from error
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(packed, _MAX_BLOB_BYTES)
        if unpacking.unconsumed_tail:
            raise UsageError(f"{path} of the remote has over {_MAX_BLOB_BYTES >> 20} MB.")
        return content

    def _choose_key(self, files: Mapping[str, str], *, must_seal: bool) -> None:
        """Read the format of the branch, and use the key of this machine if it is sealed. `files`
        are its blobs by path.

        Raises:
            UsageError: the key is missing or wrong, the branch is not sealed although it must be,
                or its format is not known.
        """
        self._key = b""  # the format itself is not sealed
        format_file = {path: blob for path, blob in files.items() if path == _FORMAT_FILE}
        try:
            about = decode_json(self.read(format_file).get(_FORMAT_FILE, b"{}"), _Format)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            hint = "Use the repository of your sessions, or a new, empty one."
            raise UsageError(
                f"`{_FORMAT_FILE}` of the remote cannot be read: {error}.", hint
            ) from error
        if about.format != FORMAT:
            raise UsageError(
                "The sessions at the remote were written by a newer ouro.", "Update ouro."
            )
        if not about.sealed:
            if must_seal:
                raise UsageError(
                    "The sessions at the remote are not encrypted, and those of this machine are:"
                    " nothing was sent.",
                    "Use a new, empty repository, or send without encryption with --plain, which"
                    " a remote that was encrypted refuses.",
                )
            return
        if not self._key_file.exists():
            hint = f"Copy {self._key_file.name} from the other machine to {self._key_file}."
            raise UsageError(
                "The sessions at the remote are encrypted, and the key is not here.", hint
            )
        self._key = self._read_key()
        self.unseal(_FORMAT_FILE, about.check)  # raises UsageError for another key
        self.repository.write_record(_SEALED_RECORD, self._address)

    def _read_key(self) -> bytes:
        """Returns the key in the key file. Raises UsageError if it has none."""
        try:
            key = base64.urlsafe_b64decode(self._key_file.read_text().strip())
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            raise UsageError(
                f"{self._key_file} is not a key.", "Copy it again from the other machine."
            )
        return key

    def _must_seal(self, *, encrypt: bool, plain: bool) -> bool:
        """Whether nothing may be sent unsealed: the user wants that, or this machine has a key, or
        has ever used any sealed remote. The address of that remote is not compared with this one,
        because an address can be spelled in many ways (S24). With `plain` it is compared, and the
        other reasons do not count.
        """
        last_sealed = self.repository.read_record(_SEALED_RECORD)
        if plain:
            return last_sealed == self._address
        return encrypt or bool(last_sealed) or self._key_file.exists()

    def _remote(self, *arguments: str, timeout: float = _TRANSFER_TIMEOUT) -> bytes:
        """Run git with the remote; returns its output. Raises MemoryUnusable if it fails."""
        on_wait = wait_for_remote(self._address, self.progress)
        done = self.repository.run_remote(*arguments, timeout=timeout, on_wait=on_wait)
        if done.returncode:
            raise self._remote_error(done.stderr)
        return done.stdout

    def _remote_error(self, output: bytes) -> MemoryUnusable:
        """Returns the error for what git printed about the remote."""
        return sync_error("Sessions", self._address, output)


def sync_error(what: str, address: str, output: bytes) -> MemoryUnusable:
    """Returns the error for what git printed about a remote. `what` is what should be synchronized,
    as the first word of the message.
    """
    reason, hint = explain_remote_failure(address, output)
    where = without_password(address)
    return MemoryUnusable(f"{what} cannot be synchronized with {where}: {reason}.", hint)


def last_remote(folder: Path) -> str:
    """Returns the address that sessions were last synchronized with; empty if there is none.
    `folder` is the repository of `SessionRemote`.
    """
    return GitRepository(folder).read_record(_REMOTE_RECORD)


def chunk_name(number: int, data: bytes) -> str:
    """Returns the name of a chunk, such as `000001-0f3c…`: its number in the session, from 0, and
    the beginning of the hash of its bytes.
    """
    return f"{number:06d}-{hashlib.sha256(data).hexdigest()[:16]}"


def _bound_path(path: str) -> bytes:
    """Returns the path that is sealed with a blob, so that nobody can move the blob to another
    path. The name of a chunk has a hash of the sealed bytes: the path is without this hash.
    """
    return path.rpartition("-")[0].encode() if "/chunks/" in path else path.encode()


def _digest_of(files: Mapping[str, str]) -> str:
    """Returns a digest of all paths and blobs of a branch, without the file that has this
    digest.
    """
    lines = [f"{path}\0{blob}\n" for path, blob in sorted(files.items()) if path != _STATE_FILE]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
