"""ApplyPatch: change several files with one patch."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import ExitStack, suppress
from typing import Annotated, ClassVar

import msgspec

from ouro.display import Diff, Display, FileChange
from ouro.errors import ToolError
from ouro.safety import Access, Effect, Workspace
from ouro.tools.changes import change_of, display_of
from ouro.tools.files_seen import FileBefore, FilesSeen, encode, find, nothing_at, store
from ouro.tools.patch_format import FilePatch, apply_hunks, parse_patch
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.text_files import TextFile, save


class ApplyPatchArgs(msgspec.Struct, frozen=True):
    input: Annotated[str, msgspec.Meta(description="The whole patch, from *** Begin Patch to *** End Patch.")]


class _Step(msgspec.Struct, frozen=True):
    patch: FilePatch
    found: FileBefore
    after: TextFile | None
    target: FileBefore | None = None
    """The new path, if it moves."""

    @property
    def change(self) -> FileChange:
        after = None if self.after is None else self.after.text
        return change_of(self.found.shown, self.found.text, after, self.target.shown if self.target else "")

    @property
    def changes(self) -> list[FileChange]:
        """Its change, after the deletion of a file that it moves over."""
        lost = [change_of(self.target.shown, self.target.text, None)] if self.target and self.target.file else []
        return [*lost, self.change]


class ApplyPatch(Tool[ApplyPatchArgs]):
    """Add, change, move and delete files with one patch. All of the patch is applied, or nothing.

    The format:

        *** Begin Patch
        *** Update File: path/of/file.py
        *** Move to: path/of/new_name.py
        @@ class Parser
        @@     def read(self):
         a line that stays
        -a line that goes
        +a line that comes
        *** Add File: path/of/new.py
        +every line of a new file begins with +
        *** Delete File: path/of/old.py
        *** End Patch

    - Show about three lines that stay before and after each change, exactly as the file has them. Where they are not
      unique, name the class or function above with @@ lines, outermost first.
    - *** Move to: stands right below *** Update File: and is left out when the file keeps its name. *** End of File
      after a change says that it is at the end of the file.
    - *** Add File: and *** Move to: replace a file that exists.
    - Give the changes of a file in its order, all below one header. Paths are relative to the working folder.
    - When a place is not found, the answer shows the nearest lines: correct the patch by them.
    """

    name: ClassVar[str] = "apply_patch"
    effect: ClassVar[Effect] = Effect.WRITE
    Args = ApplyPatchArgs

    def __init__(self, workspace: Workspace, seen: FilesSeen) -> None:
        self._workspace = workspace
        self._seen = seen

    def title(self, args: ApplyPatchArgs) -> str:
        targets = self.targets(args)
        if len(targets) == 1:
            return f"patch {self._workspace.shown(self._workspace.resolve(targets[0]))}"
        return f"patch {len(targets)} files" if targets else "patch"

    def targets(self, args: ApplyPatchArgs) -> tuple[str, ...]:
        try:
            files = parse_patch(args.input)
        except ToolError:
            return ()  # `run` reports the error and changes nothing
        return tuple(path for file in files for path in (file.path, file.moved_to) if path)

    async def preview(self, args: ApplyPatchArgs) -> Display:
        return await asyncio.to_thread(self._patch, args, "show", [])

    async def run(self, args: ApplyPatchArgs, ctx: ToolContext) -> ToolResult:
        notes: list[str] = []
        display = await asyncio.to_thread(self._patch, args, "write", notes)
        changes = display.body.changes if isinstance(display.body, Diff) else ()
        lines = [
            f"{'A' if change.before is None else 'D' if change.after is None else 'M'} {change.path}"
            + (f" -> {change.moved_to}" if change.moved_to else "")
            for change in changes
        ]
        return ToolResult("\n".join(["Applied the patch:", *lines, *notes]), display)

    def _patch(self, args: ApplyPatchArgs, access: Access, notes: list[str]) -> Display:
        files = parse_patch(args.input)
        paths = [self._workspace.resolve(path) for file in files for path in (file.path, file.moved_to) if path]
        if len(set(paths)) < len(paths):
            raise ToolError("The patch names one file under two names: put all its changes below one header.")
        with self._seen.changing(paths), ExitStack() as held:
            steps = [self._step(file, access, held, notes) for file in files]
            if access == "write":
                with ExitStack() as undo:
                    for step in steps:
                        self._do(step, undo)
                    undo.pop_all()
            return display_of([change for step in steps for change in step.changes])

    def _step(self, patch: FilePatch, access: Access, held: ExitStack, notes: list[str]) -> _Step:
        found = self._find(patch.path, access, held, parents=patch.kind == "Add")
        if patch.kind == "Add":
            text = "".join(f"{line}\n" for line in patch.content)
            if found.file is not None:
                self._demand_as_seen(found)
                notes.append(f"{found.shown} existed: its text was replaced.")
            after = TextFile(text) if found.file is None else found.file.rewritten(text)
            encode(found.shown, after)
            return _Step(patch, found, after)
        if found.file is None:
            raise ToolError(f"{found.shown} does not exist.")
        self._demand_as_seen(found)
        if (patch.kind == "Delete" or patch.moved_to) and (self._workspace.root / patch.path).is_symlink():
            raise ToolError(f"{patch.path} is a link: use the shell to move or delete it.")
        if patch.kind == "Delete":
            return _Step(patch, found, None)
        mine: list[str] = []
        try:
            after = apply_hunks(found.file, patch.hunks, mine)
        except ToolError as error:
            raise ToolError(f"{found.shown}: {error.message} No file was changed.") from None
        encode(found.shown, after)
        notes += [f"{found.shown}: {note}" for note in mine]
        target = self._find(patch.moved_to, access, held, parents=True) if patch.moved_to else None
        if target is not None and target.file is not None:
            self._demand_as_seen(target)
            notes.append(f"{target.shown} existed: it was replaced.")
        return _Step(patch, found, after, target)

    def _demand_as_seen(self, found: FileBefore) -> None:
        """Raises ToolError: the model has read the file, and it has changed since."""
        if self._seen.knows(found.place.path):
            self._seen.demand(found)

    def _find(self, path: str, access: Access, held: ExitStack, *, parents: bool) -> FileBefore:
        making = parents and access == "write"
        resolved = self._workspace.resolve(path)
        if access == "show" and parents and not resolved.parent.exists():
            return nothing_at(self._workspace, path)
        place = held.enter_context(self._workspace.place(path, access, create_parents=making))
        return find(self._workspace, place, self._seen)

    def _do(self, step: _Step, undo: ExitStack) -> None:
        known = self._seen.knows(step.found.place.path)
        if step.after is not None:
            goal = step.target or step.found
            store(goal, step.after, self._seen)
            undo.callback(_restore, goal, encode(goal.shown, step.after), self._seen)
            if step.target is not None and step.found.stat is not None:
                os.chmod(goal.place.name, stat.S_IMODE(step.found.stat.st_mode), dir_fd=goal.place.folder)
            if step.patch.kind == "Update" and not known:
                self._seen.forget(
                    goal.place.path
                )  # the lines around the change matched; the rest of the file was not read
        if step.after is None or step.target is not None:
            try:
                with self._seen.recording(step.found.place.path, step.found.before, None):
                    os.unlink(step.found.place.name, dir_fd=step.found.place.folder)
            except OSError as error:
                raise ToolError(f"{step.found.shown} cannot be deleted: {error.strerror}.") from error
            self._seen.forget(step.found.place.path)
            undo.callback(_restore, step.found, None, self._seen)


def _restore(found: FileBefore, written: bytes | None, seen: FilesSeen) -> None:
    """Restore a file after a patch that failed half way."""
    place = found.place
    with suppress(OSError), seen.recording(place.path, written, found.before):
        if found.stat is None:
            os.unlink(place.name, dir_fd=place.folder)
        else:
            save(place.folder, place.name, found.data, expected=place.stat())
            os.chmod(place.name, stat.S_IMODE(found.stat.st_mode), dir_fd=place.folder)
