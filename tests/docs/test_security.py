"""SECURITY.md: each promise has the tests that hold it, and each of those tests is there."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
APPROVAL, STORE = "unit/trust/test_approvals.py", "unit/trust/test_store.py"
TRUST, PULLS, PINS = "behaviour/test_trust.py", "behaviour/test_rug_pulls.py", "behaviour/test_cli_pins.py"
POLICY, CANARIES = "unit/trust/test_policy.py", "behaviour/test_trust_canaries.py"
SOURCES, ENVIRONMENT = "behaviour/test_secret_sources.py", "behaviour/test_environment.py"

LAYERS, NAMES, ROADS = "behaviour/test_layers.py", "behaviour/test_names.py", "behaviour/test_policy_roads.py"
EVIDENCE, UNCHANGED = "unit/config/test_evidence.py", "behaviour/test_approved_means_unchanged.py"
VARIANTS = "unit/config/test_evidence_variants.py"
CHAT, CONSENT = "unit/cli/commands/test_chat.py", "unit/cli/session/test_consent.py"
ASKS = "behaviour/test_agent_asks.py"
DAEMON = "behaviour/test_daemon.py"
INBOX = "unit/storage/test_inbox.py"
SANDBOX = "unit/server/process/test_sandbox.py"
WATCHDOG = "unit/server/process/test_watchdog.py"
CREDENTIALS, LOGINS, COST = (
    "unit/server/test_http_credentials.py",
    "unit/server/oauth/test_authorizer.py",
    "test_pattern_cost.py",
)

PROMISES: dict[str, list[str]] = {
    "A server from a project's file": [
        f"{TRUST}::test_an_unapproved_project_server_is_not_touched",
        f"{TRUST}::test_nothing_is_sent_to_an_address_of_a_project_before_it_is_approved",
        f"{TRUST}::test_an_approval_counts_at_once_for_that_content_and_that_project_only",
        f"{TRUST}::test_a_changed_project_file_asks_again_and_the_approved_server_goes_on",
        f"{SOURCES}::test_a_project_runs_no_command_before_it_is_approved_and_none_that_was_changed",
        "behaviour/test_cli_trust.py::test_no_command_starts_a_projects_server_that_is_not_approved",
        f"{LAYERS}::test_logs_of_an_entry_that_is_not_approved_are_not_shown",
        "prove/test_canaries.py::test_a_changed_project_file_starts_nothing",
    ],
    "An unapproved project can only make things stricter": [
        "property/test_layers.py::test_an_unapproved_project_changes_nothing_of_the_users_but_for_stricter_rules",
        "property/test_layers.py::test_any_settings_of_an_unapproved_project_are_without_effect_but_for_stricter_rules",
        f"{LAYERS}::test_a_projects_file_cannot_define_servers_of_the_users",
        f"{LAYERS}::test_the_users_server_goes_on_beside_a_projects_of_the_same_name",
        f"{LAYERS}::test_a_projects_file_that_would_be_the_only_one_hides_nothing",
        f"{LAYERS}::test_a_projects_settings_do_not_govern_the_users_servers_before_they_are_approved",
        f"{LAYERS}::test_a_projects_rules_hold_at_once_but_their_wording_is_not_passed_on",
        f"{LAYERS}::test_a_projects_broken_file_does_not_keep_the_users_rules_from_being_taken_over",
        f"{LAYERS}::test_a_projects_input_does_not_redefine_one_of_the_users",
    ],
    "An approval is by content": [
        f"{APPROVAL}::test_every_field_counts_unless_the_table_says_that_it_does_not",
        f"{APPROVAL}::test_values_of_variables_count_unless_they_are_credentials",
        f"{APPROVAL}::test_only_credentials_among_the_headers_may_rotate",
        f"{APPROVAL}::test_what_changed_is_said_part_by_part_and_without_values",
        f"{APPROVAL}::test_another_source_of_a_secret_asks_again",
        f"{EVIDENCE}::test_what_a_command_names_in_the_project_is_covered_by_content",
        f"{EVIDENCE}::test_the_path_of_the_program_counts_and_its_bytes_only_in_the_project",
        f"{EVIDENCE}::test_an_env_file_counts_wherever_it_lies_and_when_it_is_absent",
        f"{UNCHANGED}::test_a_script_that_changed_is_not_started_again",
        f"{UNCHANGED}::test_a_script_that_changed_is_not_started_after_a_crash",
        f"{UNCHANGED}::test_the_program_that_was_looked_at_is_the_one_that_is_started",
        f"{STORE}::test_approvals_of_an_older_version_are_asked_for_once_more_with_the_reason",
        f"{STORE}::test_an_approval_that_covered_fewer_files_is_asked_for_once_more_with_the_reason",
    ],
    "An approval covers the content of the files that run": [
        f"{VARIANTS}::test_a_change_of_what_runs_asks_again_however_the_command_reaches_it",
        f"{VARIANTS}::test_ordinary_work_in_an_ordinary_project_asks_nothing",
        f"{EVIDENCE}::test_what_a_runner_runs_is_covered_though_the_command_does_not_name_it",
    ],
    "The question lists the files that are watched": [
        f"{VARIANTS}::test_the_question_says_which_files_are_watched_and_that_the_rest_is_not",
    ],
    "The question shows the exact command": [
        f"{APPROVAL}::test_the_question_shows_everything_that_counts",
        f"{APPROVAL}::test_nothing_in_a_question_can_hide_a_part_of_it",
        "unit/cli/commands/test_trust.py::test_a_person_sees_the_whole_command_and_decides",
    ],
    "`dragoman import` shows the file and scope": [
        "unit/cli/commands/test_import_.py::test_a_projects_server_is_not_taken_over_unseen",
    ],
    "Approvals are stored in the user's data folder": [
        f"{STORE}::test_an_approval_is_kept_outside_the_project_and_without_secrets",
        f"{STORE}::test_files_and_folders_are_for_their_owner_alone",
        f"{STORE}::test_a_file_that_cannot_be_trusted_approves_nothing",
    ],
    "Without a terminal, an unapproved server is refused": [
        "unit/cli/commands/test_trust.py::test_without_a_terminal_nothing_is_approved_unless_yes_is_given",
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
        f"{PULLS}::test_a_withheld_tool_is_no_fallback",
        f"{TRUST}::test_a_remembered_listing_is_held_back_too",
        f"{TRUST}::test_what_is_withheld_can_be_approved_and_stays_so",
        f"{STORE}::test_with_strict_trust_what_cannot_be_pinned_is_withheld",
        f"{STORE}::test_with_trust_off_nothing_is_read_or_written",
        f"{PINS}::test_a_call_at_a_terminal_asks_about_a_changed_tool_first",
        "real/test_everything.py::test_other_capabilities_are_not_taken_for_tampering",
    ],
    "`dragoman trust approve` and `McpManager.approve`": [
        f"{PINS}::test_every_change_is_shown_and_approved_as_it_was_shown",
        f"{PINS}::test_a_person_sees_the_difference_and_decides",
        f"{PINS}::test_what_changes_while_a_person_reads_is_not_approved",
        "unit/trust/test_pin_checker.py::test_only_what_was_told_is_approved",
    ],
    "Every listing is checked": [
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
    "A name never takes a call to another server": [
        f"{NAMES}::test_call_never_goes_to_the_server_that_listed_first",
        f"{NAMES}::test_name_of_a_server_that_is_removed_does_not_go_to_another",
        f"{NAMES}::test_server_cannot_occupy_an_unambiguous_name",
        f"{NAMES}::test_hostile_tool_does_not_get_into_the_view_of_another_server",
        f"{NAMES}::test_resource_that_two_servers_have_is_read_only_from_the_one_that_is_named",
        "property/test_naming.py::test_name_that_was_exported_never_comes_to_mean_another_servers_tool",
        "unit/test_visible.py::test_no_name_of_a_tool_has_a_harmful_character",
        "unit/test_visible.py::test_a_rule_about_a_name_is_not_evaded_by_invisible_characters",
        "unit/test_visible.py::test_a_rule_about_a_name_is_not_evaded_by_letters_that_look_alike",
    ],
    "A policy (allow, ask, deny": [
        f"{TRUST}::test_a_denied_call_names_the_rule_and_nothing_is_sent",
        f"{TRUST}::test_who_stands_in_is_judged_too",
        f"{TRUST}::test_a_person_is_asked_and_only_a_plain_yes_counts",
        f"{TRUST}::test_where_no_user_can_be_asked_the_call_is_denied",
        f"{TRUST}::test_a_policy_of_files_holds_and_a_project_can_only_narrow",
        f"{ROADS}::test_every_road_is_judged",
        f"{ROADS}::test_agents_own_tools_and_local_ones_are_judged",
        f"{ROADS}::test_program_is_judged",
        f"{POLICY}::test_between_scopes_the_strictest_holds",
        f"{POLICY}::test_a_rule_that_cannot_be_read_denies",
    ],
    "A call that waits in the [inbox]": [
        "prove/test_inbox.py::test_a_thousand_calls_survive_kills_of_callers_and_answerers",
        "prove/test_inbox.py::test_answers_that_count_for_nothing",
        f"{INBOX}::test_the_first_answer_counts_and_the_second_is_told_by_whom",
        f"{INBOX}::test_only_the_process_that_asked_takes_an_approved_call_and_once",
        f"{INBOX}::test_only_a_literal_true_is_a_yes",
        f"{INBOX}::test_what_a_killed_process_leaves_is_abandoned",
        f"{INBOX}::test_arguments_are_gone_from_the_file_once_it_is_decided",
        f"{INBOX}::test_the_files_are_the_users_alone",
        "unit/trust/test_inbox.py::test_a_project_cannot_turn_it_on_or_name_a_webhook",
        "behaviour/test_inbox.py::test_a_user_sees_and_answers_only_own_calls",
        "behaviour/test_inbox.py::test_a_webhook_is_told_and_its_code_answers_once",
    ],
    "In dragoman's own session a model's call": [
        f"{CHAT}::test_a_call_of_the_model_asks_and_always_is_the_rule_that_was_shown",
        f"{CHAT}::test_ctrl_c_at_the_question_stops_the_turn_and_nothing_is_called",
        f"{CHAT}::test_in_a_pipe_a_call_that_no_rule_allows_is_denied_and_the_rule_is_named",
        f"{CHAT}::test_a_tool_that_only_reads_is_not_asked_about_if_its_server_is_trusted_to_say_so",
        f"{CHAT}::test_for_a_server_of_a_project_always_is_for_the_session",
        f"{CONSENT}::test_always_is_no_answer_to_a_rule_that_asks",
        f"{CONSENT}::test_a_tool_that_is_called_like_a_glob_allows_only_itself",
        f"{POLICY}::test_the_rule_for_one_tool_allows_no_other",
        f"{ASKS}::test_a_call_that_no_rule_decides_waits_for_a_yes_and_a_no_is_said_to_the_model",
        f"{ASKS}::test_a_rule_decides_before_the_question",
    ],
    "What was judged is what is sent": [
        f"{ROADS}::test_handler_and_caller_cannot_change_what_was_judged",
        f"{ROADS}::test_task_beside_a_waiting_prompt_cannot_change_its_arguments",
        f"{ROADS}::test_arguments_are_judged_as_they_are_after_they_were_corrected",
    ],
    "Annotations never widen": [
        f"{TRUST}::test_annotations_widen_nothing_unless_they_are_trusted",
        f"{POLICY}::test_annotations_widen_only_where_they_are_trusted",
        "property/test_trust.py::test_a_project_and_hints_never_widen",
    ],
    "Patterns are matched in linear time": [
        "unit/trust/test_patterns.py::test_hostile_values_take_linear_time"
    ],
    "A credential goes only to": [
        f"{CREDENTIALS}::test_password_of_a_proxy_reaches_the_proxy_with_every_request_and_never_the_server",
        f"{CREDENTIALS}::test_server_behind_a_proxy_that_sends_us_to_https_learns_no_password",
        f"{CREDENTIALS}::test_another_scheme_host_or_port_is_another_server",
        f"{CREDENTIALS}::test_redirect_to_another_port_of_the_host_takes_nothing_along",
    ],
    "OAuth tokens are never sent over plain http": [
        f"{CREDENTIALS}::test_token_of_a_login_never_goes_over_plain_http",
        f"{CREDENTIALS}::test_token_that_was_kept_is_not_sent_over_plain_http_either",
        f"{CREDENTIALS}::test_credential_of_an_entry_is_not_sent_over_plain_http",
        f"{CREDENTIALS}::test_credentials_of_the_application_and_of_a_call_follow_the_same_rule",
    ],
    "The secret of a program": [
        f"{LOGINS}::test_program_needs_an_issuer_and_sends_its_secret_nowhere_without_one",
        f"{LOGINS}::test_program_gives_its_secret_to_no_other_issuer_than_its_own",
        f"{LOGINS}::test_refresh_token_and_secret_stay_with_the_issuer_and_client_that_they_are_of",
    ],
    "What was sent to an authorization server": [
        f"{LOGINS}::test_what_a_token_endpoint_repeats_of_a_request_is_not_shown"
    ],
    "Only https addresses": [
        "unit/trust/test_addresses.py::test_address_that_is_not_https_or_has_two_readings_is_refused",
        "unit/trust/test_addresses.py::test_address_is_shown_as_it_is_opened_with_its_real_host",
    ],
    "What goes to a terminal, a log or an error message": [
        f"{CANARIES}::test_no_control_character_reaches_a_log_or_a_description",
        f"{PINS}::test_nothing_that_a_server_says_steers_the_terminal",
        "unit/test_errors.py::test_no_error_steers_a_terminal",
        "unit/test_errors.py::test_foreign_errors_in_the_chain_are_made_safe_too",
        "unit/server/process/test_rotating.py::test_what_would_steer_a_terminal_is_written_as_a_mark",
        "unit/test_visible.py::test_every_way_to_show_a_text_follows_the_rule_for_every_character",
        "unit/trust/test_log_records.py::test_a_message_is_one_harmless_line",
        "unit/trust/test_log_records.py::test_no_line_of_an_errors_text_passes_for_a_line_of_the_log",
        "unit/trust/test_log_records.py::test_records_are_harmless_when_no_manager_is_open",
        "unit/trust/test_sanitizing.py::test_ordinary_text_of_any_script_stays_as_it_is",
        "property/test_trust.py::test_sanitising_is_idempotent_bounded_and_leaves_nothing_harmful",
    ],
    "`dragoman doctor` and `dragoman trust show`": [
        f"{PINS}::test_doctor_advises_and_fails_nothing",
        f"{PINS}::test_every_change_is_shown_and_approved_as_it_was_shown",
        "unit/cli/commands/test_trust.py::test_servers_whose_names_look_alike_are_told",
        "unit/trust/test_findings.py::test_poison_is_seen_in_every_field",
        "unit/trust/test_findings.py::test_real_tools_are_left_alone",
    ],
    "Values of variables and headers": [
        f"{CANARIES}::test_no_planted_secret_is_seen_anywhere",
        "unit/trust/test_log_records.py::test_a_secret_in_the_text_or_the_arguments_is_masked",
        "unit/trust/test_log_records.py::test_a_traceback_is_text_without_secrets",
        "unit/trust/test_redaction.py::test_a_value_is_masked_in_every_dress",
        "unit/trust/test_redaction.py::test_a_long_value_is_masked_in_pieces_and_in_any_case",
        "unit/trust/test_redaction.py::test_a_value_in_quotes_is_known_without_them",
        "unit/trust/test_redaction.py::test_what_was_cut_within_a_value_is_masked_too",
        "unit/trust/test_masking.py::test_a_secret_in_an_argument_is_found_in_every_usual_spelling",
        "unit/trust/test_masking.py::test_a_secret_in_the_path_of_a_url_is_masked",
        f"{PINS}::test_no_secret_is_shown_in_a_difference",
        "prove/test_canaries.py::test_fifty_secrets_are_seen_nowhere",
    ],
    "Not masked are values": [
        "unit/trust/test_redaction.py::test_what_is_worth_masking",
        "unit/trust/test_redaction.py::test_a_path_under_a_name_for_one_is_no_secret",
        "unit/trust/test_redaction.py::test_everything_else_under_a_sensitive_name_is_secret",
        "unit/trust/test_redaction.py::test_the_folders_of_a_path_stay_readable_in_errors",
    ],
    "A server gets no variable of the environment": [
        f"{ENVIRONMENT}::test_other_programs_get_the_proxy_without_its_password_and_no_index",
        f"{ENVIRONMENT}::test_launcher_of_an_unapproved_project_gets_nothing",
        f"{ENVIRONMENT}::test_program_of_a_project_that_is_named_like_a_launcher_gets_no_password",
        f"{ENVIRONMENT}::test_launchers_work_behind_a_company_proxy_without_a_line_of_configuration",
        "unit/server/process/test_launchers.py::test_no_variable_of_a_launcher_holds_a_credential",
    ],
    "Lock files and approvals hold no secret": [
        f"{STORE}::test_an_approval_is_kept_outside_the_project_and_without_secrets",
        f"{PINS}::test_no_secret_is_shown_in_a_difference",
    ],
    "Lines, bodies, results, listings": [
        f"{TRUST}::test_limits_are_kept_and_named",
        f"{TRUST}::test_calls_beyond_the_rate_wait_or_fail_with_its_setting",
        "behaviour/test_limits.py::test_a_limit_holds_and_what_it_stops_names_the_setting",
        "behaviour/test_limits.py::test_the_pages_that_fit_into_a_listing_are_offered",
        "unit/trust/test_limits.py::test_an_excess_names_its_setting",
        "behaviour/test_tasks.py::test_of_many_announced_states_only_the_newest_is_kept",
        "unit/bulk/test_journal.py::test_a_number_that_no_run_has_written_is_a_damaged_entry_and_takes_no_memory",
    ],
    "No text from outside freezes the client": [
        f"{COST}::test_a_new_pattern_is_linear_in_every_text",
        f"{COST}::test_a_parser_is_linear_in_every_text",
        f"{COST}::test_the_gate_judges_growth_and_not_the_speed_of_the_machine",
        "behaviour/test_skills.py::test_a_frontmatter_that_grows_or_does_not_end_is_none",
        "behaviour/test_skills.py::test_a_frontmatter_is_read_beside_the_event_loop",
    ],
    "Nothing is run through a shell": [
        "test_static_safety.py::test_no_file_runs_a_shell_evaluates_text_or_reads_without_a_bound"
    ],
    "Over HTTP the gateway answers on this machine only": [
        "unit/gateway/test_app.py::test_strangers_are_refused_and_counted",
        "unit/gateway/test_app.py::test_a_page_and_a_name_that_are_allowed_are_let_in",
        "behaviour/test_gateway_users.py::test_users_have_their_own_credentials_listings_and_rules",
    ],
    "A head over 64 KB": [
        "unit/gateway/test_http_protocol.py::test_a_head_of_more_than_64_kb_is_refused",
        "unit/gateway/test_http_protocol.py::test_trailers_are_not_kept",
        "unit/gateway/test_http_protocol.py::test_a_client_that_does_not_say_what_it_wants_is_not_waited_for",
        "unit/gateway/test_http_protocol.py::test_silent_connections_make_room_for_others",
        "unit/gateway/test_http_protocol.py::test_a_connection_with_a_request_in_progress_is_not_ended_for_another",
        "unit/gateway/test_http_protocol.py::test_a_client_that_does_not_read_is_cut_off",
        "unit/gateway/test_auth.py::test_a_token_of_more_than_16_kb_is_refused_before_any_work",
        "unit/gateway/test_http.py::test_the_oldest_idle_session_makes_room",
    ],
    "A body that ends early runs nothing": [
        "unit/gateway/test_http_protocol.py::test_a_body_that_does_not_come_runs_nothing",
        "unit/gateway/test_http.py::test_a_body_that_is_not_one_message_is_refused",
    ],
    "What waits for a client that does not read": [
        "unit/gateway/test_outbox.py::test_a_client_that_does_not_read_is_cut_off",
    ],
    "What is kept of a client beyond its requests": [
        "unit/gateway/test_connection.py::test_what_is_kept_of_a_handshake_is_bounded",
        "unit/server/test_in_progress.py::test_requests_that_were_cancelled_are_not_kept_however_many_there_are",
    ],
    "A token is checked with each request": [
        "unit/gateway/test_app.py::test_access_tokens_are_checked_against_the_issuers_keys",
        "behaviour/test_gateway_users.py::test_a_user_who_is_not_let_in_any_more_is_out_with_the_next_request",
    ],
    "A client is its session": [
        "behaviour/test_gateway_questions.py::test_two_requests_with_one_token_are_two_clients",
        "behaviour/test_gateway_questions.py::test_a_session_is_not_asked_about_the_call_of_another",
        "behaviour/test_gateway_questions.py::test_a_modern_client_and_a_session_are_two_clients",
        "behaviour/test_gateway_questions.py::test_a_request_that_was_cancelled_may_still_ask_and_no_other_client_answers",
        "unit/gateway/test_http.py::test_a_session_is_used_only_by_the_one_who_opened_it_and_where",
    ],
    "Every question says which server asks": [
        "behaviour/test_gateway_questions.py::test_every_question_names_its_server_outside_of_the_servers_words",
        "behaviour/test_gateway_parity.py::test_what_a_server_says_to_all_opens_no_section",
    ],
    "The texts of listings, log messages and progress": [
        "behaviour/test_gateway_stdio.py::test_nothing_that_a_server_lists_or_announces_has_hidden_text",
        "behaviour/test_gateway_parity.py::test_hidden_text_reaches_no_client",
    ],
    "An approval is good for one call": [
        "behaviour/test_gateway_questions.py::test_one_approval_is_good_for_one_call",
        "behaviour/test_gateway_questions.py::test_only_a_clear_yes_is_an_approval",
    ],
    "Clients get no path of the machine": [
        "unit/gateway/test_app.py::test_a_denial_names_the_rule_and_no_path",
        "unit/gateway/test_app.py::test_health_and_metrics",
    ],
    "With users, `/metrics`": [
        "behaviour/test_gateway_users.py::test_a_user_reads_no_metrics_of_the_others",
    ],
    "The id of a task has a mark": [
        "behaviour/test_gateway_extensions.py::test_a_task_that_is_not_known_is_refused",
        "behaviour/test_gateway_users.py::test_nothing_of_one_user_can_be_used_by_another",
    ],
    "Addresses of clients in logs": [
        "behaviour/test_gateway_parity.py::test_the_address_of_a_client_is_that_of_its_connection",
    ],
    "On Linux all processes": [
        f"{WATCHDOG}::test_daemon_that_hides_in_every_way_ends_when_the_client_is_killed",
        f"{WATCHDOG}::test_chain_of_processes_that_hand_over_is_broken_when_the_client_is_killed",
        f"{WATCHDOG}::test_hidden_daemon_ends_with_its_server_and_no_other_one_does",
        "unit/server/process/test_containers.py::test_container_ends_with_its_server",
        "unit/server/process/test_containers.py::test_container_ends_when_the_client_is_killed",
    ],
    "A signal or a closed terminal": [
        "unit/cli/test_running.py::test_signal_ends_the_servers_and_then_the_program",
        "unit/cli/test_running.py::test_more_interrupts_change_nothing_while_the_first_one_ends_the_command",
        f"{WATCHDOG}::test_a_server_that_stops_the_watchdog_delays_neither_its_end_nor_the_next_start",
        "unit/cli/test_running.py::test_terminal_that_is_closed_ends_the_servers_as_a_signal_does",
    ],
    "A server with a [`sandbox`]": [
        f"{SANDBOX}::test_no_covered_canary_is_reached_from_python",
        f"{SANDBOX}::test_no_covered_canary_is_reached_from_node_and_a_shell",
        f"{SANDBOX}::test_a_stranger_gets_no_signal",
        f"{SANDBOX}::test_sockets_are_closed_as_the_entry_says",
        f"{SANDBOX}::test_a_link_that_the_server_made_leads_nowhere",
        f"{SANDBOX}::test_what_the_kernel_cannot_keep_is_refused_or_said_once",
        f"{SANDBOX}::test_a_sandbox_that_fails_after_the_fork_starts_no_server",
        f"{SANDBOX}::test_every_start_of_a_server_goes_through_the_sandbox",
    ],
    "The daemon serves one user": [
        f"{DAEMON}::test_another_user_of_the_machine_is_refused",
        f"{DAEMON}::test_a_daemon_in_the_foreground_uses_no_folder_that_another_user_could_have_made",
        f"{DAEMON}::test_a_daemon_follows_no_link_in_its_folder",
        f"{DAEMON}::test_a_server_has_nothing_of_the_shell_that_started_the_daemon",
        f"{DAEMON}::test_a_variable_that_an_entry_uses_decides_who_shares_and_no_value_is_shown",
        f"{DAEMON}::test_a_project_is_trusted_per_client_and_folder",
    ],
    "Users share a process only with `share = true`": [
        "behaviour/test_users.py::test_the_request_of_another_user_makes_later_questions_unclear",
        "behaviour/test_users.py::test_while_two_users_have_requests_in_progress_neither_is_asked",
    ],
    "Folders that dragoman makes are 0700": [
        "unit/storage/test_files.py::test_everything_that_is_kept_is_private_under_any_umask",
        f"{STORE}::test_files_and_folders_are_for_their_owner_alone",
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
    assert [promise for promise in promised() if promise.startswith(begin)], "no promise says that"
    for name in PROMISES[begin]:
        file, _, test = name.partition("::")
        source = (ROOT / "tests" / file).read_text("utf-8")
        assert re.search(rf"^(?:async )?def {test}\(", source, re.MULTILINE), name


def test_the_commands_that_it_names_exist() -> None:
    from dragoman.cli.commands.trust import trust
    from dragoman.cli.main import cli

    for words in re.findall(r"`dragoman ([a-z -]+)", PAGE):
        command, _, rest = words.strip().partition(" ")
        assert command in cli.list_commands(None)  # type: ignore[arg-type]
        assert not rest or rest.split()[0] in trust.commands
