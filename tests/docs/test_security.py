"""SECURITY.md: each promise has the tests that hold it, and each of those tests is there."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
APPROVAL, STORE = "unit/trust/test_approval.py", "unit/test_trust_store.py"
TRUST, PULLS, PINS = "behaviour/test_trust.py", "behaviour/test_rug_pulls.py", "behaviour/test_cli_pins.py"
POLICY, CANARIES = "unit/trust/test_policy.py", "behaviour/test_trust_canaries.py"
SOURCES = "behaviour/test_secret_sources.py"

PROMISES: dict[str, list[str]] = {
    "A server from a project's file": [
        f"{TRUST}::test_a_project_server_that_nobody_approved_is_not_touched",
        f"{TRUST}::test_nothing_is_sent_to_an_address_of_a_project_before_it_is_approved",
        f"{TRUST}::test_an_approval_counts_at_once_for_that_content_and_that_project_only",
        f"{TRUST}::test_a_changed_project_file_asks_again_and_the_approved_server_goes_on",
        f"{SOURCES}::test_a_project_runs_no_command_before_it_is_approved_and_none_that_was_changed",
        "behaviour/test_cli_trust.py::test_no_command_starts_a_projects_server_that_is_not_approved",
        "prove/test_canaries.py::test_a_changed_project_file_starts_nothing",
    ],
    "An approval is by content": [
        f"{APPROVAL}::test_a_change_of_what_runs_asks_again",
        f"{APPROVAL}::test_a_change_of_what_is_reached_asks_again",
        f"{APPROVAL}::test_another_source_of_a_secret_asks_again",
        f"{APPROVAL}::test_values_of_variables_count_unless_they_are_credentials",
        f"{APPROVAL}::test_every_field_counts_unless_the_table_says_that_it_does_not",
        "unit/test_evidence.py::test_what_a_command_names_in_the_project_is_covered_by_content",
        "behaviour/test_approved_means_unchanged.py::test_a_script_that_changed_is_not_started_again",
        f"{APPROVAL}::test_what_decides_nothing_asks_nobody",
    ],
    "The question shows the exact command": [
        f"{APPROVAL}::test_the_question_shows_everything_that_counts",
        f"{APPROVAL}::test_nothing_in_a_question_can_hide_a_part_of_it",
        "unit/cli/test_trusting.py::test_a_person_sees_the_whole_command_and_decides",
    ],
    "Approvals lie in the user's data folder": [
        f"{STORE}::test_an_approval_is_kept_outside_the_project_and_without_secrets",
        f"{STORE}::test_files_and_folders_are_for_their_owner_alone",
        f"{STORE}::test_a_file_that_cannot_be_trusted_approves_nothing",
    ],
    "Without a terminal the server is refused": [
        "unit/cli/test_trusting.py::test_without_a_terminal_nothing_is_approved_unless_somebody_says_yes",
        f"{APPROVAL}::test_a_refusal_names_the_command_that_approves_and_no_secret",
    ],
    "`trust_project=True` in code": [
        f"{TRUST}::test_nothing_is_sent_to_an_address_of_a_project_before_it_is_approved"
    ],
    "Tools, prompts and instructions are fingerprinted": [
        f"{PULLS}::test_each_field_of_a_tool_is_watched_when_the_server_announces_a_change",
        f"{PULLS}::test_each_field_of_a_tool_is_watched_when_a_silent_server_is_connected_anew",
        f"{PULLS}::test_each_field_of_a_tool_is_watched_over_a_restart_of_the_program",
        f"{PULLS}::test_each_field_of_a_prompt_is_watched",
        f"{PULLS}::test_the_instructions_are_watched_at_every_connection",
        f"{PULLS}::test_a_remembered_tool_that_has_changed_by_the_time_it_is_called_is_not_called",
        f"{PULLS}::test_a_withheld_tool_stands_in_for_nobody",
        f"{TRUST}::test_a_remembered_listing_is_held_back_too",
        f"{TRUST}::test_what_is_withheld_can_be_approved_and_stays_so",
        f"{STORE}::test_with_trust_off_nothing_is_read_or_written",
    ],
    "`dragoman trust approve` shows the difference": [
        f"{PINS}::test_every_change_is_shown_and_approved_as_it_was_shown",
        f"{PINS}::test_a_person_sees_the_difference_and_decides",
        f"{PINS}::test_what_changes_while_a_person_reads_is_not_approved",
    ],
    "A look is taken at every listing": [
        f"{PULLS}::test_each_field_of_a_tool_is_watched_when_a_silent_server_is_connected_anew",
    ],
    "Reordered keys": [
        "property/test_trust.py::test_a_thousand_restarts_with_everything_reordered_raise_no_alarm",
        f"{TRUST}::test_reordered_keys_and_tools_are_no_change_over_many_restarts",
        "prove/test_canaries.py::test_a_thousand_restarts_with_reordered_keys_raise_no_alarm",
    ],
    "A project's `dragoman.lock` can only narrow": [
        f"{STORE}::test_a_projects_lock_can_only_narrow",
        f"{STORE}::test_a_projects_lock_holds_at_the_first_use_and_follows_an_approval",
        f"{PINS}::test_the_projects_lock_is_written_on_request",
    ],
    "A policy (allow, ask, deny": [
        f"{TRUST}::test_a_denied_call_names_the_rule_and_nothing_is_sent",
        f"{TRUST}::test_who_stands_in_is_judged_too",
        f"{TRUST}::test_a_person_is_asked_and_only_a_plain_yes_counts",
        f"{TRUST}::test_where_nobody_can_be_asked_the_call_is_denied",
        f"{TRUST}::test_a_policy_of_files_holds_and_a_project_can_only_narrow",
        f"{POLICY}::test_between_scopes_the_strictest_holds",
        f"{POLICY}::test_a_rule_that_cannot_be_read_denies",
    ],
    "Annotations never widen": [
        f"{TRUST}::test_annotations_widen_nothing_unless_they_are_trusted",
        f"{POLICY}::test_annotations_widen_only_where_they_are_trusted",
        "property/test_trust.py::test_a_project_and_hints_never_widen",
    ],
    "Patterns are matched in linear time": [
        "unit/trust/test_patterns.py::test_hostile_values_take_linear_time"
    ],
    "What goes to a terminal or a log": [
        f"{CANARIES}::test_no_control_character_reaches_a_log_or_a_description",
        f"{PINS}::test_nothing_that_a_server_says_steers_the_terminal",
        "unit/trust/test_log_filter.py::test_a_message_is_one_harmless_line",
        "unit/trust/test_sanitize.py::test_ordinary_text_of_any_script_stays_as_it_is",
        f"{TRUST}::test_limits_are_kept_and_named",
        "property/test_trust.py::test_sanitising_is_idempotent_bounded_and_leaves_nothing_harmful",
    ],
    "`dragoman doctor` and `dragoman trust show`": [
        f"{PINS}::test_doctor_advises_and_fails_nothing",
        f"{PINS}::test_every_change_is_shown_and_approved_as_it_was_shown",
        "unit/cli/test_trusting.py::test_servers_whose_names_look_alike_are_told",
        "unit/trust/test_findings.py::test_poison_is_seen_in_every_field",
        "unit/trust/test_findings.py::test_real_tools_are_left_alone",
    ],
    "Values of variables and headers": [
        f"{CANARIES}::test_no_planted_secret_is_seen_anywhere",
        "unit/trust/test_redactor.py::test_a_value_is_masked_in_every_dress",
        "unit/trust/test_redactor.py::test_what_was_cut_within_a_value_is_masked_too",
        f"{PINS}::test_no_secret_is_shown_in_a_difference",
        "prove/test_canaries.py::test_fifty_secrets_are_seen_nowhere",
    ],
    "Not masked are values": ["unit/trust/test_redactor.py::test_what_is_worth_masking"],
    "Lock files and approvals hold no secret": [
        f"{STORE}::test_an_approval_is_kept_outside_the_project_and_without_secrets",
        f"{PINS}::test_no_secret_is_shown_in_a_difference",
    ],
    "Lines, bodies, results, listings": [
        f"{TRUST}::test_limits_are_kept_and_named",
        f"{TRUST}::test_calls_beyond_the_rate_wait_or_fail_with_its_setting",
        "unit/trust/test_limits.py::test_an_excess_names_its_setting",
    ],
    "Nothing is run through a shell": [
        "test_static_safety.py::test_no_file_runs_a_shell_evaluates_text_or_reads_without_a_bound"
    ],
}
"""The beginning of each promise, and the tests that hold it."""


def promised() -> list[str]:
    section = PAGE.partition("\n## What it promises\n")[2].partition("\n## What it does not promise\n")[0]
    return re.findall(r"^- (.*)$", section, re.MULTILINE)


@pytest.mark.parametrize("promise", promised())
def test_a_promise_has_its_tests(promise: str) -> None:
    assert [begin for begin in PROMISES if promise.startswith(begin)], "no test holds this promise"


@pytest.mark.parametrize("begin", PROMISES)
def test_the_tests_of_a_promise_are_there(begin: str) -> None:
    assert [promise for promise in promised() if promise.startswith(begin)], "nobody promises that"
    for name in PROMISES[begin]:
        file, _, test = name.partition("::")
        source = (ROOT / "tests" / file).read_text("utf-8")
        assert re.search(rf"^(?:async )?def {test}\(", source, re.MULTILINE), name


def test_the_commands_that_it_names_exist() -> None:
    from dragoman.cli.main import cli
    from dragoman.cli.trusting import trust

    for words in re.findall(r"`dragoman ([a-z -]+)", PAGE):
        command, _, rest = words.strip().partition(" ")
        assert command in cli.list_commands(None)  # type: ignore[arg-type]
        assert not rest or rest.split()[0] in trust.commands
