"""The pattern of formulas of LaTeX in Markdown."""

from __future__ import annotations

FORMULA = (
    r"\$\$[^$`]+\$\$"
    r"|\$(?![\s$])(?:[^$`\n\\]|\\[^\n`])+(?<!\s)\$(?!\d)"
    r"|\\\([^`]{1,1000}?\\\)"
    r"|\\\[[^`]{1,1000}?\\\]"
)
r"""Matches a formula of LaTeX: `$x_1$`, `$$…$$`, `\(…\)`, `\[…\]`. No blank is inside of the single `$`, and
no digit follows them, as in "from $5 to $10".
"""
