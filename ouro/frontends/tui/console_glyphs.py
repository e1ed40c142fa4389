"""The glyphs of the Linux console (`TERM=linux`): its font has 256 or 512, and a blank for the others.

What ouro and Textual draw is written with similar characters that every console font has, such as
`>` for `❯`. So is the text of users and models: without that, these characters would not be seen at all.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # without `typing`, which the first frame does not need
if TYPE_CHECKING:
    from collections.abc import Callable

# Arrows, `│ ─ ┌ ┐ └ ┘ ├ ┤ ┬ ┴ ┼`, `█ ▄ ▀ ▌ ▐ ░ ▒ ▓`, `· ° ± « » ÷` and `√` are in the font that the
# kernel has, and in those of Debian, Fedora and Arch.
_PAIRS = (
    "❯> ›> ‹< ⟩> ⟨< ▸> ▶> ▾v ⏵> ⏸| ⏹# "  # marks of rows, and what is folded
    "✓√ ✔√ ✗x ✘x ☑x ☐_ ☒x ●* ○o ◆* ◇o ■# □_ •· ★* ☆* ⚠! "
    '⏎\\ ↵\\ ↳\\ ⇥» ⋯. ⋮: …. ×x −- –- —- ‐- ‑- “" ”" „" ‘\' ’\' ‚, ✂% '
    "╭┌ ╮┐ ╯┘ ╰└ ┃│ ━─ ┄─ ┈─ ╌─ ┆│ ┊│ ╎│ ╴─ ╶─ ╷│ ╵│ ╸─ ╺─ ╹│ ╻│ "
    "▁_ ▂_ ▃▄ ▅▄ ▆█ ▇█ ▉█ ▊█ ▋▌ ▍▌ ▎│ ▏│ ▕│ ▔─ "
    "⠋| ⠙/ ⠹- ⠸\\ ⠼| ⠴/ ⠦- ⠧\\ ⠇| ⠏/"  # the signs of work, which turn
)
_GLYPHS = {ord(pair[0]): pair[1] for pair in _PAIRS.split(" ") if pair}


def console_writer() -> Callable[[str], str] | None:
    """A function that returns an output for the terminal with glyphs that it has. None for every
    other terminal than the Linux console, which draws all of them.
    """
    return to_console if os.environ.get("TERM", "").startswith("linux") else None


def to_console(output: str) -> str:
    """`output` with similar characters of the same width where a console font has none. Escape
    sequences, which are ASCII, stay as they are.
    """
    return output if output.isascii() else output.translate(_GLYPHS)
