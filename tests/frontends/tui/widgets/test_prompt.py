"""The prompt: history, completion, attachments, saved drafts."""

import asyncio
import threading
import unicodedata
from io import BytesIO
from types import SimpleNamespace

import pytest
from fakes.fake_session import FakeSession, Wait, says
from fakes.screens import opened, screen_of, screen_text, until
from fakes.waiting import PATIENCE
from msgspec.structs import replace
from PIL import Image as Pillow
from PIL import ImageGrab
from textual import _callback, events
from textual._text_area_theme import TextAreaTheme

from ouro import images
from ouro.display import Display
from ouro.errors import UsageError
from ouro.events import ToolFinished, ToolStarted
from ouro.frontends import clipboard
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.app import OuroApp
from ouro.frontends.tui.widgets.prompt_frame import PromptFrame
from ouro.llm import ModelSpec
from ouro.messages import Image, ToolCall


def prompt(pilot):
    return pilot.app.conversation.prompt


async def paste(pilot, text):
    before = prompt(pilot).text
    pilot.app.post_message(events.Paste(text))
    await until(pilot, lambda: prompt(pilot).text != before)
    prompt(pilot)._pasted_at = float("-inf")


async def test_up_and_down_walk_the_history_and_return_to_the_draft():
    async with screen_of(FakeSession([says("1"), says("2")])).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "enter", "b", "enter")
        pilot.app.conversation.prompt_history.add(
            "/resume"
        )  # a list of suggestions would take the next key
        await pilot.press("c")
        texts = []
        for key in ("up", "up", "up", "up", "down", "down", "down", "down"):
            await pilot.press(key)
            texts.append(prompt(pilot).text)
    assert texts == ["/resume", "b", "a", "a", "b", "/resume", "c", "c"]


async def test_up_in_several_lines_moves_the_cursor_first():
    async with screen_of(FakeSession([says("1")])).run_test() as pilot:
        await opened(pilot)
        await pilot.press("o", "l", "d", "enter", "a", "ctrl+j", "b", "up")
        assert (prompt(pilot).text, prompt(pilot).cursor_location) == ("a\nb", (0, 1))
        await pilot.press("up")
        assert prompt(pilot).text == "old"


async def test_line_deletion_ignores_soft_wraps():
    async with screen_of(FakeSession()).run_test(size=(40, 16)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        prompt.fill("first\n" + "word " * 20)
        await pilot.press("ctrl+u")
        assert prompt.text == "first\n"
        prompt.fill("word " * 20)
        prompt.cursor_location = (0, 5)
        await pilot.press("ctrl+k")
        assert prompt.text == "word "


async def test_the_frame_shows_that_a_draft_is_stashed():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"one", "ctrl+s")
        await until(pilot, lambda: "1 stashed" in screen_text(pilot.app))
        frame = pilot.app.conversation.box.styles
        assert frame.border_subtitle_color == frame.border_title_color  # as easy to read
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "stashed" not in screen_text(pilot.app))


async def test_the_frame_says_how_much_a_server_on_this_machine_reads(monkeypatch):
    monkeypatch.setattr("ouro.frontends.tui.widgets.prompt_frame.MODEL_WAIT_SECONDS", 0.0)
    before_answer = Wait()
    session = FakeSession([[before_answer, *says("made")]])
    spec = ModelSpec("ollama_chat/qwen3", on_this_machine=True)
    session._status = replace(session._status, context=12_400, spec=spec)
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "enter")
        await until(pilot, lambda: "the model reads about 12k tokens · " in screen_text(pilot.app))
        before_answer.until.set()
        await until(pilot, lambda: "Esc interrupts" not in screen_text(pilot.app))


async def test_the_frame_says_that_the_model_is_waited_for(monkeypatch):
    monkeypatch.setattr("ouro.frontends.tui.widgets.prompt_frame.MODEL_WAIT_SECONDS", 0.0)
    call = ToolCall("1", "shell", {"command": "make"})
    before_call, during_call = Wait(), Wait()
    finished = ToolFinished("1", "shell", Display("made"), failed=False, seconds=1.0)
    turn = [before_call, ToolStarted(call, "run make"), during_call, finished, *says("made")]
    async with screen_of(FakeSession([turn])).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "enter")
        await until(
            pilot,
            lambda: "waiting for the model · about 1.2k tokens sent · " in screen_text(pilot.app),
        )
        before_call.until.set()
        await until(pilot, lambda: "working · " in screen_text(pilot.app))
        assert "waiting for the model" not in screen_text(pilot.app)
        during_call.until.set()
        await until(pilot, lambda: "Esc interrupts" not in screen_text(pilot.app))


async def test_stashed_draft_returns_by_key_or_after_the_next_message():
    session = FakeSession([says("1")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("d", "ctrl+s")
        assert prompt(pilot).text == ""
        await pilot.press("ctrl+s")
        assert prompt(pilot).text == "d"
        await pilot.press("ctrl+s", "q", "enter")
        await until(pilot, lambda: session.sent == ["q"])
        assert prompt(pilot).text == "d"


async def test_long_paste_is_a_chip_sent_in_full_and_deleted_as_a_whole():
    session = FakeSession([says("1")])
    lines = "\n".join(f"line {number}" for number in range(120))
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("s", "e", "e", "space")
        await paste(pilot, lines)
        assert prompt(pilot).text == "see [pasted 120 lines]"
        await pilot.press("backspace")
        assert prompt(pilot).text == "see "
        await paste(pilot, lines)
        await pilot.press("enter")
        await until(pilot, lambda: session.sent)
    assert session.sent == [f"see {lines}"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("ที่", ["ที", "ท", ""]),  # Thai: vowel and tone mark
        ("שָׁ", ["שָ", "ש", ""]),  # Hebrew points
        ("कि", ["क", ""]),
        ("ắ", [""]),  # a decomposed Vietnamese letter
    ],
)
async def test_backspace_deletes_one_sign_of_a_syllable(text, left):
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        area = prompt(pilot)
        area.put(text)
        for rest in left:
            await pilot.press("backspace")
            assert unicodedata.normalize("NFC", area.text) == unicodedata.normalize("NFC", rest)


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (["ctrl+delete"], " two"),
        (["shift+delete"], "ne two"),
        (["end", "shift+backspace"], "one tw"),
    ],
)
async def test_deleting_keys_with_a_modifier_delete(keys, left):
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        prompt(pilot).put("one two")
        await pilot.press("home", *keys)
        assert prompt(pilot).text == left


async def test_cursor_and_deletion_treat_graphemes_and_chips_as_one():
    family, england = (
        "👩\u200d👩\u200d👧",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    )
    emojis = (
        family,
        "🇩🇪",
        "🇫🇷",
        "👍🏽",
        "e\u0301",
        england,
        "1\ufe0f\u20e3",
        "❤\ufe0f\u200d🔥",
        "\u1112\u1161\u11ab",
    )
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        area = prompt(pilot)
        await paste(pilot, "line\n" * 20)
        area.put("".join(emojis))
        for left in range(len(emojis) - 1, -1, -1):
            await pilot.press("backspace")
            assert area.text == "[pasted 20 lines]" + "".join(emojis[:left])
        await pilot.press("x", "left", "left", "right", "backspace")
        assert area.text == "x"
        area.fill("".join(emojis))
        await pilot.press("home")
        for left in range(1, len(emojis) + 1):
            await pilot.press("delete")
            assert area.text == "".join(emojis[left:])
        area.fill("x")
        await pilot.press("home")
        await paste(pilot, "line\n" * 20)
        await pilot.press("home", "delete")
        assert area.text == "x"


async def test_clipboard_image_is_attached(monkeypatch):
    monkeypatch.setattr(ImageGrab, "grabclipboard", lambda: Pillow.effect_noise((40, 40), 50))
    session = FakeSession([says("1")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("ctrl+v")
        await until(pilot, lambda: prompt(pilot).text == "[image 1: PNG, 2 KB] ")
        await pilot.press("enter")
        await until(pilot, lambda: session.sent)
    (image,) = session.sent_images
    assert (image.media_type, Pillow.open(BytesIO(image.data)).size) == ("image/png", (40, 40))


@pytest.mark.parametrize(
    "form", ["{}", "'{}'", "file://{}", "file://localhost{}", "escaped", "{}\n"]
)
async def test_dropped_image_is_attached(form, tmp_path):
    path = tmp_path / "my shot.png"
    Pillow.effect_noise((40, 40), 50).save(path)
    dropped = str(path).replace(" ", "\\ ") if form == "escaped" else form.format(path)
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await paste(pilot, dropped)
        await until(pilot, lambda: prompt(pilot).text == "[image 1: PNG, 2 KB] ")


@pytest.mark.parametrize("between", [" ", "\n"])
async def test_several_dropped_images_are_all_attached(between, tmp_path):
    for name in ("my shot.png", "b.png"):
        Pillow.effect_noise((40, 40), 50).save(tmp_path / name)
    dropped = between.join([f"'{tmp_path}/my shot.png'", f"file://{tmp_path}/b.png"])
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await paste(pilot, dropped)
        both = "[image 1: PNG, 2 KB] [image 2: PNG, 2 KB] "
        await until(pilot, lambda: prompt(pilot).text == both)
        prompt(pilot).fill("")
        with_another_file = f"{dropped} {tmp_path}/notes.txt"
        await paste(pilot, with_another_file)
        await until(pilot, lambda: prompt(pilot).text == with_another_file)


async def test_a_pasted_path_that_is_not_of_an_image_stays_text(tmp_path):
    (tmp_path / "no.png").write_text("words")
    texts = (
        f"{tmp_path}/no.png",
        f"{tmp_path}/gone.png",
        f"'{tmp_path}/a b.png",
        "see /x/a.png and /x/b.png",
    )
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        for text in texts:
            await paste(pilot, text)
            await until(pilot, lambda: prompt(pilot).text)
            assert prompt(pilot).text == text
            prompt(pilot).fill("")


def no_program():
    raise NotImplementedError(
        "wl-paste or xclip is required for ImageGrab.grabclipboard() on Linux"
    )


@pytest.mark.parametrize(
    ("grab", "notice"),
    [(lambda: None, "no image on the clipboard"), (no_program, "needs wl-clipboard or xclip")],
)
async def test_a_clipboard_without_image_or_program_is_a_notice(monkeypatch, grab, notice):
    monkeypatch.setattr(ImageGrab, "grabclipboard", grab)
    async with screen_of(FakeSession()).run_test(size=(200, 24)) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+v")
        await until(pilot, lambda: notice in screen_text(pilot.app))
        assert prompt(pilot).text == ""


async def test_hanging_clipboard_is_an_error(monkeypatch):
    monkeypatch.setattr(clipboard, "CLIPBOARD_TIMEOUT", 0.01)
    hangs = threading.Event()
    monkeypatch.setattr(ImageGrab, "grabclipboard", hangs.wait)
    with pytest.raises(UsageError, match="did not answer"):
        await clipboard.clipboard_image()
    hangs.set()


async def test_image_that_is_too_large_for_models_is_a_usage_error(monkeypatch):
    monkeypatch.setattr(images, "_MAX_PIXELS", 10)
    monkeypatch.setattr(ImageGrab, "grabclipboard", lambda: Pillow.new("RGB", (4, 4)))
    with pytest.raises(UsageError, match="clipboard is too large to be shown: 4×4 pixels"):
        await clipboard.clipboard_image()


async def test_undone_message_has_each_of_its_images_once():
    red, blue = (Image("image/png", sign * 2000, "") for sign in (b"0", b"1"))
    session = FakeSession([says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        text = "see [image 2: PNG, 2 KB]"
        pilot.app.front_end.show_again(text, (red, blue))
        assert prompt(pilot).text == f"{text} [image 3: PNG, 2 KB]"
        await pilot.press("enter")
        await until(pilot, lambda: session.sent_images == [red, blue])


async def test_withdrawn_message_keeps_its_images():
    image = Image("image/png", b"0" * 2000, "clipboard")
    session = FakeSession([[Wait()], says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        prompt(pilot).put(prompt(pilot).attachments.add_image(image))
        await pilot.press("tab", "up")
        await until(pilot, lambda: prompt(pilot).text == "[image 1: PNG, 2 KB]")
        assert prompt(pilot).attachments.expand(prompt(pilot).text).images == (image,)


@pytest.mark.parametrize("begin", ["", "read this: "])
async def test_withdrawn_message_has_its_paste_folded(begin):
    session = FakeSession([[Wait()], says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        prompt(pilot).put(begin)
        await paste(pilot, "line\n" * 30)
        await pilot.press("tab", "up")
        await until(pilot, lambda: prompt(pilot).text == f"{begin}[pasted 30 lines]")
        lines = "line\n" * 30
        assert prompt(pilot).whole_text.strip() == f"{begin}{lines}".strip()


async def test_chord_opens_the_editor_and_its_text_is_used(monkeypatch):
    async def edit(app, text):
        return text + " edited"

    monkeypatch.setattr(editor_and_pager, "edit", edit)
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "ctrl+x", "ctrl+e")
        await until(pilot, lambda: prompt(pilot).text == "a edited")


async def test_slash_suggests_commands_and_tab_or_enter_accepts():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("slash", "r", "e", "s")
        await until(pilot, lambda: "/resume" in screen_text(pilot.app))
        await pilot.press("tab")
        assert prompt(pilot).text == "/resume "
        await pilot.press("ctrl+u", "slash", "c", "l", "e", "a")
        await pilot.press("enter")
        await until(pilot, lambda: prompt(pilot).text == "")


async def test_exact_command_name_is_suggested_first():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"/skill")
        completion = pilot.app.conversation.completion
        await until(pilot, lambda: completion.word == "/skill")
        assert [row.value.strip() for row in completion.rows[:2]] == ["/skill", "/skills"]


@pytest.mark.parametrize(
    ("typed", "first"), [("/q", "/q"), ("/mode", "/mode"), ("/cost", "/cost"), ("/usa", "/usage")]
)
async def test_alias_is_suggested_by_its_own_name(typed, first):
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*typed)
        completion = pilot.app.conversation.completion
        await until(pilot, lambda: completion.word == typed)
        assert completion.rows[0].value.strip() == first


async def test_arguments_of_a_command_suggest_nothing():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"/foo")
        await until(pilot, lambda: pilot.app.conversation.completion.word == "/foo")
        assert pilot.app.conversation.completion.rows == []


async def test_at_suggests_files_and_escape_closes_without_interrupting():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("i", "n", "space", "at", "g", "d", "m")
        await until(
            pilot,
            lambda: (
                [item.label for item in pilot.app.conversation.completion.rows] == ["docs/guide.md"]
            ),
        )
        await pilot.press("escape")
        assert (pilot.app.conversation.completion.is_open, session.interrupts) == (False, 0)
        await pilot.press("backspace", "m", "enter")
        assert prompt(pilot).text == "in @docs/guide.md "


async def test_tab_at_a_folder_suggests_what_is_in_it_also_with_spaces():
    session = FakeSession()
    session.files = ["my dir/", "my dir/the file.txt", "src/", "src/api.py"]
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        labels = lambda: [row.label for row in pilot.app.conversation.completion.rows]  # noqa: E731
        await pilot.press(*"see @my")
        await until(pilot, lambda: labels()[:1] == ["my dir/"])
        await pilot.press("tab")
        assert prompt(pilot).text == 'see @"my dir/'
        await until(pilot, lambda: "my dir/the file.txt" in labels())
        await pilot.press(*"the f")
        await until(pilot, lambda: labels() == ["my dir/the file.txt"])
        await pilot.press("tab")
        assert prompt(pilot).text == 'see @"my dir/the file.txt" '
        await pilot.press("ctrl+u", *"see @sr", "tab")
        assert prompt(pilot).text == "see @src/"
        await pilot.press("tab")  # on into the folder, whose name is typed already
        assert prompt(pilot).text == "see @src/api.py "
        await pilot.press("ctrl+u", *"see @my", "enter")
        assert prompt(pilot).text == 'see @"my dir/" '


async def test_ctrl_n_and_ctrl_p_move_in_the_suggestions():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"/re")
        completion = pilot.app.conversation.completion
        await until(pilot, lambda: completion.word == "/re")
        await pilot.press("ctrl+n", "ctrl+n", "ctrl+p")
        assert (prompt(pilot).text, completion.marked_index) == ("/re", 1)


async def test_fast_typing_accepts_the_suggestion_for_the_last_letter():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        for key in ("slash", "m", "o", "d", "e", "l", "tab"):
            pilot.app.post_message(
                events.Key(key, "/" if key == "slash" else key if len(key) == 1 else None)
            )
        await until(pilot, lambda: prompt(pilot).text == "/model ")


async def test_ctrl_r_searches_the_history():
    async with screen_of(FakeSession([says("1"), says("2")])).run_test() as pilot:
        await opened(pilot)
        await pilot.press("f", "i", "x", "enter", "t", "e", "s", "t", "enter", "ctrl+r")
        await until(pilot, lambda: "Search history" in screen_text(pilot.app))
        await pilot.press("f", "i", "enter")
        await until(pilot, lambda: prompt(pilot).text == "fix")


async def test_ctrl_r_again_goes_to_an_older_message():
    async with screen_of(FakeSession([says("1"), says("2")])).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"fix", "enter", *"fit", "enter", *"fi", "ctrl+r")
        await until(pilot, lambda: "Search history" in screen_text(pilot.app))
        await pilot.press("ctrl+r", "enter")
        await until(pilot, lambda: prompt(pilot).text == "fix")


async def test_slow_session_start_does_not_block_typing():
    gate = asyncio.Event()

    async def open_session(request):
        await gate.wait()
        return FakeSession()

    async with screen_of(open_session=open_session).run_test() as pilot:
        await pilot.press("a", "b")
        assert prompt(pilot).text == "ab"
        gate.set()
        await opened(pilot)


async def test_copy_reports_the_program_that_was_used(monkeypatch, tmp_path):
    from types import SimpleNamespace

    sent = []
    app = SimpleNamespace(copy_to_clipboard=sent.append)
    for name in ("WAYLAND_DISPLAY", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "xsel"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/clip\n")
    program.chmod(0o700)
    (tmp_path / "xclip").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "xclip").chmod(0o700)
    assert OuroApp.copy(app, "héllo") == "with xsel"
    assert ((tmp_path / "clip").read_text(), sent) == ("héllo", ["héllo"])
    monkeypatch.delenv("DISPLAY")
    assert "may refuse" in OuroApp.copy(app, "again")
    (tmp_path / "tmux").write_text(
        f'#!/bin/sh\n[ "$*" = "load-buffer -w -" ] && cat > {tmp_path}/buffer\n'
    )
    (tmp_path / "tmux").chmod(0o700)
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    assert OuroApp.copy(app, "in tmux") == "with tmux"
    assert (tmp_path / "buffer").read_text() == "in tmux"


@pytest.mark.parametrize(
    ("how", "shown"), [("with xclip", "copied with xclip"), ("sent to it", "sent to it")]
)
async def test_selection_is_reported_as_copied_only_if_a_program_took_it(monkeypatch, how, shown):
    monkeypatch.setattr(OuroApp, "copy", lambda _app, _text: how)
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        pilot.app.screen.text_select_all()
        pilot.app.post_message(events.TextSelected())
        await until(
            pilot, lambda: screen_text(pilot.app).splitlines()[-1].strip().startswith(shown)
        )


async def test_text_that_is_marked_in_the_prompt_is_copied(monkeypatch):
    copied = []
    monkeypatch.setattr(OuroApp, "copy", lambda _app, text: copied.append(text) or "with xclip")
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        area = prompt(pilot)
        area.put("some words")
        await pilot.mouse_down(area, offset=(0, 0))
        await pilot.hover(area, offset=(4, 0))
        await pilot.mouse_up(area, offset=(4, 0))
        await until(pilot, lambda: copied == ["some"])
        await pilot.click(area, offset=(2, 0))  # marks nothing
        await until(pilot, lambda: "copied with xclip" in screen_text(pilot.app))
        assert copied == ["some"]


async def test_the_middle_button_pastes_what_is_marked_elsewhere(monkeypatch, tmp_path):
    for name in ("WAYLAND_DISPLAY", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "xclip"
    program.write_text('#!/bin/sh\n[ "$*" = "-o -selection primary" ] && printf "marked\\ntext"\n')
    program.chmod(0o700)
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt(pilot).put("see ")
        await pilot.mouse_down(prompt(pilot), offset=(1, 0), button=2)
        await until(pilot, lambda: prompt(pilot).text == "see marked\ntext")
        monkeypatch.delenv("DISPLAY")
        await pilot.mouse_down(prompt(pilot), offset=(1, 0), button=2)
        await until(pilot, lambda: "Shift and the middle button" in screen_text(pilot.app))


async def test_a_key_is_drawn_without_waiting_for_the_next_frame(monkeypatch):
    app, drawn = screen_of(FakeSession()), []
    async with app.run_test() as pilot:
        await opened(pilot)
        screen, prompt = app.screen, app.conversation.prompt
        await until(pilot, lambda: not screen._layout_required and not screen._dirty_widgets)
        await pilot.pause(0.1)
        screen._update_timer.stop()  # no further frame is drawn by the timer
        monkeypatch.setattr(app, "_display", lambda _, update: drawn.append(screen_text(app)))
        prompt.post_message(events.Key("x", "x"))
        async with asyncio.timeout(PATIENCE):
            while not any("❯ x" in text for text in drawn):
                await asyncio.sleep(0.001)  # not `until`, because the pilot draws as well


async def test_long_prompt_is_limited_and_keeps_the_cursor_visible():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        area, box = prompt(pilot), pilot.app.conversation.box
        area.fill("\n".join(f"row {number}" for number in range(40)))
        await pilot.press("ctrl+j")
        await until(pilot, lambda: area.cursor_screen_offset.y == area.region.bottom - 1)
        assert box.region.height <= 12
        assert pilot.app.conversation.status.region.bottom == 24
        assert area.region.height == box.content_region.height
        await pilot.resize_terminal(40, 15)
        await until(
            pilot,
            lambda: area.cursor_screen_offset.y == area.region.bottom - 1 and box.region.height < 8,
        )


async def test_a_key_is_drawn_without_its_frame_and_without_a_look_at_the_styles(monkeypatch):
    """Each key drew the frame again, and looked up the styles of all parts of the text area twice."""
    looks, frames = [], []
    apply_css, render_lines = TextAreaTheme.apply_css, PromptFrame.render_lines
    monkeypatch.setattr(
        TextAreaTheme, "apply_css", lambda self, area: looks.append(1) or apply_css(self, area)
    )
    monkeypatch.setattr(
        PromptFrame, "render_lines", lambda self, crop: frames.append(1) or render_lines(self, crop)
    )
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        await pilot.press("a")
        await pilot.pause()
        looks.clear()
        frames.clear()
        await pilot.press("b", "c")
        await pilot.pause()
        assert prompt.text == "abc"
        assert (looks, frames) == ([], [])

        pilot.app.theme = "light" if "dark" in pilot.app.theme else "dark"
        await pilot.pause()
        await until(pilot, lambda: looks)
        assert prompt._theme.base_style == prompt.rich_style


async def test_a_key_inspects_no_callback_and_waits_for_no_layout(monkeypatch):
    """Textual inspected the parameters of three callbacks for each key, which was a tenth of its work."""
    inspected, scrolled = [], []
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        area = prompt(pilot)
        await pilot.press("a")
        await pilot.pause()
        count, scroll = _callback._count_parameters, area.scroll_cursor_visible
        monkeypatch.setattr(
            _callback, "_count_parameters", lambda call: inspected.append(call) or count(call)
        )
        monkeypatch.setattr(
            area, "scroll_cursor_visible", lambda **how: scrolled.append(1) or scroll(**how)
        )
        area.post_message(events.Key("b", "b"))
        await until(pilot, lambda: area.text == "ab")
        callbacks = [call for call in inspected if "PromptArea" in repr(call)]
        assert (callbacks, scrolled) == ([], [1])
        await pilot.press("ctrl+j")  # a further line: the prompt becomes higher
        await until(pilot, lambda: len(scrolled) > 2)


async def test_no_second_editor_is_opened_on_the_same_terminal():
    app = SimpleNamespace(lends_terminal=True)
    with pytest.raises(UsageError, match="Another program has the terminal"):
        await editor_and_pager.edit(app, "a text")
