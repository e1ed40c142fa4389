"""The pages of the documentation in the installed package: `ouro help` and `/help`."""

import re
import tomllib
from pathlib import Path

import pytest
from fakes.fake_front_end import FakeFrontEnd

from ouro.cli import main
from ouro.commands.help_topics import page_files, page_text
from ouro.commands.setting_helps import setting_helps
from ouro.commands.slash import dispatch

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_wheel():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = build["targets"]["wheel"]["force-include"]
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert included == {f"docs/{name}": f"ouro/pages/{name}" for name in pages}


def test_every_page_that_a_message_names_can_be_printed(capsys):
    named = set()
    for file in (ROOT / "ouro").rglob("*.py"):
        named |= set(re.findall(r"`ouro help ([\w-]+)", file.read_text()))
    assert {"settings", "extensions", "hooks", "mcp"} <= named
    for name in named - {"tui"}:
        assert main(["help", name]) == 0
        assert capsys.readouterr().out.startswith("# ")


def test_help_lists_the_pages_for_users_first(capsys):
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    assert listed.index("settings") < listed.index("architecture")


@pytest.mark.parametrize("topic", ["settings", "docs/settings.md", "Settings", "settings.md"])
def test_a_page_is_found_by_its_name_and_by_its_file(topic):
    assert page_text(topic) == (ROOT / "docs" / "settings.md").read_text()


def test_a_part_of_a_page_ends_at_the_next_heading():
    part = page_text("extensions#output-styles")
    assert part.startswith("## Output styles")
    assert "## Instructions" not in part
    assert "description: Asks" in part
    assert page_text("extensions#no-such-part") == page_text("extensions")


@pytest.mark.parametrize("topic", ["../README", "/etc/passwd", "settings/../../README", ""])
def test_a_path_is_no_page(topic):
    assert page_text(topic) == ""


def test_each_setting_and_section_is_explained(capsys):
    for key in ("tui.theme", "session.wake", "limits"):
        assert main(["help", key]) == 0
        assert f"`{key}" in capsys.readouterr().out
    assert setting_helps()["models.plan"]


def test_an_unknown_topic_names_similar_pages(capsys):
    assert main(["help", "setings"]) == 2
    assert "Did you mean settings" in capsys.readouterr().err


async def test_help_in_a_session_shows_a_page_a_setting_or_a_command():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help docs/settings.md")
    assert front_end.shown[-1].startswith("# Settings")
    await dispatch(front_end, "/help tui.theme")
    assert "tui.theme" in front_end.shown[-1]
    await dispatch(front_end, "/help memory")
    assert "/help docs/memory.md" in front_end.shown[-1]
    await dispatch(front_end, "/help nothing-like-this")
    assert "There is no command, page or setting" in front_end.lines[-1][1]
    assert set(page_files()) > {"settings", "commands", "memory"}


@pytest.mark.parametrize("topic", ["/", "#", "/ ", "//"])
def test_a_topic_without_a_name_is_refused(topic, capsys):
    assert main(["help", topic]) == 2
    assert "There is no page about" in capsys.readouterr().err
