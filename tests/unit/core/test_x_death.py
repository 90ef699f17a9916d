"""An x-death header is read once and shared: the result depends on its entries alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import Deaths, deaths_in, has_odd_deaths, read_deaths
from tests.unit.core.strategies import garbage

QUEUES = ("q", "q.wait", "other")

deaths = st.fixed_dictionaries(
    {"queue": st.sampled_from(QUEUES), "reason": st.sampled_from(["rejected", "expired", "maxlen"])},
    optional={
        "count": st.integers(0, 9) | garbage,
        "exchange": st.sampled_from(["", "events"]) | garbage,
        "routing-keys": st.lists(st.sampled_from(["q", "orders.placed"])) | garbage,
    },
)


@given(st.lists(deaths | garbage, max_size=5), st.permutations(QUEUES))
def test_a_shared_header_tells_each_queue_what_a_fresh_one_would(entries: list[Any], asked: list[str]) -> None:
    shared = read_deaths(entries)
    assert shared is not None
    assert shared == entries
    for queue in (*asked, *asked):
        assert shared.in_queue(queue) == deaths_in(list(entries), queue)
        assert read_deaths(shared) is shared


@given(st.lists(deaths, max_size=5))
def test_a_death_in_a_queue_is_a_reject_or_it_is_not(entries: list[dict[str, Any]]) -> None:
    reasons = {one["reason"] for one in entries if one["queue"] == "q"}
    told = deaths_in(entries, "q")
    assert told.otherwise == bool(reasons - {"rejected"})
    assert told.rejections == 0 or "rejected" in reasons
    assert Deaths(entries).has_waited == any(one["reason"] == "expired" for one in entries)


@pytest.mark.parametrize("header", [None, "x", 5, {"queue": "q"}, b"x"])
def test_an_x_death_that_is_no_list_counts_no_deaths(header: Any) -> None:
    assert read_deaths(header) == (None if header is None else [None])
    assert has_odd_deaths(header) == (header is not None)
    assert deaths_in(header, "q") == (0, False, None)
