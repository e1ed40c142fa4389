"""Long-term memory: core files and notes that outlive a session, each scope with a git history.

Code outside of `ouro.memory` imports from here only. Modules are imported on first use.
"""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.memory.long_term.agent_comparison import compare_with_agent
    from ouro.memory.long_term.agent_sections import export_to_agent, write_for_agents
    from ouro.memory.long_term.capture.capture import Capture
    from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
    from ouro.memory.long_term.capture.observer import CaptureObserver
    from ouro.memory.long_term.capture.session_notes import SessionNotes
    from ouro.memory.long_term.contradictions import find_contradicting_pairs, texts_in_use
    from ouro.memory.long_term.core_consolidator import LongTermMemoryConsolidator
    from ouro.memory.long_term.core_line_provenance import DAY, CoreRecord, core_records
    from ouro.memory.long_term.doctor import Finding, diagnose, memory_stats
    from ouro.memory.long_term.edited_files import open_file, save_file
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.entry_lookup import (
        EntryDetails,
        MemoryEntry,
        all_entries,
        all_notes,
        describe_source,
        details_of,
        find_entry,
        find_lessons,
        list_entries,
        note_entries,
        source_name,
    )
    from ouro.memory.long_term.export import as_json, as_markdown
    from ouro.memory.long_term.forget import find_to_forget, forget_entries
    from ouro.memory.long_term.forgotten_text import ForgetReport
    from ouro.memory.long_term.git.memory_folders import MEMORY, repo_folder
    from ouro.memory.long_term.git.undo_plan import UndoPlan, describe_commits
    from ouro.memory.long_term.git.values import BlamedLine, Commit, DiffHunk, FileEdit, Scope
    from ouro.memory.long_term.graph_picture import html_page, picture_of
    from ouro.memory.long_term.import_files import is_trusted_text, read_sources
    from ouro.memory.long_term.maintenance.background import MemoryMaintenance, NoteWorkers
    from ouro.memory.long_term.maintenance.crystallizer import (
        CRYSTALLIZE_INSTRUCTIONS,
        CrystallizedPart,
        Crystallizer,
    )
    from ouro.memory.long_term.maintenance.note_consolidator import Merge, NoteConsolidator
    from ouro.memory.long_term.maintenance.search_words import SearchWordsWriter, find_languages
    from ouro.memory.long_term.maintenance.summaries import Summaries
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.long_term.memory_import import (
        ImportPlan,
        MemoryImportResult,
        apply_import,
        plan_import,
    )
    from ouro.memory.long_term.notes.note import categories_with
    from ouro.memory.long_term.notes.notebook import Notebook
    from ouro.memory.long_term.other_agents import AgentMemory, ImportOffers, find_agent_memory
    from ouro.memory.long_term.placement import place
    from ouro.memory.long_term.prompt_block import (
        MARK,
        MemoryPrompt,
        MemoryReceipt,
        ReceiptLine,
        mark_of,
    )
    from ouro.memory.long_term.proposed_text import ProposedText, propose_text
    from ouro.memory.long_term.recall.attempts import find_checked_turns
    from ouro.memory.long_term.recall.command_ledger import (
        CommandRecord,
        ledger_of,
        project_commands,
    )
    from ouro.memory.long_term.recall.command_looks import ChangedFiles, CommandLooks
    from ouro.memory.long_term.recall.dead_ends import DeadEnds
    from ouro.memory.long_term.recall.hyde import HypothesisModel
    from ouro.memory.long_term.recall.note_finder import NoteFinder
    from ouro.memory.long_term.recall.other_projects import (
        FROM_PROJECT,
        OtherProjectNote,
        OtherProjects,
    )
    from ouro.memory.long_term.recall.recall import Recall
    from ouro.memory.long_term.recall.recall_log import RecallLog, WeekUse, this_week
    from ouro.memory.long_term.recall.selection import NoteSelection, Situation
    from ouro.memory.long_term.recall.turn_recall import TurnRecall
    from ouro.memory.long_term.remember import (
        find_possibly_replaced,
        propose_undecided_text,
        remember_text,
    )
    from ouro.memory.long_term.review_comments import (
        ReviewComment,
        propose_comments,
        read_comments,
    )
    from ouro.memory.long_term.scope import (
        MemoryScopes,
        ScopeMemory,
        hand_over_proposals,
        is_switched_off,
        open_scopes,
        switch,
    )
    from ouro.memory.long_term.search import (
        add_badges,
        is_memory_trusted,
        is_weak,
        make_filter,
        make_lookup,
        make_open_command,
        make_search,
        project_here,
        source_of,
        split_filters,
        untrusted_files,
    )
    from ouro.memory.long_term.session_memory import SessionMemory
    from ouro.memory.long_term.statement_effect import (
        OpenStatement,
        StatementEffect,
        ask_effect,
        open_statement,
    )
    from ouro.memory.long_term.store import GitMemoryStore, memory_stores
    from ouro.memory.long_term.sync import (
        SyncReport,
        remote_of,
        repo_remote,
        saved_remote,
        sync_in_session,
        sync_scope,
        sync_summary,
        synchronize,
        unsent_summary,
    )
    from ouro.memory.long_term.team import PromotedNote, promote
    from ouro.memory.long_term.timeline import MemoryDiff, Timeline, TimelineEntry
    from ouro.memory.long_term.true_forget import (
        MANY_PLACES,
        PROVIDERS,
        OuroHome,
        TrueForget,
        back_up_home,
    )
    from ouro.memory.long_term.trust.proposals import Proposal, changed_rows
    from ouro.memory.long_term.trust.provenance import own_words
    from ouro.memory.long_term.trust.running_turns import TurnMarks
    from ouro.memory.long_term.usefulness_report import (
        ReportRow,
        UsefulnessReport,
        report_usefulness,
    )

__getattr__ = lazy_exports(__name__)
