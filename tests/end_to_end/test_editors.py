"""`ouro acp`, the real program, as an editor starts it."""

from fakes.editor import Editor, connected


async def test_a_session_in_an_editor_goes_on_in_the_terminal(ouro):
    async with connected(ouro, editor := Editor("yes"), spawn=True) as connection:
        await connection.new()
        assert await connection.say("run: echo from the shell > made.txt\nsay: one") == "end_turn"
    assert (ouro.folder / "made.txt").read_text() == "from the shell\n"
    assert editor.text.endswith("one")
    assert ouro.headless("-p", "say: two", "--resume", connection.session_id).out == "two\n"
