"""The tables of the index."""

from __future__ import annotations

import sqlite3

from ouro import __version__

VERSION = 6
"""The version of the tables. An index of `VERSION_WITHOUT_SEARCH_WORDS` is completed in place; one of
an earlier version is rebuilt from the files.
"""
VERSION_WITHOUT_SEARCH_WORDS = 5
_TOKENIZER = "tokenize = 'porter unicode61 remove_diacritics 2'"
_KEPT_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS vectors (hash INTEGER NOT NULL, model INTEGER NOT NULL, vector"
        " BLOB NOT NULL, PRIMARY KEY (model, hash)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT"
        " NULL, length INTEGER NOT NULL, used TEXT NOT NULL, UNIQUE (name, length))"
    ),
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
"""Tables that stay when the index is rebuilt: vectors may have cost money."""
NOTES_BY_FILTER = (
    "CREATE INDEX IF NOT EXISTS notes_by_filter ON notes (kind, archived, category, project, scope)"
)
"""With it a filter of notes is counted without reading their texts. Indexes that were made before
it existed get it in the background (`Index.add_missing_sql_indexes`).
"""
_REBUILT_TABLES = (
    """CREATE TABLE sessions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, folder TEXT NOT NULL UNIQUE, project TEXT NOT NULL,
    title TEXT NOT NULL DEFAULT '', summary TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '',
    created_at TEXT NOT NULL DEFAULT '', updated_at TEXT NOT NULL DEFAULT '', messages INTEGER NOT NULL DEFAULT 0,
    passages INTEGER NOT NULL DEFAULT 0, outputs INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, read INTEGER NOT NULL, hash BLOB NOT NULL)""",
    "CREATE INDEX sessions_by_id ON sessions (id)",
    """CREATE TABLE messages (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, number INTEGER NOT NULL, role TEXT NOT NULL, at TEXT NOT NULL,
    text TEXT NOT NULL, hash INTEGER NOT NULL, stamp INTEGER)""",
    "CREATE INDEX messages_by_stamp ON messages (stamp)",
    """CREATE TABLE outputs (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, number INTEGER NOT NULL, role TEXT NOT NULL, at TEXT NOT NULL,
    text TEXT NOT NULL)""",
    """CREATE TABLE files (
    path TEXT PRIMARY KEY, folder TEXT NOT NULL, scope TEXT NOT NULL, project TEXT NOT NULL,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, hash BLOB NOT NULL)""",
    """CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, kind TEXT NOT NULL, note TEXT NOT NULL,
    line INTEGER NOT NULL, scope TEXT NOT NULL, project TEXT NOT NULL, category TEXT NOT NULL, text TEXT NOT NULL,
    at TEXT NOT NULL, confidence REAL NOT NULL, source TEXT NOT NULL, branch TEXT NOT NULL, session TEXT NOT NULL,
    turn INTEGER NOT NULL, supersedes TEXT NOT NULL, archived INTEGER NOT NULL, hash INTEGER NOT NULL,
    stamp INTEGER, search_words TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX notes_by_path ON notes (path)",
    "CREATE INDEX notes_by_note ON notes (note)",
    "CREATE INDEX notes_by_supersedes ON notes (supersedes)",
    "CREATE INDEX notes_by_stamp ON notes (stamp)",
    NOTES_BY_FILTER,
    (
        "CREATE TABLE entities (entity TEXT NOT NULL, note INTEGER NOT NULL, PRIMARY KEY (entity,"
        " note)) WITHOUT ROWID"
    ),
    "CREATE INDEX entities_by_note ON entities (note)",
    (
        "CREATE TABLE edges (note TEXT NOT NULL, relationship TEXT NOT NULL, other TEXT NOT NULL,"
        " path TEXT NOT NULL)"
    ),
    "CREATE INDEX edges_by_note ON edges (note)",
    "CREATE INDEX edges_by_other ON edges (other)",
    "CREATE INDEX edges_by_path ON edges (path)",
    (
        "CREATE TABLE anchors (note TEXT NOT NULL, file TEXT NOT NULL, blob TEXT NOT NULL, path"
        " TEXT NOT NULL)"
    ),
    "CREATE INDEX anchors_by_path ON anchors (path)",
    (
        "CREATE TABLE relations (source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT"
        " NULL, path TEXT NOT NULL)"
    ),
    "CREATE INDEX relations_by_source ON relations (source)",
    "CREATE INDEX relations_by_target ON relations (target)",
    "CREATE INDEX relations_by_path ON relations (path)",
    "CREATE VIEW core AS SELECT * FROM notes WHERE kind = 'core'",
)
"""`notes` holds notes and the lines of core files. `outputs` is a separate table, so that recall
never reads tool outputs. `anchors` are the files that a note names, with the git hash of their
content at that time.

`stamp` is a rising number that a row gets with its vector: rows without one still need a vector,
and rows with a higher one than the last seen are new. It is for the model in `facts`; `vectors`
also has vectors of other `models`. If a model returns vectors of another length, it counts as
another model. `used` is the day of its last use.
"""


def searched_column(table: str, row: str = "") -> str:
    """Returns the SQL expression for what is searched of a row: of a note its text, and on the next
    line its search words. `row` is the name of the row with a dot, as `new.`.
    """
    if table != "notes":
        return f"{row}text"
    return f"{row}text || iif({row}search_words = '', '', char(10) || {row}search_words)"


def _word_index_statements(table: str) -> tuple[str, ...]:
    """Returns the statements that make the word index of a table, and the triggers that keep it up
    to date.
    """
    index = (
        f"CREATE VIRTUAL TABLE {table}_words USING fts5(text, content = '{table}', content_rowid ="
        f" 'id', {_TOKENIZER})"
    )
    return index, *_word_index_triggers(table)


def _word_index_triggers(table: str) -> tuple[str, ...]:
    """Returns the statements that make the triggers of a word index.

    The index does not hold the texts (FTS5's external content). To remove a row from it, FTS5 wants
    an INSERT with the command 'delete' and the text that was indexed.
    """
    index_name = f"{table}_words"
    added, removed = searched_column(table, "new."), searched_column(table, "old.")
    return (
        (
            f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN"
            f" INSERT INTO {index_name} (rowid, text) VALUES (new.id, findable({added})); END"
        ),
        (
            f"CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN INSERT INTO {index_name}"
            f" ({index_name}, rowid, text) VALUES ('delete', old.id, findable({removed})); END"
        ),
    )


_SCHEMA = (
    *_KEPT_TABLES,
    *_REBUILT_TABLES,
    *(line for table in ("messages", "outputs", "notes") for line in _word_index_statements(table)),
)


def add_search_words(database: sqlite3.Connection) -> None:
    """Complete the tables of `VERSION_WITHOUT_SEARCH_WORDS`. No text is indexed again: without
    search words the triggers index the same as before.
    """
    database.execute("ALTER TABLE notes ADD COLUMN search_words TEXT NOT NULL DEFAULT ''")
    database.execute("DROP TRIGGER notes_added")
    database.execute("DROP TRIGGER notes_removed")
    for statement in _word_index_triggers("notes"):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {VERSION}")


def make_tables(database: sqlite3.Connection) -> None:
    """Replace all tables by empty ones, except those with vectors, which took long to compute."""
    # The word indexes come first. SQLite removes the inner tables of a word index with it; the
    # next pattern would find these, but they cannot be removed alone.
    for pattern in ("%!_words", "%"):
        old_tables = database.execute(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE ?"
            " ESCAPE '!' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name NOT IN ('vectors',"
            " 'models', 'facts')",
            (pattern,),
        ).fetchall()
        for kind, name in old_tables:
            database.execute(f"DROP {kind} {name}")
    for statement in _SCHEMA:
        database.execute(statement)
    database.execute("INSERT OR REPLACE INTO facts VALUES ('made', hex(randomblob(8)))")
    database.execute("INSERT OR REPLACE INTO facts VALUES ('ouro', ?)", (__version__,))
    database.execute(f"PRAGMA user_version = {VERSION}")
