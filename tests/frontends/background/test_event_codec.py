"""Events that reach another process are those that the session had."""

import json

import pytest
from frontends.test_event_json import CASES
from msgspec.structs import replace

from ouro.events import Prompted, Replied
from ouro.frontends.background.event_codec import decode, encode
from ouro.messages import Context, Message, Text, Thinking, ToolCall, Usage

EVENTS = [case[0] if isinstance(case, tuple) else case.values[0] for case in CASES]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_the_same_on_the_other_side(event):
    if isinstance(event, Prompted):  # the bytes of images stay where they are
        event = replace(event, images=tuple(replace(image, data=b"") for image in event.images))
    assert decode(json.loads(json.dumps(encode(event)))) == event


def test_an_answer_keeps_what_is_shown_of_it():
    call = ToolCall("c1", "read", {"path": "a.py"})
    parts = (Thinking("Hm.", "signed"), Text("I look."), call, Context("not shown"))
    message = Message("assistant", parts, Usage(1, 0, 0, 2, 0.1), "m", cut=True)
    assert decode(encode(Replied(message))) == Replied(replace(message, parts=parts[:3]))


@pytest.mark.parametrize(
    "sent", [None, 7, {}, {"type": "of_tomorrow"}, {"type": "notice"}, {"type": "replied"}]
)
def test_what_is_not_known_is_nothing(sent):
    assert decode(sent) is None
