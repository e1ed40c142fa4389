"""Limits on the size of modules, functions and classes, and against modules that are fragments."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest
from architecture.sources import Source, sources

MAX_FILE_LINES = 750
MAX_FUNCTION_LINES = 60
MAX_METHODS = 25
MAX_FIELDS = 12
MAX_PARAMETERS = 7
MIN_MODULE_LINES = 60
"""Below this, a module needs a second importer or one in another folder."""
ONE_FILE_EACH = (
    "tools/",
    "frontends/tui/widgets/",
    "frontends/tui/screens/",
    "frontends/tui/blocks/",
    "importers/",
    "safety/sandbox/",
)
"""Folders with one tool, widget, screen or format in each file, however small."""
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS = {
    "cli.py: _parser",
    "commands/models.py: models",
    "frontends/tui/transcript_writer.py: show",
    "memory/long_term/team.py: promote",
    "safety/shell/read_only.py: files_read",
}
"""These lists only shrink."""
WIDE_STRUCTS = {
    "memory/long_term/entry_lookup.py": "its flat fields are the JSON of `ouro memory list`",
    "llm/models_file.py": "an entry of models.yaml has as many fields as settings",
    "settings.py": "a section of config.yaml has as many fields as settings",
    "memory/record_fields.py": "the shape of a record in a session file",
    "memory/backend.py": (
        "a record in a session file; a session in the list, one row of sessions/.index.yaml"
    ),
    "memory/index/session_indexer.py": "a row of the table of sessions",
    "memory/index/search.py": "a row of the tables of notes, messages and outputs",
    "memory/long_term/notes/note.py": "the front matter of a note",
    "memory/long_term/capture/operations.py": "the JSON of an operation, with fields of a note",
}


def offences(limit: str) -> list[str]:
    """What violates the named limit, as `file: what`."""
    return [found for source in sources() for found in _LIMITS[limit](source)]


def _file_lines(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > MAX_FILE_LINES and source.name not in LONG_FILES:
        yield f"{source.name}: {lines} lines"


def _function_lines(source: Source) -> Iterator[str]:
    for node in _functions(source):
        lines = (node.end_lineno or 0) - node.lineno
        is_known = f"{source.name}: {node.name}" in LONG_FUNCTIONS
        if lines > MAX_FUNCTION_LINES and not is_known:
            yield f"{source.name}: {node.name} has {lines} lines"


def _methods(source: Source) -> Iterator[str]:
    for node in _classes(source):
        count = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
        public = [item.name for item in node.body if _is_public_method(item)]
        if len(public) > MAX_METHODS:
            yield f"{source.name}: {node.name} has {len(public)} public methods of {count}"


def _fields(source: Source) -> Iterator[str]:
    if source.name in WIDE_STRUCTS:
        return
    for node in _classes(source):
        is_struct = any(
            "Struct" in ast.unparse(base) or "NamedTuple" in ast.unparse(base)
            for base in node.bases
        )
        is_struct |= any("dataclass" in ast.unparse(item) for item in node.decorator_list)
        count = sum(
            isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item)
            for item in node.body
        )
        if is_struct and count > MAX_FIELDS:
            yield f"{source.name}: {node.name} has {count} fields"


def _parameters(source: Source) -> Iterator[str]:
    for node in _classes(source):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                count = len(item.args.args) + len(item.args.kwonlyargs) - 1
                if count > MAX_PARAMETERS:
                    yield f"{source.name}: {node.name} takes {count} parameters"


def _callbacks(source: Source) -> Iterator[str]:
    """`thing.on_done = …` from outside: the thing was not complete when it was constructed."""
    if not any(
        isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) for node in source.nodes
    ):
        return
    for function in _functions(source):
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Lambda):
                continue
            for target in node.targets:
                if isinstance(target, ast.Attribute) and function.name != "__init__":
                    yield f"{source.name}: {ast.unparse(target)} is assigned in {function.name}"
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self":
                    yield f"{source.name}: {ast.unparse(target)} is assigned from outside"


def _test_names(source: Source) -> Iterator[str]:
    stem = source.name.rpartition("/")[2].removesuffix(".py")
    if stem.startswith("test_") or stem.endswith("_test"):
        yield source.name


_LIMITS = {
    "lines of a file": _file_lines,
    "lines of a function": _function_lines,
    "public methods of a class": _methods,
    "fields of a struct": _fields,
    "parameters of a constructor": _parameters,
    "callbacks assigned after construction": _callbacks,
    "product modules named like tests": _test_names,
}


@pytest.mark.parametrize("limit", _LIMITS)
def test_no_module_breaks_a_limit(limit):
    assert offences(limit) == []


def test_no_small_module_has_only_one_importer_in_its_package():
    assert fragments() == []


def test_every_module_has_a_docstring():
    assert [source.name for source in sources() if not ast.get_docstring(source.tree)] == []


def fragments() -> list[str]:
    """Modules under MIN_MODULE_LINES whose only importer is in their own folder."""
    modules = {
        source.name: source
        for source in sources()
        if not source.name.endswith(("__init__.py", "__main__.py"))
    }
    importers: dict[str, set[str]] = defaultdict(set)
    for source in sources():
        for name in _imported(source):
            importers[name].add(source.name)
    found = []
    for name, source in modules.items():
        lines, users = source.text.count("\n"), importers[name] - {name}
        beside = [user for user in users if user.rpartition("/")[0] == name.rpartition("/")[0]]
        if (
            lines < MIN_MODULE_LINES
            and len(users) == 1
            and beside
            and not name.startswith(ONE_FILE_EACH)
        ):
            found.append(f"{name}: {lines} lines, only for {beside[0]}")
    return found


def _imported(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ouro"):
            inner = (node.module or "").removeprefix("ouro").strip(".").replace(".", "/")
            yield f"{inner}.py"
            yield from (f"{inner}/{alias.name}.py".lstrip("/") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                f"{alias.name.removeprefix('ouro.').replace('.', '/')}.py" for alias in node.names
            )


def _functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _classes(source: Source) -> Iterator[ast.ClassDef]:
    return (node for node in source.nodes if isinstance(node, ast.ClassDef))


def _is_public_method(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith(
        "_"
    )


if __name__ == "__main__":
    for name in _LIMITS:
        print(f"# {name}", *offences(name), sep="\n")
    print("# fragments", *fragments(), sep="\n")
