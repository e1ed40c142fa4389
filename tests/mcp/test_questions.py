"""Questions of servers to the user, and the arguments of prompts."""

import pytest

from ouro.display import Question
from ouro.errors import UsageError
from ouro.mcp import ServerPrompt, answer_elicitation, parse_prompt_arguments
from ouro.mcp.definition import PromptArgument

FORM = {
    "message": "Who is it?\x1b[31m",
    "requestedSchema": {
        "properties": {
            "name": {"type": "string", "title": "Your name", "minLength": 2},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer", "default": 3},
            "sure": {"type": "boolean"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
        },
        "required": ["name"],
    },
}


class User:
    """Returns these answers in order, then none."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> tuple[str, ...]:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else ()


async def test_a_form_is_asked_field_by_field():
    user = User(("x",), ("Bo",), ("red",), ("many",), ("7",), ("yes",), ("a", "c"))
    answer = await answer_elicitation("one", FORM, user.ask)
    content = {"name": "Bo", "colour": "red", "size": 7, "sure": True, "tags": ["a", "c"]}
    assert answer == {"action": "accept", "content": content}
    first, again, colour, _size, size_again, *_ = user.questions
    assert first.text == "The MCP server one asks: Who is it?\nYour name"
    assert "`x` does not fit (string)" in again.text
    assert colour.choices == ("red", "blue")
    assert "`many` does not fit (integer)" in size_again.text
    assert user.questions[-1].several


async def test_omitted_fields_use_their_default():
    answer = await answer_elicitation("one", FORM, User(("Bo",)).ask)
    assert answer == {"action": "accept", "content": {"name": "Bo", "size": 3}}


async def test_omitted_required_field_declines():
    assert await answer_elicitation("one", FORM, User().ask) == {"action": "decline"}


@pytest.mark.parametrize(
    "schema",
    [
        ["x"],
        {"properties": ["x"]},
        {"properties": {"name": ["x"]}, "required": [{}]},
        {"properties": {"name": {"enum": 3, "oneOf": {"const": 1}, "items": [1]}}, "required": 3},
        {"properties": {"name": {"minLength": "x", "maxLength": []}}},
    ],
)
async def test_e2_a_malformed_form_is_answered(schema):
    user = User(("yes",))
    answer = await answer_elicitation("one", {"message": 1, "requestedSchema": schema}, user.ask)
    assert answer["action"] == "accept"
    assert len(user.questions) == 1


@pytest.mark.parametrize(("answer", "action"), [("yes", "accept"), ("no", "decline")])
async def test_an_address_is_shown_and_never_opened(answer, action):
    user = User((answer,))
    about = {"mode": "url", "message": "Pay", "url": "https://pay.example/\x1b]8;;x"}
    assert await answer_elicitation("one", about, user.ask) == {"action": action}
    assert "https://pay.example/" in user.questions[0].details
    assert "\x1b" not in user.questions[0].details


def test_arguments_of_a_prompt_are_typed_in_order_or_by_name():
    prompt = ServerPrompt(
        "explain", "", (PromptArgument("topic", required=True), PromptArgument("style"))
    )
    assert parse_prompt_arguments(prompt, "yeast short") == {"topic": "yeast", "style": "short"}
    assert parse_prompt_arguments(prompt, 'style=short "wild yeast"') == {
        "style": "short",
        "topic": "wild yeast",
    }
    assert parse_prompt_arguments(prompt, "style=short wild yeast") == {
        "style": "short",
        "topic": "wild yeast",
    }
    with pytest.raises(UsageError, match="needs topic"):
        parse_prompt_arguments(prompt, "")
