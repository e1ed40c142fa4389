"""Sections: frozen values with named and typed fields, for settings.

They are what frozen dataclasses are, without that module: it takes 8 ms before the first frame, and its
code for each class 0.5 ms.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without `typing`: the first frame needs sections, but no types
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_arguments: object) -> Callable[[T], T]:
        """Changes nothing: its arguments are for type checkers."""
        return lambda decorator: decorator


class SectionField:
    """A field of a section. `make_default` makes its default for each section; None: it is
    `default`.
    """

    __slots__ = ("default", "is_required", "make_default", "name")

    def __init__(
        self,
        name: str,
        default: Any = None,
        make_default: Callable[[], Any] | None = None,
        is_required: bool = False,
    ) -> None:
        self.name = name
        self.default = default
        self.make_default = make_default
        self.is_required = is_required


class _DefaultFactory:
    """What `field` returns."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:
    """The default of a field that is made for each section."""
    return _DefaultFactory(default_factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def section(kind: type[T]) -> type[T]:
    """Decorate a class with annotated fields as a section: it gets a constructor, equality and a
    representation, and cannot be changed. Fields without a default are required.
    """
    inherited = getattr(kind, "__section_fields__", {})
    kind.__section_fields__ = inherited | _own_fields(kind)  # type: ignore[attr-defined]
    kind.__init__, kind.__setattr__ = _init, _refuse_change  # type: ignore[method-assign]
    kind.__eq__, kind.__hash__, kind.__repr__ = _equals, _hash, _repr  # type: ignore[method-assign]
    return kind


def _own_fields(kind: type) -> dict[str, SectionField]:
    """The fields that a class declares itself, by name. A default that is made for each section is
    removed from the class.
    """
    fields = {}
    for name in vars(kind).get("__annotations__", {}):
        if name not in vars(kind):
            fields[name] = SectionField(name, is_required=True)
            continue
        default = vars(kind)[name]
        if isinstance(default, _DefaultFactory):
            delattr(kind, name)
            fields[name] = SectionField(name, make_default=default.make)
        else:
            fields[name] = SectionField(name, default)
    return fields


def is_section(value: object) -> bool:
    """Whether this is a section, or a class of sections."""
    return hasattr(value, "__section_fields__")


def section_fields(kind: Any) -> tuple[SectionField, ...]:
    """The fields of a section or of its class, in order."""
    return tuple(kind.__section_fields__.values())


def replace_fields(value: T, **changes: Any) -> T:
    """A copy with other values in some fields. Raises TypeError: there is no such field."""
    return type(value)(**{**vars(value), **changes})


def _init(self: Any, *args: Any, **values: Any) -> None:
    """The constructor of each section: values by position and name, then the defaults. Raises
    TypeError for an unknown name.
    """
    fields = section_fields(self)
    if len(args) > len(fields):
        raise TypeError(f"{type(self).__name__} has {len(fields)} fields, not {len(args)}")
    values |= {item.name: value for item, value in zip(fields, args, strict=False)}
    for item in fields:
        self.__dict__[item.name] = values.pop(item.name) if item.name in values else _default(item)
    if values:
        raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")


def _default(item: SectionField) -> Any:
    """The value of a field that is not given. Raises TypeError if it is required."""
    if item.is_required:
        raise TypeError(f"{item.name} is missing")
    return item.make_default() if item.make_default else item.default


def _refuse_change(self: Any, name: str, _value: Any) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


def _equals(self: Any, other: object) -> bool:
    return type(self) is type(other) and self.__dict__ == other.__dict__


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__.values()))


def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
    return f"{type(self).__name__}({values})"
