"""Write: make a file, or replace the whole of one."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec

from ouro.display import Display
from ouro.errors import ToolError
from ouro.safety import Access, Effect
from ouro.tools.changes import change_of, display_of
from ouro.tools.files_seen import FileTool, encode, find, store
from ouro.tools.tool import ToolContext, ToolResult
from ouro.utils.text_files import TextFile


class WriteArgs(msgspec.Struct, frozen=True):
    path: str
    content: str


class Write(FileTool[WriteArgs]):
    """Create a file, or replace its whole text. Missing folders are created.

    Read an existing file first: the call is refused if it was not read or has changed since. For a part, use edit.
    """

    name: ClassVar[str] = "write"
    effect: ClassVar[Effect] = Effect.WRITE
    Args = WriteArgs

    def title(self, args: WriteArgs) -> str:
        return f"write {self._name_of(args.path)}"

    def targets(self, args: WriteArgs) -> tuple[str, ...]:
        return (args.path,)

    async def preview(self, args: WriteArgs) -> Display:
        return await asyncio.to_thread(self._write, args, "show")

    async def run(self, args: WriteArgs, ctx: ToolContext) -> ToolResult:
        display = await asyncio.to_thread(self._write, args, "write")
        shown = self._name_of(args.path)
        return ToolResult(f"Wrote {shown} ({display.summary}).", display)

    def _write(self, args: WriteArgs, access: Access) -> Display:
        path, making = self._workspace.resolve(args.path), access == "write"
        if not making and not path.parent.exists():
            return display_of([change_of(self._workspace.shown(path), None, args.content)])
        with (
            self._seen.lock([path]),
            self._workspace.place(args.path, access, create_parents=making) as place,
        ):
            found = find(self._workspace, place, self._seen)
            self._seen.require_current(found)
            after = TextFile(args.content) if found.file is None else found.file.with_text(args.content)
            if found.file is not None and after.raw == found.file.raw:
                raise ToolError(f"{found.shown} holds exactly this text already.")
            encode(found.shown, after)
            if making:
                store(found, after, self._seen)
            return display_of([change_of(found.shown, found.text, after.text)])
