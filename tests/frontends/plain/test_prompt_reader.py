"""What the plain prompt suggests."""

from types import SimpleNamespace

import pytest
from fakes.fake_session import FakeSession
from prompt_toolkit.document import Document

from ouro.frontends.plain.prompt_reader import _Completer


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("see @b", '@"a b.png"'),
        ("@api", "@api.py"),
        ('see @"a b', '@"a b.png"'),
        ("/mode", "/mode"),
        ("/q", "/q"),
        ("/usa", "/usage"),
    ],
)
def test_first_suggestion_is_what_a_message_can_name(typed, first):
    session = FakeSession()
    session.files = ["a b.png", "api.py"]
    completer = _Completer(SimpleNamespace(turns=SimpleNamespace(session=session)))
    assert next(iter(completer.get_completions(Document(typed), None))).text == first
