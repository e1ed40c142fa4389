import stat

import pytest

from ouro.errors import ConfigError
from ouro.llm import HEADER, ModelEntry, read_models_file, write_models_file
from ouro.utils.ouro_paths import get_models_path


def save_entry(text: str, name: str, entry: ModelEntry, default: str = "") -> str:
    path = get_models_path()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    write_models_file(name, entry, default)
    return path.read_text()


def test_first_model_creates_a_private_file(home):
    path = write_models_file(
        "anthropic/*", ModelEntry(api_key="sk-1:#"), "anthropic/claude-sonnet-5"
    )
    assert path.read_text() == (
        HEADER
        + 'default: anthropic/claude-sonnet-5\nmodels:\n  anthropic/*:\n    api_key: "sk-1:#"\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_default_without_an_entry_is_written(home):
    assert (
        write_models_file("", ModelEntry(), "openai/gpt-5").read_text()
        == HEADER + "default: openai/gpt-5\n"
    )


def test_adding_a_model_keeps_the_rest_of_the_file(home):
    text = (
        "# mine\ndefault: a/b   # the good one\nmodels:\n    # first\n    a/b: {api_key: k}  # no\n"
        "    c/d:\n        window: 5\n\nfallbacks: [c/d]\n"
    )
    assert save_entry(text, "ollama_chat/q:8b", ModelEntry(window=9)) == text.replace(
        "        window: 5\n", '        window: 5\n    "ollama_chat/q:8b":\n        window: 9\n'
    )


def test_updated_entry_keeps_its_other_fields(home):
    text = (
        "models:\n  a/b:\n    # dear\n    prices: {input: 1, output: 2}\n    api_key: old\n   "
        " images: true\n"
    )
    assert (
        save_entry(text, "a/b", ModelEntry(api_key_env="NEW"), "a/b")
        == "default: a/b\nmodels:\n  a/b:\n    api_key_env: NEW\n    # dear\n"
        "    prices: {input: 1, output: 2}\n    images: true\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only words\n",
        "models:\n",
        "models: {}\n",
        "models:\n  a/b: {}\n",
        "fallbacks: [x/y]",
        "default: q/r\n",
    ],
)
def test_every_plain_layout_takes_an_entry(home, text):
    save_entry(text, "a/b", ModelEntry(api_base="http://h/v1"), "a/b")
    found = read_models_file(get_models_path())
    assert (found.default, found.models) == ("a/b", {"a/b": ModelEntry(api_base="http://h/v1")})


@pytest.mark.parametrize(
    "text",
    [
        "models: {a/b: {api_key: k}}\n",
        "{models: {a/b: {api_key: k}}}\n",
        "models:\n  a/b: {api_key: k}\n",
    ],
)
def test_file_that_cannot_be_edited_in_place_is_unchanged(home, text):
    with pytest.raises(ConfigError, match="cannot be changed automatically"):
        save_entry(text, "a/b", ModelEntry(api_key="n"), "a/b")
    assert get_models_path().read_text() == text


def test_a_broken_file_is_never_written_over(home):
    with pytest.raises(ConfigError, match=r"models\.yaml:1: unknown key"):
        save_entry("modles: {}\n", "a/b", ModelEntry(api_key="n"))
    assert get_models_path().read_text() == "modles: {}\n"


def test_unwritable_folder_is_reported(home):
    (home / ".ouro").write_text("in the way")
    with pytest.raises(ConfigError, match=r"models\.yaml cannot be"):
        write_models_file("a/b", ModelEntry(api_key="n"))
