"""`config set`, `unset` and `get` in a shell and a session, and `/config` as a list."""

import pytest
from fakes.fake_front_end import FakeFrontEnd

from ouro.cli import main
from ouro.commands.slash import dispatch
from ouro.configure import default_of, setting_helps
from ouro.settings_sources import explain_settings, settings_by_place

CONFIG = """\
# my settings
tui:
  theme: dark   # at night
  notify_seconds: 20
# the end
"""


@pytest.fixture
def file(home):
    path = home / ".ouro" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(CONFIG)
    return path


def given(name):
    return explain_settings(settings_by_place())[name].value


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("tui.theme", "light", "light"),
        ("memory.enabled", "off", False),
        ("limits.max_cost", "2.5", 2.5),
        ("limits.max_turns", "1_000", 1000),
        ("permissions.deny", "shell(rm *), write(.env)", ("shell(rm *)", "write(.env)")),
        ("sandbox.hosts", "pypi.org", ("pypi.org",)),
        ("tui.keys", "{editor: [f3], stash: []}", {"editor": ("f3",), "stash": ()}),
        ("models.plan", "a b: c # d", "a b: c # d"),
        ("model", "日本/モデル", "日本/モデル"),
        ("sessions.remote", "git@example.org:me/s.git", "git@example.org:me/s.git"),
    ],
)
def test_a_setting_is_written_read_and_removed_again(file, key, text, value):
    before = given(key)
    assert main(["config", "set", key, text]) == 0
    assert given(key) == value
    assert "# my settings" in file.read_text()
    assert "# at night" in file.read_text()
    assert "# the end" in file.read_text()
    assert main(["config", "unset", key]) == 0
    assert given(key) == (default_of(key) if key.startswith("tui.theme") else before)


@pytest.mark.parametrize(
    "words",
    [
        ["tui.theme", "blue"],
        ["memory.enabled", "maybe"],
        ["limits.max_cost", "-1"],
        ["compaction.at", "2"],
        ["nothing.like.this", "1"],
        ["tui", "dark"],
        ["--project", "tui.theme", "light"],
    ],
)
def test_what_is_not_valid_changes_nothing(file, repository, monkeypatch, words, capsys):
    monkeypatch.chdir(repository)
    assert main(["config", "set", *words]) != 0
    assert words[-2] in capsys.readouterr().err
    assert file.read_text() == CONFIG
    assert not (repository / ".ouro").exists()


def test_a_project_gets_what_it_may_set(file, repository, monkeypatch):
    monkeypatch.chdir(repository)
    assert main(["config", "set", "--project", "effort", "high"]) == 0
    assert (repository / ".ouro" / "config.yaml").read_text() == "effort: high\n"
    assert file.read_text() == CONFIG


def test_the_effective_value_is_shown_with_json_its_source(file, capsys, monkeypatch):
    monkeypatch.setenv("OURO_TUI_THEME", "ansi")
    assert main(["config", "get", "tui.theme"]) == 0
    assert capsys.readouterr().out.strip() == "ansi"
    assert main(["config", "get", "tui.notify_seconds", "--json"]) == 0
    assert '"source": "~/.ouro/config.yaml:4"' in capsys.readouterr().out


def test_each_setting_has_its_help_and_default():
    helps = setting_helps()
    assert helps.keys() == explain_settings(settings_by_place()).keys()
    assert helps["tui.editing"] == "How the prompt is edited."
    assert default_of("memory.repo.share") is False


async def test_a_choice_of_the_list_is_written_and_used_at_once(file):
    front_end = FakeFrontEnd()
    front_end.picks = ["permissions.mode", "plan"]
    await dispatch(front_end, "/config")
    assert given("permissions.mode") == "plan"
    assert "It is in use." in front_end.lines[-1][1]
    (title, _, current) = front_end.asked[-1]
    assert "default: ask" in title
    assert current == "ask"


async def test_a_value_that_is_typed_begins_with_the_present_one(file):
    front_end = FakeFrontEnd()
    front_end.picks = ["tui.notify_seconds"]
    await dispatch(front_end, "/config")
    assert "/config set tui.notify_seconds VALUE" in front_end.lines[-1][1]
    drafts = []

    async def ask(title, *, draft=""):
        drafts.append((draft, title.partition(")\n")[0]))
        return "30"

    front_end.ask = ask
    front_end.picks = ["tui.notify_seconds"]
    await dispatch(front_end, "/config")
    assert drafts == [("20", "tui.notify_seconds (default: 15")]
    assert given("tui.notify_seconds") == 30
    assert file.read_text() == CONFIG.replace("20", "30")


async def test_the_list_shows_values_meanings_and_sources_that_are_not_the_default(file):
    front_end = FakeFrontEnd()
    front_end.picks = []
    await dispatch(front_end, "/config")
    [(_, choices, _)] = front_end.asked
    rows = {choice.value: (choice.label, choice.detail) for choice in choices}
    assert rows["model"] == ("model", setting_helps()["model"])
    assert rows["tui.theme"][0] == "tui.theme: dark"
    assert rows["tui.theme"][1].startswith("~/.ouro/config.yaml:3. ")


async def test_a_cancelled_list_changes_nothing(file):
    front_end = FakeFrontEnd()
    front_end.picks = []
    await dispatch(front_end, "/config")
    assert file.read_text() == CONFIG
