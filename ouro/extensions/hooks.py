"""Hooks: commands that run at events of a session; they decide, add context or change the input of
a tool.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from ouro.errors import ConfigError
from ouro.extensions.checks import Check, Checks
from ouro.extensions.hook_process import HookAnswer, is_loopback, post, run_command
from ouro.extensions.plugins import plugin_folder, plugin_tables
from ouro.extensions.tool_names import names_elsewhere
from ouro.safety import Deny, Effect, Permissions, Workspace
from ouro.settings import FailureAction, HookEvent, HookSettings
from ouro.tools.tool import HookOutcome, Verdict
from ouro.utils.json_types import amount, dictionaries, dictionary, dump_json, read_json
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.runtime import get_config_path, tilde
from ouro.utils.text import cut, one_line

T = TypeVar("T")
EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
CLAUDE_EVENTS: Mapping[str, HookEvent] = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt",
    "PreToolUse": "before-tool",
    "PostToolUse": "after-tool",
    "PreCompact": "before-compaction",
    "PostCompact": "after-compaction",
    "Stop": "turn-end",
    "SubagentStop": "subagent-end",
    "SessionEnd": "session-end",
    "Notification": "notification",
}
"""The events, by their names in Claude Code's settings.json."""
_EDIT_FIELDS = {"old_string": "old_text", "new_string": "new_text"}
"""The texts of an edit, by their names in Claude Code."""
_ONE_EDIT = (*_EDIT_FIELDS, "replace_all")
_NAMES = {event: name for name, event in CLAUDE_EVENTS.items()}
_KNOWN_KEYS = {"type", "command", "args", "timeout", "statusMessage", "url", "on_failure"}
BLOCKS = 2
"""The exit code that blocks. Any other code except 0 is a failure."""
_ANSWER_KEYS = {
    "context",
    "continue",
    "decision",
    "hookSpecificOutput",
    "input",
    "reason",
    "stopReason",
    "suppressOutput",
    "systemMessage",
}
"""The keys of an answer; an object without any of them, such as a line of a log, is none."""
MAX_TEXT = 20_000
"""Maximum characters of a hook's output that are sent to the model."""
MAX_RUNS = 200
_MAX_OBJECTS = 1_000
"""Maximum objects that are looked for in one output."""
_BEGINS_ANSWER = late_pattern(r"\{\s*[\"']?(?:" + "|".join(sorted(_ANSWER_KEYS)) + r")\b")
_NAMES_DECISION = late_pattern(r"(?im)decision\W*[:=].*|(?:^|permission)\W*(?:deny|block)\b.*")
DEFAULT_SECONDS = 60
_STRENGTH: tuple[Verdict, ...] = ("", "allow", "ask", "deny")
_VERDICTS: Mapping[str, Verdict] = {
    "approve": "allow",
    "block": "deny",
    "allow": "allow",
    "ask": "ask",
    "deny": "deny",
}


class Hook(msgspec.Struct, frozen=True):
    event: HookEvent
    command: str
    url: str
    matcher: str
    """Names, or a regular expression for a part of a name; empty: everything."""
    seconds: float
    place: str
    """The file that it comes from: `~/.ouro/config.yaml`."""
    is_project: bool
    """Whether it is from a project or plugin: it may refuse, but never permit."""
    check: Check | None = None
    """The check that it enforces; a check with a rule does not run a command."""
    plugin: str = ""
    """The folder of the plugin that it comes from."""
    agent: str = ""
    """The kind of subagent that it is for, from its file; empty: all, and the agent of the session.
    """
    on_failure: FailureAction = ""

    @property
    def is_guard(self) -> bool:
        """Whether its failure refuses the call: a guard that did not answer has permitted nothing.

        A server that is not on this machine is reported at the start, and not called.
        """
        is_called = bool(self.command or self.check) or is_loopback(self.url)
        return self.event == "before-tool" and self.on_failure != "permit" and is_called

    @property
    def label(self) -> str:
        return one_line(
            self.command or self.url or f"refuses {self.check.rule if self.check else ''}", 80
        )

    def matches(self, names: Sequence[str], agent: str) -> bool:
        """Whether it applies to one of these names (without names: always) and to the subagent with
        that id.
        """
        if self.agent not in ("", kind_of(agent)):
            return False
        if self.matcher in ("", "*") or not names:
            return True
        if re.fullmatch(r"[\w ,|-]+", self.matcher):
            return not {*re.split(r" *[,|] *", self.matcher.strip())}.isdisjoint(names)
        try:
            return any(re.search(self.matcher, name) for name in names)
        except re.error:
            return True  # fail closed: better to run a guard too often than never


class HookRun(msgspec.Struct, frozen=True):
    """One run of a hook, for `/hooks`."""

    hook: Hook
    at: float
    """Seconds since 1970."""
    seconds: float
    answer: HookAnswer
    outcome: HookOutcome
    failure: str
    """Why its answer does not count; empty if it counts."""


def load_hooks(
    users: Sequence[HookSettings],
    projects: Sequence[HookSettings],
    claude_files: Mapping[Path, bool],
) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """The hooks by priority, including those of plugins, and a line for each entry that is not
    used.

    Blocks.

    Args:
        users, projects: the hooks of the user's and of the project's config.yaml.
        claude_files: settings files of Claude Code, and whether one is of the project.
    """
    problems: list[str] = []
    settings = ((tilde(get_config_path()), False, users), (".ouro/config.yaml", True, projects))
    found = [
        Hook(
            own.event,
            own.command,
            own.url,
            own.matcher,
            float(own.timeout_seconds),
            place,
            is_project,
            on_failure=own.on_failure,
        )
        for place, is_project, hooks in settings
        for own in hooks
    ]
    problems += (problem for hook in found for problem in _check_hook(hook))
    for path, is_project in claude_files.items():
        try:
            events = dictionary(read_json(path).get("hooks"))
        except ConfigError as error:
            problems.append(f"{error.message} None of its hooks runs.")
        else:
            found += events_hooks(events, tilde(path), is_project, problems)
    for name, events in plugin_tables("hooks", problems).items():
        # Like a project, a plugin permits nothing: the user has seen a list, not its programs.
        found += events_hooks(events, f"plugin {name}", True, problems, str(plugin_folder(name)))
    return tuple(found), tuple(problems)


def kind_of(agent: str) -> str:
    """The kind of a subagent by its id: `explore` of `explore-1`."""
    return agent.rpartition("-")[0]


def _check_hook(hook: Hook) -> Iterator[str]:
    if hook.url and not is_loopback(hook.url):
        yield (
            f"{hook.place}: the hook {hook.url} is not on this machine (http://127.0.0.1): it is"
            " not called."
        )
    try:
        re.compile(hook.matcher if hook.matcher != "*" else "")
    except re.error as error:
        yield f"{hook.place}: the matcher `{hook.matcher}` is not valid ({error}): it fits all."


def events_hooks(
    events: Mapping[str, Any], place: str, is_project: bool, problems: list[str], plugin: str = ""
) -> Iterator[Hook]:
    """The hooks in an object with Claude Code's format; each hook that is not used adds a line to
    `problems`.
    """
    for name, groups in events.items():
        event = CLAUDE_EVENTS.get(name) or next((own for own in EVENTS if own == name), None)
        if event is None:
            problems.append(f"{place}: ouro has no event {name}: its hooks do not run.")
            continue
        for group in dictionaries(groups):
            for entry in dictionaries(group.get("hooks")):
                kind, url = entry.get("type", "command"), str(entry.get("url") or "")
                command = _command_line(entry)
                if kind not in ("command", "http") or not (command or url):
                    what = (
                        f"a hook of type {kind} for {name} does not run: ouro has commands and"
                        " HTTP."
                    )
                    problems.append(f"{place}: {what}")
                    continue
                if ignored := sorted(set(entry) - _KNOWN_KEYS):
                    problems.append(
                        f"{place}: `{', '.join(ignored)}` of a hook for {name} has no effect here."
                    )
                seconds = _parse_seconds(entry.get("timeout"))
                matcher = str(group.get("matcher") or "")
                hook = Hook(
                    event,
                    command,
                    url,
                    matcher,
                    seconds,
                    place,
                    is_project,
                    plugin=plugin,
                    on_failure="permit" if entry.get("on_failure") == "permit" else "",
                )
                problems += _check_hook(hook)
                yield hook


def _parse_seconds(value: Any) -> float:
    """In front matter numbers are text."""
    try:
        return amount(float(value)) or DEFAULT_SECONDS
    except (TypeError, ValueError, OverflowError):
        return DEFAULT_SECONDS


def _command_line(entry: Mapping[str, Any]) -> str:
    """The command as a bash line. With `args` it is quoted, and only `${CLAUDE_PROJECT_DIR}` is
    expanded.
    """
    command, arguments = str(entry.get("command") or ""), entry.get("args")
    if not command or not isinstance(arguments, list):
        return command
    line = shlex.join(map(str, [command, *arguments]))
    return line.replace("${CLAUDE_PROJECT_DIR}", "'\"$CLAUDE_PROJECT_DIR\"'")


def _enforce(check: Check) -> Hook:
    """The hook that enforces a check. It never permits anything."""
    place = f"check {check.number}: {check.text}"
    return Hook(
        check.event,
        check.command,
        "",
        check.matcher,
        DEFAULT_SECONDS,
        place,
        is_project=True,
        check=check,
    )


def forbids(rule: str, tool: str, effect: str, targets: Sequence[str], cwd: Path) -> bool:
    """Whether a permission rule would refuse a call. Raises ConfigError if the rule cannot be read."""
    judge = Permissions(Workspace(cwd), "auto", deny=[rule])
    return isinstance(judge.decide(tool, Effect(effect), targets), Deny)


class Hooks:
    """Runs the hooks of one session, and records each run.

    Args:
        checks: the user's checks; they hold in addition to `hooks`, and their refusals are counted.
        confine: returns the command that runs a project's command in the sandbox.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        checks: Checks,
        cwd: Path,
        environment: Mapping[str, str],
        on_failure: Callable[[str], None] = lambda _text: None,
        confine: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> None:
        self.hooks = tuple(hooks)
        self.checks = checks
        self.runs: deque[HookRun] = deque(maxlen=MAX_RUNS)
        self._cwd = cwd
        self._environment = environment
        self._on_failure = on_failure
        self._confine = confine
        self._failed: set[tuple[Hook, str]] = set()

    def change_checks(self, change: Callable[[Checks], T]) -> T:
        """Change the checks, then enforce the saved ones. Blocks. Raises ConfigError, and as
        `change` does.
        """
        changed = change(self.checks)
        self.hooks = (
            *(hook for hook in self.hooks if not hook.check),
            *map(_enforce, self.checks.here()),
        )
        return changed

    def add(self, hooks: Sequence[Hook]) -> None:
        self.hooks = tuple(dict.fromkeys((*self.hooks, *hooks)))

    @contextmanager
    def added(self, hooks: Sequence[Hook]) -> Iterator[None]:
        """Inside this context these hooks run too."""
        new = [hook for hook in hooks if hook not in self.hooks]
        self.add(new)
        try:
            yield
        finally:
            self.hooks = tuple(hook for hook in self.hooks if hook not in new)

    def has(self, event: HookEvent) -> bool:
        return any(hook.event == event for hook in self.hooks)

    async def run(
        self,
        event: HookEvent,
        data: Mapping[str, Any],
        names: Sequence[str] = (),
        most: float | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event in parallel, each once.

        Args:
            data: the JSON that they receive, in addition to the name of the event.
            names: the texts for matchers: the names of a tool, else a word such as `resume`.
            most: a limit in seconds for all of them, if it is shorter than their own.
        """
        agent = str(data.get("agent", ""))
        wanted = dict.fromkeys(
            hook for hook in self.hooks if hook.event == event and hook.matches(names, agent)
        )
        if not wanted:
            return HookOutcome()
        given = {**data, "hook_event_name": _NAMES[event], "event": event}
        return merge_outcomes(
            await asyncio.gather(*(self._run_one(hook, given, most) for hook in wanted))
        )

    async def _run_one(
        self, hook: Hook, given: Mapping[str, Any], most: float | None
    ) -> HookOutcome:
        at, began = time.time(), time.monotonic()
        answer = await self._answer(hook, given, min(hook.seconds, most or hook.seconds))
        outcome, failure = read_answer(hook, answer)
        took = time.monotonic() - began
        if hook.check and outcome.verdict == "deny":
            await asyncio.to_thread(self._count, hook.check.number)
        elif hook.check and hook.check.rule and not failure:
            return outcome  # a rule is compared with every call
        self.runs.append(HookRun(hook, at, took, answer, outcome, failure))
        log.info(
            "hook %s %r: %s in %.2f s",
            hook.event,
            hook.label,
            failure or outcome.verdict or "done",
            took,
        )
        # Only once for each failure, because it may fail at every call.
        if failure and (hook, failure) not in self._failed:
            self._failed.add((hook, failure))
            self._on_failure(
                f"The hook `{hook.label}` ({hook.event}, {hook.place}) failed: {failure}"
            )
        return outcome

    def _count(self, number: int) -> None:
        try:
            self.checks.count(number)
        except (ConfigError, OSError) as error:
            log.warning("check %s: its count is not saved: %s", number, error)

    async def _answer(self, hook: Hook, given: Mapping[str, Any], seconds: float) -> HookAnswer:
        if hook.check and hook.check.rule:
            try:
                is_refused = forbids(
                    hook.check.rule, given["tool"], given["effect"], given["targets"], self._cwd
                )
            except ConfigError as error:
                return HookAnswer(None, "", error.message)
            reason = (
                f"The user has corrected this before: {hook.check.text} (Do not retry it in another"
                " form.)"
            )
            return HookAnswer(BLOCKS, "", reason) if is_refused else HookAnswer(0, "", "")
        data = dump_json(given, is_ascii=True, default=str).encode()
        if hook.command:
            argv: Sequence[str] = ("bash", "-c", hook.command)
            if hook.is_project and not hook.check:
                argv = await asyncio.to_thread(self._confine, argv)
            environment = {**self._environment, "CLAUDE_PLUGIN_ROOT": hook.plugin}
            return await run_command(argv, data, self._cwd, environment, seconds)
        if is_loopback(hook.url):
            return await post(hook.url, data, seconds)
        return HookAnswer(None, "", "its address is not on this machine")


def merge_outcomes(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Merge outcomes: the strictest verdict with its reasons, all contexts, the last change of the
    input.
    """
    found: list[Verdict] = [outcome.verdict for outcome in outcomes]
    verdict = max(found, key=_STRENGTH.index)
    reasons = [
        outcome.reason for outcome in outcomes if outcome.verdict == verdict and outcome.reason
    ]
    changes = [outcome.input for outcome in outcomes if outcome.input is not None]
    return HookOutcome(
        verdict,
        "\n".join(dict.fromkeys(reasons)),
        {key: value for change in changes for key, value in change.items()} if changes else None,
        "\n\n".join(outcome.context for outcome in outcomes if outcome.context),
        "\n".join(outcome.message for outcome in outcomes if outcome.message),
    )


def read_answer(hook: Hook, answer: HookAnswer) -> tuple[HookOutcome, str]:
    """The outcome of a hook, and why its answer does not count; empty if it does.

    The failure of a guard refuses the call.
    """
    if answer.exit_code == BLOCKS:
        reason = cut(answer.error or answer.out or "It gave no reason.", MAX_TEXT)
        return HookOutcome("deny", reason), ""
    if answer.exit_code != 0:
        return _failed_outcome(hook, _describe_end(answer))
    answers, garbled = _find_answers(answer.out)
    try:
        outcomes = [_parse_outcome(hook, found) for found in answers]
    except (ValueError, TypeError, AttributeError) as error:
        return _failed_outcome(hook, _not_understood(str(error), answer.out))
    if garbled:
        return _failed_outcome(hook, _not_understood("no JSON object", garbled))
    if outcomes:
        return merge_outcomes(outcomes), ""
    # Plain text is context for the same events as in Claude Code.
    adds = hook.event in ("session-start", "user-prompt", "before-compaction")
    return HookOutcome(context=cut(answer.out, MAX_TEXT) if adds else ""), ""


def _failed_outcome(hook: Hook, failure: str) -> tuple[HookOutcome, str]:
    if not hook.is_guard:
        return HookOutcome(), failure
    reason = (
        f"The hook `{hook.label}` ({hook.place}) did not answer: {failure}. A call that it did not"
        " check is refused; with `on_failure: permit` at the hook it would run."
    )
    return HookOutcome("deny", reason), failure


def _describe_end(answer: HookAnswer) -> str:
    what = "no answer" if answer.exit_code is None else f"exit code {answer.exit_code}"
    return f"{what}: {one_line(answer.error or answer.out, 300)}".rstrip(": ")


def _not_understood(error: str, out: str) -> str:
    return f"its output is not JSON that ouro understands ({error}): {one_line(out, 120)}"


def _find_answers(out: str) -> tuple[list[dict[str, Any]], str]:
    """The answers in an output; and the first text of it that reads as one but is none, such as an
    answer that is cut, or in the notation of another language. Banners and logs are passed over.
    """
    answers: list[dict[str, Any]] = []
    rest, at = "", 0
    for start, end, found in _find_objects(out):
        if found is None and (start == 0 or _BEGINS_ANSWER.match(out, start)):
            return answers, out[start:]
        if found and not _ANSWER_KEYS.isdisjoint(found):
            answers.append(found)
            rest += out[at:start]
            at = end
    garbled = _NAMES_DECISION.search(rest + out[at:])
    return answers, garbled.group() if garbled else ""


def _find_objects(out: str) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Each outer object of JSON, with its start and end; None for a brace that begins none."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(_MAX_OBJECTS):
        start = out.find("{", at)
        if start < 0:
            return
        try:
            found, at = decoder.raw_decode(out, start)
        except (ValueError, RecursionError):
            found, at = None, start + 1
        yield start, at, found


def _parse_outcome(hook: Hook, said: Mapping[str, Any]) -> HookOutcome:
    own: Mapping[str, Any] = said.get("hookSpecificOutput") or {}
    verdict, why = _verdict_of(hook, own, said)
    if verdict == "allow" and hook.is_project:
        verdict = ""  # a project permits nothing (R2)
    changed = own.get("updatedInput") or said.get("input")
    if changed is not None and not isinstance(changed, dict):
        raise TypeError("the changed input is not an object")
    reason = cut(str(why), MAX_TEXT) or ("It gave no reason." if verdict == "deny" else "")
    context = cut(str(own.get("additionalContext") or said.get("context") or ""), MAX_TEXT)
    notice = cut(str(said.get("systemMessage") or ""), 2_000)
    return HookOutcome(verdict, reason, changed, context, notice)


def _verdict_of(
    hook: Hook, own: Mapping[str, Any], said: Mapping[str, Any]
) -> tuple[Verdict, object]:
    """What a hook decides, and why."""
    word = str(own.get("permissionDecision") or said.get("decision") or "")
    if word and word not in _VERDICTS:
        raise ValueError(f"`{word}` is not a decision")
    reason = own.get("permissionDecisionReason") or said.get("reason") or ""
    if said.get("continue") is not False:
        return _VERDICTS.get(word, ""), reason
    # At the end of a turn a refusal makes the agent continue.
    ends_turn = hook.event in ("turn-end", "subagent-end")
    return "" if ends_turn else "deny", said.get("stopReason") or reason


def tool_data(
    tool: str, effect: str, arguments: Mapping[str, Any], targets: Sequence[str], cwd: Path
) -> dict[str, Any]:
    """The fields about a tool call: tool and arguments with the names of Claude Code and with
    ouro's own.
    """
    names = {"tool_name": names_elsewhere(tool)[0], "tool": tool, "effect": str(effect)}
    theirs = _claude_arguments(tool, arguments, targets, cwd)
    return {**names, "tool_input": theirs, "targets": list(targets)}


def _claude_arguments(
    tool: str, arguments: Mapping[str, Any], targets: Sequence[str], cwd: Path
) -> dict[str, Any]:
    """The arguments with the fields of Claude Code; the texts of several edits are joined."""
    theirs: dict[str, Any] = {}
    if targets and tool in ("read", "write", "edit", "apply_patch"):
        theirs["file_path"] = str(cwd / Path(targets[0]).expanduser())
    if tool == "apply_patch":
        lines = str(arguments.get("input", "")).splitlines()
        for name, sign in (("old_string", "-"), ("new_string", "+")):
            theirs[name] = "\n".join(line[1:] for line in lines if line.startswith(sign))
    elif edits := dictionaries(arguments.get("edits")):
        for name, own in _EDIT_FIELDS.items():
            theirs[name] = "\n".join(str(edit.get(own, "")) for edit in edits)
        theirs["replace_all"] = any(edit.get("replace_all") for edit in edits)
    return {**theirs, **arguments}


def own_arguments(
    tool: str,
    arguments: Mapping[str, Any],
    changed: Mapping[str, Any],
    targets: Sequence[str],
    cwd: Path,
) -> dict[str, Any]:
    """The arguments of a call with the changes of a hook, which uses the names of the tool or of
    Claude Code.
    """
    given = _claude_arguments(tool, arguments, targets, cwd)
    new = {key: value for key, value in changed.items() if key not in given or value != given[key]}
    if "path" in arguments and "file_path" in new:
        new["path"] = new.pop("file_path")
    if tool == "edit" and not new.keys().isdisjoint(_ONE_EDIT):
        # The joined texts of several edits are not in the file, so such an edit would fail.
        edit = {key: new.pop(key, given.get(key)) for key in _ONE_EDIT}
        new["edits"] = [{_EDIT_FIELDS.get(key, key): value for key, value in edit.items()}]
    return {**arguments, **new}
