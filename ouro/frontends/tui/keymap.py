"""Keymap: the actions of the full screen and their keys, which `tui.keys` changes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import punctuation
from typing import Literal

from textual.keys import Keys, _character_to_key

from ouro.errors import ConfigError

Place = Literal["prompt", "edit", "app", "answer", "sheet", "sessions", "memory", "context", "diff"]


@dataclass(frozen=True, slots=True)
class KeyAction:
    """An action with its usual keys and its help."""

    name: str
    keys: tuple[str, ...]
    help: str
    place: Place
    run: str = ""
    """The Textual action, if its name differs."""

    @property
    def action(self) -> str:
        return self.run or self.name


def _edit_action(name: str, keys: str, help_text: str, run: str) -> KeyAction:
    """An action that edits the text of the prompt; `keys` are written with blanks between them."""
    return KeyAction(name, tuple(keys.split()), help_text, "edit", run)


UNDO_MEMORY = "take_back"
"""The name that settings use."""

SCROLLS = {
    "page_up": "page_up",
    "page_down": "page_down",
    "top": "scroll_home",
    "bottom": "scroll_end",
}
"""The Textual action of each action that scrolls."""

ACTIONS: tuple[KeyAction, ...] = (
    KeyAction("send", ("enter",), "send; during a turn: steer it", "prompt"),
    KeyAction(
        "newline", ("shift+enter", "alt+enter", "ctrl+j"), "new line (also `\\` Enter)", "prompt"
    ),
    KeyAction("queue", ("tab",), "during a turn: queue for the next turn", "prompt"),
    KeyAction(
        "previous",
        ("up",),
        "previous line or message; on empty input: edit the newest queued message",
        "prompt",
    ),
    KeyAction("next", ("down", "ctrl+n"), "next line or message", "prompt"),
    KeyAction("search_history", ("ctrl+r",), "search the prompt history", "prompt"),
    KeyAction("stash", ("ctrl+s",), "put the draft aside; on empty input: restore it", "prompt"),
    KeyAction("unfold", ("alt+e",), "unfold a long paste, to edit it", "prompt"),
    KeyAction("editor", ("ctrl+g", "ctrl+x ctrl+e"), "write in your editor", "prompt"),
    KeyAction("paste_image", ("ctrl+v", "alt+v"), "paste an image", "prompt"),
    KeyAction("clear", ("ctrl+c",), "clear the input, else interrupt; again to quit", "prompt"),
    KeyAction("leave", ("ctrl+d",), "quit on empty input", "prompt"),
    KeyAction("palette", ("ctrl+p",), "everything in one list, on empty input", "prompt"),
    KeyAction("help", ("?", "f1"), "commands and keys (`?` on empty input)", "prompt"),
    KeyAction(
        "rewind",
        ("escape escape",),
        "clear the input; on empty input: rewind to an earlier message",
        "prompt",
    ),
    KeyAction("interrupt", ("escape",), "interrupt; twice: kill running commands", "app"),
    KeyAction(
        "mode", ("shift+tab",), "mode: ask → edit → plan (`/permissions auto`: no questions)", "app"
    ),
    KeyAction(
        "outputs", ("ctrl+o",), "unfold tool outputs; twice: read the whole transcript", "app"
    ),
    KeyAction("transcript", ("alt+r",), "read the whole transcript", "app"),
    KeyAction("mouse", ("alt+m",), "leave the mouse to the terminal, or use it again", "app"),
    KeyAction("card_previous", ("alt+up",), "mark a tool call or thinking above", "app"),
    KeyAction("card_next", ("alt+down",), "mark one below", "app"),
    KeyAction("card", ("alt+o",), "unfold the marked one, or the last", "app"),
    KeyAction("todos", ("ctrl+t",), "the agent's plan", "app"),
    KeyAction("queue_list", ("alt+q",), "queued messages: edit, move, remove", "app"),
    KeyAction("jobs", ("ctrl+b",), "move the running command to the background, else: jobs", "app"),
    KeyAction("terminal", ("f8",), "type into a program that waits in a terminal", "app"),
    KeyAction("detach", ("f9",), "leave; the session continues in the background (`/bg`)", "app"),
    KeyAction("receipt", ("ctrl+y",), "memory receipt: what memory put into the prompt", "app"),
    KeyAction("memory", ("f4",), "memory browser", "app"),
    KeyAction(
        "import_memory",
        ("f6",),
        "first start in a folder: import what other agents know there",
        "app",
    ),
    KeyAction("send_offered", ("alt+s",), "send what another project knows, if it is shown", "app"),
    KeyAction("model", ("alt+p",), "choose a model", "app"),
    KeyAction("next_model", ("f2",), "the next favorite model (`/model favorite`)", "app"),
    KeyAction("previous_model", ("shift+f2",), "the previous one", "app"),
    KeyAction("think", ("alt+t",), "think: off → minimal → low → … → max", "app"),
    KeyAction("redraw", ("ctrl+l",), "draw the screen again", "app"),
    KeyAction("suspend", ("ctrl+z",), "suspend", "app", "suspend_process"),
    KeyAction("page_up", ("pageup",), "transcript: a page up", "app"),
    KeyAction("page_down", ("pagedown",), "transcript: a page down", "app"),
    KeyAction("top", ("ctrl+home",), "a long message, else the transcript: to its start", "app"),
    KeyAction("bottom", ("ctrl+end",), "a long message, else the transcript: to its end", "app"),
    KeyAction("yes", ("y",), "yes", "answer"),
    KeyAction(
        "session",
        ("s",),
        "yes, for this session: by the shown rule, or all edits until the mode changes",
        "answer",
    ),
    KeyAction("always", ("a",), "always (saves the shown rule)", "answer"),
    KeyAction("no", ("n",), "no: stop, and say what to do instead", "answer"),
    KeyAction("decline", ("d",), "no, and continue without it", "answer"),
    KeyAction("comment", ("tab",), "add a comment", "answer"),
    KeyAction("fork_there", ("ctrl+f",), "fork the session there instead", "sheet"),
    KeyAction("change_scope", ("ctrl+a",), "this project or all", "sessions"),
    KeyAction(
        "show_headless", ("f6", "h"), "show sessions of scripts (ouro -p), or not", "sessions"
    ),
    KeyAction("fork_session", ("ctrl+f", "f"), "fork (letters work in the list: Tab)", "sessions"),
    KeyAction("rename_session", ("f2", "r"), "rename", "sessions"),
    KeyAction("tag_session", ("f5", "t"), "set the tags", "sessions"),
    KeyAction("pin_session", ("f3", "p"), "pin, to be first in the list", "sessions"),
    KeyAction("delete_session", ("ctrl+d", "d"), "move to the trash", "sessions"),
    KeyAction("restore_session", ("ctrl+u", "u"), "restore from the trash", "sessions"),
    KeyAction("look_inside", ("ctrl+o", "space"), "preview", "sessions"),
    KeyAction(
        "next_tab",
        ("right", "ctrl+right"),
        "notes, core, timeline, archive, receipt, proposals",
        "memory",
    ),
    KeyAction("previous_tab", ("left", "ctrl+left"), "the previous tab", "memory"),
    KeyAction("change_memory", ("ctrl+a", "s"), "scope user, repo, or both", "memory"),
    KeyAction("change_category", ("ctrl+t", "t"), "next category, or all", "memory"),
    KeyAction("edit_note", ("f2", "e"), "edit in your editor", "memory"),
    KeyAction("confirm_note", ("c",), "confirm", "memory"),
    KeyAction("archive_note", ("a",), "archive", "memory"),
    KeyAction("restore_note", ("r",), "restore from the archive", "memory"),
    KeyAction(
        UNDO_MEMORY,
        ("u",),
        "undo a commit, one hunk of it, or the last change",
        "memory",
        run="undo_change",
    ),
    KeyAction("accept", ("y",), "accept a proposal", "memory"),
    KeyAction("reject", ("n",), "reject a proposal", "memory"),
    KeyAction("drop_item", ("d", "space"), "drop or restore", "context"),
    KeyAction("pin_item", ("p",), "pin or unpin a message", "context"),
    KeyAction("next_hunk", ("n", "right_square_bracket"), "the next hunk", "diff"),
    KeyAction("previous_hunk", ("p", "left_square_bracket"), "the previous hunk", "diff"),
    KeyAction("next_file", ("tab", "right"), "the next file", "diff"),
    KeyAction("previous_file", ("shift+tab", "left"), "the previous file", "diff"),
    KeyAction("choose_file", ("f", "slash"), "find a file", "diff"),
    KeyAction("choose_source", ("t",), "choose a turn, the session, or a commit", "diff"),
    KeyAction("side_by_side", ("s",), "side by side or in one column", "diff"),
    KeyAction("undo_shown_hunk", ("u",), "undo the hunk", "diff"),
    KeyAction("undo_shown_file", ("U",), "undo the file", "diff"),
    KeyAction("redo_shown", ("r",), "undo the last undo", "diff"),
    KeyAction("open_there", ("e",), "open the file in your editor", "diff"),
    KeyAction("send_comments", ("ctrl+s",), "send the comments", "diff", "send"),
    _edit_action("left", "left", "a character left", "cursor_left"),
    _edit_action("right", "right ctrl+f", "a character right", "cursor_right"),
    _edit_action("word_left", "ctrl+left alt+left alt+b", "a word left", "cursor_word_left"),
    _edit_action("word_right", "ctrl+right alt+right alt+f", "a word right", "cursor_word_right"),
    _edit_action("line_start", "home ctrl+a", "to the start of the line", "cursor_line_start"),
    _edit_action("line_end", "end ctrl+e", "to the end of the line", "cursor_line_end"),
    _edit_action("select_left", "shift+left", "select to the left", "cursor_left(True)"),
    _edit_action("select_right", "shift+right", "select to the right", "cursor_right(True)"),
    _edit_action("select_up", "shift+up", "select upwards", "cursor_up(True)"),
    _edit_action("select_down", "shift+down", "select downwards", "cursor_down(True)"),
    _edit_action("select_all", "f7", "select all", "select_all"),
    _edit_action("delete_left", "backspace shift+backspace", "delete to the left", "delete_left"),
    _edit_action("delete_right", "delete shift+delete", "delete to the right", "delete_right"),
    _edit_action(
        "delete_word_left",
        "ctrl+w alt+backspace ctrl+backspace",
        "delete a word to the left",
        "delete_word_left",
    ),
    _edit_action(
        "delete_word_right",
        "alt+d alt+delete ctrl+delete",
        "delete a word to the right",
        "delete_word_right",
    ),
    _edit_action(
        "delete_to_start", "ctrl+u", "delete to the start of the line", "delete_to_start_of_line"
    ),
    _edit_action(
        "delete_to_end",
        "ctrl+k",
        "delete to the end of the line",
        "delete_to_end_of_line_or_delete_line",
    ),
    _edit_action("undo", "ctrl+underscore", "undo", "undo"),
    _edit_action("redo", "alt+underscore", "redo", "redo"),
)

_PLACE_TITLES: Mapping[Place, str] = {
    "prompt": "Keys in the prompt",
    "app": "Keys everywhere",
    "answer": "Keys at a question",
    "sheet": "Keys in the list of /rewind",
    "sessions": "Keys in the list of sessions",
    "memory": "Keys in the memory browser",
    "context": "Keys in the list of /context",
    "diff": "Keys in /diff",
}
_MODIFIERS = {"ctrl", "alt", "shift", "super", "hyper", "meta"}
_KEY_NAMES = {*(key.value for key in Keys), *map(_character_to_key, punctuation)} - {"return"}
"""The names of keys in Textual: `enter`, `pageup`, `question_mark` …"""
_KEY_LABELS = {
    "question_mark": "?",
    "underscore": "_",
    "full_stop": ".",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "Esc",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


_NEWER_ACTIONS = {
    "detach", "import_memory", "mouse", "next_model", "palette", "previous_model", "queue_list", "send_offered",
    "terminal", "transcript", "unfold",
}  # fmt: skip
"""Actions outside of lists that came after version 0.1.0. A key that the user's settings give to
another action is taken from them.
"""
_NEWER_KEYS = {
    "next": {"ctrl+n"},
    "delete_word_right": {"ctrl+delete"},
    "delete_left": {"shift+backspace"},
    "delete_right": {"shift+delete"},
}
"""Keys that older actions got after version 0.1.0, by action: they are taken from them in the same way.
"""


class Keymap:
    """The actions with their keys, after the user's changes.

    Raises:
        ConfigError: an unknown action or key, or one key for two actions.
    """

    def __init__(self, changes: Mapping[str, str | Sequence[str]] | None = None) -> None:
        """`changes`: the keys that the user gives to an action, by its name; one key is a text. A
        newer action loses its own key if the user gave that key to another one: older settings stay
        valid.

        Raises:
            ConfigError: an action is unknown, a key is not valid, or two actions clash.
        """
        self._keys = {action.name: tuple(map(_normalize, action.keys)) for action in ACTIONS}
        for name, keys in (changes or {}).items():
            if name not in self._keys:
                near = difflib.get_close_matches(name, self._keys, n=1)
                hint = f"Actions: {', '.join(sorted(self._keys))}."
                if near:
                    hint = f"Did you mean `{near[0]}`?"
                raise ConfigError(f"tui.keys: unknown action `{name}`.", hint)
            key_list = [keys] if isinstance(keys, str) else keys
            self._keys[name] = tuple(_check_key(name, key) for key in key_list)
        self._yield_keys(set(changes or {}))
        self._refuse_clashes(set(changes or {}))

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Warnings about keys that can never run their action of the app, because the prompt uses
        them: keys that type a character, and chords of two keys.
        """
        warnings: list[str] = []
        actions_of_app = [action for action in ACTIONS if action.place == "app"]
        for action in actions_of_app:
            for key in self._keys[action.name]:
                if " " in key:
                    reason = "is two keys, which only actions of the prompt can have"
                elif _is_typed(key):
                    reason = "is typed into the prompt"
                else:
                    continue
                warnings.append(
                    f"tui.keys: `{key}` never reaches `{action.name}`: it {reason}."
                    " Use a key such as `f3` or `alt+k`."
                )
        return tuple(warnings)

    def actions_of(self, *places: Place) -> dict[str, str]:
        """The Textual action of each key or chord (`ctrl+x ctrl+e`) in these places."""
        actions: dict[str, str] = {}
        for action in ACTIONS:
            if action.place in places:
                actions.update(dict.fromkeys(self._keys[action.name], action.action))
        return actions

    def sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The sections of the help: the title of each place, and the keys of its actions as they are
        shown, with what they do. The keys that edit the text of the prompt are left out.
        """
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _PLACE_TITLES.values()}
        for action in ACTIONS:
            title, keys = _PLACE_TITLES.get(action.place), self._keys[action.name]
            if title is not None and keys:
                sections[title].append((", ".join(map(format_key, keys)), action.help))
        return list(sections.items())

    def help_of_place(self, place: Place) -> list[tuple[str, str]]:
        """The keys of the actions of one place as they are shown, and what they do. An action without
        a key is left out.
        """
        lines: list[tuple[str, str]] = []
        for action in ACTIONS:
            keys = self._keys[action.name]
            if action.place == place and keys:
                lines.append((" ".join(map(format_key, keys)), action.help))
        return lines

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys of an action, as Textual names them."""
        return self._keys[name]

    def key_text(self, name: str) -> str:
        """The first key of an action, written `Ctrl+G`; empty if it has none."""
        return format_key(self._keys[name][0]) if self._keys[name] else ""

    def _yield_keys(self, changed: set[str]) -> None:
        """Take the keys that the user gives to the actions `changed` away from newer actions, and away
        from older actions that got them later. So settings stay valid that were written before.
        """
        chosen_keys = set[str]()
        for name in changed:
            chosen_keys.update(self._keys[name])
        for name in _NEWER_ACTIONS - changed:
            self._keys[name] = tuple(key for key in self._keys[name] if key not in chosen_keys)
        for name in _NEWER_KEYS.keys() - changed:
            yielded = _NEWER_KEYS[name] & chosen_keys
            self._keys[name] = tuple(key for key in self._keys[name] if key not in yielded)

    def _refuse_clashes(self, changed: set[str]) -> None:
        """Raises ConfigError if the user's changes (`changed`: the names of actions) give one key to two
        actions that are used in the same place. The prompt is such a place, and so are a question, a
        sheet, and each list.
        """
        lists: tuple[tuple[Place, ...], ...] = (
            ("sessions",),
            ("memory",),
            ("context",),
            ("diff",),
        )
        for places in (("prompt", "edit", "app"), ("answer", "app"), ("sheet", "app"), *lists):
            owners: dict[str, str] = {}
            actions = [action for action in ACTIONS if action.place in places]
            for action in actions:
                for key in self._keys[action.name]:
                    other = owners.setdefault(key, action.name)
                    is_of_user = other in changed or action.name in changed
                    if other != action.name and is_of_user:
                        raise ConfigError(
                            f"tui.keys: `{key}` is a key of both `{other}` and `{action.name}`.",
                            f"Give one of them another key, or none: `{other}: []`.",
                        )


def format_key(key: str) -> str:
    """A key as it is shown: `Ctrl+X Ctrl+E`. A letter alone is shown as it is typed: `u`, `U`."""
    return " ".join(map(_format_step, key.split()))


def _format_step(step: str) -> str:
    return step if len(step) == 1 else "+".join(map(_format_part, step.split("+")))


def _format_part(part: str) -> str:
    is_shifted = len(part) == 1 and part.isupper()
    return f"Shift+{part}" if is_shifted else _KEY_LABELS.get(part, part.capitalize())


def _normalize(key: str) -> str:
    """The name that Textual has for a key, or a chord of two keys, that the user wrote. Modifiers
    are sorted. All is in lower case, except a letter without modifiers, because `U` is another key
    than `u`.
    """
    steps = []
    for step in key.strip().split():
        *modifiers, last = step.split("+") if len(step) > 1 else [step]
        is_character_alone = len(last) == 1 and not modifiers
        if not is_character_alone:
            last = last.lower()
        if last == "period":  # Textual calls it `full_stop`
            last = "."
        name = _character_to_key(last) if len(last) == 1 else last
        steps.append("+".join([*sorted(modifier.lower() for modifier in modifiers), name]))
    return " ".join(steps)


def _is_typed(key: str) -> bool:
    """Whether a key types a character: one without modifiers, or with Shift alone."""
    *modifiers, last = key.split("+")
    is_character = len(last) == 1 or last == "space" or last in map(_character_to_key, punctuation)
    has_only_shift = all(modifier == "shift" for modifier in modifiers)
    return is_character and has_only_shift


def _check_key(name: str, key: object) -> str:
    """The name that Textual has for a key or chord which the user gave to the action `name`. Raises
    ConfigError if there is no such key.
    """
    text = _normalize(key) if isinstance(key, str) else ""
    for step in text.split() or [""]:
        *modifiers, last = step.split("+")
        is_known = len(last) == 1 or last in _KEY_NAMES
        if not is_known or not _MODIFIERS.issuperset(modifiers):
            raise ConfigError(
                f"tui.keys: `{name}` has the unknown key {key!r}.",
                "Write `ctrl+g`, `alt+enter`, `f2`, or `ctrl+x ctrl+e` for two keys one after the"
                " other.",
            )
    return text
