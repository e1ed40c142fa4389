"""The plain prompt on a fake session, as a program: `python -m fakes.repl_program NAME [MESSAGE]`."""

import asyncio
import sys

from fakes.fake_session import FakeSession, Wait, opener, says
from ouro.display import Diff, Display, FileChange, Question
from ouro.events import (
    PermissionAsked,
    QuestionAsked,
    Replied,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from ouro.frontends.plain.repl import run_repl
from ouro.messages import ToolCall, assistant
from ouro.session import OpenRequest

CALL = ToolCall("c1", "edit", {"path": "api.py"})
CHANGE = Display("+1 -1", Diff((FileChange("api.py", "one\n", "two\n"),)))
ASKED = PermissionAsked("q1", CALL, "edit api.py", CHANGE, "it changes a file", "edit(api.py)")
DONE = [
    ToolStarted(CALL, "edit api.py"),
    ASKED,
    ToolFinished("c1", "edit", CHANGE, False, 0.1),
    *says("All **done**."),
]
HOSTILE = (
    "x\x1b]0;title\x07\x1b]52;c;eA==\x07\x9b31m\x1bP1\x1b\\\u202ey[red]z[/red]"
    " [link=http://x]l[/link]"
)

TURNS = {
    "answers": [says("Hello **you**."), says("Again.")],
    "permission": [DONE],
    "question": [[QuestionAsked("q2", Question("Which one?", ("alpha", "beta"))), *says("Right.")]],
    "waiting": [
        [TextDelta("Working.\n\n"), TextDelta("more\n"), Wait(), *says("never")],
        says("next"),
    ],
    "hostile": [
        [
            ThinkingDelta(HOSTILE),
            TextDelta(HOSTILE + "\n\n"),
            ToolStarted(CALL, HOSTILE),
            PermissionAsked("q1", CALL, HOSTILE, Display(HOSTILE, CHANGE.body), HOSTILE, HOSTILE),
            ToolFinished(
                "c1",
                "edit",
                Display(HOSTILE, Diff((FileChange(HOSTILE, HOSTILE, "b"),))),
                True,
                0.1,
            ),
            Replied(assistant(HOSTILE)),
        ]
    ],
}


def main():
    session = FakeSession(TURNS[sys.argv[1]])
    opens = opener(session, FakeSession(session_id="s-2"))

    async def opened(request):
        await asyncio.sleep(0.1)
        return await opens(request)

    code = asyncio.run(run_repl(opened, OpenRequest(), "".join(sys.argv[2:])))
    print(
        f"code={code} sent={session.sent} steered={session.steered} interrupts={session.interrupts}"
    )
    print(f"answers={session.answers} shell={session.background.lines} closed={session.closed}")


if __name__ == "__main__":
    main()
