from fakes.fake_front_end import FakeFrontEnd

from ouro.commands.slash import dispatch


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
