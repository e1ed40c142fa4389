"""Sections of settings: frozen values with defaults."""

import pytest

from ouro.utils.sections import field, is_section, replace_fields, section, section_fields


@section
class Inner:
    size: int = 1


@section
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    words: tuple[str, ...] = ()


@section
class More(Outer):
    extra: bool = False


def test_fields_have_their_defaults():
    made = Outer("a")
    assert (made.name, made.inner, made.words) == ("a", Inner(1), ())
    assert made == Outer(name="a", inner=Inner(size=1))
    assert made != Outer("b")
    assert hash(made) == hash(Outer("a"))
    assert repr(made) == "Outer(name='a', inner=Inner(size=1), words=())"


def test_each_section_has_its_own_made_default():
    @section
    class Kept:
        found: dict[str, int] = field(default_factory=dict)

    assert Kept().found is not Kept().found
    assert not hasattr(Kept, "found")


def test_a_section_inherits_fields_in_order():
    assert [item.name for item in section_fields(More)] == ["name", "inner", "words", "extra"]
    assert More("a", extra=True).extra


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Outer(), "name is missing"),
        (lambda: Outer("a", colour=1), "has no colour"),
        (lambda: Inner(1, 2), "has 1 fields, not 2"),
        (lambda: replace_fields(Inner(), colour=1), "has no colour"),
    ],
)
def test_wrong_fields_are_refused(make, said):
    with pytest.raises(TypeError, match=said):
        make()


def test_a_section_cannot_be_changed():
    made = Inner()
    with pytest.raises(AttributeError, match=r"Inner\.size cannot be changed"):
        made.size = 2
    assert replace_fields(made, size=2) == Inner(2)
    assert made.size == 1


def test_other_values_are_no_sections():
    assert is_section(Inner)
    assert is_section(Inner())
    assert not is_section({})
