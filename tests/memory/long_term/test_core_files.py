"""`memory.core` adds core files: injected, edited, searched and consolidated like the three
standard files.
"""

import shutil

import pytest
from fakes.knowledge import Conversation, editor_of, seen_by_model, write_as_user

from ouro.errors import ConfigError, UsageError
from ouro.memory.index import Index, MemoryFolder, Search, Sources
from ouro.memory.long_term import MemoryEditor, open_file, save_file
from ouro.memory.long_term.entry_lookup import core_entries
from ouro.settings_sources import load_settings

STYLE = ("style.md",)


@pytest.fixture
def home(home):
    return home / ".ouro"


async def write_core(home):
    first = Conversation(home, core_files=STYLE).connect()
    await first.begin("Write short sentences, always.")
    await first.write("style.md", "- Write short sentences.\n")
    await first.commit()
    await first.end()
    return first


async def test_added_core_file_is_in_the_prompt_and_its_changes_are_sent(home):
    first = await write_core(home)
    assert "user or the project. The user's own: style.md." in first.block
    assert [event.summary for event in first.changed] == ["style.md: + Write short sentences."]
    assert "+- Write short sentences." in seen_by_model(await first.begin("Go on."))
    second = Conversation(home, session="s-2", core_files=STYLE)
    assert seen_by_model(second.block) == ["- Write short sentences."]
    assert [(line.file, line.state) for line in second.prompt.receipt.lines] == [
        ("style.md", "loaded")
    ]


async def test_core_file_without_the_setting_is_skipped_in_the_receipt(home):
    await write_core(home)
    second = Conversation(home, session="s-2")
    assert seen_by_model(second.block) == []
    assert [(line.file, line.state) for line in second.prompt.receipt.lines] == [
        ("style.md", "skipped")
    ]


async def test_added_core_file_is_listed_edited_searched_and_consolidated(home):
    talk = await write_core(home)
    scope = talk.scopes["user"]
    editor = MemoryEditor([scope])
    assert [entry.text for entry in core_entries(editor)] == ["Write short sentences."]
    assert open_file(editor, "style").text == "- Write short sentences.\n"
    assert open_file(editor, "user/style.md").name == "style.md"

    index = Index(home / "cache" / "index.db")
    index.update(Sources(memories=(MemoryFolder.of(scope.store),)))
    assert [(hit.kind, hit.category) for hit in Search(index).find("short sentences", 5)] == [
        ("core", "style")
    ]
    index.close()

    await write_as_user(
        talk.manager, "user", {"style.md": "- Write short sentences.\n" * 30}, "much"
    )

    async def answer(_messages):
        return "## style\n- Write short sentences.\n"

    talk.consolidator._ask = answer
    await talk.manager.consolidate("user")
    assert (home / "memory" / "style.md").read_text() == "- Write short sentences.\n"


@pytest.mark.parametrize("name", ["style", "Style.md", "../style.md", "mem_1.md", ".md"])
def test_invalid_core_file_name_is_refused(home, name):
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"memory: {{core: ['{name}']}}\n")
    with pytest.raises(ConfigError, match=r"in `memory.core` is not valid"):
        load_settings()


def test_edited_text_is_kept_if_the_memory_folder_is_gone(home):
    editor = editor_of(home)
    editor.write("user", {"facts.md": "- Uses uv.\n"}, "Write")
    opened = open_file(editor, "facts")
    shutil.rmtree(home / "memory")
    (home / "memory").write_text("no folder")
    with pytest.raises(UsageError, match="Not a directory") as failure:
        save_file(editor, opened, "- Uses pip.\n")
    assert "Your text is in" in failure.value.hint
    assert (home / "cache" / "edited-user-facts.md").read_text() == "- Uses pip.\n"
