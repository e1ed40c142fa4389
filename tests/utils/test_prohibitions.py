"""Statements that forbid a file or a command by name, and calls that do what they forbid."""

import pytest

from ouro.utils.prohibitions import (
    breaks_prohibition,
    forbidden_names,
    forbids_change,
    line_names,
    names_run,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Don't touch vendor/legacy_crc", ("vendor/legacy_crc",)),
        (
            "Never flash with `pio run -t upload` here, `./flash.sh` does it.",
            ("pio run -t upload",),
        ),
        ("The vendor/ folder is a mirror of upstream: leave it alone.", ("vendor/",)),
        ("pls dont ever run terraform apply localy, it goes thru Atlantis", ("terraform apply",)),
        ("Never edit anything in gen/, it comes from protoc", ("gen/",)),
        ("don't push anything yourself", ("git push",)),
        ("Always use pnpm, never npm", ("npm",)),
        ("Bearbeite nie config/prod.yaml", ("config/prod.yaml",)),
        ("Ne lance jamais npm install", ("npm install",)),
        ("No toques config/prod.yaml", ("config/prod.yaml",)),
        ("不要修改 dist/ 目录", ("dist/",)),
        ("gen/ は編集しないで", ("gen/",)),
        ("Lass bitte gen/ in Ruhe, das wird überschrieben", ("gen/",)),
        ("Finger weg von infra/prod.tf", ("infra/prod.tf",)),
        ("Laisse config/prod.yml tranquille", ("config/prod.yml",)),
        ("Deja config/prod.yml en paz", ("config/prod.yml",)),
    ],
)
def test_prohibition_names_what_it_forbids(text, names):
    assert forbidden_names(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "Dates are not stored in UTC", "We use git, not svn", "Use tabs, not spaces", "Never push to main",
        "Never mock the database in tests/integration.", "Never commit .env", "Never edit generated files",
        "Config lives in app.toml, not in environment variables", "Edit the files in src/scss",
        "Die Daten liegen nicht in data/raw", "テストは tests/ に置く", "测试放在 tests/ 目录",
    ],
)  # fmt: skip
def test_statement_that_forbids_nothing_by_name_has_no_names(text):
    assert forbidden_names(text) == ()


@pytest.mark.parametrize(
    ("tool", "arguments", "is_broken"),
    [
        ("shell", {"command": "rm -rf vendor/crc/table.c"}, True),
        ("shell", {"command": "make && sed -i s/a/b/ ./vendor/crc/table.c"}, True),
        ("shell", {"command": "echo 1 > vendor/crc/table.c"}, True),
        ("shell", {"command": "git checkout vendor/crc"}, True),
        ("change", {"path": "vendor/crc/table.c"}, True),
        ("write", {"path": "./vendor/crc/new.c", "content": ""}, True),
        ("shell", {"command": "cat vendor/crc/table.c"}, False),
        ("shell", {"command": "git diff vendor/crc"}, False),
        ("shell", {"command": "rm -rf vendor/crc32"}, False),
        ("read", {"path": "vendor/crc/table.c"}, False),
        ("write", {"path": "src/vendor.c", "content": "vendor/crc"}, False),
    ],
)
def test_call_breaks_a_prohibition_only_if_it_changes_what_is_named(tool, arguments, is_broken):
    assert breaks_prohibition("Don't touch vendor/crc", tool, arguments) is is_broken


@pytest.mark.parametrize(
    ("command", "is_broken"),
    [
        ("npm install", True),
        ("cd web && npm test", True),
        ("CI=1 npm run build", True),
        ("pnpm install", False),
        ("grep npm package.json", False),
        ("echo npm", False),
    ],
)
def test_forbidden_command_is_recognized_where_it_is_run(command, is_broken):
    call = {"command": command}
    assert breaks_prohibition("Always use pnpm, never npm", "shell", call) is is_broken


@pytest.mark.parametrize(
    "text",
    [
        "Please leave vendor/ alone, those files are copied from upstream.",
        "Never edit schema.sql by hand", "Lass gen/ in Ruhe", "Ne touche pas à config/prod.yml",
        "No modifiques api/v1.py", "不要改 docs/index.md", "Use pnpm in app.json, never npm.",
    ],
)  # fmt: skip
def test_prohibition_of_a_change_or_a_command_is_one(text):
    assert forbids_change(text)


@pytest.mark.parametrize(
    "text",
    [
        "api/v2.py is not finished yet", "The tests in tests/slow are not run in CI",
        "The parser in src/parse.py does not handle tabs", "Edit the files in src/scss",
        "Don't use print in src/log.py, use the logger",
    ],
)  # fmt: skip
def test_description_of_a_file_forbids_no_change(text):
    assert not forbids_change(text)


@pytest.mark.parametrize(
    ("text", "line", "is_run"),
    [
        ("Never run terraform apply by hand", "cd infra && terraform apply", True),
        ("Never run terraform apply by hand", "terraform plan", False),
        ("scripts/deploy.sh braucht das VPN", "sudo ./scripts/deploy.sh prod", True),
        ("scripts/deploy.sh braucht das VPN", "vim scripts/deploy.sh", False),
        ("pytest 要加 -n 2", "uv run pytest -q", True),
        ("Las pruebas se lanzan con `make check`", "make check", True),
        ("Las pruebas se lanzan con `make check`", "make", False),
        ("We make releases on Fridays", "make release", False),
        ("Run pytest with -n 2", "grep pytest setup.cfg", False),
        ("Empty `` code", "pytest", False),
    ],
)
def test_a_text_names_what_a_line_runs(text, line, is_run):
    assert names_run(text, line) == is_run
    if is_run:
        assert any(name in text for name in line_names(line))
