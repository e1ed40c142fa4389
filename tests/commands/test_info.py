from fakes.fake_front_end import FakeFrontEnd

from ouro.commands.builtin import COMMANDS
from ouro.commands.slash import dispatch


async def test_help_lists_every_command_and_the_keys_of_the_front_end_in_columns():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help")
    [page] = front_end.shown
    for command in COMMANDS:
        assert f"| `/{command.name}` | {command.help} |" in page
    assert "| `Enter` | send |" in page
    parts = (
        "| Session |",
        "/resume",
        "| Work |",
        "/model",
        "| Memory |",
        "| At the start of a message |",
        "`Enter` | send",
    )
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


async def test_help_for_a_command_shows_its_aliases():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help /usage")
    assert front_end.shown == [
        "`/usage [--by day|project|model|purpose]` Show tokens and cost by model: this session, today, this month, all. Also:"
        " `/cost`, `/stats`\n\nFor example: `/usage`"
    ]


async def test_help_for_a_command_shows_an_example_and_its_actions():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help memory")
    [page] = front_end.shown
    assert "For example: `/memory search " in page
    assert "| `/memory undo` | " in page


def test_each_command_with_an_argument_has_an_example():
    for command in COMMANDS:
        assert command.examples or not command.argument, command.name
        assert all(example.split()[0] == command.name for example in command.examples)


async def test_status_and_context_show_the_figures():
    front_end = FakeFrontEnd()
    for line in ("/status", "/context"):
        await dispatch(front_end, line)
    status, context, _items = front_end.shown
    assert "- **Model**: `fake/one`" in status
    assert "1,200 of 128,000 tokens (1 %)" in context
    assert "system prompt        900    1%" in context
    assert (
        "summarize 40 messages, keep 3 of them word for word, and leave about 9,000 tokens"
        in context
    )
    assert "the output of shell at message 12" in context
    assert "at 102,400 tokens" in context


async def test_markup_in_a_title_is_escaped_in_status_u2():
    front_end = FakeFrontEnd()
    front_end.session.title = "[@click=app.quit]x[/] \x1b]0;t\x07**b**"
    await dispatch(front_end, "/status")
    assert r"\[@click=app.quit\]x\[/\] \*\*b\*\*" in front_end.shown[0]


async def test_config_and_doctor_show_the_settings_of_the_session_folder(tmp_path, home):
    (home / ".ouro").mkdir(mode=0o700)
    (home / ".ouro" / "config.yaml").write_text("tui:\n  theme: dark\n")
    front_end = FakeFrontEnd()
    front_end.session.cwd = tmp_path
    await dispatch(front_end, "/config list")
    await dispatch(front_end, "/doctor")
    config, doctor = front_end.shown
    assert "~/.ouro/config.yaml:2" in config
    assert "settings: ~/.ouro/config.yaml can be read" in doctor
