import pytest
from fakes.files import write

from ouro.agent.project_instructions import ProjectInstructions
from ouro.safety import trust


def of(repository, trusts=lambda _path: True, cwd="."):
    return ProjectInstructions(repository / cwd, trusts)


def bodies(texts) -> list[str]:
    return [text.split("\n", 1)[1].removesuffix("\n</instructions>") for text in texts]


def test_imports_follow_the_importing_file_and_are_sent_once(repository):
    write(
        repository / "AGENTS.md",
        "See @docs/style.md and @docs/style.md, not `@docs/code.md`.\n```\n@docs/code.md\n```\n",
    )
    write(repository / "docs/style.md", "Use tabs. @../AGENTS.md @more.md")
    write(repository / "docs/more.md", "And more.")
    write(repository / "docs/code.md", "Not this.")
    found = of(repository)
    texts = found.project_texts()
    assert bodies(texts)[1:] == ["Use tabs. @../AGENTS.md @more.md", "And more."]
    assert texts[1].startswith(
        f'<instructions file="{repository}/docs/style.md" imported-by="{repository}/AGENTS.md">\n'
    )
    assert found.problems == []


def test_imports_are_at_most_five_deep(repository):
    for number in range(8):
        write(
            repository / f"{number}.md" if number else repository / "AGENTS.md",
            f"{number} @{number + 1}.md",
        )
    found = of(repository)
    assert [body[0] for body in bodies(found.project_texts())] == list("012345")
    assert found.problems == [f"{repository}/5.md: @6.md is imported more than 5 deep"]


def test_f8_imports_from_outside_the_project_and_of_keys_are_refused(home, repository):
    write(home / "notes.md", "mine")
    write(home / ".ssh/id_rsa", "the key")
    write(repository / "AGENTS.md", "@~/notes.md @../../x @~/.ssh/id_rsa @missing.md")
    write(home / ".ouro/AGENTS.md", "Be brief. @~/notes.md @style.md @~/.ssh/id_rsa")
    write(home / ".ouro/style.md", "my style")
    found = of(repository)
    assert bodies(found.project_texts()) == ["@~/notes.md @../../x @~/.ssh/id_rsa @missing.md"]
    assert bodies(found.user_texts())[1:] == ["mine", "my style"]
    assert found.problems == [
        f"{repository}/AGENTS.md: @~/notes.md is outside of {repository}",
        f"{repository}/AGENTS.md: @~/.ssh/id_rsa is outside of {repository}",
        f"{repository}/AGENTS.md: @missing.md is not there",
        f"{home}/.ouro/AGENTS.md: @~/.ssh/id_rsa is not imported: it may hold keys",
    ]


def test_override_file_replaces_agents_md_in_its_folder(repository):
    write(repository / "AGENTS.md", "for all")
    write(repository / "AGENTS.override.md", "for me")
    assert bodies(of(repository).project_texts()) == ["for me"]


def test_claude_md_in_the_dot_claude_folder_is_read(repository):
    write(repository / "AGENTS.md", "one")
    write(repository / ".claude/CLAUDE.md", "two")
    assert bodies(of(repository).project_texts()) == ["one", "two"]


def test_claude_md_that_imports_agents_md_is_read_beside_it(repository):
    write(repository / "AGENTS.md", "for all")
    write(repository / "CLAUDE.md", "@AGENTS.md\nand for Claude")
    assert bodies(of(repository).project_texts()) == ["for all", "@AGENTS.md\nand for Claude"]
    write(repository / "CLAUDE.md", "only for Claude")
    found = of(repository)
    assert bodies(found.project_texts()) == ["for all"]
    unused = found.report()[0]
    assert (unused.path.name, unused.state) == ("CLAUDE.md", "not used")
    assert unused.reason == "AGENTS.md is used in its folder"
    (repository / "CLAUDE.md").unlink()
    (repository / "CLAUDE.md").symlink_to("AGENTS.md")
    linked = of(repository)
    assert bodies(linked.project_texts()) == ["for all"]
    assert [item.state for item in linked.report()] == ["sent"]


def test_a_claude_md_that_is_not_sent_is_reported_if_it_says_something_else(repository):
    write(repository / "AGENTS.md", "for all\n\nof us")
    write(repository / "AGENTS.override.md", "")
    write(repository / "CLAUDE.md", "of us\n\nfor all")
    found = of(repository)
    found.project_texts()
    assert found.unused == []
    write(repository / "CLAUDE.md", "for all\nonly for Claude")
    found.project_texts()
    found.project_texts()
    assert found.unused == [
        f"{repository}/CLAUDE.md is not sent: AGENTS.md beside it is used. To send both, write"
        " `@AGENTS.md` into CLAUDE.md."
    ]
    distrusting = of(repository, lambda _path: False)
    distrusting.project_texts()
    assert distrusting.unused == []


def test_a_replaced_agents_md_is_not_reported(repository):
    write(repository / "AGENTS.md", "for all")
    write(repository / "AGENTS.override.md", "for me")
    found = of(repository)
    found.project_texts()
    assert found.unused == []


def test_f8_local_instructions_of_the_user_are_read_if_trusted(repository):
    write(repository / "AGENTS.md", "for all")
    write(repository / "CLAUDE.local.md", "for me")
    assert bodies(of(repository).project_texts()) == ["for all", "for me"]
    assert repository / "CLAUDE.local.md" in trust.acting_files(repository)
    others = of(repository, lambda path: path.name != "CLAUDE.local.md")
    assert bodies(others.project_texts()) == ["for all"]


def test_user_instructions_of_ouro_replace_those_of_claude_code(home, repository):
    write(home / ".claude/CLAUDE.md", "as in Claude Code")
    assert bodies(of(repository).user_texts()) == ["as in Claude Code"]
    write(home / ".ouro/AGENTS.md", "as in ouro")
    assert bodies(of(repository).user_texts()) == ["as in ouro"]


@pytest.mark.parametrize(
    ("folder", "front", "touched", "others"),
    [
        (".claude/rules", 'paths: "src/**/*.ts"', "src/a/b.ts", "b.ts"),
        (".claude/rules", "paths:\n  - src/**\n  - lib/*.{js,mjs}", "lib/x.mjs", "lib/x.py"),
        (
            ".cursor/rules",
            "description: x\nglobs: *.py, docs/*.md\nalwaysApply: false",
            "deep/a.py",
            "a.md",
        ),
        (".ouro/rules", "globs: [api.py]", "api.py", "b.py"),
        (".claude/rules", 'paths: "src/**/*.{ts,tsx}, *.md"', "src/deep/a.tsx", "a.tsx"),
        (".claude/rules", "paths: **/*.{ts,tsx}", "src/a.ts", "a.md"),
    ],
)
def test_rule_is_sent_once_when_a_matching_file_is_touched(
    repository, folder, front, touched, others
):
    write(repository / folder / "x.mdc", f"---\n{front}\n---\nBe strict.")
    found = of(repository)
    assert found.project_texts() == ()
    assert found.for_paths([others]) == ""
    assert "Be strict." in found.for_paths([others, touched])
    assert found.for_paths([touched]) == ""
    found.clear()
    assert "Be strict." in found.for_paths([touched])


def test_rules_without_globs_apply_from_the_start_unless_manual(home, repository):
    write(repository / ".claude/rules/all.md", "For all.")
    write(repository / ".cursor/rules/manual.mdc", "---\nalwaysApply: false\n---\nBy name.")
    write(home / ".ouro/rules/mine.md", "Mine.")
    found = of(repository)
    assert (bodies(found.project_texts()), bodies(found.user_texts())) == (["For all."], ["Mine."])


def test_e4_rules_that_are_not_trusted_are_not_sent(home, repository):
    rule = write(repository / ".claude/rules/x.md", "---\npaths: '*.py'\n---\nBe strict.")
    write(repository / ".claude/rules/all.md", "For all.")
    write(home / ".ouro/rules/mine.md", "---\nglobs: '*.py'\n---\nMine.")
    found = of(repository, lambda _path: False)
    assert found.project_texts() == ()
    assert bodies([found.for_paths(["api.py"])]) == ["Mine."]
    assert {item.state for item in found.report() if item.path == rule} == {"not trusted"}


def test_report_lists_each_file_with_reason_and_tokens(repository):
    write(repository / "AGENTS.md", "Be brief. @x.md")
    write(repository / "x.md", "x" * 70)
    write(repository / "sub/AGENTS.md", "Use tabs.")
    write(repository / ".claude/rules/r.md", "---\npaths: '*.ts'\n---\nBe strict.")
    found = of(repository)
    found.project_texts()
    found.for_paths(["sub/a.py"])
    rows = [
        (str(item.path.relative_to(repository)), item.reason, item.state) for item in found.report()
    ]
    assert rows == [
        ("AGENTS.md", "project", "sent"),
        ("x.md", f"imported by {repository}/AGENTS.md", "sent"),
        ("sub/AGENTS.md", "project", "sent"),
        (".claude/rules/r.md", "for *.ts", "later"),
    ]
    assert found.report()[1].tokens == 20


def test_deep_path_needs_few_file_lookups_per_folder(repository, monkeypatch):
    depth, looks = 150, []
    lexists = trust.os.path.lexists
    monkeypatch.setattr(
        trust.os.path, "lexists", lambda path: (looks.append(path), lexists(path))[1]
    )
    found = of(repository)
    looks.clear()
    deep = "/".join(["d"] * depth)
    found.for_paths([f"{deep}/a.py", f"{deep}/b.py"])
    assert len(looks) == len(trust.INSTRUCTION_FILES) * depth
    found.for_paths([f"{deep}/c.py"])
    assert len(looks) == len(trust.INSTRUCTION_FILES) * depth
