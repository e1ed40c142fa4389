"""`memory report`: whether memory helps."""

from __future__ import annotations

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import CodeSpan, line, table
from ouro.memory import long_term
from ouro.utils.runtime import get_recall_log_path
from ouro.utils.text import one_line, plural

_PROBLEMS = ("never used", "never sent", "stale", "duplicate", "contradicted")


async def report(context: ActionContext) -> Answer:
    counts = long_term.RecallLog(get_recall_log_path()).counts()
    found = await context.memory(lambda memory: long_term.report_usefulness(memory.editor, counts))
    if not found.rows:
        return Answer({"rows": [], "shares": {}}, [line("Nothing is remembered yet.")])
    shares = {problem: found.share(problem) for problem in _PROBLEMS}
    rows = [("entry", "weeks", "sent", "used", "changed", "text")]
    rows += [
        (
            CodeSpan(row.id[:24]),
            f"{row.weeks:.0f}",
            str(row.sent),
            str(row.used),
            str(row.corrected),
            " · ".join((one_line(row.text, 60), *row.problems)),
        )
        for row in found.rows
    ]
    parts = [f"{100 * share:.0f} % {problem}" for problem, share in shares.items()]
    total = line(f"{plural(len(found.rows), 'entry', 'entries')}: {', '.join(parts)}.")
    value = {"rows": [asdict(row) for row in found.rows], "shares": shares}
    return Answer(value, [*table(rows), total])
