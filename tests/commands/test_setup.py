import pytest
from fakes.local_servers import local_server, models
from fakes.model_server import failure

from ouro import llm
from ouro.commands.model_keys import doubt_about_key, read_key
from ouro.commands.model_setup import set_up, set_up_and_test
from ouro.display import Choice
from ouro.llm import ModelEntry, ModelsFile, ServerModels, read_models_file
from ouro.utils.ouro_paths import get_models_path


class Person:
    """Returns the answers in order, and records what was shown."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.offered: list[tuple[str, tuple[Choice, ...]]] = []
        self.secrets: list[str] = []
        self.asked: list[str] = []

    def say(self, text):
        self.said.append(text)

    async def choose(self, title, choices):
        self.offered.append((title, tuple(choices)))
        return self.answers.pop(0)

    async def ask(self, title, *, secret=False, draft=""):
        self.asked.append(f"{title} [{draft}]" if draft else title)
        if secret:
            self.secrets.append(title)
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def no_servers(monkeypatch) -> None:
    for name in ("OLLAMA_HOST", "LM_STUDIO_API_BASE", "LLAMA_CPP_API_BASE", "HOSTED_VLLM_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/v1")


async def test_key_is_entered_hidden_and_saved_for_the_whole_provider():
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


async def test_local_server_is_offered_first_with_its_models(monkeypatch):
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
        person = Person("other", f"http://{server.address}/v1/", "openai/b")
        assert await set_up(person) == "openai/b"
        url = f"http://{server.address}/v1"
    assert person.offered[1] == (
        f"Which model of {url}?",
        tuple(Choice(f"openai/{name}", name, "9,000 tokens") for name in "ab"),
    )
    assert read_models_file(get_models_path()).models == {
        "openai/b": ModelEntry(api_base=url, window=9000)
    }


@pytest.mark.parametrize("form", ["{}", "{}/v1", "http://{}", "http://{}/", "{}/v1/ "])
async def test_an_address_is_completed(form):
    with local_server(models("a")) as server:
        assert await set_up(Person("other", form.format(server.address), "openai/a")) == "openai/a"
        assert (
            read_models_file(get_models_path()).models["openai/a"].api_base
            == f"http://{server.address}/v1"
        )


async def test_unreachable_address_can_be_corrected():
    with local_server(models("a")) as server:
        person = Person("other", "127.0.0.1:1", "again", server.address, "openai/a")
        assert await set_up(person) == "openai/a"
    assert person.offered[1][0] == "http://127.0.0.1:1/v1: nothing answers (Connection refused)."
    assert person.asked[1].startswith(
        "http://127.0.0.1:1/v1: nothing answers (Connection refused).\nIts address"
    )
    assert person.asked[1].endswith(" [127.0.0.1:1]")


async def test_key_is_asked_for_if_required_and_again_if_wrong():
    with local_server(models("a"), key="sk-right") as server:
        person = Person("other", server.address, "sk-wrong", "sk-right", "openai/a")
        assert await set_up(person) == "openai/a"
        assert read_models_file(get_models_path()).models["openai/a"].api_key == "sk-right"
    assert [title.partition(" The key")[0] for title in person.secrets][1:] == [
        "The server refused this key."
    ]


async def test_unreachable_server_can_be_saved_with_a_model_name():
    person = Person("other", "http://127.0.0.1:1/v1/", "keep", "m")
    assert await set_up(person) == "openai/m"
    assert read_models_file(get_models_path()).models == {
        "openai/m": ModelEntry(api_base="http://127.0.0.1:1/v1")
    }


async def test_declining_a_question_returns_to_the_provider_list():
    person = Person(
        "anthropic", "", "other", "", "anthropic", "sk-secret", "anthropic/claude-sonnet-5"
    )
    assert await set_up(person) == "anthropic/claude-sonnet-5"
    assert [title for title, _ in person.offered[:3]] == ["Where is your model?"] * 3


@pytest.mark.parametrize(
    "answers",
    [
        (None,),
        ("anthropic", "", None),
        ("anthropic", "k", None, None),
        ("other", "", None),
        ("other", "127.0.0.1:1", "again", "", None),
        ("other", "http://127.0.0.1:1", "keep", "", None),
        ("other", "http://[x", "again", "", None),
    ],
)
async def test_cancelling_setup_changes_nothing(answers):
    assert await set_up(Person(*answers)) == ""
    assert not get_models_path().exists()


async def test_local_servers_that_do_not_run_are_named_and_can_be_given_an_address():
    with local_server(models("a", max_model_len=9000)) as server:
        person = Person("silent:Ollama", f"http://{server.address}/v1", "openai/a")
        assert await set_up(person) == "openai/a"
    labels = [choice.label for choice in person.offered[0][1]]
    assert {"Ollama", "LM Studio", "llama.cpp", "vLLM"} <= set(labels)
    assert "ollama serve" in person.asked[0]
    assert person.asked[0].endswith("[http://127.0.0.1:1/v1]")


async def test_a_server_that_was_started_while_the_list_was_shown_is_used(monkeypatch):
    class PersonWhoStartsVllm(Person):
        async def choose(self, title, choices):
            monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"http://{server.address}/v1")
            return await super().choose(title, choices)

    with local_server(models("a", max_model_len=9000)) as server:
        person = PersonWhoStartsVllm("silent:vLLM", "hosted_vllm/a")
        assert await set_up(person) == "hosted_vllm/a"
        other_person = PersonWhoStartsVllm("other", "", "hosted_vllm", "hosted_vllm/a")
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:1/v1")
        assert await set_up(other_person) == "hosted_vllm/a"
    assert not any("Start vLLM first" in text for text in person.said)
    # Who comes back to the list finds the server there.
    assert other_person.offered[1][1][0].detail == "on this machine, 1 model"


async def test_each_request_of_a_slow_test_is_announced(model_server, monkeypatch):
    monkeypatch.setattr("ouro.llm.model_check.SLOW_SECONDS", 0)
    model_server.script(lambda _request: "I have no tools.")
    person = Person("other", model_server.openai_url, "openai/test-model", "test", "continue")
    await set_up_and_test(person)
    assert "Request 2 of at most 6: call." in person.said


async def test_a_model_that_cannot_be_reached_is_one_request(model_server):
    model_server.script(lambda _request: failure(400, "This model is retired."))
    person = Person("other", model_server.openai_url, "openai/test-model", "test", "continue")
    await set_up_and_test(person)
    title, _choices = person.offered[-1]
    assert "1 request:" in title
    assert "learned" not in title


@pytest.mark.parametrize("answers", [["start"], [None], ["test", "continue"]])
async def test_the_test_is_offered_at_the_end_and_done_only_if_wanted(model_server, answers):
    model_server.script(lambda _request: "I have no tools.")
    person = Person("other", model_server.openai_url, "openai/test-model", *answers)
    assert await set_up_and_test(person) == "openai/test-model"
    shown = [title for title, _ in person.offered[-len(answers) :]]
    assert "up to 6 small requests, its price is not known" in shown[0]
    is_wanted = answers[0] == "test"
    assert bool(model_server.requests) is is_wanted
    assert ("FAILS" in shown[-1]) is is_wanted


async def test_who_cancels_the_set_up_is_not_asked_for_a_test():
    person = Person(None)
    assert await set_up_and_test(person) == ""
    assert len(person.offered) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Bearer sk-secret-1",
        'export ANTHROPIC_API_KEY="sk-secret-1"',
        "OPENAI_API_KEY=sk-secret-1\n",
        " sk-sec\nret-1 ",
    ],
)
def test_a_key_is_read_from_what_is_around_it(text):
    assert read_key(text) == "sk-secret-1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://127.0.0.1:8080/v1", "address"),
        ("localhost:11434", "address"),
        ("gpu-box.example.org:8000/v1", "address"),
        ("claude-sonnet-5", "model"),
        ("anthropic/claude-sonnet-5", "model"),
        ("me@example.org", "mail"),
        (__file__, "file"),
        ("schlüssel-123", "characters"),
        ("yes", "too short"),
    ],
)
def test_a_text_that_is_hardly_a_key_is_doubted(text, reason):
    assert reason in doubt_about_key(text)
    assert text not in doubt_about_key(text)


@pytest.mark.parametrize(
    "key",
    ["sk-ant-api03-x_Y-9AA", "AIzaSyA-1b2C3", "key:with-colon", "aGVsbG8gd29ybGQ=", "a/b+c/d=="],
)
def test_keys_are_not_doubted(key):
    assert doubt_about_key(key) == ""
    assert read_key(key) == key


async def test_an_address_instead_of_a_key_is_asked_about_and_not_saved():
    person = Person(
        "anthropic", "http://127.0.0.1:8080", "again", "sk-secret", "anthropic/claude-sonnet-5"
    )
    assert await set_up(person) == "anthropic/claude-sonnet-5"
    assert person.offered[1][0].startswith("This is an address, not a key.\n")
    assert "8080" not in get_models_path().read_text()


async def test_a_doubted_key_can_be_used_or_given_up():
    person = Person("anthropic", "x", None, "anthropic", "y", "keep", "anthropic/claude-sonnet-5")
    assert await set_up(person) == "anthropic/claude-sonnet-5"
    assert read_models_file(get_models_path()).models["anthropic/*"].api_key == "y"


async def test_a_key_is_only_sent_to_the_address_that_it_was_typed_for(monkeypatch):
    asked = []

    def list_models_at(address, key):
        asked.append((address, key))
        if not key and address == "https://one.test":
            return ServerModels(address, needs_key=True)
        problem = "HTTP 404" if address == "https://one.test" else ""
        return ServerModels(address, {"openai/a": None}, problem=problem)

    monkeypatch.setattr(llm, "list_models_at", list_models_at)
    answers = ("https://one.test", "sk-of-the-first", "again", "https://two.test", "openai/a")
    assert await set_up(Person("other", *answers)) == "openai/a"
    assert asked == [
        ("https://one.test", ""),
        ("https://one.test", "sk-of-the-first"),
        ("https://two.test", ""),
    ]
