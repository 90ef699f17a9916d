"""Lists with the query's columns, sorting, pages and name filter.

RabbitMQ puts an object around the list only when the query asks for a page.
"""

import re
from typing import Any

from redrive.embedded.management.replies import JSON, ApiError, Reply, bad_request, found

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 500


def listed(items: list[dict[str, JSON]], query: dict[str, str]) -> Reply:
    """A list as the query asks for it. Raises ApiError."""
    if "page" not in query:
        return found([chosen(item, query) for item in _sorted(items, query)])
    page, size = _whole(query["page"]), _whole(query.get("page_size", str(PAGE_SIZE_DEFAULT)))
    if page < 1 or not 1 <= size <= PAGE_SIZE_MAX:
        raise bad_request("Pagination parameters are invalid")
    kept = _sorted(_named(items, query), query)
    if page > 1 and (page - 1) * size >= len(kept):
        reason = f"Page out of range, page: {page} page size: {size}, len: {len(kept)}"
        raise ApiError(400, "page_out_of_range", reason)
    shown = kept[(page - 1) * size : page * size]
    return found(
        {
            "filtered_count": len(kept),
            "item_count": len(shown),
            "items": [chosen(item, query) for item in shown],
            "page": page,
            "page_count": max(1, -(-len(kept) // size)),
            "page_size": size,
            "total_count": len(items),
        }
    )


def chosen(item: dict[str, JSON], query: dict[str, str]) -> dict[str, JSON]:
    """An object with the query's columns; `a.b` is b inside a."""
    if "columns" not in query:
        return item
    shown: dict[str, JSON] = {}
    for column in query["columns"].split(","):
        first, _, rest = column.partition(".")
        if first not in item:
            continue
        if not rest:
            shown[first] = item[first]
        elif isinstance(item[first], dict):
            inner = shown.setdefault(first, {})
            inner.update(chosen(item[first], {"columns": rest}))
    return shown


def _named(items: list[dict[str, JSON]], query: dict[str, str]) -> list[dict[str, JSON]]:
    wanted = query.get("name", "")
    if not wanted:
        return items
    if query.get("use_regex") != "true":
        return [item for item in items if wanted.lower() in str(item.get("name", "")).lower()]
    try:
        pattern = re.compile(wanted, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        raise bad_request("Pagination parameters are invalid") from None
    return [item for item in items if pattern.search(str(item.get("name", "")))]


def _sorted(items: list[dict[str, JSON]], query: dict[str, str]) -> list[dict[str, JSON]]:
    if "sort" not in query:
        return items
    path = query["sort"].split(".")
    return sorted(items, key=lambda item: _key(item, path), reverse=query.get("sort_reverse") == "true")


def _key(item: JSON, path: list[str]) -> tuple[int, Any]:
    """Numbers before texts, as Erlang orders them; missing values come first."""
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    if item is None:
        return 0, 0
    return (1, item) if isinstance(item, int | float) else (2, str(item))


def _whole(value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or len(value) > 9:
        raise bad_request("Pagination parameters are invalid")
    return int(value)
