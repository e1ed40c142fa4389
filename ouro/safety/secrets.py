"""SecretMask: masks secrets in everything that is saved.

Three passes: known values (keys of ouro and of the environment), then kingfisher's patterns, then a
dozen patterns that it lacks. Only the first pass is complete.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ouro.safety.secret_prefilter import may_match, without_own_marks
from ouro.utils.files import lock_file, open_regular, write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir, get_home

_COMPILE_DELAY = 1.0
"""Seconds from `prepare` until rules are compiled: the first frame of the screen is more urgent."""
_SILENT_WAIT = 0.5
"""Seconds that a text waits for the rules before the user is informed."""
_COMPILE_PROGRAM = (
    "import os, sys; os.nice(5); from kingfisher_sdk import Rules; Rules(cache_dir=sys.argv[1] or"
    " None)"
)


class SecretFinding(NamedTuple):
    """A place in a text, as bytes, that looks like a secret."""

    start: int
    end: int
    rule: str
    """The name of the rule that found it."""


class SecretScanner:
    """Finds text that looks like a secret. Thread-safe.

    It is loaded for the first text in which it may find something: this takes 0.25 s, and 34 MB
    from then on. On the first use ever the rules are copied from the installation. If the
    installation has none, a separate process compiles them, which takes seconds: ouro may end
    meanwhile.
    """

    def __init__(self) -> None:
        self._scanner: Any = None
        """The scanner of the package; None until it is loaded, and if it cannot be."""
        self._building: threading.Thread | None = None
        """The thread that compiles the rules and loads the scanner; None until it is started."""
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        """Set when a text is to be searched: until then the scanner is not loaded."""

    @property
    def is_ready(self) -> bool:
        return self._scanner is not None

    def prepare(self) -> None:
        """Start to compile the rules in the background if that was never done on this machine. Does
        not wait.
        """
        if not _is_compiled():
            self._start()

    def _start(self) -> None:
        """Start the thread that builds the scanner, unless it was started before."""
        with self._lock:
            if self._building is None:
                self._building = threading.Thread(
                    target=self._build, name="secret-rules", daemon=True
                )
                self._building.start()

    def find(
        self, data: bytes, until: float, on_wait: Callable[[], None] | None = None
    ) -> list[SecretFinding]:
        """Returns the secrets in `data`.

        Waits for the scanner until the time `until` (of `time.monotonic`); returns nothing if it is
        not ready by then. Calls `on_wait` if the rules are not compiled after `_SILENT_WAIT`.
        """
        self._wanted.set()  # the thread that builds the scanner waits for this
        self._start()
        if self._building is not None:
            self._building.join(max(0.0, min(_SILENT_WAIT, until - time.monotonic())))
            if on_wait is not None and self._building.is_alive() and not _is_compiled():
                on_wait()
            self._building.join(max(0.0, until - time.monotonic()))
        if self._scanner is None:
            return []
        findings: list[SecretFinding] = []
        for finding in self._scanner.scan(data):
            if finding.visible:
                fields = finding.to_dict()
                location = fields["location"]
                short_id = str(fields["rule_id"]).rpartition(".")[2].lower()
                rule = re.sub(r"[^a-z0-9]+", "-", short_id)
                findings.append(
                    SecretFinding(location["start_offset"], location["end_offset"], rule)
                )
        return findings

    def _build(self) -> None:
        """Copy or compile the rules if needed, and load the scanner as soon as `find` wants it.
        Runs in a thread. If anything fails, ouro's own rules still mask.
        """
        try:
            if not _is_compiled():
                _copy_installed_rules()
            if not _is_compiled() and _has_scanner():
                self._wanted.wait(_COMPILE_DELAY)  # or less, if `find` wants the scanner
                _compile_once()
            self._wanted.wait()
            from kingfisher_sdk import Rules, Scanner

            self._scanner = Scanner(Rules(cache_dir=_cache_folder()))
        except Exception as error:  # noqa: BLE001 (what else is masked continues without it)
            log.warning("secrets are masked by ouro's own rules only: %s", error)


@cache
def shared_scanner() -> SecretScanner:
    """Returns the scanner of the process, which all sessions use. It holds no secret values."""
    return SecretScanner()


def _cache_folder() -> Path | None:
    """Returns the folder for compiled rules; it is made if it is missing. None if
    KF_RULE_CACHE_DIR, the scanner's own variable, names another folder.
    """
    if os.environ.get("KF_RULE_CACHE_DIR"):
        return None
    folder = get_home() / "cache" / "secret-rules"
    try:
        return ensure_private_dir(folder)
    except OSError:  # home is not writable: the rules are compiled each time
        return folder


def _has_scanner() -> bool:
    """Whether the scanner is installed."""
    # Imported late, as in `_copy_installed_rules`.
    from importlib.machinery import PathFinder

    return PathFinder.find_spec("kingfisher_sdk") is not None


def _is_compiled() -> bool:
    """Whether there are compiled rules in the folder of the user, perhaps of another version."""
    folder = _cache_folder() or Path(os.environ["KF_RULE_CACHE_DIR"])
    return any(folder.glob("*.vscdb"))


def _compile_once() -> None:
    """Compile the rules in a separate process, and wait for it. If another ouro compiles them now,
    only wait until it has done so. If home cannot be written, there is no lock for this, and each
    ouro compiles them.

    Without the lock, fifty first starts at once took 4.5 s of CPU each.
    """
    with ExitStack() as stack:
        inherited: tuple[int, ...] = ()
        with suppress(OSError):  # home is not writable
            lock = ensure_private_dir(get_home() / "cache" / "secret-rules") / "lock"
            inherited = (stack.enter_context(lock_file(lock)),)
        if _is_compiled():
            return
        quiet = subprocess.DEVNULL
        subprocess.Popen(
            [sys.executable, "-P", "-c", _COMPILE_PROGRAM, str(_cache_folder() or "")],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
            pass_fds=inherited,  # it holds the lock also when this ouro has ended
        ).wait()


def compile_for_installation() -> None:
    """Compile the rules into the folder of the installation, from which `_copy_installed_rules`
    copies them for each user. Called by install.sh; takes seconds.

    Raises:
        ImportError: the scanner is not installed.
        OSError: the folder cannot be written.
    """
    import shutil  # imported late: few sessions need it

    from kingfisher_sdk import Rules

    folder = _installed_rules()
    shutil.rmtree(folder, ignore_errors=True)  # the rules of an older version
    folder.mkdir(mode=0o755, parents=True)
    Rules(cache_dir=folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def _installed_rules() -> Path:
    """Returns the folder of the rules that are compiled once with the installation."""
    return Path(sys.prefix, "share", "ouro", "secret-rules")


def _copy_installed_rules() -> None:
    """Copy the compiled rules of the installation to the folder of the user. A file that another
    user than root could have changed is left out.

    They are copied because the scanner reads only files of the user. If they are of another version
    of the scanner, it compiles them again.
    """
    folder = _cache_folder()
    if folder is None:
        return
    for path in _installed_rules().glob("*.vscdb"):
        with suppress(OSError), open_regular(path, os.O_NOFOLLOW) as file:
            status = os.fstat(file.fileno())
            if status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022:
                write_private(folder / path.name, file.read())


MIN_SECRET_LENGTH = 8
"""Shorter values are not masked: they would also be found in ordinary texts."""

_KINDS_OF_KEYS = "api access auth private signing encryption account master shared".split()
_KEY_NAMES = rf"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|credentials?|(?:{'|'.join(_KINDS_OF_KEYS)})[_-]?key)"
_SECRET_NAME = late_pattern(
    rf"(?:\A|[\W_]|(?<=[a-z])(?=[A-Z]))(?i:{_KEY_NAMES})(?:\Z|[\W_]|(?=[A-Z]))"
)
_LETTER, _DIGIT = re.compile(r"[A-Za-z]"), re.compile(r"\d", re.ASCII)
_PLACEHOLDER = "[secret:"
"""The beginning of the text that replaces a secret."""
_MASK_TEXT = late_pattern(r"\[secret:([^:\]]+):")

# Lookaheads have a limit: without it, 40 KB of `sk-sk-sk-` took 7 s.
_UNQUOTED_VALUE = (
    r"(?=[^\s\"'\[\](){}<>,;|\\]{0,200}\d)(?=[^\s\"'\[\](){}<>,;|\\]{0,200}[A-Za-z])"
    r"[^\s\"'\[\](){}<>,;|\\$*%]{8,}"
)

_RULES = {
    "private-key": late_pattern(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>(?>(?:\\[rn]|[\s\"'+,])*"
        r"(?:(?:Proc-Type|DEK-Info|Version|Comment): [^\n]*|[A-Za-z0-9+/=]{16,}+))++"
        r"(?:(?:\\[rn]|[\s\"'+,])*[A-Za-z0-9+/=]+(?=(?:\\[rn]|[\s\"'+,])*-----END))?)",
    ),
    "cookie": late_pattern(
        r"(?i)\bcookie[\"']?: *[\"']?(?P<secret>[\w.-]+=[^\s\"',][^\r\n\"']{7,})"
    ),
    "authorization": late_pattern(
        r"(?i)\bauthorization[\"']?\s*[:=]\s*[\"']?(?:[a-z]+ +)?(?P<secret>[\w.~+/=:-]{12,})"
    ),
    "bearer": late_pattern(r"(?i)\bbearer +(?P<secret>(?=[\w.~+/-]{0,200}\d)[\w.~+/-]{16,}=*)"),
    "url": late_pattern(
        r"(?<=[a-zA-Z0-9+.-]{2})://[^\s/:@\"'<>{}]*:(?P<secret>[^\s/@\"'<>{}$*]{3,})@"
    ),
    "netrc": late_pattern(r"\blogin\s+\S+\s+password\s+(?P<secret>\S{4,})"),
    "pgpass": late_pattern(
        r"(?m)^[\w.*-]+:(?:\d{2,5}|\*):[\w*.-]+:[\w*.-]+:(?P<secret>[^\s:]{6,})$"
    ),
    "user-flag": late_pattern(
        r"(?<!\w)(?:-u|--user)[ =][\"']?[\w.@-]+:(?P<secret>[^\s\"'$<{]{6,})"
    ),
    "flag": late_pattern(
        rf"(?i)-(?<![\w-]-)-?(?!-)[\w-]{{0,40}}?{_KEY_NAMES}(?:=|[ \t]+)[\"']?"
        r"(?P<secret>(?!-)[^\s\"'$<\[({|]{8,}+)(?=[\s\"']|\Z)",
    ),
    "jwt": late_pattern(r"\b(?P<secret>ey[JK][\w-]{8,9999}\.ey[JK][\w-]{8,9999}\.[\w-]*)"),
    "aws-id": late_pattern(r"\b(?P<secret>(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b"),
    "google": late_pattern(
        r"\b(?P<secret>ya29\.[\w-]{20,}|AQ\.[\w-]{35,}|GOCSPX-[\w-]{20,}|AIza[\w-]{35}|1//0[\w-]{30,})"
    ),
    "token": late_pattern(
        r"\b(?P<secret>(?:sk|rk|pk)[-_](?=[\w-]{0,200}\d)[\w-]{20,}|gh[opsur]_\w{30,}|github_pat_\w{30,}|gl[a-z]{2,5}-[\w-]{20,}"
        r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{20,}|(?:hf|npm|gsk|xai|pplx|nvapi|r8|lin_api|dop_v1|ntn|tvly|fw)[-_](?=\w{0,200}\d)[\w-]{20,}"
        r"|pypi-[\w-]{50,}|SG\.[\w-]{16,}\.[\w-]{16,}|(?:pub)?key-[0-9a-f]{32}\b|[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}\b"
        # New Relic, and Cursor.
        r"|NR(?:AK|AA|BR|JS|II|IQ|RA|SP)-[\w-]{16,}|[\da-fx]{32,40}NRAL|(?:crsr|key|cursor)_[0-9a-f]{40,}"
        # Discord: the number of the bot in base64, a time, a signature.
        r"|(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){4,6}\w{0,3}\.[\w-]{6}\.[\w-]{27,}|mfa\.[\w-]{60,})",
    ),
    "telegram": late_pattern(r"(?<!\d)(?P<secret>\d{8,10}:AA[\w-]{33})(?![\w-])"),
    "discord": late_pattern(
        r"\bdiscord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/(?P<secret>[\w-]{60,})"
    ),
    # The shape of most tokens: a short word, then a long run of upper and lower case letters and
    # digits.
    "prefixed": late_pattern(
        r"\b(?P<secret>[A-Za-z][A-Za-z0-9]{1,9}(?:[_-][a-z]{2,6}\d?)?[_-](?=[a-z0-9_-]{0,200}[A-Z])(?=[A-Z0-9_-]{0,200}[a-z])"
        r"(?=[A-Za-z_-]{0,200}\d[A-Za-z_-]{0,200}\d)[A-Za-z0-9_-]{20,})(?![./(])",
    ),
    "named": late_pattern(
        rf"(?i)(?:(?<!\[)\b|(?<=_)|(?<=[a-z])){_KEY_NAMES}[\"']?\]?\s{{0,3}}(?:=|:|:=|=>)\s{{0,3}}[\"']?(?P<secret>{_UNQUOTED_VALUE})",
    ),
}
"""Patterns by name; the group `secret` is masked."""
_BEGINNINGS: Mapping[str, tuple[str, ...]] = {
    "private-key": ("-----begin ",),
    "cookie": ("cookie",),
    "authorization": ("authorization",),
    "bearer": ("bearer",),
    "url": ("://",),
    "netrc": ("login",),
    "user-flag": ("-u", "--user"),
    "jwt": ("eyj", "eyk"),
    "aws-id": ("akia", "asia", "abia", "acca"),
    "google": ("ya29.", "aq.", "gocspx-", "aiza", "1//0"),
    "discord": ("discord",),
    "named": (
        *"pass pwd secret token credential".split(),
        *(f"{kind}{separator}key" for kind in _KINDS_OF_KEYS for separator in ("", "_", "-")),
    ),
}
"""The beginnings of matches, in lower case: patterns are tried only there. 1 MB of source takes
0.06 s, not 0.34.
"""
_KEY_WORDS = ("pass", "pwd", "secret", "token", "credential", "key")
_REQUIRED_TEXTS = {"pgpass": (":",), "flag": _KEY_WORDS, "telegram": (":aa",), "named": _KEY_WORDS}
"""Every text that a pattern matches contains one of these, in lower case."""
_MIN_TOKEN_LENGTH = 15
"""The minimum characters of what `token`, `prefixed` and the scanner find."""
_TOKEN_BYTES = bytes(
    byte if byte > 127 or chr(byte).isalnum() or chr(byte) in "_-.+=~" else 32
    for byte in range(256)
)
"""A table for `bytes.translate`: characters that cannot be in a token become spaces."""
_FOLDED_LETTERS = {"\u0130": "i", "\u0131": "i", "\u017f": "s"}
"""Letters that match i and s if case is ignored. `str.lower` keeps them, or makes two characters of
one.
"""


class SecretMask:
    """Masks secrets in texts. Thread-safe."""

    def __init__(
        self,
        values: Iterable[str] = (),
        patience: float = 10.0,
        scanner: SecretScanner | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        """Mask `values`, and what looks like a secret.

        Args:
            values: known secrets.
            patience: total seconds that texts wait for the scanner.
            scanner: finds text that looks like a secret; None: the scanner of the process.
            on_wait: called once, in any thread, if a text waits until the rules are compiled.
        """
        self._known_values = _compile_known_values(values)
        self.scanner = scanner or shared_scanner()
        self._patience = patience
        self._give_up_at = 0.0
        """When texts stop to wait for the scanner; 0 as long as none has needed it."""
        self._on_wait = on_wait

    def learn(self, values: Iterable[str]) -> None:
        """Also mask these values: keys that became known after the start."""
        self._known_values = [*self._known_values, *_compile_known_values(values)]

    def mask(self, text: str) -> str:
        """Returns `text` with a placeholder `[secret:RULE:HASH]` instead of each secret; the same
        secret always gets the same hash.

        Waits for the scanner if it may find something in the text.
        """
        for pattern in self._known_values:
            text = pattern.sub(
                lambda match: _placeholder("known", match[0].encode("utf-8", "replace")), text
            )
        if self._needs_scanner(text):
            text = self._mask_findings(text)
        lowered, long_words = _lowercase(text), _long_words(text)
        for name, pattern in _RULES.items():
            if not _may_apply(name, lowered):
                continue
            # To search only the long words is faster, and finds every match of these two.
            if name in ("token", "prefixed") and not pattern.search(long_words):
                continue
            mask = partial(_mask_match, name)
            if name in _BEGINNINGS:
                masked = _replace_at(
                    _find_offsets(lowered, _BEGINNINGS[name]), pattern, replace=mask, text=text
                )
            else:
                masked = pattern.sub(mask, text)
            if masked != text:
                text, lowered, long_words = masked, _lowercase(masked), _long_words(masked)
        return text

    def _needs_scanner(self, text: str) -> bool:
        """Whether the scanner may find something in `text`. As long as it is not loaded, the text
        is checked more closely, so that it is seldom loaded for nothing.
        """
        may_have_token = _may_hold_a_token(_long_words(without_own_marks(text)))
        return may_have_token and (self.scanner.is_ready or may_match(text))

    def kind_of_secret(self, text: str) -> str:
        """Returns the name of the first rule that finds a secret in `text`; empty if none does.

        The name is taken from the new placeholder. If `text` has placeholders of the same rule
        already, the new one cannot be told from them, and the result is "a secret".
        """
        masked = self.mask(text)
        if masked == text:
            return ""
        kinds_before = set(_MASK_TEXT.findall(text))
        new_kinds = (kind for kind in _MASK_TEXT.findall(masked) if kind not in kinds_before)
        return next(new_kinds, "a secret")

    def kind_in_memory(self, text: str) -> str:
        """Returns what kind of secret is in `text`, which memory would save; empty if there is
        none. It is the name of the first rule that finds one, or such as "password in a sentence".
        """
        from ouro.safety.spoken_secrets import spoken_secret  # rarely needed

        return self.kind_of_secret(text) or spoken_secret(text)

    def _announce_wait(self) -> None:
        """Inform the user, at the first call, that a text waits until the rules are compiled."""
        on_wait, self._on_wait = self._on_wait, None
        if on_wait is not None:
            on_wait()

    def _mask_findings(self, text: str) -> str:
        """Returns the text with a placeholder for each finding of the scanner. A finding is left as
        it is if it overlaps with one that is masked already, or if it holds a placeholder.
        """
        # The patience counts from the first text that needs the scanner, for all texts together.
        self._give_up_at = self._give_up_at or time.monotonic() + self._patience
        data = text.encode("utf-8", "replace")
        findings = self.scanner.find(data, self._give_up_at, self._announce_wait)
        if not findings:
            return text
        # The last one first, so that the offsets of the others stay valid.
        start_of_masked = len(data)
        for start, end, rule in sorted(findings, reverse=True):
            if end <= start_of_masked and _PLACEHOLDER.encode() not in data[start:end]:
                data = data[:start] + _placeholder(rule, data[start:end]).encode() + data[end:]
                start_of_masked = start
        return data.decode("utf-8", "replace")


def _lowercase(text: str) -> str:
    """Returns `text` in lower case. It has the same length, so that an offset in it is also an
    offset in `text`.
    """
    for letter, plain in _FOLDED_LETTERS.items():
        text = text.replace(letter, plain)
    return text.lower()


def _may_hold_a_token(words: str) -> bool:
    """Whether one of the words, separated by spaces, has letters and digits (ASCII)."""
    return any(_LETTER.search(word) and _DIGIT.search(word) for word in words.split())


def _may_apply(rule: str, lowered: str) -> bool:
    """Whether a rule may match in a text, given in lower case: the text has one of the words that
    every match of the rule contains. True for a rule without such words.
    """
    return rule not in _REQUIRED_TEXTS or any(word in lowered for word in _REQUIRED_TEXTS[rule])


def _long_words(text: str) -> str:
    """Returns the words of `text` with at least `_MIN_TOKEN_LENGTH` bytes, with a space between
    them. A word has only characters that a token may have.
    """
    words = text.encode("utf-8", "replace").translate(_TOKEN_BYTES).split()
    return b" ".join(word for word in words if len(word) >= _MIN_TOKEN_LENGTH).decode()


def _find_offsets(text: str, words: Iterable[str]) -> list[int]:
    """Returns the offsets at which one of the words begins in the text, sorted."""
    offsets = []
    for word in words:
        offset = text.find(word)
        while offset >= 0:
            offsets.append(offset)
            offset = text.find(word, offset + 1)
    return sorted(offsets)


def _replace_at(
    offsets: Iterable[int],
    pattern: re.Pattern[str],
    replace: Callable[[re.Match[str]], str],
    text: str,
) -> str:
    """Returns the text with some matches of a pattern replaced: those that begin at one of the
    sorted `offsets`.

    If the pattern can match nowhere else, this is the same as `pattern.sub(replace, text)` in less
    time.
    """
    pieces: list[str] = []
    end_of_last = 0
    for offset in offsets:
        if offset >= end_of_last and (match := pattern.match(text, offset)):
            pieces += (text[end_of_last:offset], replace(match))
            end_of_last = match.end()
    return "".join((*pieces, text[end_of_last:])) if pieces else text


def is_secret_name(name: str) -> bool:
    """Whether a variable or a key of settings with this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def _compile_known_values(values: Iterable[str]) -> list[re.Pattern[str]]:
    """Returns one pattern, in a list, that matches all forms of the values; the list is empty if
    all values are too short. Longer forms are tried first, because a shorter one may be a part of
    them.
    """
    long_values = (value for value in values if len(value) >= MIN_SECRET_LENGTH)
    forms = set(chain.from_iterable(map(_forms_of, long_values)))
    if not forms:
        return []
    longest_first = sorted(forms, key=len, reverse=True)
    return [re.compile("|".join(map(re.escape, longest_first)))]


def _forms_of(value: str) -> Iterator[str]:
    """Yield a value as it is, and encoded for URLs, JSON and base64. In base64 a value has three
    forms, by its position in a longer encoded text.
    """
    yield from {value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1]}
    data = value.encode("utf-8", "replace")
    for bytes_before in range(3):
        inside = _base64_inside(data, bytes_before)
        if len(inside) >= MIN_SECRET_LENGTH:
            yield from {inside, inside.replace("+", "-").replace("/", "_")}


_SHARED_AT_START = (0, 2, 3)
_SHARED_AT_END = (0, 3, 2)
"""By how many bytes are in the group of three before the value, and up to its end: the characters
of base64 that also hold bits of a neighbour, or are padding.
"""


def _base64_inside(data: bytes, bytes_before: int) -> str:
    """Returns the characters of base64 that only `data` determines when it is encoded as part of a
    longer text.

    base64 encodes groups of three bytes as four characters. `bytes_before` (0 to 2) is the number
    of other bytes before `data` in its first group. Characters that also hold bits of a neighbour
    are left out.
    """
    encoded = base64.b64encode(b"\0" * bytes_before + data).decode()
    start = _SHARED_AT_START[bytes_before]
    end = len(encoded) - _SHARED_AT_END[(bytes_before + len(data)) % 3]
    return encoded[start:end]


def _mask_match(rule: str, match: re.Match[str]) -> str:
    """Returns the text of a match with a placeholder instead of its group `secret`. Unchanged if
    this group holds a placeholder already.
    """
    secret = match["secret"]
    if _PLACEHOLDER in secret:
        return match[0]
    before = match.string[match.start() : match.start("secret")]
    after = match.string[match.end("secret") : match.end()]
    return before + _placeholder(rule, secret.encode("utf-8", "replace")) + after


def _placeholder(rule: str, secret: bytes) -> str:
    """Returns the placeholder for a secret, `[secret:RULE:HASH]`, with the first four digits of its
    SHA-256.
    """
    return f"{_PLACEHOLDER}{rule}:{hashlib.sha256(secret).hexdigest()[:4]}]"
