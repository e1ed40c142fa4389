"""/plans: an edit of a saved plan."""

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession
from msgspec.structs import replace

from ouro.commands.plans import _edit
from ouro.errors import UsageError
from ouro.session.plan_file import PlanFolder

BODY = "# A cache\n\n1. [ ] Add it"


@pytest.mark.parametrize("is_ticked", [False, True])
async def test_an_edit_does_not_undo_steps_that_were_ticked_off_meanwhile(tmp_path, is_ticked):
    folder = PlanFolder(tmp_path)
    plan = folder.add("s1", BODY, "A cache")
    front_end = FakeFrontEnd(FakeSession())

    async def edit(text):
        if is_ticked:
            folder.write(replace(plan, body=text.replace("[ ]", "[x]")))
        return f"{text} twice"

    front_end.edit = edit
    if is_ticked:
        with pytest.raises(UsageError, match="changed meanwhile"):
            await _edit(front_end, folder, plan)
    else:
        await _edit(front_end, folder, plan)
    saved = folder.read(plan.path).body
    assert ("[x]" in saved, "twice" in saved) == (is_ticked, not is_ticked)
    assert any("twice" in text for text in front_end.shown)
