"""Commands on permissions: the rules with their sources and last uses, add one, revoke one, set the mode."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ouro.commands.action import ActionContext, Answer
from ouro.commands.mode import MODES, set_mode
from ouro.commands.render import CodeSpan, Title, as_markdown, line, table
from ouro.config import save_setting, settings_by_place
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.extensions import demand_tools
from ouro.safety import Kind, parse_rules
from ouro.utils.runtime import get_config_path, tilde
from ouro.utils.text import local_time

if TYPE_CHECKING:
    from ouro.commands.front_end import FrontEnd
    from ouro.session import Session

_KINDS: tuple[Kind, ...] = ("allow", "ask", "deny")
_NONE = "No permission rules yet."
_FILES = {
    "project": ".ouro/config.yaml",
    "environment": "OURO_PERMISSIONS_{}",
    "saved": "saved for this folder",
}


class ListedRule(msgspec.Struct, frozen=True):
    kind: Kind
    rule: str
    source: str
    """`user`, `project`, `environment`, `saved` (by "always" or a command) or `session`."""
    allowed: str = ""
    """What it has allowed last."""
    at: str = ""


def listed(session: Session) -> tuple[ListedRule, ...]:
    """The rules in force, strongest first. Raises ConfigError."""
    saved, settings = session.permissions.saved, settings_by_place(session.workbench.project)
    uses = saved.uses() if saved is not None else {}
    found = []
    for kind, rule in session.permissions.rules:
        name = f"permissions.{kind}"
        places = {"saved": saved.load(kind) if saved is not None else ()}
        places |= {place: given[name].value for place, given in settings.items() if name in given}
        source = next((place for place, rules in places.items() if rule in rules), "session")
        use = uses.get(rule) if kind == "allow" else None
        found.append(ListedRule(kind, rule, source, use.what if use else "", use.at if use else ""))
    return tuple(found)


async def list_rules(context: ActionContext) -> Answer:
    async with context.open_session() as session:
        return _answer(session)


async def _add(kind: Kind, context: ActionContext, rule: str) -> Answer:
    async with context.open_session() as session:
        _remember(session, kind, rule)
        return _answer(session)


def _remember(session: Session, kind: Kind, text: str) -> None:
    demand_tools(map(str, parse_rules(text)))  # a rule for `Bash` would do nothing
    session.permissions.remember(text, kind)


allow, ask, deny = partial(_add, "allow"), partial(_add, "ask"), partial(_add, "deny")


async def revoke(context: ActionContext, rule: str) -> Answer:
    async with context.open_session() as session:
        return _revoke(session, rule)


async def permissions(front_end: FrontEnd, argument: str) -> None:
    """Of a session: the rules and the mode, or one change."""
    session, (word, _, rule) = front_end.session, argument.partition(" ")
    if word in (*_KINDS, "revoke") and rule:
        if word == "revoke":
            _revoke(session, rule.strip())
            front_end.say(f"Revoked: {rule.strip()}")
        else:
            _remember(session, next(kind for kind in _KINDS if kind == word), rule.strip())
            front_end.say(f"Saved for this folder: {word} {rule.strip()}")
        return
    if word in ("allow", "deny"):
        raise UsageError(f"Usage: /permissions {word} RULE", commands=[f"permissions {word} shell(make *)"])
    rules = listed(session) if argument in ("", "list", "revoke") else ()
    if argument in ("", "list"):
        front_end.show(as_markdown([Title("Rules in force"), *_answer(session).view]) if rules else _NONE)
    if argument == "list":
        return
    choices = [Choice(mode, mode, what) for mode, what in MODES.items()]
    choices += [Choice("revoke", "revoke a rule", "what it allows is asked again")] if rules else []
    chosen = argument or await front_end.choose("Mode", choices, session.status().mode)
    if chosen == "revoke":
        names = [f"{found.kind} {found.rule}" for found in rules]
        if picked := await front_end.choose("Which rule?", [Choice(name, name) for name in names]):
            _revoke(session, picked)
            front_end.say(f"Revoked: {picked}")
    elif chosen:
        set_mode(front_end, chosen)


def _revoke(session: Session, text: str) -> Answer:
    found = [one for one in listed(session) if text in (one.rule, f"{one.kind} {one.rule}")]
    if not found:
        raise UsageError(f"There is no rule `{text}`.", commands=["permissions list"])
    for one in found:
        if one.source in ("project", "environment"):
            raise UsageError(f"`{one.rule}` is a rule of {_place(one)}.", "Remove it there: ouro does not change it.")
        if one.source == "user":
            name = f"permissions.{one.kind}"
            rules = settings_by_place()["user"][name].value
            save_setting(name, tuple(rule for rule in rules if rule != one.rule))
        session.permissions.revoke(one.rule, one.kind)
    return _answer(session)


def _answer(session: Session) -> Answer:
    rules = listed(session)
    rows = [(one.kind, CodeSpan(one.rule), _place(one), _last(one)) for one in rules]
    return Answer(msgspec.to_builtins(rules), table(rows) or [line(_NONE)])


def _place(rule: ListedRule) -> str:
    places = {**_FILES, "user": tilde(get_config_path())}
    return places.get(rule.source, "this session").format(rule.kind.upper())


def _last(rule: ListedRule) -> str:
    when = local_time(rule.at)
    return f"allowed {rule.allowed}, {when}" if when else ""
