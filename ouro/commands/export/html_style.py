"""How the page of a session looks: light or dark as the reader's system is, and on paper."""

from __future__ import annotations

_PAGE = """\
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2126; --soft: #5f6873; --line: #d9dde2; --wash: #f5f6f8;
  --person: #0b62c4; --person-wash: #eef5fd; --bad: #b3261e; --plus: #e2f4e6; --minus: #fbe6e5; --place: #6a4fb3; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 54rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .8rem; }
h2 { font-size: .95rem; margin: 0 0 .4rem; }
small, time, .mark, footer { color: var(--soft); font-size: .8rem; font-weight: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; font-size: .85rem; }
dt { color: var(--soft); } dd { margin: 0; }
nav { margin: 0 0 1.5rem; font-size: .9rem; } nav ol { margin: .4rem 0; padding-left: 2.2rem; }
a { color: var(--person); }
article { margin: 1.6rem 0 .6rem; }
.person { background: var(--person-wash); border-left: 3px solid var(--person); padding: .7rem 1rem;
  border-radius: 4px; }
.person h2 { color: var(--person); }
.added { opacity: .8; }
.typed { white-space: pre-wrap; }
.words > :first-child { margin-top: 0; } .words > :last-child { margin-bottom: 0; }
pre, code { font: .84rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 4px; padding: .7rem .8rem; margin: .5rem 0;
  overflow-x: auto; white-space: pre-wrap; max-height: 40rem; overflow-y: auto; tab-size: 4; }
:not(pre) > code { background: var(--wash); border-radius: 3px; padding: .1em .3em; }
table { border-collapse: collapse; font-size: .9rem; } th, td { border: 1px solid var(--line); padding: .25rem .6rem; }
blockquote { margin: .6rem 0; padding-left: .9rem; border-left: 3px solid var(--line); color: var(--soft); }
img { max-width: 100%; border: 1px solid var(--line); border-radius: 4px; }
summary { cursor: pointer; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--person); outline-offset: 2px; }
details { margin: .35rem 0; }
.fold > summary, .tool > summary, p.tool { color: var(--soft); font-size: .86rem; margin: .35rem 0; }
.failed { color: var(--bad); }
.diff span { display: block; margin: 0 -.8rem; padding: 0 .8rem; }
.added-line { background: var(--plus); } .removed-line { background: var(--minus); } .place { color: var(--place); }
.mark { border-top: 1px solid var(--line); padding-top: .5rem; margin: 1.2rem 0 .4rem; }
.back { border: 1px dashed var(--line); border-radius: 4px; padding: .4rem 1rem; }
.back > summary { color: var(--soft); }
footer { margin-top: 3rem; }
"""
_DARK = """\
:root { --paper: #15181c; --ink: #e2e5e9; --soft: #98a1ac; --line: #343a42; --wash: #1d2126; --person: #7db5f5;
  --person-wash: #18222f; --bad: #f2938c; --plus: #173323; --minus: #3d1f1f; --place: #b7a3ec; }
"""
_PAPER = """\
body { max-width: none; font-size: 10.5pt; } nav { display: none; }
pre { max-height: none; overflow: visible; }
h2, summary { break-after: avoid; } img, .person { break-inside: avoid-page; }
"""


def page_style() -> str:
    """The whole style sheet, the colours of code among it."""
    light, dark = _code_colours("friendly"), _code_colours("github-dark")
    return (
        f"{_PAGE}@media screen {{\n{light}\n}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{\n{_DARK}{dark}\n}}\n@media print {{\n{_PAPER}}}\n"
    )


def _code_colours(style: str) -> str:
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

    rules = str(HtmlFormatter(style=style).get_style_defs("pre")).splitlines()
    # The page's own colours stay behind the code.
    return "\n".join(rule for rule in rules if rule.startswith("pre ."))
