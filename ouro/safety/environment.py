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
_STEERING_VARIABLE = late_pattern(
    r"BASH_ENV|ENV|BASH_FUNC_.*|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|PS4|CDPATH|GLOBIGNORE|GIT_ASKPASS|SSH_ASKPASS"
    r"|SUDO_ASKPASS|GIT_(DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|OBJECT_DIRECTORY|NAMESPACE|PREFIX)"
    r"|GIT_ALTERNATE_OBJECT_DIRECTORIES|FORCE_COLOR|CLICOLOR_FORCE"
)
"""Variables that change which programs a shell or git runs, or on which repository, or that color
output.
"""
_UNATTENDED_VARIABLES = {
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
_ORDINARY_VALUE = late_pattern(r"[/~.].*|[\d.,:]+|[a-z]+|.*(?:\.sock|\.pem|\.json)")
"""A path, a number or a word: masked everywhere, it would spoil texts."""


def child_environment(
    environment: Mapping[str, str], *, secrets: Iterable[str] = ()
) -> dict[str, str]:
    """Returns the variables of `environment` that unattended commands get: without keys, and
    without those that change what a shell or git does. Pagers, editors and prompts are turned off.

    Args:
        secrets: known secrets, such as keys of providers: variables with one of them in the value
            are left out, whatever their names are.
    """
    long_secrets = [value for value in secrets if len(value) >= MIN_SECRET_LENGTH]
    passed: dict[str, str] = {}
    for name, value in environment.items():
        if _looks_secret(name, value) or _STEERING_VARIABLE.fullmatch(name):
            continue
        if not any(secret in value for secret in long_secrets):
            passed[name] = value
    return {**passed, **_UNATTENDED_VARIABLES}


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Returns the values of the variables that commands do not get because they look secret, so
    that they are masked in texts. Short and ordinary values are left out.
    """
    values = (value for name, value in environment.items() if _looks_secret(name, value))
    return [
        value
        for value in values
        if len(value) >= MIN_SECRET_LENGTH and not _ORDINARY_VALUE.fullmatch(value)
    ]


def _looks_secret(name: str, value: str) -> bool:
    """Whether a variable holds a key or a password, by its name or its value."""
    if name in _NEVER_SECRET or name.endswith(("_SOCK", "_KEYBOARD", "_KEYMAP")):
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value) or _holds_password(value))


def _holds_password(value: str) -> bool:
    """Whether a value is a URL with a password for another machine, or a URL that cannot be parsed.
    URLs of local databases do not count, because tests need them.
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
