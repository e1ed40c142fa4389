"""The receipt of memory as Markdown: what stands in the prompt, and what was recalled for the last message."""

from __future__ import annotations

from ouro.commands.markdown import code, escape
from ouro.events import NotesRecalled, Remembered
from ouro.session import MemoryReceipt, ReceiptLine


def receipt_markdown(receipt: MemoryReceipt) -> str:
    """The receipt as Markdown: each entry with what became of it."""
    lines = [f"**What memory put into the prompt**: {receipt.tokens:,} tokens a request{_price(receipt)}"]
    for file in dict.fromkeys((line.scope, line.file) for line in receipt.lines):
        lines.append(f"\n{code(f'{file[0]}/{file[1]}')}\n")
        lines += [_entry(line) for line in receipt.lines if (line.scope, line.file) == file]
    if not receipt.lines:
        lines.append("\nNothing is remembered yet.")
    if receipt.changes:
        lines.append("\n**Changed since**\n")
        lines += [f"- {escape(each)}" for each in receipt.changes]
    if receipt.waiting:
        lines.append(f"\nWaiting for you: {', '.join(map(code, receipt.waiting))} (`/memory accept ID`)")
    return "\n".join(lines)


def _price(receipt: MemoryReceipt) -> str:
    return "" if receipt.price is None else f", ${receipt.price:.5f} from the cache"


def _entry(line: ReceiptLine) -> str:
    text = escape(" ".join(line.text.lstrip("-*#+ ").split())) or "the file"
    reason = f" ({escape(line.reason)})" if line.reason else ""
    return f"- {line.state} · {line.tokens} tokens · {text}{reason}"


def recalled_markdown(recalled: NotesRecalled) -> str:
    """Each note that was considered for the last message, with what became of it."""
    if not recalled.items:
        return "**Recalled for the last message**: no note bears on it."
    spent = f", {recalled.milliseconds:.0f} ms" if recalled.milliseconds else ""
    lines = [f"**Recalled for the last message** ({recalled.way}{spent})\n"]
    return "\n".join([*lines, *map(_recalled, recalled.items)])


def _recalled(item: Remembered) -> str:
    text = escape(" ".join(item.text.split())) or code(item.id)
    about = escape(f"{item.reason}; score {item.score:.3g}")
    return f"- {item.state} · {item.tokens} tokens · {text} ({about})"
