"""One declared queue in each shape, and one without retries: its text, queue, exchange, key and the runs it allows."""

SHAPES: dict[str, tuple[str, str, str, str, int]] = {
    "ladder": ("exchanges: {e: topic}\nqueues: {q: {from: {e: ['#']}, retry: [30s, 5m]}}", "q", "e", "a.retry", 3),
    "tiered": (
        "exchanges: {e: topic}\nqueues: {q: {from: {e: ['a.*']}, retry: {shape: tiered, domain: a}}}",
        "q",
        "e",
        "a.retry",
        4,
    ),
    "service": ("services: [wms-stock]", "wms.queue.wms-stock", "wms.main-exchange", "a.retry", 11),
    "per-queue": (
        "exchanges: {e: topic}\nqueues: {q: {from: {e: ['#']}, retry: {shape: per-queue}}}",
        "q",
        "e",
        "a.retry",
        3,
    ),
    "quorum": (
        "exchanges: {e: topic}\nqueues: {q: {from: {e: ['#']}, retry: {shape: quorum}}}",
        "q",
        "e",
        "a.retry",
        4,
    ),
    "requeue": (
        "exchanges: {e: topic}\nqueues: {q: {from: {e: ['#']}, retry: {shape: requeue}}}",
        "q",
        "e",
        "a.retry",
        4,
    ),
    "native": (
        "exchanges: {e: topic}\nqueues: {q: {from: {e: ['#']}, retry: {shape: native, min: 1s, max: 2s}}}",
        "q",
        "e",
        "a.retry",
        4,
    ),
    "none": (
        "exchanges: {e: topic, dead: fanout}\nqueues: {q: {from: {e: ['#']}, retry: false,"
        " arguments: {x-dead-letter-exchange: dead}}, d: {from: dead, retry: false}}",
        "q",
        "e",
        "a.retry",
        1,
    ),
}
