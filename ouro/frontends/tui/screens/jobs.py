"""JobsSheet: the background jobs with the end of their output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Static

from ouro.frontends.tui.screens.sheet import Sheet
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import JobInfo

_REFRESH = 0.5


class JobsSheet(Sheet[None]):
    """One job is marked and its tail shown below; `k` kills it."""

    BINDINGS = [  # noqa: RUF012 (Textual's own form)
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("k", "kill", show=False),
        Binding("q,enter,ctrl+b", "close", show=False),
    ]

    def __init__(self, jobs: Callable[[], Sequence[JobInfo]], kill: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._jobs = jobs
        self._kill = kill
        self._place = 0
        self._list = Static(markup=False, id="jobs-list")
        self._tail = Static(markup=False, id="jobs-tail")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static("Background jobs", classes="sheet--title", markup=False)
            yield self._list
            yield self._tail
            yield Static("↑↓ · k kills · Esc closes", classes="sheet--keys", markup=False)

    def on_mount(self) -> None:
        self.set_interval(_REFRESH, self._update)
        self.call_after_refresh(self._update)

    def action_move(self, by: int) -> None:
        self._place = max(0, min(len(self._jobs()) - 1, self._place + by))
        self._update()

    async def action_kill(self) -> None:
        jobs = self._jobs()
        if jobs:
            await self._kill(jobs[min(self._place, len(jobs) - 1)].id)
            self._update()

    def _update(self) -> None:
        jobs = self._jobs()
        self._place = max(0, min(self._place, len(jobs) - 1))
        lines = [_line(job, number == self._place) for number, job in enumerate(jobs)]
        self._list.update(Text("\n").join(lines) if jobs else Text("No background jobs."))
        rows = max(3, self.app.size.height - len(jobs) - 10)
        tail = clean(jobs[self._place].tail).rstrip().split("\n")[-rows:] if jobs else []
        self._tail.update(Text("\n".join(tail), no_wrap=True, overflow="ellipsis"))


def _line(job: JobInfo, marked: bool) -> Text:
    state = f"{job.seconds:.0f} s" if job.running else f"ended ({'killed' if job.exit_code is None else job.exit_code})"
    command = clean(job.command).replace("\n", " ")
    return Text(f"{'❯' if marked else ' '} {job.id}  {state}  {command}", no_wrap=True, overflow="ellipsis", end="")
