"""The viewer of changes, operated by keys on a real session in a real repository."""

import asyncio
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.agents import say
from fakes.entered_functions import counted_calls
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, type_text, until
from msgspec.structs import replace
from rich.cells import cell_len
from textual._compositor import Compositor

from ouro.assemble import Options, open_session
from ouro.frontends.tui.blocks import code
from ouro.frontends.tui.blocks.diff import PAGE_ROWS
from ouro.frontends.tui.blocks.diff_data import FileDiff, LineRun
from ouro.frontends.tui.blocks.hunk_rows import HunkRows
from ouro.frontends.tui.blocks.styled_lines import count_fold_lines
from ouro.frontends.tui.screens import diff_viewer
from ouro.frontends.tui.screens.diff_viewer import DiffFileList, DiffViewer
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.widgets.diff_lines import ParsedFile
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest, ShownDiff, session_diff
from ouro.utils.git_diff import DiffedFile

BEFORE = "".join(f"line {number}\n" for number in range(1, 41))
AFTER = BEFORE.replace("line 3\n", "line three\n").replace("line 30\n", "line thirty\n")


def git(folder, *words):
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_long_names_fit_into_the_list_by_their_columns():
    file = DiffedFile("日本語のファイル.py", hunks=("@@ -1 +1 @@\n-a\n+b\n",))
    parsed = ParsedFile(file, FileDiff("", "", hunks=[], names=[]))
    for width in (4, 9, 20):
        cells = DiffFileList().cells(parsed, is_marked=False, width=width)
        name = [text for text, _style in cells][1]
        assert cell_len(name) <= max(1, width - 2 - len(f" {parsed.file.counts}"))


@asynccontextmanager
async def viewing(repository, command="/diff", *, writes=True, size=(120, 40), answers=()):
    """The viewer on a session whose one turn, if it `writes`, has changed two places of a.txt."""
    (repository / "a.txt").write_text(BEFORE)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "a.txt")
    script = [
        call("read", path="a.txt"),
        call("write", path="a.txt", content=AFTER),
        "Done.",
        *answers,
    ]
    model = ScriptedModel(script)
    settings = {"permissions.mode": "auto"}
    session = await open_session(Options(repository, settings, ready_model=model), OpenRequest(""))
    if writes:
        await say(session, "change it")

    async def open_it(_request):
        return session

    app = screen_of(open_session=open_it, folder=str(repository))
    try:
        async with app.run_test(size=size) as pilot:
            await opened(pilot)
            yield session, pilot, lambda: open_viewer(pilot, command)
    finally:
        await session.close()


async def open_viewer(pilot, command):
    await type_text(pilot, command)
    await pilot.press("escape", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, DiffViewer))
    await drawn(pilot)


async def drawn(pilot):
    await until(pilot, lambda: pilot.app.screen._lines.marked is not None)
    await pilot.pause()


def lines(pilot):
    return screen_text(pilot.app).splitlines()


def last(pilot):
    return " ".join(line for line in lines(pilot)[-3:] if line)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10), (20, 5)])
async def test_files_and_hunks_are_shown_with_their_keys(repository, size):
    async with viewing(repository, size=size) as (_, pilot, open_it):
        (repository / "new.py").write_text("print('new')\n")
        await open_it()
        text = screen_text(pilot.app)
        assert "Changes since" in text
        assert "hunk" in last(pilot)
        assert "Esc" in last(pilot)
        if size[0] > 40:
            assert "2 files +3 −2" in text
            assert "new.py" in text
            assert "line three" in text
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(pilot.app.screen, DiffViewer))


async def test_a_binary_file_is_shown_with_its_sizes(repository):
    (repository / "logo.bin").write_bytes(b"\0" * 4000)
    async with viewing(repository) as (_, pilot, open_it):
        (repository / "logo.bin").write_bytes(b"\0" * 34_000)
        (repository / "new.bin").write_bytes(b"\0" * 10)
        await open_it()
        text = screen_text(pilot.app)
        assert "binary, 4 KB → 34 KB" in text
        assert "binary, 10 B" in text
        assert "+0 −0" not in text


async def test_the_next_hunk_after_an_empty_file_is_in_the_next_file(repository):
    async with viewing(repository) as (_, pilot, open_it):
        for name in ("x.txt", "y.txt"):
            (repository / name).touch()
        await open_it()
        screen = pilot.app.screen
        await screen._next_file()
        empty_file = screen._lines.marked.file
        assert not screen._files[empty_file].file.hunks
        await screen._next_hunk()
        assert screen._lines.marked.file == empty_file + 1


async def test_a_binary_file_of_one_turn_is_shown_with_its_sizes(repository):
    (repository / "logo.bin").write_bytes(b"\0" * 4000)
    change = call("shell", command="head -c 20 /dev/zero > logo.bin")
    async with viewing(repository, "/diff session", answers=[change, "Done."]) as found:
        session, pilot, open_it = found
        await say(session, "change the logo")
        await open_it()
        assert "binary, 4 KB → 20 B" in screen_text(pilot.app)


async def test_keys_go_from_hunk_to_hunk_and_from_file_to_file(repository):
    async with viewing(repository, size=(80, 24)) as (_, pilot, open_it):
        (repository / "new.py").write_text("print('new')\n")
        await open_it()
        seen = []
        for key in ("n", "n", "n", "p", "tab", "tab", "right", "left"):
            await pilot.press(key)
            place = pilot.app.screen._lines.marked
            seen.append((place.file, place.hunk))
        assert seen[:4] == [(0, 0), (0, 1), (1, 0), (0, 1)]
        assert [file for file, _ in seen[4:]] == [1, 0, 1, 0]


async def test_a_hunk_is_undone_and_changed_again(repository):
    async with viewing(repository) as (_, pilot, open_it):
        await open_it()
        await pilot.press("n", "n", "u")
        half = AFTER.replace("line thirty", "line 30")
        await until(pilot, lambda: (repository / "a.txt").read_text() == half)
        await until(pilot, lambda: "Undone: a hunk of a.txt." in last(pilot))
        await until(pilot, lambda: "1 file +1 −1" in screen_text(pilot.app))
        await pilot.press("u")
        await until(pilot, lambda: (repository / "a.txt").read_text() == BEFORE)
        await until(pilot, lambda: "No changes." in screen_text(pilot.app))
        await pilot.press("r")
        await until(pilot, lambda: (repository / "a.txt").read_text() == half)
        await pilot.press("r")
        await until(pilot, lambda: (repository / "a.txt").read_text() == AFTER)
        await pilot.press("r")
        await until(pilot, lambda: "nothing to redo" in last(pilot))


async def test_a_file_that_the_user_changed_since_is_asked_about(repository):
    async with viewing(repository) as (_, pilot, open_it):
        mine = AFTER.replace("line 20", "line twenty, mine")
        (repository / "a.txt").write_text(mine)
        await open_it()
        for key in ("n", "x"):
            await pilot.press("U")
            await until(pilot, lambda: "no turn of this session made" in last(pilot))
            await pilot.press(key)
            assert (repository / "a.txt").read_text() == mine
            assert "no turn of this session made" not in last(pilot)
        await pilot.press("n", "u", "y")
        undone = mine.replace("line three", "line 3")
        await until(pilot, lambda: (repository / "a.txt").read_text() == undone)


async def test_a_question_before_an_undo_can_be_read_on_a_low_terminal(repository):
    async with viewing(repository, size=(40, 10)) as (_, pilot, open_it):
        (repository / "a.txt").write_text(AFTER.replace("line 20", "line twenty, mine"))
        await open_it()
        await pilot.press("U")
        await until(pilot, lambda: "y undoes" in " ".join(screen_text(pilot.app).split()))
        shown = " ".join(screen_text(pilot.app).split())
        assert "no turn of this session made" in shown


async def test_a_hunk_whose_lines_have_changed_since_is_left_as_it_is(repository):
    async with viewing(repository) as (_, pilot, open_it):
        await open_it()
        later = AFTER.replace("line three", "line 3, later")
        (repository / "a.txt").write_text(later)
        await pilot.press("n", "u", "y")
        await until(pilot, lambda: "no such lines now" in last(pilot))
        assert (repository / "a.txt").read_text() == later


async def test_new_deleted_and_renamed_files_are_undone_and_changed_again(repository):
    async with viewing(repository) as (_, pilot, open_it):
        (repository / "a.txt").write_text(BEFORE)
        (repository / "new ö.py").write_text("print('new')\n")
        git(repository, "mv", "a.txt", "b.txt")
        (repository / "api.py").unlink()
        api = "import os\n\n\ndef hello(name):\n    return 'hello ' + name\n"
        await open_it()
        assert "3 files" in screen_text(pilot.app)
        assert "renamed from a.txt" in screen_text(pilot.app)
        names = ["api.py", "b.txt", "new ö.py"]
        assert [one.file.path for one in pilot.app.screen._files] == names
        await pilot.press("U", "y")
        await until(pilot, lambda: (repository / "api.py").exists())
        assert (repository / "api.py").read_text() == api
        await until(pilot, lambda: len(pilot.app.screen._files) == 2)
        await drawn(pilot)
        await pilot.press("U", "y")
        await until(pilot, lambda: (repository / "a.txt").exists())
        assert not (repository / "b.txt").exists()
        await until(pilot, lambda: len(pilot.app.screen._files) == 1)
        await drawn(pilot)
        await pilot.press("U", "y")
        await until(pilot, lambda: not (repository / "new ö.py").exists())
        for _ in range(3):
            await pilot.press("r")
            await until(pilot, lambda: "Changed again" in last(pilot))
            await pilot.press("space")
        assert (repository / "new ö.py").read_text() == "print('new')\n"
        assert (repository / "b.txt").read_text() == BEFORE
        assert not (repository / "api.py").exists()


async def test_crlf_latin_1_and_a_missing_last_newline_survive_an_undo(repository):
    before = b"one\r\ntwo\r\ncaf\xe9\r\nlast"
    (repository / "odd.txt").write_bytes(before)
    async with viewing(repository, writes=False) as (_, pilot, open_it):
        (repository / "odd.txt").write_bytes(before.replace(b"two", b"2").replace(b"last", b"end"))
        await open_it()
        await pilot.press("U", "y")
        await until(pilot, lambda: (repository / "odd.txt").read_bytes() == before)


async def test_comments_on_lines_go_to_the_agent_as_one_message(repository):
    async with viewing(repository, answers=["I see."]) as (_, pilot, open_it):
        await open_it()
        await pilot.press("enter")  # not on the name of a file
        await until(pilot, lambda: "Comments are on lines" in screen_text(pilot.app))
        assert not pilot.app.screen._field.display
        await pilot.press("n", *["down"] * 4, "enter", *"why?", "enter")
        assert "← why?" in screen_text(pilot.app)
        assert "1 comment" in last(pilot)
        await pilot.press("n", *["down"] * 4, "enter", *"gone", "enter", "delete")
        await pilot.press("down", "enter", *"no", "escape", "escape")
        await until(pilot, lambda: "Esc again discards" in last(pilot))
        await pilot.press("down", "enter", *"and", "ctrl+s")
        await until(pilot, lambda: "I see." in screen_text(pilot.app))
        assert "My comments on the changes since the last commit:" in screen_text(pilot.app)
        assert screen_text(pilot.app).count("a.txt:") == 2


async def test_one_turn_the_session_and_a_commit_can_be_chosen(repository):
    async with viewing(repository) as (_, pilot, open_it):
        git(repository, "commit", "-qam", "what the agent did")
        (repository / "own.txt").write_text("mine\n")
        await open_it()
        assert [one.file.path for one in pilot.app.screen._files] == ["own.txt"]
        for words, paths in (
            ("the turn", ["a.txt"]),
            ("session", ["a.txt", "own.txt"]),
            ("last commit", ["own.txt"]),
            ("a.txt", ["a.txt", "own.txt"]),
        ):
            await pilot.press("t")
            await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
            await type_text(pilot, words)
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, DiffViewer))
            viewer = pilot.app.screen
            await until(
                pilot,
                lambda: [one.file.path for one in viewer._files] == paths,  # noqa: B023
            )


async def test_before_and_after_stand_side_by_side_if_there_is_room(repository):
    async with viewing(repository, size=(170, 40)) as (_, pilot, open_it):
        await open_it()
        assert any("line 3" in line and "line three" in line for line in lines(pilot))
        await pilot.press("s")
        await until(
            pilot,
            lambda: not any("line 3 " in line and "line three" in line for line in lines(pilot)),
        )
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: len(lines(pilot)) == 20)
        assert "hunks" in last(pilot)


async def test_the_mouse_marks_a_line_scrolls_and_comments(repository):
    async with viewing(repository, size=(80, 10)) as (_, pilot, open_it):
        await open_it()
        viewer = pilot.app.screen
        await pilot.click("#diff-lines", offset=(10, 4))
        assert viewer._lines.line == 4
        await pilot.click("#diff-lines", offset=(10, 4))
        await until(pilot, lambda: viewer._field.display)
        await pilot.press("escape")
        viewer._lines.step(5)
        await pilot.pause()
        assert viewer._lines.line == 5


async def test_the_file_is_opened_at_the_line_in_the_editor(repository, monkeypatch, tmp_path):
    seen = tmp_path / "seen"
    editor = tmp_path / "vi"
    editor.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    from ouro.frontends.tui import editor_and_pager

    async def lend(_app, work):
        return await work

    monkeypatch.setattr(editor_and_pager, "_lend_terminal", lend)
    async with viewing(repository, size=(80, 24)) as (_, pilot, open_it):
        await open_it()
        await pilot.press("n", "down", "down", "down", "e")
        await until(pilot, seen.exists)
        await until(pilot, lambda: seen.read_text())
        assert seen.read_text().split() == ["+3", str(repository / "a.txt")]


async def test_a_long_diff_is_drawn_page_by_page(repository):
    async with viewing(repository, writes=False, size=(100, 30)) as (_, pilot, open_it):
        (repository / "long.py").write_text("".join(f"value_{n} = {n}\n" for n in range(20_000)))
        await open_it()
        viewer = pilot.app.screen
        layout = viewer._layout_now
        assert len(layout.lines) > 20_000
        assert len(layout.lines._drawn) < 10
        await pilot.press("end")
        await until(pilot, lambda: "value_19999" in screen_text(pilot.app))
        assert len(layout.lines._drawn) < 20


async def test_a_resize_while_other_changes_are_read_does_not_lose_them(repository):
    async with viewing(repository) as (_, pilot, open_it):
        await open_it()
        viewer = pilot.app.screen
        shown, before = viewer._shown, list(viewer._files)
        assert before
        viewer.show_diff(replace(shown, files=()))
        viewer._lay_out_later()
        await until(pilot, lambda: not viewer._files)
        viewer.show_diff(shown)
        viewer._lay_out_later()
        await until(pilot, lambda: len(viewer._files) == len(before))


@pytest.mark.parametrize("count", [500, 5_000])
async def test_the_viewer_is_painted_with_the_lines_of_its_first_pages_and_not_before(
    repository, count, monkeypatch
):
    monkeypatch.setattr(diff_viewer, "MAX_HELD", 600)  # a busy machine needs longer
    had_lines = []
    paint = Compositor.render_update

    def note_and_paint(self, **options):
        viewer = pilot.app.screen
        if isinstance(viewer, DiffViewer) and viewer._compositor is self:
            had_lines.append(viewer._lines.marked is not None)
        return paint(self, **options)

    before = "".join(f"line {number}\n" for number in range(count))
    (repository / "long.txt").write_text(before)
    async with viewing(repository, writes=False) as (_, pilot, open_it):
        (repository / "long.txt").write_text(before.replace("line", "row"))
        monkeypatch.setattr(Compositor, "render_update", note_and_paint)
        with counted_calls(HunkRows._row_lines, LineRun.pair, count_fold_lines) as counts:
            await open_it()
        assert f"+{count} −{count}" in screen_text(pilot.app)
        assert counts["HunkRows._row_lines"] <= 2 * PAGE_ROWS
        assert counts["LineRun.pair"] <= 2 * PAGE_ROWS + 2 * pilot.app.size.height
        assert counts["count_fold_lines"] == 0
        assert had_lines
        assert all(had_lines)


@pytest.mark.parametrize("command", ["/diff", "/diff nope"])
async def test_without_changes_the_viewer_is_never_shown(repository, command):
    async with viewing(repository, writes=False) as (_, pilot, _open_it):
        pushed = []
        pilot.app.screen_change_signal.subscribe(pilot.app, pushed.append, immediate=True)
        await type_text(pilot, command)
        await pilot.press("escape", "enter")
        words = "No changes since" if command == "/diff" else "no such commit"
        await until(pilot, lambda: words in screen_text(pilot.app))
        assert pushed == []
        await until(pilot, lambda: not any(isinstance(w, DiffViewer) for w in pilot.app._registry))
        await type_text(pilot, "more")
        assert pilot.app.conversation.prompt.text == "more"


async def test_keys_pressed_while_git_reads_stay_in_the_prompt(repository, monkeypatch):
    async with viewing(repository) as (session, pilot, _open_it):
        may_read = asyncio.Event()
        read = session_diff.SessionDiff.read

        async def read_late(self, source):
            await may_read.wait()
            return await read(self, source)

        monkeypatch.setattr(session_diff.SessionDiff, "read", read_late)
        await type_text(pilot, "/diff")
        await pilot.press("escape", "enter")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "")
        await type_text(pilot, "u next")
        assert pilot.app.conversation.prompt.text == "u next"
        may_read.set()
        await until(pilot, lambda: isinstance(pilot.app.screen, DiffViewer))
        await drawn(pilot)
        assert "three" in (session.cwd / "a.txt").read_text()  # `u` has undone nothing


async def test_pages_around_the_visible_one_are_drawn_before_they_are_seen(repository):
    async with viewing(repository, writes=False) as (_, pilot, open_it):
        (repository / "a.txt").write_text("".join(f"new line {n}\n" for n in range(2000)))
        await open_it()
        shown = pilot.app.screen._lines
        height = shown.size.height
        drawn_lines = shown._layout.lines
        await until(pilot, lambda: drawn_lines.is_drawn(height, 2 * height))
        await pilot.press("end")
        await until(pilot, lambda: shown.line == len(drawn_lines) - 1)
        top = shown.scroll_offset.y
        await until(pilot, lambda: drawn_lines.is_drawn(top - height, top))
        assert "new line 1999" in screen_text(pilot.app)
        await pilot.press("home", "pagedown", "down", "pageup", "end", "up")
        await until(pilot, lambda: shown.line == len(drawn_lines) - 2)


async def test_lexers_are_prepared_while_git_reads_the_diff():
    code._language_table.cache_clear()
    may_end = asyncio.Event()

    async def read():
        await may_end.wait()
        return ShownDiff("", "the last commit", "", Path("/project"), [])

    app = screen_of(FakeSession())
    async with app.run_test() as pilot:
        await opened(pilot)
        viewing = asyncio.create_task(app.front_end.view_diff(asyncio.create_task(read())))
        await until(pilot, lambda: code._language_table.cache_info().currsize)
        may_end.set()
        assert await viewing is False
