"""The report of a batch as a page: a table, answers, checks and diffs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

from ouro.batch.state import CHECKS, BatchState, TaskResult
from ouro.utils.text import dollars, plural

_STYLE = """\
:root { color-scheme: light dark; --good: #1a7f37; --bad: #c4321f; --place: #6639ba; }
@media (prefers-color-scheme: dark) { :root { --good: #57ab5a; --bad: #f47067; --place: #b083f0; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
th { white-space: nowrap; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.done { color: var(--good); } .bad { color: var(--bad); }
p, h2, td { overflow-wrap: anywhere; }
td { min-width: 8rem; } td.number { min-width: 0; }
pre { overflow: auto; padding: .6rem; border: 1px solid #8884; }
pre.answer { white-space: pre-wrap; overflow-wrap: anywhere; }
pre .plus { color: var(--good); } pre .minus { color: var(--bad); } pre .place { color: var(--place); }
"""


def page_head(name: str) -> str:
    """The start of a page as HTML, up to its title; it loads nothing from elsewhere."""
    title = escape(name)
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return (
        f'<!doctype html><html lang="en">{meta}<title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1>\n"
    )


class SummaryRow(NamedTuple):
    """The result of a task as cells of a table."""

    task: str
    outcome: str
    files: str
    cost: str
    time: str
    reason: str


def summary_rows(results: Iterable[TaskResult]) -> list[SummaryRow]:
    """A row for each result."""
    return [
        SummaryRow(
            result.id,
            outcome=result.state or result.outcome,
            files=plural(len(result.files), "file"),
            cost=dollars(result.cost),
            time=f"{result.seconds:.0f} s",
            reason=reason(result),
        )
        for result in results
    ]


def reason(result: TaskResult) -> str:
    """Why a task did not succeed, in one line. For a task that succeeded: its branch, or `no
    changes`.
    """
    failed = [check for check in result.checks if check.exit_code]
    if failed and result.outcome == CHECKS:
        return f"`{failed[0].command}` ended with {failed[0].exit_code}"
    return result.detail or result.branch or "no changes"


def report_page(state: BatchState) -> Iterator[str]:
    """Yields the page as pieces of HTML: a summary, a table of all results, and a section about each. It
    loads nothing from elsewhere.
    """
    batch, results = state.batch(), list(state.results())
    yield page_head(batch.name)
    done = sum(result.is_done for result in results)
    costs = [result.cost for result in results if result.cost is not None]
    cost_note = f", {dollars(sum(costs))}" if costs else ""
    missing = len(batch.tasks) - len(results)
    missing_note = f", {missing} not run" if missing else ""
    tasks = plural(len(batch.tasks), "task")
    yield f'<p>{done} of {tasks} done{cost_note}{missing_note}.</p>\n<div class="wide"><table>'
    heads = "".join(f'<th class="number">{name}' for name in ("Files", "Cost", "Time"))
    yield f"<tr><th>Task<th>Outcome{heads}<th>Why, or branch</tr>\n"
    for result, row in zip(results, summary_rows(results), strict=True):
        css_class = "done" if result.is_done else "bad"
        link = f'<a href="#{escape(result.id)}">{escape(result.id)}</a>'
        numbers = (str(len(result.files) or ""), row.cost, row.time)
        cells = "".join(f'<td class="number">{escape(number)}' for number in numbers)
        outcome = _link_if_address(row.outcome)
        yield f'<tr><td>{link}<td class="{css_class}">{outcome}{cells}<td>{escape(row.reason)}\n'
    yield "</table></div>\n"
    for result in results:
        yield from _section(result, state.patch(result.id))


def _section(result: TaskResult, patch: str) -> Iterator[str]:
    """Yields the HTML about one task: answer, checks and diff."""
    yield f'<h2 id="{escape(result.id)}">{escape(result.id)}</h2>\n'
    yield f"<p>{escape(result.repo)} · {escape(result.outcome)}"
    if result.session_id:
        yield f" · <code>ouro --resume {escape(result.session_id)}</code>"
    yield "</p>\n"
    if result.answer.text:
        yield f'<pre class="answer">{escape(result.answer.text)}</pre>\n'
    for check in result.checks:
        word = "passed" if check.exit_code == 0 else f"ended with {check.exit_code}"
        yield f"<details><summary><code>{escape(check.command)}</code> {word}</summary>"
        yield f"<pre>{escape(check.output)}</pre></details>\n"
    if patch:
        lines = "\n".join(_diff_line(line) for line in patch.splitlines())
        files = plural(len(result.files), "file")
        yield f"<details open><summary>{files}</summary><pre>{lines}</pre>"
        yield "</details>\n"


def _link_if_address(text: str) -> str:
    """The text escaped; an address as a link."""
    escaped = escape(text)
    return f'<a href="{escaped}">{escaped}</a>' if text.startswith("https://") else escaped


def _diff_line(line: str) -> str:
    """A line of a diff as HTML, in the colour of its mark. Lines with the names of files have no
    colour.
    """
    kinds = {"+": "plus", "-": "minus", "@": "place"}
    kind = "" if line.startswith(("+++", "---")) else kinds.get(line[:1], "")
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)
