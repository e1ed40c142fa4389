"""How much the screen writes to the terminal: a user over SSH waits for it."""

from fakes.model_server import Reply

ANSWER_BYTES = 20_000
MAX_WRITTEN = 800_000
"""It was 2.9 MB: each frame wrote the visible part of the answer again."""


def test_an_answer_of_20_kb_writes_less_than_a_megabyte(ouro, model_server):
    sentence = "The parser reads a line, **splits** it at `:` and keeps the rest for later. "
    part = (
        f"## Part\n\n{sentence * 3}\n\n- one item\n- another item\n\n```python\nx = f(1)\n```\n\n"
    )
    text = (part * (ANSWER_BYTES // len(part) + 1))[:ANSWER_BYTES] + "\n\nThe end of it."
    terminal = ouro.start(size=(40, 120))
    terminal.until_shows("Ask for anything")
    before = len(terminal.raw)
    model_server.script([Reply([text[at : at + 4] for at in range(0, len(text), 4)])])
    terminal.say("go")
    terminal.until_shows("The end of it.")
    assert len(terminal.raw) - before < MAX_WRITTEN
