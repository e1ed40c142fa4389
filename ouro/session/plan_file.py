"""PlanFile: the plan of plan mode, saved as `.ouro/plans/DATE-title.md` with a box for each step."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Literal, cast, get_args

import msgspec
from msgspec.structs import replace

from ouro.display import Todo
from ouro.utils.files import open_folder, read_start, replace_file
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import clean, cut, one_line, plural
from ouro.utils.yaml import split_front_matter

PLANS_FOLDER = Path(".ouro") / "plans"
PlanState = Literal["draft", "approved", "done"]
MAX_LISTED = 200
"""Plans that are read for a list, newest first."""
_MAX_BYTES = 200_000
_MAX_TITLE = 60
_MIN_SIMILARITY = 0.6
"""The ratio of difflib from which a todo can belong to a step with other words."""

_CODE_FENCE = late_pattern(r"\s*(```|~~~)")
_HEADING = late_pattern(r"#{1,6}\s+(?:\[[ xX]\]\s+)?(.+)")
_PLAN_HEADING = late_pattern(r"#{1,6}\s+\W*plan\b\s*[:：—–-]?\s*(.*)", re.IGNORECASE)
_STEP_WITH_BOX = late_pattern(r"(\s*(?:[-*+]|\d+[.)])\s+|#{1,6}\s+)\[([ xX])\]\s+(.*)")
_NUMBERED_HEADING = late_pattern(r"(#{1,6}\s+)((?:\w+\s*)?\d+\s*(?:[.:)—–-](?=\s)|[：、．）]).*)")
"""Matches `## Step 1: Read the parser`, also with full-width signs after the number."""
_NUMBERED_LINE = late_pattern(r"(\d+(?:[.)]\s+|[、．）]\s*))(\S.*)")
"""Matches `1. Read the parser`; the second group is the text."""
_BULLET_LINE = late_pattern(r"([-*+]\s+)(\S.*)")
_LINE_COMMENT = late_pattern(r"\s*(?P<number>\d{1,4})\s*[:：]\s*(?P<comment>\S.*)")
_EMPHASIS = late_pattern(r"\*\*|__|`")
_QUESTION_AT_END = late_pattern(r"[?？؟;;]\W*\Z")
"""Matches a question mark at the end, also a full-width, Arabic or Greek one (`;` in two codes)."""
_NOT_IN_NAMES = late_pattern(r"[\W_]+")


class PlanStep(msgspec.Struct, frozen=True):
    """A step of a plan: a line with a box."""

    line: int
    """The index of its line in the plan."""
    text: str
    is_done: bool


class PlanFile(msgspec.Struct, frozen=True):
    """A plan, as its file has it."""

    path: Path
    session: str
    """The session that carries it out."""
    state: PlanState
    body: str

    @property
    def title(self) -> str:
        return plan_title(self.body) or self.path.stem

    @property
    def steps(self) -> list[PlanStep]:
        return find_steps(self.body)

    @property
    def progress(self) -> str:
        """What a list shows: `2 of 5 steps done`."""
        steps = self.steps
        if self.state == "draft":
            return f"draft, {plural(len(steps), 'step')}"
        return f"{sum(step.is_done for step in steps)} of {plural(len(steps), 'step')} done"


class PlanFolder:
    """The plans of a project. Its files are written as the user's, and never through a link."""

    def __init__(self, root: Path, *, keeps_drafts: bool = True) -> None:
        """`keeps_drafts`: whether a plan is saved before it is approved."""
        self.root = root
        self.keeps_drafts = keeps_drafts
        self.folder = root / PLANS_FOLDER

    def relative_name(self, path: Path) -> str:
        """The path of a plan as the user sees it: relative to the project."""
        return str(path.relative_to(self.root))

    def add(self, session: str, body: str, title: str) -> PlanFile:
        """Write a new draft, and return it. Its file is named by the day and the title of the plan,
        or by `title` if the plan has none; a number is added to a name that is used. Raises
        OSError.
        """
        words = _NOT_IN_NAMES.sub("-", (plan_title(body) or title).lower()).strip("-")
        name = f"{date.today():%Y-%m-%d}-{words[:50].strip('-') or 'plan'}"  # noqa: DTZ011
        used_names = {path.stem for path in self._paths()}
        unused_name, number = name, 1
        while unused_name in used_names:
            number += 1
            unused_name = f"{name}-{number}"
        plan = PlanFile(
            self.folder / f"{unused_name}.md", session, state="draft", body=add_boxes(body)
        )
        self.write(plan)
        return plan

    def revise(self, plan: PlanFile, body: str) -> PlanFile:
        """Replace the text of a draft, and return it as it is now. If its title has changed, it is
        written to a new file, and the old one is deleted. Raises OSError.
        """
        revised = replace(plan, body=add_boxes(body))
        if revised.title == plan.title:
            self.write(revised)
            return revised
        added = self.add(plan.session, body, plan.title)
        plan.path.unlink(missing_ok=True)
        return added

    def write(self, plan: PlanFile) -> None:
        """Write a plan to its file. Raises OSError, also if `.ouro/plans` is a link."""
        if self._is_behind_link():
            raise OSError(f"{PLANS_FOLDER} is a link")
        self.folder.mkdir(parents=True, exist_ok=True)
        head = f"---\nsession: {plan.session}\nstate: {plan.state}\n---\n"
        # The user may have reached the project through a link. Below its root no link is followed:
        # the repository could have it, and it could lead anywhere.
        folder = Path(os.path.realpath(self.root)) / PLANS_FOLDER
        with open_folder(folder, follow=False) as descriptor:
            data = f"{head}{plan.body.strip()}\n".encode()
            replace_file(descriptor, plan.path.name, data, mode=0o644)

    def read(self, path: Path) -> PlanFile | None:
        """The plan in a file; None if there is no such file, or it is empty."""
        text = clean(read_start(path, _MAX_BYTES, os.O_NOFOLLOW))
        if not text.strip():
            return None
        meta, body = split_front_matter(text)
        state = meta.get("state")
        plan_state = cast("PlanState", state) if state in get_args(PlanState) else "draft"
        return PlanFile(
            path, session=str(meta.get("session") or ""), state=plan_state, body=body.strip()
        )

    def list(self) -> list[PlanFile]:
        """The plans, newest first."""
        plans = map(self.read, self._paths()[:MAX_LISTED])
        return [plan for plan in plans if plan is not None]

    def of_session(self, session: str) -> PlanFile | None:
        """The newest plan of a session that is not done; None if there is none."""
        plans = self.list()
        of_session = (plan for plan in plans if plan.session == session)
        return next((plan for plan in of_session if plan.state != "done"), None)

    def _is_behind_link(self) -> bool:
        """Whether the folder of plans is a link, or a folder above it within the project is one:
        then the files may be outside of the project.
        """
        expected = os.path.join(os.path.realpath(self.root), PLANS_FOLDER)  # noqa: PTH118 - a text
        return os.path.realpath(self.folder) != expected

    def _paths(self) -> Sequence[Path]:
        """The files of plans, newest first. Links are left out; none if the folder itself is one."""
        if self._is_behind_link():
            return ()
        paths = [path for path in self.folder.glob("*.md") if not path.is_symlink()]

        def day_and_time(path: Path) -> tuple[str, float]:
            day_in_name = path.stem[:10]
            return day_in_name, path.stat().st_mtime

        return sorted(paths, key=day_and_time, reverse=True)


def find_plan_text(answer: str) -> str:
    """The plan in an answer; empty if there is none.

    A plan begins with a heading such as `## Plan`, and reaches to the end. Without such a heading,
    the whole answer is a plan if it has at least two numbered steps and does not end with a
    question to the user: then the numbers may be the choices of the question.
    """
    lines = answer.strip().splitlines()
    for index in _outside_code(lines):
        if _PLAN_HEADING.fullmatch(lines[index]):
            return "\n".join(lines[index:])
    is_question = bool(_QUESTION_AT_END.search(answer.strip()[-200:]))
    has_steps = len(_step_lines(lines)) >= 2
    return answer.strip() if has_steps and not is_question else ""


def plan_title(body: str) -> str:
    """The text of the first heading of a plan, without the word `Plan:`; empty if it has no
    heading.
    """
    lines = body.splitlines()
    for index in _outside_code(lines):
        match = _PLAN_HEADING.fullmatch(lines[index]) or _HEADING.fullmatch(lines[index])
        if match:
            return one_line(_EMPHASIS.sub("", match[1]), _MAX_TITLE)
    return ""


def find_steps(body: str) -> list[PlanStep]:
    """The steps of a plan, in their order: its lines with a box, outside of code blocks."""
    lines = body.splitlines()
    steps = []
    for index in _outside_code(lines):
        if match := _STEP_WITH_BOX.fullmatch(lines[index]):
            _before, mark, text = match.groups()
            steps.append(PlanStep(index, step_text(text), is_done=mark != " "))
    return steps


def step_text(text: str) -> str:
    """The words of a step or todo in one line, without marks of emphasis, as both are compared."""
    return one_line(_EMPHASIS.sub("", text), 100)


def add_boxes(body: str) -> str:
    """The plan with an empty box at each step. The steps are its numbered headings or lines; if it
    has none, its bullets. Unchanged if it has boxes.
    """
    lines = body.splitlines()
    if find_steps(body):
        return body
    bullets = [index for index in _outside_code(lines) if _BULLET_LINE.fullmatch(lines[index])]
    for index in _step_lines(lines) or bullets:
        match = (
            _NUMBERED_HEADING.fullmatch(lines[index])
            or _NUMBERED_LINE.fullmatch(lines[index])
            or _BULLET_LINE.fullmatch(lines[index])
        )
        if match:
            lines[index] = f"{match[1]}[ ] {match[2]}"
    return "\n".join(lines)


def tick_steps(plan: PlanFile, todos: Sequence[Todo]) -> PlanFile:
    """The plan with a tick in the box of each step whose todo is done, and an empty box if its todo
    is not. Steps without a todo stay as they are. The state is `done` when all steps are ticked.

    Which todo belongs to a step: see `_match_todos`.
    """
    lines, steps = plan.body.splitlines(), plan.steps
    states = dict(_match_todos(steps, todos))
    for step in steps:
        todo_state = states.get(step.line)
        match = _STEP_WITH_BOX.fullmatch(lines[step.line])
        if todo_state is not None and match:
            before, _old_mark, text = match.groups()
            mark = "x" if todo_state == "done" else " "
            lines[step.line] = f"{before}[{mark}] {text}"
    body = "\n".join(lines)
    is_done = bool(steps) and all(step.is_done for step in find_steps(body))
    plan_state: PlanState = "done" if is_done else "approved"
    return replace(plan, body=body, state=plan_state)


def number_lines(body: str) -> str:
    """The plan as text with the numbers of its lines."""
    return "\n".join(f"{number:>3}  {text}" for number, text in enumerate(body.splitlines(), 1))


def expand_comments(body: str, text: str) -> str:
    """Add the quoted lines of the plan `body` to a message of comments. If each line of `text` has
    the form `3: why?`, with the number of a line of the plan, returns the comments, each below the
    line that it is about. Any other text is returned unchanged.
    """
    matches = [_LINE_COMMENT.fullmatch(line) for line in text.strip().splitlines()]
    comments = [(int(match["number"]), match["comment"].strip()) for match in matches if match]
    line_count = len(body.splitlines())
    has_wrong_number = any(not 0 < number <= line_count for number, _comment in comments)
    if len(comments) < len(matches) or has_wrong_number:
        return text
    return join_comments(body, comments)


def join_comments(body: str, comments: Sequence[tuple[int, str]]) -> str:
    """One message with all comments, each below the line of the plan that it is about, which is
    quoted.

    Args:
        comments: the number of a line, from 1, and the text about it.
    """
    lines = body.splitlines()
    quoted = [
        f"> {number}: {cut(lines[number - 1].strip(), 200)}\n\n{text}"
        for number, text in sorted(comments)
        if 0 < number <= len(lines)
    ]
    return "\n\n".join(quoted)


def _match_todos(steps: Sequence[PlanStep], todos: Sequence[Todo]) -> Iterator[tuple[int, str]]:
    """Yields, for each step that has a todo, the index of its line and the state of the todo.

    If there are as many todos as steps, but with other words, they belong together in their order.
    Otherwise a todo belongs to the step with the same words, or else to the most similar one.
    """
    if len(steps) == len(todos) and not _have_same_words(steps, todos):
        yield from ((step.line, todo.state) for step, todo in zip(steps, todos, strict=True))
        return
    from difflib import get_close_matches  # needed when todos change

    state_of_text = {step_text(todo.text).casefold(): todo.state for todo in todos}
    # All equal texts are taken before a similar one: what is left is compared with the other steps.
    state_of_line = {step.line: state_of_text.pop(step.text.casefold(), "") for step in steps}
    for step in steps:
        if state_of_line[step.line]:
            yield step.line, state_of_line[step.line]
            continue
        words = step.text.casefold()
        for similar_text in get_close_matches(words, state_of_text, 1, _MIN_SIMILARITY):
            yield step.line, state_of_text.pop(similar_text)


def _have_same_words(steps: Sequence[PlanStep], todos: Sequence[Todo]) -> bool:
    """Whether each step is, word for word, one of the todos."""
    texts = {step_text(todo.text).casefold() for todo in todos}
    return all(step.text.casefold() in texts for step in steps)


def _step_lines(lines: Sequence[str]) -> list[int]:
    """The indexes of the lines that are steps: lines with boxes if there are at least two, else
    numbered headings if there are at least two, else numbered lines.
    """
    indexes = list(_outside_code(lines))
    for pattern in (_STEP_WITH_BOX, _NUMBERED_HEADING):
        matching = [index for index in indexes if pattern.fullmatch(lines[index])]
        if len(matching) > 1:
            return matching
    return [index for index in indexes if _NUMBERED_LINE.fullmatch(lines[index])]


def _outside_code(lines: Sequence[str]) -> Iterator[int]:
    """Yields the indexes of the lines that are not in a code block."""
    fence = ""
    for index, text in enumerate(lines):
        fence_match = _CODE_FENCE.match(text)
        if fence_match and not fence:
            fence = fence_match[1]
        elif fence_match and text.strip().startswith(fence):
            fence = ""
        elif not fence:
            yield index
