"""Which contract tests run on which engine in a short run (`make test`). `make test-all` runs all on all.

- In memory and on SQLite, in `atomic`, every test runs: what the engines decide together is shown there.
- In `two_phase`, and with another allocator, the suites run that depend on who gives the numbers.
- On the shared stores the log's own suites run, and of every other suite what the store itself must do: keep
  it, find it again, and let one of many writers win.
- A test that catches a planted fault runs on the engine on which it does.
"""

from collections.abc import Collection

from tests.selection import parameters_of_faults

NUMBERS = ("test_log_counters", "test_log_sealing", "test_log_appending")
LOG = (
    *NUMBERS,
    "test_records",
    "test_log_decisions",
    "test_log_idempotency",
    "test_log_membership",
    "test_log_reading",
)
LOG_OF_TWO_PHASES = (*NUMBERS, "test_log_idempotency", "test_log_hashes", "test_log_telemetry")
MODELS = ("test_store_model",)

WHOLE: dict[str, tuple[str, ...]] = {
    "memory-atomic": ("test_",),
    "memory-two_phase": ("test_log_", "test_repairs", *MODELS),
    "sqlite-atomic": ("test_",),
    "sqlite-two_phase": (*LOG_OF_TWO_PHASES, "test_repairs", "test_posting", *MODELS),
    "cassandra-atomic": (*LOG, *MODELS),
    "cassandra-two_phase": (*NUMBERS, *MODELS),
    "cassandra-redis": ("test_log_counters", "test_log_sealing"),
    "dynamodb-atomic": (*LOG, *MODELS),
    "dynamodb-two_phase": (*NUMBERS, "test_log_decisions", *MODELS),
    "dynamodb-redis": ("test_log_counters", "test_log_sealing"),
    "dynamodb-sequencer": ("test_log_counters",),
}
"""The suites that an engine runs whole, by the beginning of their names."""

KINDS = (
    "test_account_crashes",
    "test_attachments",
    "test_books",
    "test_dead_letters",
    "test_identities",
    "test_push",
    "test_relations",
    "test_replays",
)
"""Suites of records. Their rules stand above the engines: what an engine does, `test_records` shows."""
KINDS_ON = ("memory-atomic", "sqlite-atomic")
SHARED = ("cassandra-atomic", "dynamodb-atomic")
ON_SHARED: dict[str, tuple[str, ...]] = {
    "test_account_admin": (
        "test_a_disabled_person_appends_nothing",
        "test_nobody_writes_to_a_deleted_person",
        "test_two_operators_cannot_disable_each_other",
        "test_people_are_found_by_parts_of_their_names",
    ),
    "test_accounts": (
        "test_a_username_is_taken_once",
        "test_a_person_is_added_once",
        "test_settings_are_kept",
        "test_being_seen_is_kept_and_only_rises",
        "test_sessions_are_listed_by_their_last_use",
        "test_using_an_ended_session_brings_nothing_back",
    ),
    "test_archive": ("test_what_was_archived_reads_as_before",),
    "test_blocking": ("test_who_is_blocked_cannot_write", "test_nothing_is_stored_after_the_block"),
    "test_cold_tier": (
        "test_of_two_archivers_one_records",
        "test_what_is_trimmed_is_not_read",
        "test_a_retry_is_answered_after_its_entry_was_trimmed",
        "test_a_body_is_replaced",
    ),
    "test_consent": (
        "test_consents_are_read_for_many",
        "test_nobody_is_added_after_they_said_no",
        "test_strangers_who_come_at_once_fill_no_more",
    ),
    "test_cursors": (
        "test_closing_keeps_what_was_noted",
        "test_positions_only_rise",
        "test_many_notes_of_many_people_are_all_kept",
        "test_unread_counts_what_others_said_after",
    ),
    "test_cursors_told": ("test_a_device_is_forgotten",),
    "test_diagnosis": ("test_a_store_that_is_well_is_told_as_such",),
    "test_directory": (
        "test_a_refused_chat_fails_none_of_its_neighbours",
        "test_a_direct_chat_created_at_once_by_both_is_one_chat",
        "test_members_come_in_pages",
    ),
    "test_erasure_reports": ("test_a_report_counts_everything",),
    "test_fences": (
        "test_a_fenced_chat_is_decided_by_what_is_stored",
        "test_no_append_under_way_outlives_a_fence",
        "test_no_addition_under_way_outlives_a_fence",
        "test_who_shares_a_chat_is_found",
        "test_unasked_chats_are_told_apart",
    ),
    "test_files": ("test_entries_carry_their_files",),
    "test_inspection": (
        "test_a_log_comes_in_the_order_of_its_numbers",
        "test_a_whole_store_keeps_every_invariant",
        "test_a_broken_invariant_is_named",
        "test_a_check_writes_nothing",
    ),
    "test_invitations": (
        "test_who_accepts_is_a_member",
        "test_an_invitation_is_accepted_or_withdrawn",
        "test_nobody_is_invited_after_the_block",
    ),
    "test_delivery_queues": (
        "test_news_of_a_queue_only_raises_its_target",
        "test_queues_come_when_they_are_due",
        "test_one_worker_gets_a_queue",
    ),
    "test_listing": (
        "test_users_are_listed_by_name",
        "test_chats_are_listed_oldest_first",
        "test_members_are_listed_as_they_joined",
    ),
    "test_operated_chats": (
        "test_chats_are_found",
        "test_a_chat_and_its_members_are_seen",
        "test_an_operator_acts_in_the_name_of_whoever_is_there",
    ),
    "test_log_hashes": (
        "test_the_nearest_stored_hash_is_found",
        "test_stored_hashes_are_durable_and_may_be_written_again",
    ),
    "test_member_states": (
        "test_a_mark_is_the_furthest_of_the_devices",
        "test_who_comes_back_is_where_they_were",
        "test_a_muted_chat_stays_so",
        "test_who_comes_back_finds_the_chat_muted",
        "test_settings_of_members",
    ),
    "test_message_life": (
        "test_a_deleted_message_keeps_its_place_and_loses_its_body",
        "test_reactions_are_a_set_of_each_person",
        "test_everybody_who_edits_at_once_is_kept",
        "test_what_is_stored_is_read_as_done",
    ),
    "test_overview": (
        "test_exactly_what_changed_is_listed",
        "test_a_left_chat_is_told_once",
        "test_nothing_acknowledged_before_the_request_is_missed",
    ),
    "test_overview_contents": ("test_the_last_entry_is_told_as_it_travels",),
    "test_repairs": (
        "test_every_chat_without_a_counter_is_found",
        "test_a_counter_that_came_back_is_not_overwritten",
        "test_a_lost_counter_is_recovered",
        "test_holes_are_given_up_only_when_asked",
    ),
    "test_retention": ("test_a_person_is_erased_from_both_tiers",),
    "test_transfer": ("test_a_copy_there_and_back_is_the_same_store",),
    "test_twins": ("test_twins_in_one_batch_are_answered_with_the_place_of_the_first",),
}
"""Of suites that a shared store does not run whole: what it must do itself."""


def may_run_on(path: str, engines: Collection[str]) -> list[str]:
    """On which of the engines the tests of a suite ever run."""
    is_of_kinds = suite_of(path).startswith(KINDS)
    return [engine for engine in engines if engine in KINDS_ON or not is_of_kinds]


def suite_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".py")


def engines_of(path: str, function: str, engines: Collection[str]) -> list[str]:
    """On which of the engines a test runs in a short run."""
    suite = suite_of(path)
    named = parameters_of_faults(path, function)

    def has(engine: str) -> bool:
        is_whole = suite.startswith(WHOLE.get(engine, ("test_",)))
        is_kept_there = engine in SHARED and function in ON_SHARED.get(suite, ())
        return is_whole or is_kept_there or any(engine in parameters for parameters in named)

    return [engine for engine in engines if has(engine)]
