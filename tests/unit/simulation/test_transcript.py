"""A timeline as text for people, and as a JSON document whose fields stay what they are."""

import json
from dataclasses import replace

from redrive.simulation import as_json, as_text
from tests.unit.simulation.timelines import timeline_of

EVENT_FIELDS = [
    "at_ms",
    "kind",
    "queue",
    "text",
    "attempt",
    "outcome",
    "decision",
    "delay_ms",
    "until_ms",
    "why",
    "also",
    "headers",
]


def test_the_document_has_these_fields_and_plain_json_values() -> None:
    document = as_json(timeline_of("ladder", "fail,ok", "4.3"))
    assert json.loads(json.dumps(document)) == document
    assert list(document) == [
        "format",
        "queue",
        "shape",
        "profile",
        "script",
        "attempts_max",
        "runs",
        "events",
        "end",
    ]
    assert list(document["end"]) == ["state", "safe", "queue", "at_ms", "text", "headers"]
    assert all(list(event) == EVENT_FIELDS for event in document["events"])


def test_the_document_of_a_short_timeline_is_this() -> None:
    document = as_json(timeline_of("ladder", "fail,ok", "4.3"))
    head = {key: document[key] for key in ("format", "queue", "shape", "profile", "script", "attempts_max", "runs")}
    assert head == {
        "format": 1,
        "queue": "orders",
        "shape": "ladder",
        "profile": "4.3",
        "script": "fail, ok",
        "attempts_max": 4,
        "runs": 2,
    }
    short = [
        (one["at_ms"], one["kind"], one["queue"], one["attempt"], one["decision"], one["delay_ms"], one["until_ms"])
        for one in document["events"]
    ]
    assert short == [
        (0, "published", "orders", None, None, None, None),
        (0, "run", "orders", 1, "retry", 30_000, None),
        (0, "arrived", "orders.wait.30s", None, None, None, 30_000),
        (30_000, "arrived", "orders", None, None, None, None),
        (30_000, "run", "orders", 2, "ack", None, None),
    ]
    assert document["events"][-1]["headers"]["x-retry-count"] == 1
    end = document["end"]
    assert (end["state"], end["safe"], end["queue"], end["at_ms"]) == ("handled", True, None, 30_000)


def test_a_parked_message_is_shown_with_its_headers() -> None:
    document = as_json(timeline_of("file-pipeline", "503", "4.0"))
    end = document["end"]
    assert (end["state"], end["queue"], end["at_ms"]) == ("parked", "q.thumbnail.dlq", 30_000)
    assert end["headers"]["x-final-status-code"] == 503
    assert end["headers"]["x-final-error"] == "HTTP 503"
    deaths = {(one["queue"], one["reason"]): one["count"] for one in end["headers"]["x-death"]}
    assert deaths == {("q.thumbnail", "rejected"): 2, ("q.thumbnail.retry", "expired"): 2}


def test_what_repeats_is_shown_once() -> None:
    lines = as_text(timeline_of("ladder", "requeue", "4.3")).splitlines()
    assert lines[2:5] == [
        "  0s  orders  published to domain.events, key orders.example",
        "  0s  orders  run 1 of 4: Requeue → back to the queue after 1s",
        "   …          (the same 104 times more, until 1m44s)",
    ]


def test_a_long_timeline_is_shown_by_its_ends() -> None:
    lines = as_text(timeline_of("event-bus", "retry-after:40m,ok", "4.3")).splitlines()
    assert len(lines) < 60
    assert any("lines like these" in line for line in lines)
    assert any(line.endswith("run 2 of 11: ok → ack") for line in lines)


def test_colour_comes_only_when_asked_for_and_changes_no_word() -> None:
    timeline = timeline_of("ladder", "fail", "4.3")
    coloured = as_text(timeline, colour=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in as_text(timeline)
    for code in ("\x1b[0m", "\x1b[2m", "\x1b[1;33m"):
        coloured = coloured.replace(code, "")
    assert coloured == as_text(timeline)


def test_a_list_that_is_no_history_is_shown_as_it_is() -> None:
    timeline = timeline_of("ladder", "fail,ok", "4.3")
    carried = {"x-tags": ["new", "urgent"], "x-redrive-history": [], "note": "x"}
    lines = as_text(replace(timeline, headers=carried))
    assert [line.split(maxsplit=1) for line in lines.splitlines()[-3:]] == [
        ["note", "x"],
        ["x-redrive-history", "none"],
        ["x-tags", "['new', 'urgent']"],
    ]
