"""The report of a batch as a page: a table, answers, checks and diffs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from ouro.batch.state import BatchState, TaskResult
from ouro.utils.text import plural

PAGE_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  color-scheme: light dark; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.done { color: #1a7f37; } .bad { color: #c4321f; }
pre { overflow: auto; padding: .6rem; border: 1px solid #8884; }
pre .plus { color: #1a7f37; } pre .minus { color: #c4321f; } pre .place { color: #6639ba; }
"""


def summary_rows(results: Iterable[TaskResult]) -> list[tuple[str, ...]]:
    """A row for each result: task, outcome, files, cost, time, and why it did not succeed."""
    return [
        (
            result.id,
            result.state or result.outcome,
            plural(len(result.files), "file"),
            dollars(result.cost),
            f"{result.seconds:.0f} s",
            reason(result),
        )
        for result in results
    ]


def reason(result: TaskResult) -> str:
    """Why a task did not succeed, in a line; the branch of one that did."""
    failed = [check for check in result.checks if check.exit_code]
    if failed:
        return f"`{failed[0].command}` ended with {failed[0].exit_code}"
    return result.detail or result.branch or "no changes"


def dollars(cost: float | None) -> str:
    return "" if cost is None else f"${cost:.2f}"


def report_page(state: BatchState) -> Iterator[str]:
    """The page as pieces of HTML; nothing in it is loaded from elsewhere."""
    batch, results = state.batch(), list(state.results())
    name = escape(batch.name)
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
    yield f"<style>{PAGE_STYLE}</style><h1>{name}</h1>\n"
    done = sum(result.is_done for result in results)
    known = [result.cost for result in results if result.cost is not None]
    spent = f", {dollars(sum(known))}" if known else ""
    yield f"<p>{done} of {len(batch.tasks)} tasks done{spent}.</p>\n<table>"
    yield "<tr><th>Task<th>Outcome<th>Files<th>Cost<th>Time<th>Why, or branch</tr>\n"
    for result, row in zip(results, summary_rows(results), strict=True):
        kind = "done" if result.is_done else "bad"
        link = f'<a href="#{escape(result.id)}">{escape(result.id)}</a>'
        cells = "".join(f'<td class="number">{escape(cell)}' for cell in row[2:5])
        yield f'<tr><td>{link}<td class="{kind}">{escape(row[1])}{cells}<td>{escape(row[5])}\n'
    yield "</table>\n"
    for result in results:
        yield from _section(result, state.patch(result.id))


def _section(result: TaskResult, patch: str) -> Iterator[str]:
    yield f'<h2 id="{escape(result.id)}">{escape(result.id)}</h2>\n'
    yield f"<p>{escape(result.repo)} · {escape(result.outcome)}"
    if result.session_id:
        yield f" · <code>ouro --resume {escape(result.session_id)}</code>"
    yield "</p>\n"
    if result.answer.text:
        yield f"<pre>{escape(result.answer.text)}</pre>\n"
    for check in result.checks:
        word = "passed" if check.exit_code == 0 else f"ended with {check.exit_code}"
        yield f"<details><summary><code>{escape(check.command)}</code> {word}</summary>"
        yield f"<pre>{escape(check.output)}</pre></details>\n"
    if patch:
        lines = "\n".join(_diff_line(line) for line in patch.splitlines())
        files = plural(len(result.files), "file")
        yield f"<details open><summary>{files}</summary><pre>{lines}</pre>"
        yield "</details>\n"


def _diff_line(line: str) -> str:
    kinds = {"+": "plus", "-": "minus", "@": "place"}
    kind = "" if line.startswith(("+++", "---")) else kinds.get(line[:1], "")
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)
