"""Schemas of counts and time series."""

from typing import Any

from pydantic import ConfigDict, Field

from redrive.admin.schemas.base import GROUP_ID, MOMENT, Moment, ResponseSchema, example
from redrive.records import Status, moment_json
from redrive.stores import ActivityBucket, LetterStats

Counts = dict[str, dict[str, int]]


class Statistics(ResponseSchema):
    """How many there are by status, and along each dimension by key and status, for the 200 keys with the most."""

    model_config = ConfigDict(
        json_schema_extra=example(
            total=412,
            partial=False,
            by_status={"pending": 400, "retrying": 12, "waiting": 0, "in_doubt": 0, "failed": 0, "resolved": 0},
            by_queue={"orders": {"pending": 400, "retrying": 12}},
            by_dlq={"orders.parked": {"pending": 400, "retrying": 12}},
            by_topic={"orders.placed": {"pending": 400, "retrying": 12}},
            by_service={"shop": {"pending": 400, "retrying": 12}},
            by_type={"OrderPlaced": {"pending": 400, "retrying": 12}},
            by_group={GROUP_ID: {"pending": 400, "retrying": 12}},
        )
    )

    total: int
    partial: bool = Field(description="Only the newest that match were counted.")
    by_status: dict[str, int]
    by_queue: Counts
    by_dlq: Counts
    by_topic: Counts
    by_service: Counts
    by_type: Counts
    by_group: Counts


class Point(ResponseSchema):
    """What happened from `at` until the next point."""

    at: Moment | None
    dead: int
    redriven: int
    returned: int
    resolved: int


class TimeSeries(ResponseSchema):
    """What happened, bucket by bucket, empty ones too. Buckets are whole five minutes."""

    model_config = ConfigDict(
        json_schema_extra=example(
            bucket_s=300, points=[{"at": MOMENT, "dead": 12, "redriven": 3, "returned": 0, "resolved": 2}]
        )
    )

    bucket_s: int
    points: list[Point]


def stats_json(stats: LetterStats) -> dict[str, Any]:
    """A `Statistics` of what the store counted."""
    return {
        "total": stats.total,
        "partial": stats.is_partial,
        "by_status": {status.value: stats.by_status.get(status.value, 0) for status in Status},
        "by_queue": stats.by_queue,
        "by_dlq": stats.by_dlq,
        "by_topic": stats.by_topic,
        "by_service": stats.by_service,
        "by_type": stats.by_type,
        "by_group": stats.by_group,
    }


def series_json(buckets: tuple[ActivityBucket, ...], *, asked_s: int) -> dict[str, Any]:
    """A `TimeSeries` of the store's buckets; `asked_s` is their width if there are too few to compute it."""
    width_s = (buckets[1].at_ms - buckets[0].at_ms) // 1000 if len(buckets) > 1 else asked_s
    points = [
        {
            "at": moment_json(one.at_ms),
            "dead": one.dead,
            "redriven": one.redriven,
            "returned": one.returned,
            "resolved": one.resolved,
        }
        for one in buckets
    ]
    return {"bucket_s": width_s, "points": points}
