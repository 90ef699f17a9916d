"""The API selects what a filter means, in pages and in bulk, with data that strangers send."""

from random import Random
from typing import Any

from redrive.admin import Services
from redrive.records import Filter, InvalidFilter, Role, format_filter, matches, parse_filter
from redrive.stores import ExportedLetter, Store
from redrive.stores.message_contents import headers_of
from tests.selections.auditor import stored
from tests.selections.filters import draw_filter
from tests.selections.letters import draw_letter
from tests.unit.admin.conftest import ClientFor, Run
from tests.unit.stores.made_letters import put

MESSAGES = "/api/v1/messages"
LETTERS, FILTERS = 15, 40


def readable(filter: Filter, now_ms: int) -> str | None:
    """The filter as text, if it can be written as one."""
    text = format_filter(filter)
    try:
        return text if parse_filter(text, now_ms=now_ms) == filter else None
    except InvalidFilter:
        return None


def test_the_api_lists_what_a_filter_means(run: Run, client_for: ClientFor, services: Services, store: Store) -> None:
    luck = Random(11)
    made: list[ExportedLetter] = [draw_letter(luck, number) for number in range(LETTERS)]

    async def scenario() -> None:
        await put(store, made)
        letters = await stored(store)
        contents = {each.letter.id: each.content for each in made}
        client = await client_for(Role.ADMIN, payloads=True)
        asked = 0
        for _ in range(FILTERS):
            filter = draw_filter(luck, made)
            text = readable(filter, services.clock_ms())
            if text is None:
                continue
            asked += 1
            expected = {
                letter.id
                for letter in letters
                if matches(
                    filter,
                    letter,
                    headers=headers_of(contents[letter.id].properties),
                    body=contents[letter.id].body,
                    now_ms=services.clock_ms(),
                )
            }
            found: set[str] = set()
            query: dict[str, Any] = {"q": text, "limit": 4}
            while True:
                answer = await client.get(MESSAGES, params=query)
                assert answer.status_code == 200, answer.text
                found |= {one["id"] for one in answer.json()["messages"]}
                if answer.json()["next"] is None:
                    break
                query["cursor"] = answer.json()["next"]
            assert found == expected, text
        assert asked > FILTERS // 4

    run(scenario())
