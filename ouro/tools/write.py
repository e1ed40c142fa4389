"""Write: make a file, or replace the whole of one."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ouro.display import Display
from ouro.errors import ToolError
from ouro.safety import Access
from ouro.tools.files_seen import ChangeTool, change_of, display_of, encode


class WriteArgs(msgspec.Struct, frozen=True):
    path: str
    content: str


class Write(ChangeTool[WriteArgs]):
    """Create a file, or replace its whole text. Missing folders are created.

    Read an existing file first: the call is refused if it was not read or has changed since. For a part, use edit.
    """

    name: ClassVar[str] = "write"
    Args = WriteArgs

    def title(self, args: WriteArgs) -> str:
        return f"write {self._name_of(args.path)}"

    def targets(self, args: WriteArgs) -> tuple[str, ...]:
        return (args.path,)

    def _change(self, args: WriteArgs, access: Access, notes: list[str]) -> Display:
        with self._seen.lock([args.path]) as held:
            found = self._seen.find(args.path, access, held, creates=True)
            self._seen.require_current(found)
            after = found.with_text(args.content)
            if found.file is not None and after.raw == found.file.raw:
                raise ToolError(f"{found.shown} holds exactly this text already.")
            encode(found.shown, after)
            if access == "write":
                self._seen.store(found, after)
            return display_of([change_of(found.shown, found.text, after.text)])

    def _report(self, args: WriteArgs, display: Display) -> str:
        return f"Wrote {self._name_of(args.path)} ({display.summary})."
