"""Lists of choices over the conversation, operated by keys."""

import asyncio
import time

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, shown, until

from ouro.display import Choice
from ouro.frontends.tui.screens.picker import Picker, PickList


@pytest.mark.parametrize(
    ("keys", "chosen", "prompt"),
    [
        ("2", "two", ""),
        ("s e c enter", "two", ""),
        ("b e s enter", "three", ""),
        ("l o c a l space b enter", "three", ""),
        ("z h i", None, "zhi"),
        ("s backspace f i r enter", "one", ""),
        ("up enter", "three", ""),
        ("up down enter", "one", ""),
        ("k enter", "three", ""),
        ("down down down enter", "one", ""),
    ],
)
async def test_a_short_list_takes_digits_and_words_and_leaves_messages_to_the_prompt(
    keys, chosen, prompt, monkeypatch
):
    monkeypatch.setattr("ouro.frontends.tui.screens.picker.STRAY_GRACE", 0.0)
    choices = [Choice("one", "first"), Choice("two", "second"), Choice("three", "local/the-best")]
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        results = []
        pilot.app.push_screen(Picker("Which one?", choices), results.append)
        await pilot.pause()
        await pilot.press(*keys.split())
        await pilot.pause()
        assert results == ([chosen] if chosen else [])
        assert pilot.app.conversation.prompt.text.startswith(prompt)


async def test_a_row_is_drawn_with_one_look_at_the_style_of_its_list():
    """Textual computes it from all ancestors, each time: a fifth of the first list after `@`."""
    looks = []

    class CountedList(PickList):
        @property
        def rich_style(self):
            looks.append(1)
            return super().rich_style

    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        choices = CountedList([Choice("one", "first", "detail"), Choice("two", "second")])
        await pilot.app.screen.mount(choices)
        await pilot.pause()
        looks.clear()
        choices.render_line(0)
        assert len(looks) == 1


async def test_theme_list_previews_themes_and_esc_restores_the_old_one():
    saved = []
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        pilot.app.front_end._save_theme = saved.append
        before = pilot.app.theme
        await pilot.press(*"/theme", "enter")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("down")
        await until(pilot, lambda: pilot.app.theme != before)
        shown_then = pilot.app.theme
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.theme == before)
        assert saved == []
        await pilot.press(*"/theme", "enter")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("down", "enter")
        await until(pilot, lambda: saved == [shown_then])
        await pilot.press(*"/theme auto", "enter")
        await until(
            pilot,
            lambda: saved == [shown_then, "auto"] and "From the next start on" in shown(pilot.app),
        )
        assert pilot.app.theme == shown_then
        await pilot.press(*"/theme pink", "enter")
        await until(pilot, lambda: "There is no theme pink. There are:" in shown(pilot.app))
        await pilot.press(*"/theme light", "enter")
        await until(pilot, lambda: pilot.app.theme == "light" and saved[-1] == "light")


@pytest.mark.parametrize(
    ("search", "chosen"),
    [
        ("llama", "llama.cpp"),
        ("anth", "anthropic"),
        ("llama.c", "llama.cpp"),
        ("http://127.0.0.1:8091/v1", "other"),
    ],
)
async def test_a_search_marks_the_choice_that_begins_with_it(search, chosen):
    choices = [
        Choice("anthropic", "Anthropic"),
        Choice("ollama", "Ollama"),
        Choice("llama.cpp", "llama.cpp"),
        Choice("other", "Another server", fits_all=True),
    ]
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        results = []
        pilot.app.push_screen(Picker("Where is it?", choices, search=""), results.append)
        await pilot.pause()
        await pilot.press(*search, "enter")
        await until(pilot, lambda: results == [chosen])


async def test_a_narrow_list_of_commands_keeps_what_they_do():
    async with screen_of(FakeSession()).run_test(size=(50, 15)) as pilot:
        await opened(pilot)
        await pilot.press(*"/model")
        await until(pilot, lambda: "❯ /model  Use another model" in screen_text(pilot.app))
        await pilot.resize_terminal(90, 24)
        await pilot.press("backspace", "l")
        await until(pilot, lambda: "❯ /model [name" in screen_text(pilot.app))


async def test_truncated_choice_is_shown_whole_below_the_list():
    choices = (
        Choice("one", "the first", "fits"),
        Choice("two", "the second", "is far too long for a narrow screen"),
    )
    async with screen_of(FakeSession()).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker("Which one?", choices))
        await until(pilot, lambda: "1 the first" in screen_text(pilot.app))
        assert "narrow screen" not in screen_text(pilot.app)
        await pilot.press("down")
        await until(pilot, lambda: "narrow screen" in screen_text(pilot.app))
        assert "2 the second" in screen_text(pilot.app)


async def test_a_question_is_whole_again_when_the_terminal_has_grown():
    question = "Which one?\n" + "\n".join(f"Reason {number} of it." for number in range(4))
    async with screen_of(FakeSession()).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker(question, [Choice("one", "first"), Choice("two", "second")]))
        await until(pilot, lambda: "first" in screen_text(pilot.app))
        await pilot.resize_terminal(30, 6)
        await until(pilot, lambda: "Reason 3" not in screen_text(pilot.app))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "Reason 3" in screen_text(pilot.app))


async def test_resize_while_a_list_closes_is_harmless():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        picker = Picker("Which one?", [Choice("a", "a")])
        await pilot.app.push_screen(picker)
        await picker.query_one(".sheet--question").remove()  # a sheet loses its parts first
        await pilot.resize_terminal(70, 24)
        await until(pilot, lambda: picker.query_one(PickList).size.width < 70)
        await picker.query_one(".sheet").remove()
        picker.on_resize()
        await pilot.pause()


async def test_narrow_list_shows_labels_before_details():
    choices = [Choice("1", "open it read-only", "nothing that is said here is saved")]
    async with screen_of(FakeSession()).run_test(size=(40, 15)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker("In use", choices))
        await until(pilot, lambda: "❯ 1 open it read-only  nothing" in screen_text(pilot.app))


async def test_a_label_without_a_detail_takes_the_whole_line():
    choices = [
        Choice("1", "anthropic/claude-sonnet-4-5"),
        Choice("2", "13 models without a key", "anthropic, openai, gemini"),
    ]
    async with screen_of(FakeSession()).run_test(size=(40, 15)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker("Which model?", choices, current="1"))
        await until(pilot, lambda: "❯ 1 anthropic/claude-sonnet-4-5  ✓" in screen_text(pilot.app))


async def test_marked_choice_and_keys_stay_visible_in_a_long_list():
    choices = [Choice(str(number), f"choice {number}") for number in range(40)]
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker("Which one?", choices))
        await until(pilot, lambda: "↑↓ Enter · F1 keys · Esc closes" in screen_text(pilot.app))
        await pilot.press(*["down"] * 39)
        await until(pilot, lambda: "❯ choice 39" in screen_text(pilot.app))
        await pilot.resize_terminal(40, 10)
        await until(
            pilot,
            lambda: (
                "❯ choice 39" in screen_text(pilot.app)
                and "choice 31" not in screen_text(pilot.app)
            ),
        )


async def test_text_shown_for_a_question_stays_visible_and_scrolls():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        front_end = pilot.app.front_end
        front_end.show("\n\n".join(f"row {number}" for number in range(30)))
        choice = asyncio.create_task(
            front_end.choose("Use it?", [Choice("yes", "Yes"), Choice("no", "No")])
        )
        await until(pilot, lambda: "❯ 1 Yes" in screen_text(pilot.app))
        view = pilot.app.conversation.transcript
        await until(pilot, lambda: view.size.height < 16 and "row 0" in screen_text(pilot.app))
        last = f"row {view.size.height // 2 - 1}"
        assert last in screen_text(pilot.app)
        await pilot.press("pagedown")
        await until(pilot, lambda: "row 9" in screen_text(pilot.app))
        await pilot.press("1")
        assert await choice == "yes"
        await until(pilot, lambda: view.size.height > 16)


async def pick_where(pilot, keys):
    """The answer to a question with these keys, and what the prompt has then."""
    choices = (Choice("repo", "this project", "only here"), Choice("user", "everywhere", "all"))
    chosen = asyncio.create_task(pilot.app.front_end.choose("Where does this hold?", choices))
    await until(pilot, lambda: "1 this project" in screen_text(pilot.app))
    picker = pilot.app.screen
    await until(pilot, lambda: picker._reads_from < time.monotonic())
    await pilot.press(*keys)
    if not chosen.done():
        await pilot.press("escape")
    return await chosen, pilot.app.conversation.prompt.text


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["2"], ("user", "")),
        (["e", "enter"], ("user", "")),
        ([*"EVERY", "enter"], ("user", "")),
        (["e", "backspace", "t", "enter"], ("repo", "")),
        (["escape"], (None, "")),
        ([*"ja bitte"], (None, "ja bitte")),
        ([*"everything"], (None, "everything")),
    ],
    ids=lambda value: "".join(value) if isinstance(value, list) else "",
)
async def test_question_takes_the_letters_of_its_answers_and_the_prompt_all_others(keys, answer):
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        keys = ["space" if key == " " else key for key in keys]
        assert await pick_where(pilot, keys) == answer


async def test_only_the_sheet_shows_a_cursor_while_it_is_open():
    def has_prompt_cursor(app):
        """Whether the first cell of the prompt has another background than the mark before it."""
        place = app.conversation.prompt.content_region.offset
        backgrounds = []
        for segment in app.screen._compositor.render_strips()[place.y]:
            backgrounds += [segment.style.bgcolor] * segment.cell_length
        return backgrounds[place.x] != backgrounds[place.x - 1]

    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: has_prompt_cursor(pilot.app))
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(pilot.app.screen_stack) > 1)
        await until(pilot, lambda: not has_prompt_cursor(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: has_prompt_cursor(pilot.app))


async def test_ctrl_c_clears_the_search_before_it_closes_a_list():
    choices = [Choice(str(number), f"choice {number}") for number in range(9)]
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        results = []
        picker = Picker("Which one?", choices)
        pilot.app.push_screen(picker, results.append)
        await pilot.pause()
        await pilot.press(*"http", "ctrl+c")
        assert (picker.words, pilot.app.screen) == ("", picker)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: results == [None])
