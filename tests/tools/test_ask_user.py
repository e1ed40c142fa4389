"""The tool `ask_user`."""

from __future__ import annotations

from fakes.tool_benches import Surroundings

from ouro.display import Display, Plain, Question
from ouro.tools.ask_user import AskUser, AskUserArgs
from ouro.tools.tool import ToolResult


async def test_question_is_asked_and_answers_are_returned():
    around = Surroundings(["tabs", "four of them"])
    result = await AskUser().run(
        AskUserArgs("Tabs or spaces?", ["tabs", "spaces"], True, "*why*"), around.context
    )
    assert around.questions == [Question("Tabs or spaces?", ("tabs", "spaces"), True, "*why*")]
    assert result == ToolResult(
        "The user answered:\ntabs\nfour of them",
        Display("tabs, four of them", Plain("Tabs or spaces?\ntabs\nfour of them")),
    )


async def test_emphasis_is_stripped_from_question_and_choices():
    around = Surroundings(["the first"])
    asked = AskUserArgs("Which **one**?", ["the **first**", "`src/**/*.py` and `lib/**`"])
    await AskUser().run(asked, around.context)
    assert around.questions == [Question("Which one?", ("the first", "src/**/*.py and lib/**"))]


async def test_dismissed_question_is_reported():
    result = await AskUser().run(AskUserArgs("Well?"), Surroundings().context)
    assert result.display == Display("no answer")
    assert "gave no answer" in result.text
