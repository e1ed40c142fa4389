"""The declarations of the actions on the history of memory; their functions are in
`memory_history.py`.
"""

from __future__ import annotations

from ouro.commands.action import SESSION_HELP, YES, Action, arg, count

MEMORY_HISTORY_ACTIONS: tuple[Action, ...] = (
    Action(
        "memory log",
        "memory_history.log",
        "List the commits of memory, of one file or of one note",
        (
            arg("file", nargs="?", default="", metavar="FILE|NOTE"),
            arg(
                "-n",
                "--max",
                dest="limit",
                type=count,
                default=30,
                metavar="N",
                help="commits to show (30)",
            ),
        ),
        ("memory log", "memory log facts"),
        "both",
    ),
    Action(
        "memory diff",
        "memory_history.diff",
        "Show what a commit changed, what differs between two, or what changed since a date",
        (
            arg(
                "commits",
                nargs="*",
                metavar="COMMIT",
                help="none: the last commit; in a session: all since it began",
            ),
            arg("--since", default="", metavar="DATE", help="2026-11-21, yesterday, `3 days ago`"),
            arg(
                "--with",
                dest="agent",
                choices=("claude", "codex", "gemini"),
                default="",
                help="compare with what this agent remembers",
            ),
        ),
        (
            "memory diff",
            "memory diff 3f2a91c",
            "memory diff since yesterday",
            "memory diff --with claude",
        ),
        "both",
    ),
    Action(
        "memory blame",
        "memory_history.blame",
        "Show the commit, session and turn of each line of a file",
        (
            arg("file", metavar="FILE"),
            arg(
                "number",
                nargs="?",
                type=int,
                default=0,
                metavar="LINE",
                help="show the turn that a line came from",
            ),
            arg("--open", dest="opened", type=int, default=0, metavar="LINE", help="the same"),
        ),
        ("memory blame repo/facts.md", "memory blame facts 3"),
        "both",
    ),
    Action(
        "memory why",
        "memory_history.why",
        "Show what memory put into the prompt of a turn",
        (
            arg(
                "turn", nargs="?", type=int, default=0, metavar="TURN", help="its number (the last)"
            ),
            arg("--session", default="", metavar="SESSION", help=SESSION_HELP),
        ),
        ("memory why 3", "memory why 3 --session latest"),
        "both",
    ),
    Action(
        "memory evidence",
        "memory_history.evidence",
        "Show the turn that a note or a commit came from",
        (arg("what", metavar="NOTE|COMMIT"),),
        ("memory evidence mem_3f6c1e0b",),
        "both",
    ),
    Action(
        "memory undo",
        "memory_history.undo",
        "Undo a commit with all of its turn, or one hunk; later changes stay",
        (
            arg(
                "words",
                nargs="*",
                metavar="COMMIT",
                help="none: the last one; then `hunk 2` for only that hunk",
            ),
            arg(
                "--hunk",
                type=count,
                default=0,
                metavar="N",
                help="only that hunk, as `diff` numbers them",
            ),
            YES,
        ),
        ("memory undo 3f2a91c", "memory undo 3f2a91c hunk 2"),
        "both",
    ),
    Action(
        "memory at",
        "memory_history.show_at",
        "Show or search memory as it was on a date",
        (
            arg(
                "when",
                nargs="+",
                metavar="DATE",
                help="2026-11-21, yesterday, `3 days ago`; then `show FILE|NOTE` or `search WORDS`",
            ),
        ),
        (
            "memory at 2026-11-21",
            "memory at yesterday show facts",
            "memory at 3 days ago search redis",
        ),
        "both",
        aliases=("memory as-of",),
    ),
)
