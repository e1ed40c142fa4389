from fakes.fake_front_end import FakeFrontEnd
from msgspec.structs import replace

from ouro.commands.slash import dispatch
from ouro.display import Choice
from ouro.errors import UsageError


async def test_model_without_a_name_offers_models_and_reasons():
    front_end = FakeFrontEnd(picks=["fake/two"])
    await dispatch(front_end, "/model")
    choices = (
        Choice("fake/one", "fake/one"),
        Choice("fake/two", "fake/two", "no key: set TWO_KEY"),
    )
    assert front_end.asked == [("Which model?", choices, "fake/one")]
    assert front_end.session.status().model == "fake/two"
    assert front_end.lines == [("info", "Model: fake/two")]
    assert front_end.redrawn == 1


async def test_model_with_a_name_does_not_ask():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/model fake/three")
    assert (front_end.asked, front_end.session.status().model) == ([], "fake/three")


async def test_cancelled_picker_changes_nothing():
    front_end = FakeFrontEnd()
    for line in ("/model", "/think"):
        await dispatch(front_end, line)
    assert (front_end.lines, front_end.redrawn) == ([], 0)


async def test_think_sets_the_effort_and_lists_valid_values():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/think high")
    assert front_end.session.status().effort == "high"
    await dispatch(front_end, "/think more")
    assert front_end.lines[-1] == (
        "error",
        "There is no effort `more`. There are: off, minimal, low, medium, high, xhigh, max.",
    )


async def test_think_next_goes_through_all_levels_and_back_to_off():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/think off")
    levels = []
    for _ in range(7):
        await dispatch(front_end, "/think next")
        levels.append(front_end.session.status().effort)
    assert levels == ["minimal", "low", "medium", "high", "xhigh", "max", "off"]


async def test_think_is_refused_for_a_model_that_cannot_think():
    front_end = FakeFrontEnd()
    front_end.session._status = replace(front_end.session.status(), spec=None)
    asked = []

    async def refused(name="", effort=None):
        asked.append(effort)
        raise UsageError("fake/one is not known to think.")

    front_end.session.set_model = refused
    await dispatch(front_end, "/think")
    assert (asked, front_end.asked) == (["high"], [])
    assert front_end.lines == [("error", "fake/one is not known to think.")]


async def test_plan_toggles_plan_mode_and_sends_its_argument():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/plan")
    assert front_end.session.status().mode == "plan"
    await dispatch(front_end, "/plan")
    assert front_end.session.status().mode == "ask"
    await dispatch(front_end, "/plan a cache")
    assert (front_end.session.status().mode, front_end.sent) == ("plan", ["a cache"])


async def test_models_without_a_key_are_behind_one_line():
    from ouro.llm import ModelChoice

    listed = [
        ModelChoice("openai/a", False, "OPENAI_API_KEY is not set", lacks_key=True),
        ModelChoice("ollama_chat/b", True),
        ModelChoice("openai/c", False, "OPENAI_API_KEY is not set", lacks_key=True),
        ModelChoice("xai/d", False, "XAI_API_KEY is not set", lacks_key=True),
    ]

    async def models():
        return listed

    front_end = FakeFrontEnd(picks=["without-key", "xai/d"])
    front_end.session.models = models
    await dispatch(front_end, "/model")
    first, second = (choices for _, choices, *_ in front_end.asked)
    assert [choice.label for choice in first] == ["ollama_chat/b", "3 models without a key …"]
    assert first[1].detail == "openai, xai"
    assert [choice.value for choice in second] == ["openai/a", "openai/c", "xai/d"]
    assert front_end.session.status().model == "xai/d"
