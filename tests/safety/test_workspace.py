"""Which files the file tools may open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ouro.errors import ToolError
from ouro.safety import GIT_CONFIG, GuardedMemory, Workspace, protected


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def refusal(workspace: Workspace, text: str, access="read") -> str:
    with pytest.raises(ToolError) as caught, workspace.place(text, access) as place:
        workspace.open_in(place)
    return caught.value.message


def test_resolve_follows_home_links_and_missing_tails(root, home):
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    workspace = Workspace(root)
    assert workspace.resolve("~/x") == home / "x"
    assert workspace.resolve("link/new/file.py") == root / "real/new/file.py"
    assert workspace.resolve("a/../../b") == root.parent / "b"
    assert workspace.resolve("/etc/hosts") == Path("/etc/hosts").resolve()
    assert workspace.resolve("~nobody-of-that-name/x") == root / "~nobody-of-that-name/x"
    assert workspace.resolve("a\0b").name == "a\ufffdb"


def test_inside_is_decided_by_the_real_path(root, tmp_path):
    (tmp_path / "other").mkdir()
    (root / "out").symlink_to(tmp_path / "other")
    workspace = Workspace(root, [tmp_path / "extra"])
    inside = {
        name: workspace.is_inside(workspace.resolve(name))
        for name in (
            "a.py",
            "sub/../a.py",
            "../a.py",
            "out/a.py",
            ".",
            str(tmp_path / "extra/x"),
            "../projects",
        )
    }
    assert inside == {
        "a.py": True,
        "sub/../a.py": True,
        "../a.py": False,
        "out/a.py": False,
        ".": True,
        str(tmp_path / "extra/x"): True,
        "../projects": False,
    }


def test_a_root_that_is_a_link_is_its_target(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    workspace = Workspace(tmp_path / "alias")
    assert workspace.root == root
    assert workspace.is_inside(root / "a.py")


def test_keys_and_system_files_are_never_inside_even_when_everything_is(home):
    workspace = Workspace(Path("/"))
    assert [
        workspace.is_inside(workspace.resolve(name))
        for name in (
            "/etc/hosts",
            "~/.ssh/id_rsa",
            "~/.SSH/id_rsa",
            "/proc/self/environ",
            "/dev/tty",
            "~/.ouro/models.yaml",
        )
    ] == [True, False, False, False, False, False]


def test_a_project_may_lie_in_a_system_folder(tmp_path):
    assert Workspace(Path("/dev/shm/project")).is_inside(Path("/dev/shm/project/a.py"))


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        "sub/.git",
        ".GIT/config",
        ".g\u200bit/config",
        ".ouro/config.yaml",
        ".OURO/config.yaml",
        ".ouro",
        ".bashrc",
        "dot/.zshenv",
        ".ssh/authorized_keys",
        ".aws/credentials",
        ".gnupg/gpg.conf",
        ".vscode/tasks.json",
        ".mcp.json",
        "~/.config/fish/conf.d/x.fish",
        "~/.ouro/models.yaml",
    ],
)
def test_files_that_other_programs_execute_are_protected(root, name):
    workspace = Workspace(root)
    assert workspace.protection(workspace.resolve(name)) != ""


@pytest.mark.parametrize(
    "name",
    [
        "a.py",
        ".gitignore",
        ".github/CODEOWNERS",
        "~/.ouro/memory/core/a.md",
        ".ouro/memory/core/a.md",
        "git/x",
    ],
)
def test_ordinary_files_and_memory_are_not_protected(root, name):
    workspace = Workspace(root)
    assert workspace.protection(workspace.resolve(name)) == ""


def test_a_link_to_a_protected_file_is_protected(root):
    (root / ".git").mkdir()
    (root / ".git/config").write_text("")
    (root / "harmless").symlink_to(".git/config")
    workspace = Workspace(root)
    assert workspace.protection(root / "harmless") == "git obeys what is in .git"
    assert "git obeys" in refusal(workspace, "harmless", "write")
    with workspace.open("harmless") as file:
        assert file.read() == b""


def test_grant_opens_only_the_granted_path(root, tmp_path):
    (tmp_path / "notes.txt").write_text("out")
    (tmp_path / "more.txt").write_text("out")
    workspace = Workspace(root)
    assert "outside the workspace" in refusal(workspace, "../notes.txt")
    workspace.grant(tmp_path / "notes.txt")
    with workspace.open("../notes.txt") as file:
        assert file.read() == b"out"
    assert "outside the workspace" in refusal(workspace, "../more.txt")


def test_missing_path_or_folder_is_reported(root):
    workspace = Workspace(root)
    assert refusal(workspace, "none.py") == "none.py does not exist."
    assert refusal(workspace, "none/none.py") == "none does not exist."
    assert refusal(workspace, ".") == ". is a folder, not a file."
    (root / "file").write_text("")
    assert refusal(workspace, "file/x") == "file cannot be opened as a folder: Not a directory."
    (root / "loop").symlink_to("loop")
    assert "not a file" in refusal(workspace, "loop")
    assert "cannot be opened" in refusal(workspace, "n" * 300)


def test_parents_are_made_below_the_root(root):
    workspace = Workspace(root)
    with workspace.place("a/b/c.py", "write", create_parents=True) as place:
        os.close(os.open(place.name, os.O_CREAT | os.O_WRONLY, dir_fd=place.folder))
    assert (root / "a/b/c.py").is_file()


def test_shown_paths_are_short(root, home):
    workspace = Workspace(root)
    assert [
        workspace.shown(path) for path in (root, root / "a/b", home / "x", home, Path("/etc"))
    ] == [
        ".",
        "a/b",
        "~/x",
        str(home),
        "/etc",
    ]


def test_search_excludes_keys_until_granted(home):
    (home / ".ssh").mkdir()
    workspace = Workspace(home)
    assert workspace.closed_below(home) == [home / ".ssh"]
    workspace.grant(home / ".ssh")
    assert workspace.closed_below(home) == []


def test_git_file_of_a_memory_can_name_a_folder_that_is_not_utf_8(tmp_path):
    folder, state = tmp_path / "memory", tmp_path / os.fsdecode(b"caf\xe9.git")
    folder.mkdir()
    state.mkdir()
    (state / "config").write_text(GIT_CONFIG)
    (folder / ".git").write_bytes(b"gitdir: " + os.fsencode(state) + b"\n")

    assert GuardedMemory(folder, state).find_tampering() == ""
    assert (
        GuardedMemory(folder, tmp_path / "other.git").find_tampering()
        == f"{folder / '.git'} is not ouro's"
    )


@pytest.fixture
def old_home(tmp_path, monkeypatch):
    """A home that was changed long ago, and the folders that are listed from now on."""
    home, listed = tmp_path / "home", []
    (home / ".config").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OURO_HOME", str(home / ".ouro"))
    # The time of the inode cannot be set: without a margin every folder counts as old.
    monkeypatch.setattr(protected, "_MTIME_MARGIN", -1)
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or real(path))
    return home, listed


def wait_for_another_time(*folders):
    """Change the folders until the clock of the file system has moved."""
    for folder in folders:
        before = folder.stat().st_mtime_ns
        while folder.stat().st_mtime_ns == before:
            (folder / "x").touch()
            (folder / "x").unlink()


def test_folders_with_keys_are_listed_again_only_if_they_have_changed(old_home):
    home, listed = old_home
    assert protected.existing_reserved_areas() == []
    assert len(listed) == 2
    wait_for_another_time(home, home / ".config")
    listed.clear()
    assert protected.existing_reserved_areas() == []
    assert len(listed) == 2
    protected.existing_reserved_areas()
    assert len(listed) == 2
    (home / ".config/gh").mkdir()
    (home / ".config/gh/hosts.yml").touch()
    (home / ".npmrc").touch()
    wait_for_another_time(home, home / ".config")
    assert {home / ".npmrc", home / ".config/gh"} <= {*protected.existing_reserved_areas()}
    (home / ".npmrc").unlink()
    wait_for_another_time(home)
    assert home / ".npmrc" not in protected.existing_reserved_areas()
    (home / ".npmrc").touch()
    wait_for_another_time(home)
    home.rename(home.with_name("moved"))
    assert protected.existing_reserved_areas() == []
    home.with_name("moved").rename(home)
    assert home / ".npmrc" in protected.existing_reserved_areas()


def test_a_folder_that_has_just_changed_is_listed_each_time(old_home, monkeypatch):
    monkeypatch.setattr(protected, "_MTIME_MARGIN", 10**18)
    _, listed = old_home
    protected.existing_reserved_areas()
    protected.existing_reserved_areas()
    assert len(listed) == 4


def test_existing_places_of_keys_are_found_in_the_order_of_all_places(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OURO_HOME", str(tmp_path / "own"))
    assert protected.existing_reserved_areas() == []
    places = [".npmrc", ".config/gh/hosts.yml", ".config/op/config", ".ssh/id", ".m2/settings.xml"]
    for path in (*(home / name for name in places), tmp_path / "own/sessions/x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "elsewhere").mkdir()
    (home / ".aws").symlink_to(tmp_path / "elsewhere")
    everything = [
        place for place in protected.reserved_areas() if str(place) not in protected.SYSTEM_FOLDERS
    ]
    found = protected.existing_reserved_areas()
    assert found == [place for place in everything if place.exists()]
    assert {home / ".ssh", home / ".npmrc", home / ".aws", tmp_path / "own/sessions"} <= {*found}
    home.chmod(0o300)  # a home that nobody may list
    try:
        assert protected.existing_reserved_areas() == found
    finally:
        home.chmod(0o700)
