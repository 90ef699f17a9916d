"""Outcomes, situations, policies and headers as Hypothesis draws them."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from redrive.core import (
    Answered,
    Attempt,
    Backoff,
    Crashed,
    Decision,
    Done,
    Exponential,
    Failure,
    Fixed,
    Immediate,
    Linear,
    Listed,
    Outcome,
    Park,
    Raised,
    Report,
    Requeue,
    Requeued,
    RetryAfter,
    RetryPolicy,
    Rule,
    Situation,
    Succeeded,
    TimedOut,
    Undecodable,
)

NOW_MS = 1_700_000_000_000

delays = st.one_of(
    st.integers(0, 10**8).map(lambda ms: f"{ms}ms"),
    st.floats(0, 1e6),
    st.timedeltas(timedelta(0), timedelta(days=400)),
)
errors: st.SearchStrategy[BaseException] = st.one_of(
    st.sampled_from([ValueError("no"), KeyError("k"), TimeoutError(), ConnectionResetError(), Exception()]),
    st.builds(Park, st.text(max_size=20)),
    st.builds(RetryAfter, delays),
    st.builds(Requeue, st.none() | delays),
)
statuses = st.one_of(st.integers(100, 599), st.sampled_from([408, 409, 425, 429]), st.integers(-(2**70), 2**70))
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Succeeded()),
    st.builds(Raised, errors),
    st.builds(
        Answered,
        status=statuses,
        retry_after_ms=st.none() | st.integers(0, 10**15),
        detail=st.text(max_size=20),
        error=st.none() | st.just(ValueError("with a status")),
    ),
    st.builds(TimedOut, after_ms=st.integers(0, 10**7)),
    st.builds(Undecodable, st.just(ValueError("no JSON"))),
    st.builds(Crashed, deliveries=st.integers(1, 100)),
)
situations = st.builds(
    Situation,
    retries=st.one_of(st.integers(0, 12), st.integers(0, 2 * 10**9)),
    now_ms=st.just(NOW_MS),
    age_ms=st.none() | st.integers(0, 10**10),
    draw=st.floats(0, 1, exclude_max=True),
)
plain_backoffs: st.SearchStrategy[Backoff] = st.one_of(
    st.builds(Fixed, delays),
    st.builds(Listed, st.lists(delays, min_size=1, max_size=5)),
    st.builds(Exponential, delays, st.floats(1, 1e300), delays),
    st.builds(Linear, delays, delays),
)
backoffs: st.SearchStrategy[Backoff] = plain_backoffs | st.builds(Immediate, plain_backoffs, st.integers(0, 3))


def _rule(on: Any, then: Any, backoff: Backoff | None, attempts_max: int | None) -> Rule:
    if then != "retry":
        return Rule(on, then)
    return Rule(on, then, backoff=backoff, attempts_max=attempts_max)


causes = st.one_of(
    st.sampled_from([ValueError, KeyError, OSError, TimeoutError, Exception]),
    st.integers(100, 599),
    st.builds(range, st.integers(100, 299), st.integers(300, 600)),
)
rules = st.builds(
    _rule,
    causes | st.lists(causes, min_size=1, max_size=3),
    st.sampled_from(["ack", "retry", "park", "requeue"]),
    st.none() | backoffs,
    st.none() | st.integers(1, 12),
)


def _raise(*_: Any) -> Decision | None:
    raise RuntimeError("the author's mistake")


policies = st.builds(
    RetryPolicy,
    attempts_max=st.integers(1, 12),
    backoff=backoffs,
    jitter=st.floats(0, 1),
    rules=st.lists(rules, max_size=3).map(tuple),
    age_ms_max=st.none() | st.integers(0, 10**10),
    other_4xx=st.sampled_from(["park", "retry"]),
    own=st.sampled_from([None, None, _raise, lambda *_: None, lambda *_: Done(), lambda *_: Requeued(pause_ms=1)]),
)

any_text = st.one_of(
    st.text(max_size=50),
    st.text(st.characters(), max_size=50),  # lone surrogates too
    st.sampled_from(["", "x" * 200_000, "ü" * 200_000, "\ud800" * 100_000, "\udcff", "🐇" * 60_000]),
)
reports = st.builds(
    Report,
    retries=st.integers(0, 2 * 10**9),
    now_ms=st.integers(0, 2**62),
    failure=st.none()
    | st.builds(Failure, type=any_text, message=any_text, stack=any_text, status=st.none() | statuses),
    history=st.lists(
        st.builds(Attempt, number=st.integers(0, 10**9), at_ms=st.integers(0, 2**62), error=any_text), max_size=60
    ).map(tuple),
)

garbage: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=10),
        st.binary(max_size=10),
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["queue", "reason", "count", "exchange", "routing-keys", "number", "at_ms", "error", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
