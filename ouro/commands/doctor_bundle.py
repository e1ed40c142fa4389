"""`ouro doctor --bundle`: what a report of a bug needs, in one file, without keys and names."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from ouro import __version__
from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.errors import UsageError
from ouro.llm import Catalog
from ouro.safety import SecretMask, secret_values
from ouro.utils.files import write_private
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import expand_home, get_home, get_log_path, tilde
from ouro.utils.text import clean

LOG_LINES = 200
MAX_LOG_BYTES = 200_000
_TERMINAL_VARIABLES = (
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "COLORTERM",
    "LANG",
    "LC_ALL",
    "SHELL",
)
_PRESENCE_VARIABLES = ("TMUX", "STY", "SSH_CONNECTION", "WSL_DISTRO_NAME", "NO_COLOR", "CI")
"""Variables of which the report says only whether they are set."""
_MAIL_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_NETWORK_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]{1,12}://|git@)[^\s'\"`)>\]]{1,400}")
"""`https://host/path` or `git@host:path`; the first group is what stays."""
_PRIVATE_SETTINGS = (
    "hooks",
    "mcp.servers",
    "lsp.servers",
    "sessions.remote",
    "memory.remote",
    "web.search_url",
)
"""Settings whose values may name private programs and servers."""


def write_bundle(
    cwd: Path,
    name: str,
    findings: Sequence[Mapping[str, str]],
    settings: Mapping[str, tuple[str, str]],
) -> Answer:
    """Write the report into a new file of a folder. Blocks.

    Args:
        name: the name of the file; empty for one with the time.
        findings: the results of the checks of `ouro doctor`.
        settings: the value and the source of each setting that is not the default.

    Raises:
        UsageError: the file exists, or cannot be written.
    """
    file = Path(cwd, expand_home(name)) if name else cwd / f"ouro-doctor-{_time_stamp()}.md"
    if file.exists():
        raise UsageError(f"{tilde(file)} exists already.", "Name another file.")
    text = mask_report("\n\n".join(_sections(findings, settings)) + "\n", cwd)
    try:
        write_private(file, text)
    except OSError as error:
        raise UsageError(f"{tilde(file)} cannot be written: {error.strerror}.") from error
    message = f"Wrote {tilde(file)}. Read it before you attach it to a report: nothing was sent."
    return Answer({"file": str(file), "bytes": len(text.encode())}, [line(message)])


def _time_stamp() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S}"  # noqa: DTZ005


def _sections(
    findings: Sequence[Mapping[str, str]], settings: Mapping[str, tuple[str, str]]
) -> Iterable[str]:
    """The sections of the report, in order."""
    yield f"# ouro doctor\n\nouro {__version__}, Python {platform.python_version()}, {platform.platform()}"
    checks = [f"{item['state']:<5} {item['subject']}: {item['what']}" for item in findings]
    yield _block("Checks", checks)
    yield _block("Terminal", _terminal())
    yield _block("Settings that are not the default", _settings(settings))
    yield _block("Packages", _packages())
    yield _block(f"The last {LOG_LINES} lines of the log", _log())


def _block(title: str, lines: Iterable[str]) -> str:
    body = clean("\n".join(lines)).replace("```", "'''") or "(none)"
    return f"## {title}\n\n```\n{body}\n```"


def _terminal() -> list[str]:
    """The variables about the terminal: some with their values, then others that are set, without."""
    values = [f"{name}={os.environ[name]}" for name in _TERMINAL_VARIABLES if name in os.environ]
    present = [f"{name} is set" for name in _PRESENCE_VARIABLES if os.environ.get(name)]
    return [*values, *present]


def _settings(settings: Mapping[str, tuple[str, str]]) -> list[str]:
    """A line for each setting, with its source; the values of private settings are left out."""
    return [
        f"{key}: {'(set)' if key in _PRIVATE_SETTINGS else value}   # {source}"
        for key, (value, source) in settings.items()
    ]


def _packages() -> list[str]:
    """The packages that ouro requires, with their installed versions."""
    try:
        requirements = importlib.metadata.requires("ouro") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    # The name in `textual[syntax]>=1.0` ends before the first such character.
    names = [re.split(r"[ <>=!~;\[(]", requirement, maxsplit=1)[0] for requirement in requirements]
    return [f"{name} {_version(name)}" for name in dict.fromkeys(names)]


def _version(name: str) -> str:
    """The installed version of a package, or that it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def _log() -> list[str]:
    """The last lines of the log, or why it cannot be read."""
    path = get_log_path()
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_LOG_BYTES))
            text = file.read(MAX_LOG_BYTES).decode(errors="replace")
    except OSError as error:
        return [f"{tilde(path)}: {error.strerror}"]
    return text.splitlines()[-LOG_LINES:]


def mask_report(text: str, cwd: Path) -> str:
    """The text with marks instead of keys, of mail and network addresses, and of the names of the
    user, the machine and the folders.
    """
    keys = [*secret_values(os.environ), *Catalog.from_files().key_values()]
    text = SecretMask(keys).mask(text)
    text = _MAIL_ADDRESS.sub("(mail)", text)
    text = _NETWORK_ADDRESS.sub(lambda match: f"{match[1]}(address)", text)
    root = find_root(cwd)
    mark_of_path = {str(get_home()): "OURO_HOME", str(cwd): "FOLDER", str(root): "PROJECT"}
    mark_of_path[str(Path.home())] = "~"
    # If two of these are the same folder, the later mark counts. The longest path is replaced
    # first, as it may be inside of another one.
    for path, mark in sorted(mark_of_path.items(), key=lambda item: -len(item[0])):
        if path != "/":
            text = text.replace(path, mark)
    for name, mark in (
        (_user_name(), "USER"),
        (socket.gethostname(), "HOST"),
        (root.name, "PROJECT"),
    ):
        if len(name) > 2:  # a shorter name would also match ordinary words
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", mark, text)
    return text


def _user_name() -> str:
    """The name of the user in the system; empty if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in a container
        return ""
