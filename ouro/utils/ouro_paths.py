"""Paths of ouro's folders and files, and the secret of its home."""

from __future__ import annotations

import os

from ouro.errors import ConfigError
from ouro.utils.text import readable_bytes

TYPE_CHECKING = False  # without `typing` and `pathlib`, 5 ms that the first frame can do without
if TYPE_CHECKING:
    from pathlib import Path


def home_name() -> str:
    """The absolute path of `~/.ouro`, or OURO_HOME. Creates nothing.

    Raises:
        ConfigError: the home folder (of the named or the present user) is not known.
    """
    named = os.environ.get("OURO_HOME") or "~/.ouro"
    path = os.path.expanduser(named)
    if path.startswith("~") and named.startswith("~"):  # Python leaves it so if it knows no home
        raise ConfigError(f"There is no home folder for {named}.", "Set OURO_HOME to a folder.")
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def get_home() -> Path:
    """The home folder of ouro, `~/.ouro` or OURO_HOME, as a `Path`. Raises ConfigError as
    `home_name` does.
    """
    from pathlib import Path

    return Path(home_name())


def config_name() -> str:
    return os.path.join(home_name(), "config.yaml")


def get_config_path() -> Path:
    from pathlib import Path

    return Path(config_name())


def get_models_path() -> Path:
    return get_home() / "models.yaml"


def get_server_facts_path() -> Path:
    """The file with what refusals have shown about models at their endpoints."""
    return get_home() / "server_facts.json"


def get_price_table_path() -> Path:
    """The table of models that `ouro models update` has fetched."""
    return get_home() / "cache" / "model_prices.json"


def get_trust_path() -> Path:
    return get_home() / "trusted.yaml"


def get_permissions_path() -> Path:
    """The file of the permission rules that the user added with "always", by project."""
    return get_home() / "permissions.yaml"


def get_import_offers_path() -> Path:
    """The file of the projects in which an import of other agents' memory was offered."""
    return get_home() / "import_offers.json"


def get_sessions_dir() -> Path:
    return get_home() / "sessions"


def get_memory_dir() -> Path:
    return get_home() / "memory"


def get_history_dir() -> Path:
    """The folder with the approval records of each memory, and the git histories of shared
    memories.
    """
    return get_home() / "history.git"


def get_recall_log_path() -> Path:
    """The file with the counts of recalls of each note; derived from sessions, may be deleted."""
    return get_home() / "cache" / "recalled.json"


def get_command_ledger_dir() -> Path:
    """The folder of the command ledgers (which commands passed or failed), a file for each project."""
    return get_home() / "command_ledger"


def index_name() -> str:
    """The search index over memory and sessions; derived, may be deleted."""
    return os.path.join(home_name(), "cache", "index.db")


def get_index_path() -> Path:
    from pathlib import Path

    return Path(index_name())


def vectors_made_name() -> str:
    """The file that the process which makes vectors with the local model leaves beside the index.
    Without it there are no such vectors.
    """
    return f"{index_name()}.vectors"


def get_checkpoints_dir() -> Path:
    return get_home() / "checkpoints"


def get_worktrees_dir() -> Path:
    """The folder of subagents' git worktrees. It is outside of `~/.ouro`, where each write would
    need a question.
    """
    from pathlib import Path

    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "ouro" / "worktrees"


def history_name() -> str:
    """The file of the messages that the user has sent."""
    return os.path.join(home_name(), "history")


def get_history_path() -> Path:
    from pathlib import Path

    return Path(history_name())


def get_drafts_dir() -> Path:
    """The folder of prompts that were not sent."""
    return get_home() / "drafts"


def get_themes_dir() -> Path:
    """The folder of the user's themes for the full screen."""
    return get_home() / "themes"


def get_file_lists_dir() -> Path:
    """The folder of saved lists of the files of large projects."""
    return get_home() / "file_lists"


def get_background_dir() -> Path:
    """The folder of sockets and records of the sessions that run in the background."""
    return get_home() / "background"


def get_unwritten_sessions_dir() -> Path:
    """The folder with an empty file for each session of an editor that has no message yet."""
    return get_home() / "editors" / "unwritten"


def get_log_path() -> Path:
    return get_home() / "logs" / "ouro.log"


def get_written_journals() -> Path:
    """The folder in which each process records user and session folders in which it replaces files."""
    return get_home() / "cache" / "written"


def get_written_dirs(project: Path) -> list[Path]:
    """The folders of ouro, in its home and in a project, into which it writes files. Folders of sessions
    are not among them.
    """
    home = get_home()
    memories = (get_memory_dir(), project / ".ouro" / "memory")
    home_folders = (
        home,
        home / "cache",
        home / "sessions.git",
        home / "sessions.git" / "ouro",
        *(home / "cache").glob("*/"),
        *(memory / ".git" for memory in memories),
    )
    checkpoints = get_checkpoints_dir()
    history_and_checkpoints = (
        *get_history_dir().glob("*.git/*/"),
        *checkpoints.glob("*/"),
        *checkpoints.glob("*/*/"),
    )
    return [*home_folders, *history_and_checkpoints, *memories, project / ".ouro"]


def tilde(path: Path | str) -> str:
    """`path` with `~` for the home folder."""
    name, home = str(path), os.path.expanduser("~").rstrip("/")
    if home != "~" and (name == home or name.startswith(f"{home}/")):
        name = f"~{name[len(home) :]}"
    return readable_bytes(name)


def expand_home(path: Path | str) -> Path:
    """The path with the home folder instead of `~` or `~user`. It stays as it is if there is no such
    user: `Path.expanduser` raises RuntimeError then.
    """
    from pathlib import Path

    try:
        return Path(os.path.expanduser(path))
    except ValueError:  # NUL in the name of the user
        return Path(path)


def ensure_private_dir(folder: Path) -> Path:
    """Create `folder` and its parents below ouro's home, readable only by the user (0700); returns
    it.
    """
    home = get_home()
    folders = [
        folder,
        *(parent for parent in folder.parents if parent == home or home in parent.parents),
    ]
    for parent in reversed(folders):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if parent.stat().st_uid == os.getuid() and parent.stat().st_mode & 0o077:
            parent.chmod(0o700)
    return folder


def home_secret() -> bytes:
    """32 secret bytes of this home, which are made and saved at first use. If they cannot be saved
    or read, each call returns different ones.
    """
    from contextlib import suppress

    path, fresh = get_home() / "mark.key", os.urandom(32)
    with suppress(OSError):
        ensure_private_dir(path.parent)
        with suppress(FileExistsError):  # they were made before, perhaps by another process now
            descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(fresh)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            saved = file.read(len(fresh) + 1)  # one more byte shows that the file is not ours
        return saved if len(saved) == len(fresh) else fresh
    return fresh
