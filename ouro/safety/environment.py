"""The environment of commands, without keys, and the values of those keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from ouro.safety.secrets import MIN_SECRET_LENGTH
from ouro.utils.late_pattern import late_pattern

_SECRET_NAME = late_pattern(
    r"(^|_)(API_?)?(KEY|KEYS|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|PW|CREDENTIALS?|CREDS?"
    r"|AUTH|COOKIE|DSN|PAT|JWT|BEARER|SIGNATURE|LICENSE)(_|\d*$)|APIKEY|ACCESSKEY|SECRETKEY|AUTHTOKEN|PRIVATE_?KEY",
    re.IGNORECASE,
)
_SECRET_VALUE = late_pattern(
    r"\b(sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}|hf_\w{20,}|npm_\w{30,}|pypi-[\w-]{30,}|eyJ[\w-]{15,}\.[\w-]{10,}\.[\w-]+)"
)
_NEVER_SECRET = {
    "SSH_AUTH_SOCK",
    "XAUTHORITY",
    "PWD",
    "OLDPWD",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "DBUS_SESSION_BUS_ADDRESS",
    "LICENSE",
}
_STEERS_SHELL = late_pattern(
    r"BASH_ENV|ENV|BASH_FUNC_.*|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|PS4|CDPATH|GLOBIGNORE|GIT_ASKPASS|SSH_ASKPASS"
    r"|SUDO_ASKPASS|GIT_(DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|OBJECT_DIRECTORY|NAMESPACE|PREFIX)"
    r"|GIT_ALTERNATE_OBJECT_DIRECTORIES|FORCE_COLOR|CLICOLOR_FORCE"
)
_UNATTENDED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    # Unbuffered, so that the output of a Python program is complete when the time limit ends it.
    "PYTHONUNBUFFERED": "1",
}
_NOT_A_SECRET = late_pattern(r"[/~.].*|[\d.,:]+|[a-z]+|.*(?:\.sock|\.pem|\.json)")


def child_environment(
    environment: Mapping[str, str], *, secrets: Iterable[str] = ()
) -> dict[str, str]:
    """`environment` for unattended commands: no keys, no pager, no editor, no prompts.

    Args:
        secrets: values (provider keys) to remove from every variable, with any name.
    """
    known = [value for value in secrets if len(value) >= MIN_SECRET_LENGTH]
    passed: dict[str, str] = {}
    for name, value in environment.items():
        if _looks_secret(name, value) or _STEERS_SHELL.fullmatch(name):
            continue
        if not any(secret in value for secret in known):
            passed[name] = value
    return {**passed, **_UNATTENDED}


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of the variables that commands do not get because they look secret."""
    found = (value for name, value in environment.items() if _looks_secret(name, value))
    return [
        value
        for value in found
        if len(value) >= MIN_SECRET_LENGTH and not _NOT_A_SECRET.fullmatch(value)
    ]


def _looks_secret(name: str, value: str) -> bool:
    if name in _NEVER_SECRET or name.endswith(("_SOCK", "_KEYBOARD", "_KEYMAP")):
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value) or _holds_password(value))


def _holds_password(value: str) -> bool:
    """Whether it is a URL with a password for a remote host. Those of local databases stay: tests
    need them.
    """
    if "://" not in value or "@" not in value:
        return False
    try:
        parts = urlsplit(value)
        return bool(parts.password) and parts.hostname not in (
            "localhost",
            "127.0.0.1",
            "::1",
            "db",
            "postgres",
        )
    except ValueError:
        return True
