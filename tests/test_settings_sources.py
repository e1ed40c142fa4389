import re
from pathlib import Path

import pytest

from ouro.errors import ConfigError
from ouro.settings import LimitSettings, PermissionSettings, Settings, ShellSettings, TuiSettings
from ouro.settings_sources import (
    SourcedValue,
    explain_settings,
    load_settings,
    misspelt_variables,
    save_setting,
    settings_by_place,
    unknown_variables,
)


@pytest.fixture
def user_file(home) -> Path:
    (home / ".ouro").mkdir()
    return home / ".ouro" / "config.yaml"


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "app" / ".ouro").mkdir(parents=True)
    return tmp_path / "app"


def project_file(project: Path, text: str) -> Path:
    path = project / ".ouro" / "config.yaml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_apply():
    assert load_settings() == Settings()


def test_flags_win_over_environment_over_project_over_user_file(user_file, project, monkeypatch):
    user_file.write_text(
        "model: user\neffort: high\nshell: {timeout_seconds: 30}\ntui:\n  theme: dark\n"
    )
    project_file(project, "model: project\neffort: low\nshell: {timeout_seconds: 60}\n")
    monkeypatch.setenv("OURO_MODEL", "environment")
    monkeypatch.setenv("OURO_SHELL_TIMEOUT_SECONDS", "90")

    given = explain_settings(settings_by_place(project, {"model": "flag", "effort": None}))

    shown = str(project / ".ouro" / "config.yaml")
    assert {
        path: given[path]
        for path in ("model", "effort", "shell.timeout_seconds", "tui.theme", "limits.max_turns")
    } == {
        "model": SourcedValue("flag", "flag"),
        "effort": SourcedValue("low", f"{shown}:2"),
        "shell.timeout_seconds": SourcedValue(90, "OURO_SHELL_TIMEOUT_SECONDS"),
        "tui.theme": SourcedValue("dark", "~/.ouro/config.yaml:5"),
        "limits.max_turns": SourcedValue(None, "default"),
    }


def test_every_value_type_is_read(user_file):
    user_file.write_text(
        "permissions:\n  mode: edit\n  allow:\n  - shell(git status *)\nlimits: {max_turns: 40,"
        " max_cost: 2.5}\ntui:\n  keys: {interrupt: [ctrl+c, escape]}\n  status: [model, cost]\n "
        " notify_seconds: 0\n"
    )
    assert load_settings() == Settings(
        permissions=PermissionSettings("edit", ("shell(git status *)",)),
        limits=LimitSettings(40, 2.5),
        tui=TuiSettings(
            keys={"interrupt": ("ctrl+c", "escape")}, status=("model", "cost"), notify_seconds=0
        ),
    )


def test_rules_of_all_sources_are_merged_and_none_removed(user_file, project, monkeypatch):
    user_file.write_text("permissions: {deny: ['shell(rm *)']}\n")
    project_file(project, "permissions: {deny: ['write(dist/**)'], ask: ['shell(make deploy)']}\n")
    monkeypatch.setenv("OURO_PERMISSIONS_DENY", "shell(git push *), shell(x a, b)")

    permissions = load_settings(
        project, {"permissions.deny": ("net(*)", "shell(rm *)")}
    ).permissions

    assert permissions.deny == (
        "shell(rm *)",
        "write(dist/**)",
        "shell(git push *)",
        "shell(x a, b)",
        "net(*)",
    )
    assert permissions.ask == ("shell(make deploy)",)


def test_numbers_and_switches_may_be_quoted(user_file):
    user_file.write_text(
        "limits: {max_turns: '7', max_cost: \"0.5\"}\ncheckpoints: {enabled: 'no'}\nlsp: {enabled: 0}\n"
    )
    settings = load_settings()
    assert (settings.limits.max_turns, settings.limits.max_cost) == (7, 0.5)
    assert (settings.checkpoints.enabled, settings.lsp.enabled) == (False, False)


def test_a_misspelt_variable_is_named(monkeypatch):
    monkeypatch.setenv("OURO_PERMISSIONS_MOED", "plan")
    monkeypatch.setenv("OURO_OF_ANOTHER_PROGRAM", "x")
    assert misspelt_variables() == [
        "OURO_PERMISSIONS_MOED is set, but there is no such setting. Did you mean"
        " OURO_PERMISSIONS_MODE?"
    ]


def test_lists_in_the_environment_may_be_yaml_and_have_quotes(monkeypatch):
    monkeypatch.setenv("OURO_PERMISSIONS_ALLOW", "shell(echo 'it''s'), read(**)")
    monkeypatch.setenv("OURO_TUI_STATUS", "[model, mode]")
    monkeypatch.setenv("OURO_TUI_KEYS", "{help: [f1]}")
    settings = load_settings()
    assert settings.permissions.allow == ("shell(echo 'it''s')", "read(**)")
    assert settings.tui == TuiSettings(keys={"help": ("f1",)}, status=("model", "mode"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n\npermisions:\n  mode: ask\n",
            ":3: unknown key `permisions.mode`. Did you mean `permissions.mode`?",
        ),
        (
            "permissions:\n  mod: ask\n",
            ":2: unknown key `permissions.mod`. Did you mean `permissions.mode`?",
        ),
        ("theme: dark\n", ":1: unknown key `theme`. Did you mean `tui.theme`?"),
        (
            "permissions:\n  mode: yolo\n",
            ":2: `permissions.mode` must be one of ask, edit, plan, auto, not `yolo`.",
        ),
        (
            "limits:\n  max_turns: many\n",
            ":2: `limits.max_turns` must be a whole number, not `many`.",
        ),
        ("limits:\n  max_turns: -1\n", ":2: `limits.max_turns` must be more than 0, not `-1`."),
        ("limits: {max_cost: .nan}\n", ":1: `limits.max_cost` must be a number, not `.nan`."),
        ("tui: dark\n", ":1: `tui` is a section: set one of its keys, such as `tui.theme`."),
        ("tui:\n  keys: {help: f1}\n", ":2: `tui.keys.help` must be a list, not `f1`."),
        (
            "tui:\n  theme:\n",
            ":2: `tui.theme` must be text, not empty.",
        ),
        ("model: [a]\n", ":1: `model` must be text, not a list."),
        (
            "hooks:\n  - {event: before-tool, command: x, timeout_seconds: 0}\n",
            ":1: `timeout_seconds` of a hook must be more than 0.",
        ),
        (
            "hooks: [{event: turn-end}]\n",
            ":1: a hook for turn-end needs one of `command`, `url` and `prompt`, and not several.",
        ),
        (
            "hooks: [{event: turn-end, command: x, url: http://127.0.0.1:1}]\n",
            ":1: a hook for turn-end needs one of `command`, `url` and `prompt`, and not several.",
        ),
        (
            "sandbox: {hosts: ['https://pypi.org/']}\n",
            ":1: `https://pypi.org/` in `sandbox.hosts` is not valid.",
        ),
        ("sandbox: {hosts: ['*']}\n", ":1: `*` in `sandbox.hosts` is not valid."),
        (
            "memory: {categories: {api: [all]}}\n",
            ":1: `memory.categories.api` must be one of user, repo, not `all`.",
        ),
        (
            "sessions: {keep_days: 900000}\n",
            ":1: `sessions.keep_days` must be from 1 to 99999, not `900000`.",
        ),
    ],
)
def test_an_invalid_value_is_an_error_with_file_line_and_valid_values(user_file, text, message):
    user_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.message == "~/.ouro/config.yaml" + message


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("OURO_PERMISSIONS_MODE", "^OURO_PERMISSIONS_MODE: `permissions.mode` must be one of"),
        ("OURO_MCP_SERVERS", "`mcp.servers` must be keys and values, not `yolo`"),
    ],
)
def test_invalid_variable_error_names_the_variable(monkeypatch, variable, message):
    monkeypatch.setenv(variable, "yolo")
    with pytest.raises(ConfigError, match=message):
        load_settings()


def test_section_with_only_comments_changes_nothing(user_file):
    user_file.write_text("tui:\n#  theme: dark\npermissions:\n  allow:\n")
    assert load_settings() == Settings()


def test_yaml_booleans_stay_words_if_a_word_is_expected(user_file):
    user_file.write_text("effort: off\nmodel: on\n")
    assert (load_settings().effort, load_settings().model) == ("off", "on")


@pytest.mark.parametrize("mode", ["edit", "auto"])
def test_a_project_may_not_widen_the_mode(project, mode):
    path = project_file(project, f"permissions:\n  mode: {mode}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(project)
    assert caught.value.message == f"{path}:2: a project may not set `permissions.mode: {mode}`."


@pytest.mark.parametrize(
    "text",
    [
        "permissions: {allow: ['shell(*)']}\n",
        "tui: {keys: {permit: [n]}}\n",
        "tui: {theme: dark}\n",
    ],
)
def test_a_project_may_not_allow_anything_or_change_the_screen(project, text):
    project_file(project, text)
    with pytest.raises(ConfigError, match="a project may not set") as caught:
        load_settings(project)
    assert "~/.ouro/config.yaml" in caught.value.hint


def test_a_project_can_only_narrow_mode_and_limits(user_file, project):
    user_file.write_text("permissions: {mode: plan}\nlimits: {max_turns: 10, max_cost: 5}\n")
    project_file(project, "permissions: {mode: ask}\nlimits: {max_turns: 50, max_cost: 1}\n")
    settings = load_settings(project)
    assert (settings.permissions.mode, settings.limits) == ("plan", LimitSettings(10, 1.0))


def test_project_narrows_values_the_user_did_not_set(project):
    project_file(project, "permissions: {mode: plan}\nlimits: {max_turns: 50}\n")
    settings = load_settings(project)
    assert (settings.permissions.mode, settings.limits) == ("plan", LimitSettings(50))


def test_a_project_can_switch_memory_off_and_never_on(user_file, project):
    project_file(project, "memory: {enabled: false, capture: false, repo: {enabled: false}}\n")
    memory = load_settings(project).memory
    assert (memory.enabled, memory.capture, memory.repo.enabled) == (False, False, False)

    user_file.write_text("memory: {enabled: false, capture: false}\n")
    project_file(project, "memory: {enabled: true, capture: true}\n")
    memory = load_settings(project).memory
    assert (memory.enabled, memory.capture) == (False, False)


def test_project_settings_linked_from_outside_are_refused(project, tmp_path):
    (tmp_path / "elsewhere.yaml").write_text("model: x\n")
    (project / ".ouro" / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(ConfigError, match="leads out of the project"):
        load_settings(project)


def test_in_the_users_own_folder_the_user_file_is_not_a_project_file(user_file, home):
    user_file.write_text("permissions: {mode: auto}\n")
    assert load_settings(home).permissions.mode == "auto"


def test_an_empty_variable_is_ignored(monkeypatch):
    monkeypatch.setenv("OURO_MODEL", " ")
    assert explain_settings(settings_by_place())["model"] == SourcedValue("", "default")


def test_unknown_variables_are_listed(monkeypatch):
    monkeypatch.setenv("OURO_PERMISSION_MODE", "ask")
    monkeypatch.setenv("OURO_MODEL", "x")
    assert unknown_variables() == ["OURO_PERMISSION_MODE"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "tui:\n  theme: dark\n"),
        ("model: a", "model: a\ntui:\n  theme: dark\n"),
        ("# look\ntui:\n", "# look\ntui:\n  theme: dark\n"),
        (
            "tui:\n    # mine\n    theme: light # no\n\nmodel: a\n",
            "tui:\n    # mine\n    theme: dark # no\n\nmodel: a\n",
        ),
        ("tui:\n    notify_seconds: 3\n", "tui:\n    theme: dark\n    notify_seconds: 3\n"),
    ],
)
def test_saving_a_setting_keeps_the_rest_of_the_file(user_file, before, after):
    user_file.write_text(before)
    save_setting("tui.theme", "dark")
    assert user_file.read_text() == after


def test_a_setting_that_a_variable_sets_is_not_saved(home, monkeypatch):
    monkeypatch.setenv("OURO_TUI_THEME", "light")
    with pytest.raises(ConfigError, match="OURO_TUI_THEME"):
        save_setting("tui.theme", "dark")
    monkeypatch.setenv("OURO_PERMISSIONS_ALLOW", "edit")  # lists of rules are joined
    save_setting("permissions.allow", ("write",))
    assert load_settings().permissions.allow == ("write", "edit")


def test_a_list_of_several_lines_is_replaced_whole(user_file):
    user_file.write_text("skills:\n  without:\n  - pdf\n  - word\n  # some\n  prompt_tokens: 5\n")
    save_setting("skills.without", ("a", "b"))
    assert user_file.read_text() == "skills:\n  without: [a, b]\n  # some\n  prompt_tokens: 5\n"


def test_saving_a_setting_creates_the_file(home):
    save_setting("tui.theme", "dark")
    assert load_settings().tui.theme == "dark"


@pytest.mark.parametrize(
    "text", ["tui: {theme: light}\n", "tui: {notify_seconds: 3}\n", "thme: dark\n"]
)
def test_a_file_that_cannot_be_changed_in_place_stays_unchanged(user_file, text):
    user_file.write_text(text)
    with pytest.raises(ConfigError):
        save_setting("tui.theme", "dark")
    assert user_file.read_text() == text


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("limits.max_turns", 0, "`limits.max_turns` must be more than 0, not `0`"),
        ("limits.max_cost", float("nan"), "must be more than 0, not `nan`"),
        ("limits.max_cost", float("inf"), "must be finite, not `inf`"),
        ("permissions.mode", "yolo", "`permissions.mode` cannot be `yolo`"),
        ("memory.enable", False, "unknown key `memory.enable`. Did you mean `memory.enabled`"),
    ],
)
def test_settings_of_a_program_are_checked(path, value, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_settings(None, {path: value})


def test_every_setting_is_read_somewhere():
    """The setting `shell.timeout_seconds` once was not read anywhere."""
    root = Path(__file__).parents[1] / "ouro"
    skipped = {root / "settings.py", root / "config.py"}
    text = "\n".join(path.read_text() for path in root.rglob("*.py") if path not in skipped)
    whole = {"compaction", "limits"}  # the whole section is passed on
    names = [
        name.split(".")
        for name in explain_settings(settings_by_place())
        if name.partition(".")[0] not in whole
    ]
    readers = {
        (*section, leaf): rf"\b(settings|{'|'.join(section[-1:])})\.{leaf}\b"
        for *section, leaf in names
    }
    assert [
        ".".join(name) for name, pattern in readers.items() if not re.search(pattern, text)
    ] == []


def test_settings_section_is_frozen_and_hashable():
    assert LimitSettings(3) == LimitSettings(max_turns=3) != LimitSettings()
    assert hash(LimitSettings(max_cost=1.0, max_turns=3)) == hash(LimitSettings(3, 1.0))
    assert repr(ShellSettings()) == "ShellSettings(timeout_seconds=120, tool_env=())"
    with pytest.raises(AttributeError):
        ShellSettings().timeout_seconds = 3
    with pytest.raises(TypeError, match="ShellSettings has no colour"):
        ShellSettings(colour="red")
