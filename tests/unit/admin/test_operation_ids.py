"""Generated clients use the operation ids of the OpenAPI document as names: renaming a route's function or module would
break them."""

from fastapi import FastAPI

OPERATION_IDS = """
audit_list_all
bookly_get_entry
bookly_get_stats
bookly_list_entries
bookly_remove
bookly_resolve
bookly_retry
events_watch
groups_acknowledge
groups_ignore
groups_list_all
groups_note
groups_reopen
groups_resolve
groups_show
health_healthz
health_metrics
health_readyz
messages_edit
messages_list_all
messages_preview
messages_remove
messages_remove_many
messages_reopen
messages_reopen_many
messages_resolve
messages_resolve_many
messages_settle
messages_show
messages_show_body
messages_show_headers
pipeline_list_queues
pipeline_peek
pipeline_redrive
queues_list_all
redactions_create
redactions_list_all
redactions_remove
redrives_cancel
redrives_create
redrives_list_all
redrives_list_items
redrives_pause
redrives_resume
redrives_show
rules_list_all
rules_remove
rules_replace
statistics_time_series
statistics_totals
tokens_create
tokens_list_all
tokens_revoke
tokens_show
"""


def test_operation_ids_stay(app: FastAPI) -> None:
    operations = [one for path in app.openapi()["paths"].values() for one in path.values()]
    assert sorted(one["operationId"] for one in operations) == OPERATION_IDS.split()
