import pytest
from fakes.local_servers import local_server, models

from ouro.commands.models import set_up
from ouro.display import Choice
from ouro.llm import ModelEntry, ModelsFile, read_models_file
from ouro.utils.runtime import get_models_path


class Person:
    """Answers in the order given; remembers what was shown."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.offered: list[tuple[str, tuple[Choice, ...]]] = []
        self.secrets: list[str] = []

    def say(self, text):
        self.said.append(text)

    async def choose(self, title, choices):
        self.offered.append((title, tuple(choices)))
        return self.answers.pop(0)

    async def ask(self, title, *, secret=False):
        if secret:
            self.secrets.append(title)
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def no_servers(monkeypatch) -> None:
    for name in ("OLLAMA_HOST", "LM_STUDIO_API_BASE", "LLAMA_CPP_API_BASE", "HOSTED_VLLM_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/v1")


async def test_a_key_is_asked_for_unseen_and_holds_for_all_models_of_the_provider():
    person = Person("anthropic", " sk-\nsecret ", "anthropic/claude-sonnet-5")
    assert await set_up(person) == "anthropic/claude-sonnet-5"
    assert read_models_file(get_models_path()) == ModelsFile(
        default="anthropic/claude-sonnet-5", models={"anthropic/*": ModelEntry(api_key="sk-secret")}
    )
    assert person.secrets == ["Your Anthropic key (it is not shown)"]
    assert "secret" not in "".join(person.said)
    assert person.offered[1][1][0].value == "anthropic/claude-sonnet-5-5"


async def test_a_key_in_the_environment_is_neither_asked_for_nor_written(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    person = Person("openai", "openai/gpt-5")
    assert await set_up(person) == "openai/gpt-5"
    assert person.secrets == []
    assert "sk-secret" not in get_models_path().read_text()
    assert Choice("openai", "OpenAI", "with the key in OPENAI_API_KEY") in person.offered[0][1]


async def test_a_server_on_this_machine_is_offered_first_with_its_models(monkeypatch):
    with local_server(models("a", "b", max_model_len=9000)) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"http://{server.address}/v1")
        person = Person("hosted_vllm", "hosted_vllm/b")
        assert await set_up(person) == "hosted_vllm/b"
    assert person.offered[0][1][0] == Choice("hosted_vllm", "vLLM", "on this machine, 2 models")
    assert read_models_file(get_models_path()) == ModelsFile(
        default="hosted_vllm/b", models={"hosted_vllm/b": ModelEntry(window=9000)}
    )


async def test_any_other_server_is_asked_for_its_models():
    with local_server(models("a", "b", max_model_len=9000)) as server:
        person = Person("other", f"http://{server.address}/v1/", "sk-secret", "openai/b")
        assert await set_up(person) == "openai/b"
    assert server.requests[0][1]["Authorization"] == "Bearer sk-secret"
    assert person.offered[1] == ("Which model?", tuple(Choice(f"openai/{each}", each, "9,000 tokens") for each in "ab"))
    assert read_models_file(get_models_path()).models == {
        "openai/b": ModelEntry(api_base=f"http://{server.address}/v1", api_key="sk-secret", window=9000)
    }


async def test_a_server_that_does_not_tell_is_taken_by_its_address_and_a_name():
    person = Person("other", "http://127.0.0.1:1/v1/", "", "m")
    assert await set_up(person) == "openai/m"
    assert read_models_file(get_models_path()).models == {"openai/m": ModelEntry(api_base="http://127.0.0.1:1/v1")}
    assert person.said[0] == "http://127.0.0.1:1/v1 does not tell which models it has."


@pytest.mark.parametrize(
    "answers",
    [
        (None,),
        ("anthropic", ""),
        ("anthropic", "k", None),
        ("other", ""),
        ("other", "h/v1"),
        ("other", "http://127.0.0.1:1", "", ""),
        ("other", "http://[x", "", ""),
    ],
)
async def test_who_stops_on_the_way_changes_nothing(answers):
    assert await set_up(Person(*answers)) == ""
    assert not get_models_path().exists()
