"""U1, U2, U3, U6: foreign text in the transcript has no effect on the terminal, the app or the
network.
"""

import re

import pytest
from fakes.screens import TranscriptApp, until
from textual.strip import Strip

from ouro.display import CommandOutput, Diff, Display, FileChange, Picture, Plain, Todo, Todos
from ouro.events import (
    Notice,
    Prompted,
    Replied,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
)
from ouro.messages import Image, ToolCall, assistant

SEQUENCES = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "hyperlink": "\x1b]8;;https://evil.example\x1b\\x\x1b]8;;\x1b\\",
    "device control": "\x1bP+q544e\x1b\\",
    "cursor": "\x1b[2J\x1b[1;1H",
    "C1": "\x9b31m\x9d0;x\x9c\x90q\x9c\x84",
    "reset": "\x1bc",
    "bidi": "\u202eabc\u202c\u2066x\u2069",
    "NUL": "a\x00b\x08\x7f",
    "line ends": "a\rb\x0bc\x0cd\x85e\u2028f",
    "tags": "\U000e0041\ufeff\u200b",
    "unfinished": "\x1b]0;never ends",
}
MARKUP = (
    "[@click=app.quit]x[/] [link=https://e.com]y[/link] [/x] [red [bold]b[/bold] [on red]x[/]"
    " $error"
)
OURS = re.compile(
    r"\x1b\[[0-9;]*m|\x1b\]8;id=[0-9]*;(?:https?://[!-~]+|mailto:[!-~]+)?\x1b\\|\x1b\]8;;\x1b\\"
)

HARMFUL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)


def events_with(text):
    """`text` in every place that can contain foreign text."""
    call = ToolCall("c", text, {text: text})
    changes = (
        FileChange(text, text, f"{text}\nnew", moved_to=text),
        FileChange(f"{text}.py", None, text),
    )
    bodies = [
        Plain(text, "python"),
        CommandOutput(text, text, 1),
        Diff(changes),
        Picture(text, text, 3),
        Todos((Todo(text, "done"),)),
    ]
    yield Prompted(text, (Image("image/png", b"", text),))
    yield ThinkingDelta(text)
    for form in (
        "{}",
        "# {}",
        "- {}",
        "> {}",
        "`{}`",
        "```{}\n{}\n```",
        "| {} |\n|---|\n| {} |",
        "[{}]({})",
        "![{}]({})",
        "<{}>",
    ):
        yield TextDelta("\n\n" + form.replace("{}", text))
    yield Replied(assistant(text))
    yield Retrying(text, 1, 1.0, text)
    for body in bodies:
        yield ToolStarted(call, text)
        yield ToolProgress("c", text)
        yield ToolFinished("c", text, Display(text, body), True, 1.0)
    yield ToolStarted(call, text)
    yield ToolProgress("c", text)
    yield Notice(text, "error")
    yield TurnFinished("failed", text)


def unfold_all(app):
    """Unfold everything, and queue a message."""
    app.transcript.toggle_outputs()
    app.transcript.set_queued(
        (), [next(event.text for event in app.events if isinstance(event, Prompted))]
    )
    app.transcript._draw()


def terminal_output(app):
    """Everything that is sent to the terminal for the whole transcript and for its visible part."""
    blocks = app.transcript._blocks
    lines = [Strip(line.segments) for _, line in blocks.lines(0, blocks.total)]
    return "".join(strip.render(app.console) for strip in [*lines, *app.strips()])


@pytest.mark.parametrize("name", SEQUENCES)
async def test_u1_no_external_escape_sequence_reaches_the_terminal(name):
    app = TranscriptApp(*events_with(f"before {SEQUENCES[name]} after"))
    async with app.run_test(size=(100, 10)):
        unfold_all(app)
        left = OURS.sub("", terminal_output(app))
        assert left.count("after") > 20 or name == "unfinished"
        assert not HARMFUL.search(left)
        assert "evil.example" not in left


async def test_u1_escape_sequence_streamed_by_character_is_removed():
    text = "".join(f"before {sequence} after\n\n" for sequence in SEQUENCES.values())
    app = TranscriptApp(
        Prompted("x"),
        *(TextDelta(character) for character in text),
        *(ThinkingDelta(c) for c in text),
    )
    async with app.run_test(size=(100, 10)):
        unfold_all(app)
        left = OURS.sub("", terminal_output(app))
        assert left.count("before") > 20
        assert not HARMFUL.search(left)


async def test_u2_markup_is_shown_literally_and_is_not_clickable():
    app = TranscriptApp(*events_with(MARKUP))
    async with app.run_test(size=(100, 30)) as pilot:
        unfold_all(app)
        app.transcript.action_scroll_home()
        await pilot.pause()
        assert terminal_output(app).count("[@click") > 20
        for y, strip in enumerate(app.strips()):
            if "[@click" in strip.text and y % 4 == 0:
                await pilot.click(offset=(strip.text.index("[@click") + 9, y))
        assert not app._exit
        metas = [segment.style.meta for strip in app.strips() for segment in strip if segment.style]
        assert {key for meta in metas for key in meta} <= {"offset"}
        assert MARKUP in app.transcript.as_markdown()


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 500), (500, 1), (2, 3), pytest.param((2000, 2000), marks=pytest.mark.slow)]
)
async def test_u3_any_size_while_streaming(size):
    app = TranscriptApp(
        *events_with("日本語 words 👩‍💻 to wrap"), TextDelta("```py\n" + "x = 1\n" * 30)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        app.transcript.toggle_outputs()
        await pilot.pause()
        await pilot.resize_terminal(*size)
        app.show(TextDelta("and = 'more'\n" * 5))
        app.transcript.action_page_up()
        app.transcript.action_scroll_home()
        app.transcript.follow()
        await pilot.resize_terminal(80, 24)
        app.show(TextDelta("last = 1\n```\n\nend"))
        await until(pilot, lambda: app.lines()[-1] == "  end")


async def test_u6_pictures_are_named_and_unsafe_links_not_clickable():
    text = (
        "![p](https://e.com/p.png) [f](file:///etc/passwd) [v](vscode://x) [j](javascript:x)"
        " [ok](https://e.com/a)"
    )
    app = TranscriptApp(Prompted("x"), TextDelta(text))
    async with app.run_test(size=(160, 10)):
        raw = terminal_output(app)
        shown = "\n".join(app.lines())
        assert set(re.findall(r"\x1b\]8;[^;]*;([^\x1b]+)\x1b", raw)) == {"https://e.com/a"}
        for target in (
            "https://e.com/p.png",
            "file:///etc/passwd",
            "vscode://x",
            "javascript:x",
            "https://e.com/a",
        ):
            assert target in shown
