"""Long-term memory: core files and notes that outlive a session, each scope with a git history.

Code outside of `ouro.memory` imports from here only. Modules are imported on first use.
"""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.memory.long_term.browsing import Browsing as Browsing
    from ouro.memory.long_term.capture.backlog import CaptureBacklog as CaptureBacklog
    from ouro.memory.long_term.capture.backlog import SessionPart as SessionPart
    from ouro.memory.long_term.capture.capture import Capture as Capture
    from ouro.memory.long_term.capture.capture import Captured as Captured
    from ouro.memory.long_term.capture.capture import CaptureMoment as CaptureMoment
    from ouro.memory.long_term.capture.observer import CaptureObserver as CaptureObserver
    from ouro.memory.long_term.capture.session_notes import SessionNotes as SessionNotes
    from ouro.memory.long_term.consolidator import LongTermMemoryConsolidator as LongTermMemoryConsolidator
    from ouro.memory.long_term.doctor import Finding as Finding
    from ouro.memory.long_term.doctor import diagnose as diagnose
    from ouro.memory.long_term.editor import MemoryEditor as MemoryEditor
    from ouro.memory.long_term.entries import EntryDetails as EntryDetails
    from ouro.memory.long_term.entries import MemoryEntry as MemoryEntry
    from ouro.memory.long_term.entries import details_of as details_of
    from ouro.memory.long_term.entries import find_entry as find_entry
    from ouro.memory.long_term.entries import find_lessons as find_lessons
    from ouro.memory.long_term.entries import list_entries as list_entries
    from ouro.memory.long_term.entries import provenance as provenance
    from ouro.memory.long_term.evidence import TurnEvidence as TurnEvidence
    from ouro.memory.long_term.export import as_json as as_json
    from ouro.memory.long_term.export import as_markdown as as_markdown
    from ouro.memory.long_term.forget import MANY_PLACES as MANY_PLACES
    from ouro.memory.long_term.forget import PROVIDERS as PROVIDERS
    from ouro.memory.long_term.forget import ForgetReport as ForgetReport
    from ouro.memory.long_term.forget import OuroHome as OuroHome
    from ouro.memory.long_term.forget import TrueForget as TrueForget
    from ouro.memory.long_term.forget import back_up_home as back_up_home
    from ouro.memory.long_term.git.folders import repo_folder as repo_folder
    from ouro.memory.long_term.git.undo import UndoPlan as UndoPlan
    from ouro.memory.long_term.git.undo import describe_commits as describe_commits
    from ouro.memory.long_term.git.values import BlamedLine as BlamedLine
    from ouro.memory.long_term.git.values import Commit as Commit
    from ouro.memory.long_term.git.values import DiffHunk as DiffHunk
    from ouro.memory.long_term.git.values import FileEdit as FileEdit
    from ouro.memory.long_term.git.values import Scope as Scope
    from ouro.memory.long_term.graph_picture import html_page as html_page
    from ouro.memory.long_term.graph_picture import picture_of as picture_of
    from ouro.memory.long_term.import_files import is_trusted_text as is_trusted_text
    from ouro.memory.long_term.import_files import read_sources as read_sources
    from ouro.memory.long_term.importing import Import as Import
    from ouro.memory.long_term.importing import carry_out as carry_out
    from ouro.memory.long_term.importing import plan_import as plan_import
    from ouro.memory.long_term.maintenance.background import MaintenanceOptions as MaintenanceOptions
    from ouro.memory.long_term.maintenance.background import MemoryMaintenance as MemoryMaintenance
    from ouro.memory.long_term.maintenance.background import NoteWorkers as NoteWorkers
    from ouro.memory.long_term.maintenance.crystallizer import CRYSTALLIZE_INSTRUCTIONS as CRYSTALLIZE_INSTRUCTIONS
    from ouro.memory.long_term.maintenance.crystallizer import CrystallizedPart as CrystallizedPart
    from ouro.memory.long_term.maintenance.crystallizer import Crystallizer as Crystallizer
    from ouro.memory.long_term.maintenance.crystallizer import OldSession as OldSession
    from ouro.memory.long_term.maintenance.note_consolidator import Merge as Merge
    from ouro.memory.long_term.maintenance.note_consolidator import NoteConsolidator as NoteConsolidator
    from ouro.memory.long_term.maintenance.report import merge_line as merge_line
    from ouro.memory.long_term.maintenance.report import merges_line as merges_line
    from ouro.memory.long_term.maintenance.report import plan_of_notes as plan_of_notes
    from ouro.memory.long_term.maintenance.report import plan_of_sessions as plan_of_sessions
    from ouro.memory.long_term.maintenance.report import step_line as step_line
    from ouro.memory.long_term.maintenance.report import steps_line as steps_line
    from ouro.memory.long_term.maintenance.summaries import Summaries as Summaries
    from ouro.memory.long_term.manager import LongTermMemoryManager as LongTermMemoryManager
    from ouro.memory.long_term.notes.note import categories_with as categories_with
    from ouro.memory.long_term.notes.notebook import Notebook as Notebook
    from ouro.memory.long_term.overview import ListedEntry as ListedEntry
    from ouro.memory.long_term.overview import NoteDetails as NoteDetails
    from ouro.memory.long_term.overview import Overview as Overview
    from ouro.memory.long_term.prompt_block import MARK as MARK
    from ouro.memory.long_term.prompt_block import MemoryPrompt as MemoryPrompt
    from ouro.memory.long_term.prompt_block import mark_of as mark_of
    from ouro.memory.long_term.recall.finder import NoteFinder as NoteFinder
    from ouro.memory.long_term.recall.finder import RecallSettings as RecallSettings
    from ouro.memory.long_term.recall.recall import Recall as Recall
    from ouro.memory.long_term.recall.recall_log import RecallLog as RecallLog
    from ouro.memory.long_term.recall.turn_recall import HypothesisModel as HypothesisModel
    from ouro.memory.long_term.recall.turn_recall import TurnRecall as TurnRecall
    from ouro.memory.long_term.receipt import MemoryReceipt as MemoryReceipt
    from ouro.memory.long_term.receipt import ReceiptLine as ReceiptLine
    from ouro.memory.long_term.remember import RememberResult as RememberResult
    from ouro.memory.long_term.remember import archive_note as archive_note
    from ouro.memory.long_term.remember import confirm_note as confirm_note
    from ouro.memory.long_term.remember import find_to_forget as find_to_forget
    from ouro.memory.long_term.remember import forget_entries as forget_entries
    from ouro.memory.long_term.remember import open_file as open_file
    from ouro.memory.long_term.remember import remember_text as remember_text
    from ouro.memory.long_term.remember import restore_note as restore_note
    from ouro.memory.long_term.remember import save_file as save_file
    from ouro.memory.long_term.scope import MemoryScopes as MemoryScopes
    from ouro.memory.long_term.scope import ScopeMemory as ScopeMemory
    from ouro.memory.long_term.scope import open_scopes as open_scopes
    from ouro.memory.long_term.scope import switch as switch
    from ouro.memory.long_term.search import Badges as Badges
    from ouro.memory.long_term.search import filter_of as filter_of
    from ouro.memory.long_term.search import filters_in as filters_in
    from ouro.memory.long_term.search import is_memory_trusted as is_memory_trusted
    from ouro.memory.long_term.search import make_lookup as make_lookup
    from ouro.memory.long_term.search import opening_of as opening_of
    from ouro.memory.long_term.search import search_for as search_for
    from ouro.memory.long_term.search import source_of as source_of
    from ouro.memory.long_term.search import trusted_projects as trusted_projects
    from ouro.memory.long_term.search import untrusted_files as untrusted_files
    from ouro.memory.long_term.session_memory import SessionMemory as SessionMemory
    from ouro.memory.long_term.session_sync import sync_in_session as sync_in_session
    from ouro.memory.long_term.stats import MemoryStats as MemoryStats
    from ouro.memory.long_term.stats import memory_stats as memory_stats
    from ouro.memory.long_term.store import GitMemoryStore as GitMemoryStore
    from ouro.memory.long_term.store import repo_store as repo_store
    from ouro.memory.long_term.store import user_store as user_store
    from ouro.memory.long_term.sync import SyncReport as SyncReport
    from ouro.memory.long_term.sync import remote_of as remote_of
    from ouro.memory.long_term.sync import sync_summary as sync_summary
    from ouro.memory.long_term.sync import synchronise as synchronise
    from ouro.memory.long_term.timeline import FileBlame as FileBlame
    from ouro.memory.long_term.timeline import MemoryDiff as MemoryDiff
    from ouro.memory.long_term.timeline import OldFile as OldFile
    from ouro.memory.long_term.timeline import Timeline as Timeline
    from ouro.memory.long_term.timeline import TimelineEntry as TimelineEntry
    from ouro.memory.long_term.timeline import undo_commit as undo_commit
    from ouro.memory.long_term.trust.proposals import Proposal as Proposal
    from ouro.memory.long_term.trust.turn_marks import TurnMarks as TurnMarks

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "browsing": "Browsing",
        "capture.backlog": "CaptureBacklog SessionPart",
        "capture.capture": "Capture CaptureMoment Captured",
        "capture.observer": "CaptureObserver",
        "capture.session_notes": "SessionNotes",
        "consolidator": "LongTermMemoryConsolidator",
        "doctor": "Finding diagnose",
        "editor": "MemoryEditor",
        "entries": "EntryDetails MemoryEntry details_of find_entry find_lessons list_entries provenance",
        "evidence": "TurnEvidence",
        "export": "as_json as_markdown",
        "forget": "ForgetReport MANY_PLACES OuroHome PROVIDERS TrueForget back_up_home",
        "git.folders": "repo_folder",
        "git.undo": "UndoPlan describe_commits",
        "git.values": "BlamedLine Commit DiffHunk FileEdit Scope",
        "graph_picture": "html_page picture_of",
        "import_files": "is_trusted_text read_sources",
        "importing": "Import carry_out plan_import",
        "maintenance.background": "MemoryMaintenance MaintenanceOptions NoteWorkers",
        "maintenance.crystallizer": "CRYSTALLIZE_INSTRUCTIONS CrystallizedPart Crystallizer OldSession",
        "maintenance.note_consolidator": "Merge NoteConsolidator",
        "maintenance.report": "merge_line merges_line plan_of_notes plan_of_sessions step_line steps_line",
        "maintenance.summaries": "Summaries",
        "manager": "LongTermMemoryManager",
        "notes.note": "categories_with",
        "notes.notebook": "Notebook",
        "overview": "ListedEntry NoteDetails Overview",
        "prompt_block": "MARK MemoryPrompt mark_of",
        "recall.finder": "NoteFinder RecallSettings",
        "recall.recall": "Recall",
        "recall.recall_log": "RecallLog",
        "recall.turn_recall": "HypothesisModel TurnRecall",
        "receipt": "MemoryReceipt ReceiptLine",
        "remember": "RememberResult archive_note confirm_note find_to_forget "
        "forget_entries open_file remember_text restore_note save_file",
        "scope": "MemoryScopes ScopeMemory open_scopes switch",
        "search": "Badges untrusted_files filter_of filters_in is_memory_trusted "
        "make_lookup opening_of search_for source_of trusted_projects",
        "session_memory": "SessionMemory",
        "session_sync": "sync_in_session",
        "stats": "MemoryStats memory_stats",
        "store": "GitMemoryStore repo_store user_store",
        "sync": "SyncReport remote_of sync_summary synchronise",
        "timeline": "FileBlame MemoryDiff OldFile Timeline TimelineEntry undo_commit",
        "trust.proposals": "Proposal",
        "trust.turn_marks": "TurnMarks",
    },
)
