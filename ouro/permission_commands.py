"""The commands on permissions: they list, add and revoke rules, and set the mode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from ouro.commands.action import ActionContext, Answer
from ouro.commands.mode import MODES, choose_mode
from ouro.commands.render import CodeSpan, Title, View, line, table
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.extensions import demand_tools
from ouro.safety import Kind, parse_rules
from ouro.settings_sources import SettingsByPlace, save_setting, settings_by_place
from ouro.utils.ouro_paths import get_config_path, tilde
from ouro.utils.text import local_time, one_line, whole_number

if TYPE_CHECKING:
    from ouro.session import Session
    from ouro.session.model_judge import Judge

_SOURCE_NAMES = {
    "project": ".ouro/config.yaml",
    "environment": "OURO_PERMISSIONS_{}",
    "saved": "saved for this folder",
}
_ASKED_AGAIN = "the same call is asked from now on"
_MAX_VERDICTS = 30


class ListedRule(msgspec.Struct, frozen=True):
    """A permission rule with its source and its last use."""

    kind: Kind
    rule: str
    source: str
    """`user`, `project`, `environment`, `saved` (by "always" or a command) or `session`."""
    allowed: str = ""
    """The last action that it has allowed."""
    at: str = ""
    """The time of that action."""


def find_rules(session: Session) -> tuple[ListedRule, ...]:
    """The rules of a session, the strongest first. Raises ConfigError."""
    saved = session.permissions.saved
    settings = settings_by_place(session.extensions.settings.project)
    uses = saved.uses() if saved is not None else {}
    listed = []
    for kind, rule in session.permissions.rules:
        saved_rules = saved.load(kind) if saved is not None else ()
        listed_rule = ListedRule(kind, rule, _find_source(kind, rule, saved_rules, settings))
        use = uses.get(rule) if kind == "allow" else None
        if use is not None:
            listed_rule = msgspec.structs.replace(listed_rule, allowed=use.what, at=use.at)
        listed.append(listed_rule)
    return tuple(listed)


def _find_source(
    kind: Kind, rule: str, saved_rules: Sequence[str], settings: SettingsByPlace
) -> str:
    """The source of a rule, as in `ListedRule`. A rule that is in no file was added in this session."""
    if rule in saved_rules:
        return "saved"
    name = f"permissions.{kind}"
    for place, settings_of_place in settings.items():
        if name in settings_of_place and rule in settings_of_place[name].value:
            return place
    return "session"


async def permissions(context: SessionContext, mode: str) -> Answer | None:
    """Set the mode. Without a mode show the rules, and let the user choose a mode, or a rule to revoke.
    None, unless a rule was revoked.
    """
    if not mode:
        rules, judge = find_rules(context.session), _judge_of(context.session)
        heading = [Title("Rules in force")] if rules else []
        context.show([*heading, *_view(rules)])
        if judge is not None:
            context.show(_view_of_judge(judge))
        choices = [Choice(name, name, what) for name, what in MODES.items()]
        if rules or judge is not None:
            what = "a rule, or a verdict of the judge" if judge is not None else "a rule"
            choices.append(Choice("revoke", f"revoke {what}", "what it allows is asked again"))
        mode = await context.choose("Mode", choices, context.session.status().mode) or ""
    if mode == "revoke":
        return await revoke(context, rule="")
    if mode:
        await choose_mode(context.front_end, mode)
    return None


async def list_rules(context: ActionContext) -> Answer:
    """Show the rules of this folder."""
    async with context.open_session() as session:
        rules = find_rules(session)
    return Answer(msgspec.to_builtins(rules), _view(rules))


async def _add(kind: Kind, context: ActionContext, rule: str) -> Answer:
    """Save a rule for this folder. Raises an error if it names no tool."""
    demand_tools(map(str, parse_rules(rule)))  # a rule for `Bash` would have no effect
    async with context.open_session() as session:
        session.permissions.remember(rule, kind)
        return Answer(
            msgspec.to_builtins(find_rules(session)),
            [line(f"Saved for this folder: {kind} {rule}")],
        )


allow, deny = partial(_add, "allow"), partial(_add, "deny")


async def ask(context: ActionContext, rule: str) -> Answer | None:
    """Save a rule for calls about which the user is asked first. Without a rule set the mode `ask`,
    as `/permissions edit` sets the mode `edit`, and return None.
    """
    if rule:
        return await _add("ask", context, rule)
    if not isinstance(context, SessionContext):
        raise UsageError("A rule is needed, such as `shell(make *)`.", commands=["permissions ask"])
    await choose_mode(context.front_end, "ask")
    return None


async def revoke(context: ActionContext, rule: str) -> Answer | None:
    """Revoke a rule (`allow shell(ls)`, or without the kind), or a verdict of the judge (`judge #3`).
    Without one, let the user choose.
    """
    async with context.open_session() as session:
        rules = find_rules(session)
        judge = _judge_of(session)
        choices = [*_rule_choices(rules), *_judge_choices(judge)]
        if not rule and choices:
            rule = await context.choose("Which rule?", choices) or ""
            if not rule:
                return None
        if judge is not None and rule.partition(" ")[0] == "judge":
            return _revoke_verdict(judge, rule.removeprefix("judge").strip(" #"))
        matching = [match for match in rules if rule in (match.rule, f"{match.kind} {match.rule}")]
        if not matching:
            raise UsageError(f"There is no rule `{rule}`.", commands=["permissions list"])
        for match in matching:
            _revoke_rule(session, match)
        return Answer(msgspec.to_builtins(find_rules(session)), [line(f"Revoked: {rule}")])


def _revoke_rule(session: Session, rule: ListedRule) -> None:
    """End a rule in this session, and delete it from the file in which it is saved. Raises UsageError for
    a rule of the project or of a variable.
    """
    if rule.source in ("project", "environment"):
        raise UsageError(
            f"`{rule.rule}` is a rule of {_place(rule)}.",
            "Remove it there: ouro does not change it.",
        )
    if rule.source == "user":
        name = f"permissions.{rule.kind}"
        saved_rules = settings_by_place()["user"][name].value
        save_setting(name, tuple(text for text in saved_rules if text != rule.rule))
    session.permissions.revoke(rule.rule, rule.kind)


def _judge_of(session: Session) -> Judge | None:
    """The model that answers permission questions, if the user has named one."""
    return cast("Judge | None", session.turn.commands.tools.judge)


def _rule_choices(rules: Sequence[ListedRule]) -> list[Choice]:
    names = [f"{rule.kind} {rule.rule}" for rule in rules]
    return [Choice(name, name) for name in names]


def _judge_choices(judge: Judge | None) -> list[Choice]:
    """The verdicts that can be revoked, the latest first; then the judge itself."""
    if judge is None or not judge.is_on:
        return []
    verdicts = [
        Choice(f"judge {item.number}", f"judge #{item.number}: {item.title}", _ASKED_AGAIN)
        for item in reversed(judge.judged)
        if item.verdict.allows
    ]
    return [*verdicts, Choice("judge", "the judge, for this session", "you are asked instead")]


def _revoke_verdict(judge: Judge, number: str) -> Answer:
    """Revoke the verdict of the judge that has this number. Without a number the judge is switched
    off for this session. Raises UsageError if there is no such verdict.
    """
    if not number:
        judge.revoke()
        return Answer("judge", [line("The judge decides nothing more in this session.")])
    verdict_number = whole_number(number)
    verdict = None if verdict_number is None else judge.revoke(verdict_number)
    if verdict is None:
        raise UsageError(f"There is no verdict `{one_line(number, 40)}`.", commands=["permissions"])
    return Answer(verdict.number, [line(f"Revoked: ouro asks about {verdict.title} from now on.")])


def _view_of_judge(judge: Judge) -> View:
    """The state of the judge and its last verdicts."""
    rows = [
        (
            f"#{item.number}",
            "allowed" if item.verdict.allows else "asked",
            CodeSpan(item.title),
            item.verdict.reason,
        )
        for item in judge.judged[-_MAX_VERDICTS:]
    ]
    return [Title(f"Judge: {judge.state}"), *table(rows)]


def _view(rules: Sequence[ListedRule]) -> View:
    """The rules as a table."""
    rows = [(rule.kind, CodeSpan(rule.rule), _place(rule), _last(rule)) for rule in rules]
    return table(rows) or [line("No permission rules yet.")]


def _place(rule: ListedRule) -> str:
    """Where a rule is saved, as the user reads it."""
    places = {**_SOURCE_NAMES, "user": tilde(get_config_path())}
    return places.get(rule.source, "this session").format(rule.kind.upper())


def _last(rule: ListedRule) -> str:
    """The last use of a rule, as the user reads it."""
    when = local_time(rule.at)
    return f"allowed {rule.allowed}, {when}" if when else ""
