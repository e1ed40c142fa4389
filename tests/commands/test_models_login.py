"""Keys of models in the keyring of the system."""

import io
from pathlib import Path

import pytest
from fakes.model_server import ModelServer

from ouro.cli import main
from ouro.errors import NoModelError
from ouro.llm import Catalog
from ouro.utils.ouro_paths import get_models_path

KEY = "sk-ring-8Jq2vLx0Zt"


@pytest.fixture
def ring(monkeypatch, tmp_path):
    """The keyring backend is configured as on a real system."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "fakes.file_keyring.FileKeyring")
    monkeypatch.setenv("FAKE_KEYRING", str(tmp_path / "ring.json"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr("keyring.core._keyring_backend", None)
    return tmp_path / "ring.json"


@pytest.fixture
def no_ring(monkeypatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr("keyring.core._keyring_backend", None)


def log_in(monkeypatch, name, key=KEY):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{key}\n"))
    return main(["models", "login", name])


@pytest.mark.parametrize(
    ("name", "model", "account"),
    [
        ("openai", "openai/gpt-5", "openai"),
        ("OpenAI", "openai/gpt-5-mini", "openai"),
        ("anthropic/*", "anthropic/claude-sonnet-5", "anthropic"),
        ("groq/openai/gpt-oss-20b", "groq/openai/gpt-oss-20b", "groq"),
        ("mistral", "mistral/devstral-latest", "mistral"),
    ],
)
def test_a_key_is_in_the_keyring_and_its_account_in_models_yaml(
    ring, monkeypatch, name, model, account
):
    assert log_in(monkeypatch, name) == 0
    assert KEY in ring.read_text()
    text = get_models_path().read_text()
    assert f"api_key_keyring: {account}" in text
    assert KEY not in text
    catalog = Catalog.from_files()
    assert catalog.why_unusable(model) == ""
    _, endpoint = catalog.route(model)
    assert (endpoint.api_key, endpoint.key_source) == (KEY, f"the keyring (`{account}`)")
    assert KEY in catalog.key_values()  # the mask hides it
    assert main(["models", "logout", name]) == 0
    assert KEY not in ring.read_text()
    assert "api_key_keyring" not in get_models_path().read_text()
    assert main(["models", "logout", name]) == 1


def test_the_key_of_a_server_of_ones_own_goes_nowhere_else(ring, monkeypatch):
    with ModelServer() as server:
        path = get_models_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = f"api_base: {server.openai_url}\n    window: 9000"
        path.write_text(f"models:\n  openai/mine:\n    {entry}\n")
        assert log_in(monkeypatch, "openai/mine") == 0
        catalog = Catalog.from_files()
        assert catalog.route("openai/mine")[1].api_key == KEY
        assert catalog.spec("openai/mine").window == 9_000
        assert catalog.why_unusable("openai/gpt-5") != ""


def test_a_new_key_replaces_the_one_in_models_yaml(ring, monkeypatch):
    path = get_models_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('models:\n  "openai/*":\n    api_key: old\n')
    assert log_in(monkeypatch, "openai") == 0
    assert "old" not in path.read_text()
    assert Catalog.from_files().route("openai/gpt-5")[1].api_key == KEY


def test_without_a_keyring_the_error_names_models_yaml(no_ring, monkeypatch, capsys):
    assert log_in(monkeypatch, "openai") != 0
    shown = capsys.readouterr().err
    assert "keyring" in shown
    assert "models.yaml" in shown
    assert not get_models_path().exists()


def test_a_key_that_is_gone_from_the_keyring_is_an_error_that_says_so(ring, monkeypatch):
    assert log_in(monkeypatch, "openai") == 0
    ring.write_text("{}")
    with pytest.raises(NoModelError, match="no key `openai`"):
        Catalog.from_files().route("openai/gpt-5")


def test_an_empty_key_stores_nothing(ring, monkeypatch):
    log_in(monkeypatch, "openai", key=" ")
    assert not get_models_path().exists()


def test_a_layout_that_cannot_be_changed_is_an_error_with_the_line_to_add(
    ring, monkeypatch, capsys
):
    path = get_models_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("models: {openai/mine: {api_base: http://127.0.0.1:9/v1}}\n")
    assert log_in(monkeypatch, "openai/mine") != 0
    assert "api_key_keyring: openai/mine" in capsys.readouterr().err
    assert KEY in ring.read_text()


def test_an_address_is_not_stored_as_a_key(ring, monkeypatch, capsys):
    assert log_in(monkeypatch, "openai", "http://127.0.0.1:8080/v1") == 2
    assert "This is an address, not a key." in capsys.readouterr().err
    assert not ring.exists()
