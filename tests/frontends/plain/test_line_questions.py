from typing import get_args

import pytest

from ouro.display import Question
from ouro.events import Permit, PermitChoice, Reply
from ouro.frontends.plain.line_questions import (
    NotUnderstood,
    parse_choice,
    parse_part,
    parse_permit,
    parse_reply,
)


@pytest.mark.parametrize(
    ("line", "permit"),
    [
        ("y", Permit("yes")),
        ("Yes", Permit("yes")),
        ("s", Permit("edits")),
        ("d", Permit("no")),
        ("a", Permit("always")),
        ("n", Permit("stop")),
        (" n use the other file ", Permit("no", "use the other file")),
        ("y, but only once", Permit("yes", "but only once")),
        ("no: later", Permit("no", "later")),
    ],
)
def test_a_permission_is_answered_by_a_letter_and_a_comment(line, permit):
    assert parse_permit(line, get_args(PermitChoice)) == permit


@pytest.mark.parametrize(
    "line", ["", "1", "3", "yep", "maybe", "draft texty", "nothing", "always-on", "yn"]
)
def test_other_text_is_no_answer_to_a_permission(line):
    with pytest.raises(NotUnderstood):
        parse_permit(line, get_args(PermitChoice))


@pytest.mark.parametrize("line", ["a", "s"])
def test_always_and_session_need_a_rule(line):
    with pytest.raises(NotUnderstood, match="no rule for this call"):
        parse_permit(line, ("yes", "no"))


def test_question_is_answered_by_numbers_or_text():
    one = Question("Which?", ("alpha", "beta"))
    several = Question("Which?", ("alpha", "beta", "gamma"), several=True)
    assert parse_reply("2", one) == Reply(("beta",))
    assert parse_reply("1, 3", several) == Reply(("alpha", "gamma"))
    assert parse_reply("1 3", several) == Reply(("alpha", "gamma"))
    assert parse_reply("neither of them", one) == Reply(("neither of them",))
    assert parse_reply("  ", one) == Reply()
    assert parse_reply("42", Question("How many?")) == Reply(("42",))


@pytest.mark.parametrize("line", ["²", "9" * 5_000])
def test_what_only_looks_like_a_number_is_an_own_answer(line):
    assert parse_reply(line, Question("Which?", ("alpha", "beta"))) == Reply((line,))
    assert parse_part(line, ["full", "summary"]) == ("full", line)


@pytest.mark.parametrize("line", ["3", "0", "1 2"])
def test_a_number_that_is_not_offered_is_asked_again(line):
    with pytest.raises(NotUnderstood):
        parse_reply(line, Question("Which?", ("alpha", "beta")))


def test_choice_is_made_by_number_or_prefix():
    values = ["ask", "edit", "auto"]
    assert parse_choice("2", values) == "edit"
    assert parse_choice("au", values) == "auto"
    assert parse_choice("", values) is None
    for line in ("4", "a", "x", "²", "9" * 5_000):
        with pytest.raises(NotUnderstood):
            parse_choice(line, values)
