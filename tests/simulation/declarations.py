"""A random declaration: one to three queues over all shapes, with the options their documents leave open."""

from random import Random
from typing import Any

DELAYS = ("1s", "5s", "30s", "2m", "15m", "1h", "3h")
SHAPES = ("ladder", "tiered", "service", "per-queue", "quorum", "requeue", "native")
EVENTS, BOOKINGS = "events", "bookings"
"""Two topic exchanges: shapes `tiered` and `requeue` name a dead-letter exchange after theirs, of different types."""


def draw_sections(random: Random, profile: str) -> dict[str, Any]:
    """The sections of a redrive.yaml."""
    shapes = [one for one in SHAPES if one != "native" or profile == "4.3"]
    kinds = {"tiered": random.choice((None, "classic", "quorum"))}
    queues = {}
    for number in range(random.choice((1, 1, 2, 2, 3))):
        shape = random.choice(shapes)
        exchange = (
            BOOKINGS if shape == "requeue" else EVENTS if shape == "tiered" else random.choice((EVENTS, BOOKINGS))
        )
        keys = [f"d{number}.*"]
        if shape != "tiered" and random.random() < 0.3:
            keys = [random.choice(("#", "*.done", f"d{number}.#"))]
        entry: dict[str, Any] = {"from": {exchange: keys}, "retry": _draw_retry(random, shape, number)}
        kind = None
        if shape in ("service", "per-queue", "requeue"):
            kind = random.choice((None, "classic", "quorum"))
        elif shape == "tiered":
            kind = kinds["tiered"]  # they share a DLQ
        if kind is not None:
            entry["type"] = kind
        queues[f"q{number}"] = entry
    return {"exchanges": {EVENTS: "topic", BOOKINGS: "topic"}, "queues": queues}


def _draw_retry(random: Random, shape: str, number: int) -> dict[str, Any]:
    retry: dict[str, Any] = {"shape": shape}
    attempts = random.choice((None, 1, 2, 3, 4, 6))
    if attempts is not None:
        retry["attempts"] = attempts
    match shape:
        case "ladder" | "tiered":
            retry["delays"] = random.sample(DELAYS, random.choice((1, 2, 3)))
        case "service" | "per-queue" | "quorum":
            retry["delays"] = [random.choice(DELAYS)]
        case "native":
            short, long = sorted(random.sample(range(len(DELAYS)), 2))
            retry |= {"min": DELAYS[short], "max": DELAYS[long]}
    if shape == "tiered":
        retry |= {"domain": f"d{number}", "park": random.choice(("publish", "publish", "reject"))}
    if shape == "service":
        retry |= {"service": f"wms-s{number}", "other_4xx": random.choice(("park", "retry"))}
    if shape == "requeue":
        retry |= {
            "requeue": random.choice(("copy", "copy", "nack")),
            "park": random.choice(("publish", "publish", "reject")),
        }
    if shape not in ("ladder", "native") and random.random() < 0.15:
        retry["at_least_once"] = False
    return retry
