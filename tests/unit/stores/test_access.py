"""Tokens, redactions and kept answers, on both databases."""

import asyncio

import pytest

from redrive.admin import mint_first_token, store_first_token
from redrive.records import InvalidToken, Redaction, Role, Token, check_token, clean_name, mint_token, read_token_text
from redrive.stores import (
    KeyReservation,
    KeyReused,
    RequestInProgress,
    Store,
    StoredResponse,
    TokenNameTaken,
    UnknownRedaction,
    UnknownToken,
    open_store,
)
from redrive.stores.idempotent_responses import KEPT_MS, STALE_MS
from tests.unit.stores.arrivals import NOW_MS, database_of
from tests.unit.stores.conftest import Run

HASH = bytes(range(32))
ANSWER = StoredResponse(status=201, headers=(("location", "/x"), ("x", "é")), body=b"\x00\xff{}")


def token(name: str = "ada", **fields: object) -> Token:
    values = {
        "id": f"id-of-{name}",
        "name": name,
        "role": Role.OPERATOR,
        "queues": ("orders*", "bills"),
        "created_at_ms": NOW_MS,
        "created_by": "root",
        "expires_at_ms": NOW_MS + 5,
    }
    return Token(**{**values, **fields})  # type: ignore[arg-type]


def test_a_token_is_kept_as_it_was_made(store: Store, run: Run) -> None:
    async def scenario() -> None:
        viewer = token("eve", role=Role.VIEWER, queues=(), sees_payloads=True, expires_at_ms=None)
        await store.tokens.create(token(), secret_hash=HASH, now_ms=NOW_MS, why="on call")
        await store.tokens.create(viewer, secret_hash=HASH, now_ms=NOW_MS)
        assert await store.tokens.find("id-of-ada") == (token(), HASH)
        assert await store.tokens.find("nobody") is None
        assert await store.tokens.all() == (token(), viewer)
        entries, _ = await store.audit.page(10, action="token.created")
        assert [(one.who, one.subject, one.why) for one in entries] == [
            ("root", "id-of-eve", ""),
            ("root", "id-of-ada", "on call"),
        ]

    run(scenario())


def test_a_token_is_admitted_with_every_redaction_there_is_now(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.tokens.create(token(), secret_hash=HASH, now_ms=NOW_MS)
        assert await store.tokens.admit("nobody") is None
        assert await store.tokens.admit("id-of-ada") == (token(), HASH, ())
        for path in ("customer.card", "customer.name"):
            redaction = Redaction(id=f"id of {path}", kind="body", path=path, hidden_from=Role.VIEWER)
            await store.redactions.set(redaction, who="root", now_ms=NOW_MS)
        assert await store.tokens.admit("id-of-ada") == (token(), HASH, await store.redactions.all())
        revoked = await store.tokens.revoke("id-of-ada", who="root", now_ms=NOW_MS)
        admitted = await store.tokens.admit("id-of-ada")
        assert admitted is not None
        assert admitted[0] == revoked

    run(scenario())


def test_a_look_that_is_given_up_leaves_the_database_usable(store: Store, run: Run) -> None:
    async def scenario() -> None:
        database = database_of(store)

        async def give_up() -> None:
            async with database.autocommit() as tx:
                assert await tx.value("SELECT 1") == 1
                raise RuntimeError

        for _ in range(20):
            with pytest.raises(RuntimeError):
                await give_up()
        async with database.autocommit() as tx:
            assert await tx.rows("SELECT id FROM tokens") == []

    run(scenario())


def test_a_name_is_one_token_s_for_ever(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.tokens.create(token(), secret_hash=HASH, now_ms=NOW_MS)
        with pytest.raises(TokenNameTaken, match="choose another name"):
            await store.tokens.create(token(id="other"), secret_hash=HASH, now_ms=NOW_MS)
        revoked = await store.tokens.revoke("id-of-ada", who="root", now_ms=NOW_MS + 1, why="left")
        assert revoked.state(NOW_MS) == "revoked"
        again = await store.tokens.revoke("id-of-ada", who="eve", now_ms=NOW_MS + 2)
        assert again == revoked
        for alike in ("ada", "ADA", " ada ", "\uff21\uff44a", "a\u200dda"):
            with pytest.raises(TokenNameTaken):
                await store.tokens.create(token(id="other", name=alike), secret_hash=HASH, now_ms=NOW_MS)
        entries, _ = await store.audit.page(10, action="token.revoked")
        assert [(one.who, one.why) for one in entries] == [("root", "left")]
        with pytest.raises(UnknownToken):
            await store.tokens.revoke("nobody", who="root", now_ms=NOW_MS)

    run(scenario())


def test_of_many_first_starts_at_once_one_makes_the_token(store_url: str, run: Run) -> None:
    async def scenario() -> None:
        stores = await asyncio.gather(*(open_store(store_url) for _ in range(4)))
        minted = [(one, mint_first_token(one.clock_ms())) for one in stores for _ in range(3)]
        is_stored = await asyncio.gather(*(store_first_token(one, token) for one, token in minted))
        (text,) = [token.text for (_, token), stored in zip(minted, is_stored, strict=True) if stored]
        (first,) = await stores[0].tokens.all()
        read = read_token_text(text)
        assert read is not None
        assert await stores[0].tokens.find(read[0]) == (first, read[1])
        assert (first.role, first.queues) == (Role.ADMIN, ())
        await stores[0].tokens.revoke(first.id, who="root", now_ms=NOW_MS)
        assert not await store_first_token(stores[1], mint_first_token(NOW_MS))
        for one in stores:
            await one.close()

    run(scenario())


def test_redactions_are_one_for_each_path(store: Store, run: Run) -> None:
    async def scenario() -> None:
        card = Redaction(id="r1", kind="body", path="card", hidden_from=Role.VIEWER)
        user = Redaction(id="r2", kind="header", path="card", hidden_from=Role.ADMIN)
        assert await store.redactions.set(card, who="root", now_ms=NOW_MS) == card
        assert await store.redactions.set(user, who="root", now_ms=NOW_MS) == user
        changed = Redaction(id="r3", kind="body", path="card", hidden_from=Role.OPERATOR)
        stored = await store.redactions.set(changed, who="root", now_ms=NOW_MS)
        assert (stored.id, stored.hidden_from) == ("r1", Role.OPERATOR)
        assert await store.redactions.all() == (stored, user)
        await store.redactions.remove("r1", who="root", now_ms=NOW_MS)
        assert await store.redactions.all() == (user,)
        with pytest.raises(UnknownRedaction):
            await store.redactions.remove("r1", who="root", now_ms=NOW_MS)

    run(scenario())


def test_a_key_is_reserved_answered_and_forgotten_after_a_day(store: Store, run: Run) -> None:
    async def scenario() -> None:
        answers = store.answers
        reserved = await answers.reserve("t", "k", b"one", now_ms=NOW_MS)
        assert reserved == KeyReservation(owner="t", key="k", turn=1)
        assert isinstance(reserved, KeyReservation)
        assert await answers.reserve("t", "k", b"one", now_ms=NOW_MS) == RequestInProgress()
        assert await answers.reserve("t", "k", b"other", now_ms=NOW_MS) == KeyReused()
        assert isinstance(await answers.reserve("other", "k", b"x", now_ms=NOW_MS), KeyReservation)
        assert await answers.keep(reserved, ANSWER)
        assert await answers.reserve("t", "k", b"one", now_ms=NOW_MS + STALE_MS) == ANSWER
        assert await answers.reserve("t", "k", b"other", now_ms=NOW_MS) == KeyReused()
        later_ms = NOW_MS + KEPT_MS + 1
        assert await answers.reserve("t", "k", b"other", now_ms=later_ms) == reserved

    run(scenario())


def test_a_stale_reservation_is_taken_over_and_its_holder_changes_nothing(store: Store, run: Run) -> None:
    async def scenario() -> None:
        answers = store.answers
        first = await answers.reserve("t", "k", b"one", now_ms=NOW_MS)
        second = await answers.reserve("t", "k", b"one", now_ms=NOW_MS + STALE_MS)
        assert second == KeyReservation(owner="t", key="k", turn=2)
        assert isinstance(first, KeyReservation)
        assert isinstance(second, KeyReservation)
        assert not await answers.keep(first, ANSWER)
        await answers.release(first)
        assert await answers.reserve("t", "k", b"one", now_ms=NOW_MS + STALE_MS) == RequestInProgress()
        assert await answers.keep(second, ANSWER)
        await answers.release(second)
        assert await answers.reserve("t", "k", b"one", now_ms=NOW_MS + STALE_MS) == ANSWER

    run(scenario())


def test_a_key_that_is_released_is_free(store: Store, run: Run) -> None:
    async def scenario() -> None:
        first = await store.answers.reserve("t", "k", b"one", now_ms=NOW_MS)
        assert isinstance(first, KeyReservation)
        await store.answers.release(first)
        assert await store.answers.reserve("t", "k", b"other", now_ms=NOW_MS) == first

    run(scenario())


def test_of_many_with_one_key_one_works(store_url: str, run: Run) -> None:
    async def scenario() -> None:
        stores = await asyncio.gather(*(open_store(store_url) for _ in range(3)))
        found = await asyncio.gather(
            *(one.answers.reserve("t", "k", b"x", now_ms=NOW_MS) for one in stores for _ in range(4))
        )
        assert sum(isinstance(one, KeyReservation) for one in found) == 1
        assert sum(one == RequestInProgress() for one in found) == len(found) - 1
        for one in stores:
            await one.close()

    run(scenario())


def test_a_token_s_text_leads_to_its_hash_and_back_to_nothing_else() -> None:
    text, secret_hash = mint_token("0123456789abcdef", bytes(range(20)))
    assert text.startswith("rd_0123456789abcdef_")
    assert read_token_text(text) == ("0123456789abcdef", secret_hash)
    assert len({mint_token("0123456789abcdef", bytes([n] * 20))[0] for n in range(256)}) == 256
    for odd in ("", "rd_", text + "x", text[:-1], text.upper(), f" {text}", text.replace("rd_", "rx_"), text + "\n"):
        assert read_token_text(odd) is None


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ada\ufe0f",
            "ad\u034fa",
            "ad\u200ba",
            "ada\U000e0100",
            "redrive\ufe0f",
            "\u3164",
            "\u2800",
            "\u115f",
            "ada\u2800",
        ),
        *("аda", "rеdrive", "οnce", "ada Ж", "ˑ\ufe0f"),
    ],
)
def test_a_name_that_nobody_could_tell_from_another_is_refused(name: str) -> None:
    with pytest.raises(InvalidToken):
        check_token(token(clean_name(name)), now_ms=NOW_MS)


@pytest.mark.parametrize(
    "name", ["ada", "Zoë Müller", "Дом", "Οδός", "田中 Taro", "ひらカタ漢字", "김철수", "ops-2", "a.b@c.example"]
)
def test_names_of_people_everywhere_are_names(name: str) -> None:
    assert check_token(token(name), now_ms=NOW_MS).name == name


@pytest.mark.parametrize(
    ("one", "other"),
    [("ada", "ADA"), ("ada", "ad\u034fa"), ("ace", "асе"), ("BOB", "ВОВ"), ("TOM", "ΤΟΜ"), ("ix", "ıx")],
)
def test_names_that_look_alike_are_one_name(store: Store, run: Run, one: str, other: str) -> None:
    async def scenario() -> None:
        await store.tokens.create(token(one), secret_hash=b"1", now_ms=NOW_MS)
        with pytest.raises(TokenNameTaken):
            await store.tokens.create(token(other, id="1hv7d2m9x0abcdeg"), secret_hash=b"2", now_ms=NOW_MS)

    run(scenario())
