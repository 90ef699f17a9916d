"""Who gets in: valid tokens, and nobody else; what they may do; how refusals are throttled and audited."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from redrive.admin import (
    ApiSettings,
    InvalidSettings,
    Services,
    create_app,
    mint_first_token,
    store_first_token,
)
from redrive.admin.access.access_audit import ORIGINS_MAX, OTHER_REASONS, QUIET_MS, REASONS_MAX
from redrive.admin.access.authorization import Requires
from redrive.admin.access.brute_force import ADDRESSES_MAX, FREE_GUESSES, BruteForceThrottle
from redrive.admin.access.caller import Caller
from redrive.admin.access.request_origin import address_network
from redrive.admin.app import ROUTERS
from redrive.admin.openapi import api_routes, required_by
from redrive.records import AuditEntry, NameTerm, Redaction, Role, moment_json
from redrive.serving.proxies import TrustedProxies
from redrive.stores import Store, StoreUnavailable
from tests.unit.admin.conftest import BASE_URL, ClientFor, Clock, PutLetter, Run, audited
from tests.unit.stores.made_letters import make_letter

WRONG = "rd_0123456789abcdef_0123456789abcdefghjkmnpqrstvwxyz"


def a_caller() -> Caller:
    return Caller(token_id="t1", name="vic", role=Role.VIEWER, sees_payloads=True)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == answer.status_code
    return answer.status_code, told["type"].removeprefix("urn:redrive:problem:")


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Basic cmQ6eA==", f"Bearer {WRONG}", f"bearer  {WRONG}x", "Bearer rd__", "rd_x"],
)
def test_without_a_token_that_counts_nobody_gets_in(run: Run, client_for: ClientFor, authorization: str | None) -> None:
    async def scenario() -> None:
        client = await client_for(None)
        headers = {} if authorization is None else {"Authorization": authorization}
        for path in ("/api/v1/tokens", "/dlq", "/nowhere", "/healthz/", "//healthz", "/docs/../api/v1/tokens"):
            answer = await client.get(path, headers=headers)
            if "docs" in path:
                continue  # httpx itself makes it /api/v1/tokens
            assert answer.status_code in (401, 429), path
            if answer.status_code == 401:
                assert problem(answer) == (401, "unauthenticated")
                assert answer.headers["www-authenticate"] == "Bearer"

    run(scenario())


def test_two_tokens_in_one_request_are_none(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        token = client.headers["Authorization"]
        answer = await client.get("/api/v1/tokens", headers=[("Authorization", token), ("Authorization", token)])
        # httpx merges its own header with these, so there are two or three of them.
        assert problem(answer) == (401, "unauthenticated")

    run(scenario())


def test_expired_and_revoked_tokens_are_refused(run: Run, client_for: ClientFor, clock: Clock, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN, expires_at_ms=clock() + 1_000)
        assert (await client.get("/api/v1/tokens")).status_code == 200
        clock.now_ms += 1_000
        answer = await client.get("/api/v1/tokens")
        assert problem(answer) == (401, "unauthenticated")
        assert "expired" in answer.json()["detail"]
        revoked = await client_for(Role.ADMIN, is_revoked=True)
        answer = await revoked.get("/api/v1/tokens")
        assert problem(answer) == (401, "unauthenticated")
        assert "revoked" in answer.json()["detail"]

    run(scenario())


def test_a_token_that_is_revoked_is_refused_by_the_next_request(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.VIEWER, name="ada")
        assert (await client.get("/api/v1/messages")).status_code == 200
        (token,) = await store.tokens.all()
        await store.tokens.revoke(token.id, who="eve", now_ms=0)
        assert (await client.get("/api/v1/messages")).status_code == 401

    run(scenario())


def test_right_id_and_wrong_secret_is_unknown(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        await client_for(Role.ADMIN)
        (token,) = await store.tokens.all()
        client = await client_for(None)
        answer = await client.get("/api/v1/tokens", headers=bearer(f"rd_{token.id}_{WRONG[-32:]}"))
        assert problem(answer) == (401, "unauthenticated")
        assert token.name not in answer.text

    run(scenario())


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.OPERATOR, 403), (Role.ADMIN, 200)])
def test_a_role_that_is_too_little_is_refused_and_audited(
    run: Run, client_for: ClientFor, store: Store, role: Role, status: int
) -> None:
    async def scenario() -> None:
        client = await client_for(role, name="ada")
        answer = await client.get("/api/v1/tokens")
        assert answer.status_code == status
        if status == 403:
            assert problem(answer) == (403, "forbidden")
            assert await audited(store, "access.forbidden") == [("ada", "GET /api/v1/tokens", 1)]

    run(scenario())


def test_an_admin_of_some_queues_makes_no_tokens(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN, queues=("orders",))
        answer = await client.post("/api/v1/tokens", json={"name": "free", "role": "admin"})
        assert problem(answer) == (403, "forbidden")
        assert [token.name for token in await store.tokens.all()] == ["admin 0"]

    run(scenario())


def test_every_route_but_the_open_ones_needs_a_role(app: FastAPI) -> None:
    is_open = {route.path for route in api_routes(ROUTERS) if required_by(route) is None}
    assert is_open == {"/healthz", "/readyz", "/docs"}
    schema = app.openapi()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            role = operation["x-redrive-role"]
            assert operation["security"] == ([] if role == "none" else [{"token": []}]), (method, path)


def test_what_a_caller_may_is_said_by_its_queues() -> None:
    whole = Caller(token_id="t", name="n", role=Role.VIEWER)
    some = Caller(token_id="t", name="n", role=Role.VIEWER, queues=("orders*", "bills"), dlqs=("dead.1",))
    assert whole.scope_terms() == ()
    assert some.scope_terms() == (NameTerm(field="dlq", values=("orders*", "bills", "dead.1")),)
    assert whole.sees(make_letter(queue="mail"))
    assert some.sees(make_letter(queue="orders.eu", dlq="orders.eu.parked"))
    assert some.sees(make_letter(queue="x", dlq="bills"))
    assert some.sees(make_letter(queue="x", dlq="dead.1"))
    assert not some.sees(make_letter(queue="orders.eu", dlq="x"))  # where it lay counts, not what it says
    assert not some.sees(make_letter(queue="mail", dlq="mail.parked"))
    assert [some.may_use(one) for one in ("orders", "bills", "bills2", "")] == [True, True, False, False]


def test_a_grant_is_for_viewers_and_the_others_have_it_anyway() -> None:
    needs = Requires(role=Role.VIEWER, payloads=True)
    viewer = Caller(token_id="t", name="n", role=Role.VIEWER)
    assert "payloads" in str(needs.lacks(viewer))
    assert needs.lacks(Caller(token_id="t", name="n", role=Role.VIEWER, sees_payloads=True)) is None


class TestSlowing:
    """Guesses."""

    def test_some_are_free_then_each_waits_twice_as_long_up_to_a_minute(self) -> None:
        slowing = BruteForceThrottle()
        waits = []
        for _ in range(FREE_GUESSES + 8):
            slowing.record_failure("10.0.0.1", now_ms=0)
            waits.append(slowing.wait_ms("10.0.0.1", now_ms=0))
        assert waits[: FREE_GUESSES - 1] == [0] * (FREE_GUESSES - 1)
        assert waits[FREE_GUESSES - 1 :] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
        assert slowing.wait_ms("10.0.0.2", now_ms=0) == 0
        assert slowing.wait_ms("10.0.0.1", now_ms=60_000) == 0

    def test_memory_is_bounded(self) -> None:
        slowing = BruteForceThrottle()
        for number in range(ADDRESSES_MAX + 500):
            for _ in range(FREE_GUESSES):
                slowing.record_failure(f"host {number}", now_ms=number)
        waits = [slowing.wait_ms(f"host {number}", now_ms=0) for number in range(ADDRESSES_MAX + 500)]
        assert sum(wait_ms > 0 for wait_ms in waits) == ADDRESSES_MAX

    def test_guesses_are_forgotten_after_a_while(self) -> None:
        slowing = BruteForceThrottle()
        for _ in range(20):
            slowing.record_failure("10.0.0.1", now_ms=0)
        slowing.record_failure("10.0.0.1", now_ms=11 * 60_000)
        assert slowing.wait_ms("10.0.0.1", now_ms=11 * 60_000) == 0

    def test_addresses_of_one_ipv6_network_are_one(self) -> None:
        assert (
            address_network("2001:db8::1") == address_network("2001:db8::ffff:1") != address_network("2001:db8:0:1::1")
        )
        assert address_network("::ffff:10.0.0.1") == "10.0.0.1"
        assert address_network("fe80::1%eth0") == address_network("fe80::2")
        assert len(address_network("x" * 10_000)) == 100


def test_guesses_from_one_address_harm_nobody_with_a_right_token(run: Run, client_for: ClientFor, clock: Clock) -> None:
    async def scenario() -> None:
        ada = await client_for(Role.VIEWER, address="10.0.0.1")
        bob = await client_for(Role.VIEWER, address="10.0.0.2")
        guesser = await client_for(None, address="10.0.0.1")
        answers = [await guesser.get("/api/v1/messages", headers=bearer(WRONG)) for _ in range(FREE_GUESSES + 1)]
        assert [one.status_code for one in answers] == [401] * FREE_GUESSES + [429]
        assert problem(answers[-1]) == (429, "too-many-failures")
        assert answers[-1].headers["retry-after"] == "1"
        # Never seen before from the guesser's address, from another one, and after the wait.
        assert (await ada.get("/api/v1/messages")).status_code == 200
        assert (await bob.get("/api/v1/messages")).status_code == 200
        clock.now_ms += 1_000
        assert (await guesser.get("/api/v1/messages", headers=bearer(WRONG))).status_code == 401

    run(scenario())


def test_expired_tokens_and_missing_ones_are_no_guesses(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        expired = await client_for(Role.VIEWER, expires_at_ms=1)
        nobody = await client_for(None)
        for _ in range(20):
            assert (await expired.get("/dlq")).status_code == 401
            assert (await nobody.get("/dlq")).status_code == 401

    run(scenario())


def test_401s_of_an_address_are_one_entry_a_minute_with_a_count(
    run: Run, client_for: ClientFor, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        client = await client_for(None, address="10.0.0.9")
        for _ in range(7):
            await client.get("/dlq")
        assert await audited(store, "access.unauthenticated") == [("address 10.0.0.9", "api", 1)]
        clock.now_ms += QUIET_MS
        await client.get("/dlq")
        assert await audited(store, "access.unauthenticated") == [
            ("address 10.0.0.9", "api", 7),
            ("address 10.0.0.9", "api", 1),
        ]

    run(scenario())


def test_counted_refusals_are_written_at_the_end(run: Run, services: Services, store: Store) -> None:
    async def scenario() -> None:
        refusals = services.refusal_audit
        for _ in range(3):
            await refusals.record_unauthenticated("10.0.0.9", "no token")
        await refusals.flush()
        assert await audited(store, "access.unauthenticated") == [("address 10.0.0.9", "api", 1)]
        await refusals.flush(all_of_them=True)
        assert [count for _, _, count in await audited(store, "access.unauthenticated")] == [2, 1]

    run(scenario())


def test_each_reason_is_audited_at_its_time_and_alike_ones_at_the_first_one_s(
    run: Run, services: Services, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        refusals, caller = services.refusal_audit, a_caller()
        begin_ms = clock.now_ms
        for reason, after_ms in (("words", 0), ("card", 7_000), ("words", 8_000), ("words", 9_000), ("card", 18_000)):
            clock.now_ms = begin_ms + after_ms
            await refusals.record_forbidden(caller, "GET /api/v1/messages", reason)
        await refusals.flush(all_of_them=True)
        entries, _ = await store.audit.page(10, action="access.forbidden")
        told = sorted((one.at_ms - begin_ms, one.why, one.count, one.detail) for one in entries)
        assert told == [
            (0, "words", 1, {}),
            (7_000, "card", 1, {}),
            (8_000, "words", 2, {"until": moment_json(begin_ms + 9_000)}),
            (18_000, "card", 1, {}),
        ]

    run(scenario())


def test_a_viewer_who_is_refused_twice_is_in_the_audit_with_both_reasons_as_they_were_told(
    run: Run, client_for: ClientFor, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        rule = Redaction(id="r1", kind="body", path="customer.card", hidden_from=Role.VIEWER)
        await store.redactions.set(rule, who="t", now_ms=clock())
        client = await client_for(Role.VIEWER, payloads=True)
        told = []
        for q in ("4711", "body.customer.card:4711"):
            clock.now_ms += 5_000
            answer = await client.get("/api/v1/messages", params={"q": q})
            assert problem(answer) == (403, "forbidden")
            told.append((clock.now_ms, answer.json()["detail"]))
        entries, _ = await store.audit.page(10, action="access.forbidden")
        assert [(one.at_ms, one.why) for one in reversed(entries)] == told
        assert told[0][1] != told[1][1]

    run(scenario())


def test_new_reasons_each_time_are_bounded_and_counted(
    run: Run, services: Services, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        refusals, caller = services.refusal_audit, a_caller()
        for number in range(200):
            await refusals.record_forbidden(caller, "GET /api/v1/messages", f"body.a{number} is hidden")
        await refusals.flush(all_of_them=True)
        entries, _ = await store.audit.page(100, action="access.forbidden")
        assert sum(one.count for one in entries) == 200
        others = [one.count for one in entries if one.why == OTHER_REASONS]
        assert (len(entries), others) == (REASONS_MAX + 2, [200 - REASONS_MAX - 1, 1])
        clock.now_ms += QUIET_MS
        await refusals.flush()
        await refusals.record_forbidden(caller, "GET /api/v1/messages", "body.card is hidden")
        entries, _ = await store.audit.page(1, action="access.forbidden")
        assert [(one.why, one.count) for one in entries] == [("body.card is hidden", 1)]

    run(scenario())


def test_an_entry_just_written_delays_no_other_caller_s(
    run: Run, services: Services, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        refusals, begin_ms = services.refusal_audit, clock.now_ms
        for after_ms, address in ((0, "10.0.0.1"), (20_000, "10.0.0.2")):
            clock.now_ms = begin_ms + after_ms
            for _ in range(2):
                await refusals.record_unauthenticated(address, "no token")
        for after_ms in (QUIET_MS, 20_000 + QUIET_MS):
            clock.now_ms = begin_ms + after_ms
            await refusals.flush()
        told = await audited(store, "access.unauthenticated")
        assert sorted(who for who, _, _ in told) == ["address 10.0.0.1"] * 2 + ["address 10.0.0.2"] * 2

    run(scenario())


def test_refusals_that_can_t_be_written_are_written_later_with_their_own_time(
    run: Run, services: Services, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        refusals, caller, begin_ms = services.refusal_audit, a_caller(), clock.now_ms

        async def unavailable(entry: AuditEntry) -> None:
            raise StoreUnavailable("db", "it is away", "wait")

        with monkeypatch.context() as away:
            away.setattr(store.audit, "add", unavailable)
            await refusals.record_forbidden(caller, "GET /x", "no")
        clock.now_ms += QUIET_MS
        await refusals.record_forbidden(caller, "GET /x", "no")
        entries, _ = await store.audit.page(10, action="access.forbidden")
        until = moment_json(begin_ms + QUIET_MS)
        assert [(one.at_ms, one.count, one.detail) for one in entries] == [(begin_ms, 2, {"until": until})]

    run(scenario())


def test_refusals_are_remembered_of_a_bounded_number_of_origins(
    run: Run, services: Services, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        assert ORIGINS_MAX >= 100
        monkeypatch.setattr("redrive.admin.access.access_audit.ORIGINS_MAX", 3)
        refusals = services.refusal_audit
        for number in range(10):
            for _ in range(2):
                await refusals.record_unauthenticated(f"10.0.0.{number}", "no token")
        assert sum(count for _, _, count in await audited(store, "access.unauthenticated")) == 17
        # The second refusal of each origin that is still remembered was counted and is written now.
        await refusals.flush(all_of_them=True)
        assert sum(count for _, _, count in await audited(store, "access.unauthenticated")) == 20

    run(scenario())


def test_no_token_is_in_audit_or_log(run: Run, client_for: ClientFor, store: Store, services: Services) -> None:
    async def scenario() -> None:
        client = await client_for(None)
        await client.get("/dlq", headers=bearer(WRONG))
        viewer = await client_for(Role.VIEWER)
        await viewer.get("/api/v1/tokens")
        entries, _ = await store.audit.page(100)
        told = repr(entries) + repr(services.observer)
        assert WRONG[-32:] not in told
        assert viewer.headers["Authorization"].rsplit("_", 1)[1] not in told

    run(scenario())


class TestWithoutAuthentication:
    """An API that asks for no tokens, on this machine only."""

    @pytest.fixture
    def settings(self) -> ApiSettings:
        return ApiSettings(require_auth=False)

    def test_local_callers_may_do_everything(self, run: Run, client_for: ClientFor) -> None:
        async def scenario() -> None:
            client = await client_for(None)
            assert (await client.get("/api/v1/tokens")).status_code == 200

        run(scenario())

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "evil.example"},
            {"Host": "[::1"},
            {"Host": ""},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Host": "127.0.0.1.evil.example"},
        ],
    )
    def test_a_web_page_from_elsewhere_may_nothing(
        self, run: Run, client_for: ClientFor, headers: dict[str, str]
    ) -> None:
        async def scenario() -> None:
            client = await client_for(None)
            assert problem(await client.get("/api/v1/tokens", headers=headers)) == (403, "forbidden")

        run(scenario())

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])
    def test_it_does_not_listen_beyond_this_machine(self, host: str) -> None:
        with pytest.raises(InvalidSettings, match="without authentication"):
            ApiSettings(host=host, require_auth=False)
        assert not ApiSettings(host=host).is_loopback

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9"])
    def test_it_does_on_loopback(self, host: str) -> None:
        assert ApiSettings(host=host, require_auth=False).is_loopback


def test_the_first_token_is_an_admin_s_expires_and_is_made_once(
    run: Run, store: Store, services: Services, clock: Clock
) -> None:
    async def scenario() -> None:
        minted = mint_first_token(clock())
        assert await store_first_token(store, minted)
        text = minted.text
        assert text is not None
        (made,) = await store.tokens.all()
        assert made.expires_at_ms == clock.now_ms + 30 * 86_400_000
        assert not await store_first_token(store, mint_first_token(clock()))
        transport = httpx.ASGITransport(create_app(services))
        async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=bearer(text)) as client:
            assert (await client.get("/api/v1/tokens")).status_code == 200

    run(scenario())


def test_what_is_outside_the_queues_of_a_token_is_not_there(
    run: Run, client_for: ClientFor, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        letter = await put_letter(queue="orders")
        client = await client_for(Role.OPERATOR, queues=("bills",))
        answer = await client.get(f"/api/v1/messages/{letter.id}")
        assert problem(answer) == (404, "not-found")
        there = await client_for(Role.OPERATOR, queues=("ord*",))
        assert (await there.get(f"/api/v1/messages/{letter.id}")).status_code == 200

    run(scenario())


def test_who_asks_for_another_queue_s_is_in_the_audit_with_the_token(
    run: Run, client_for: ClientFor, store: Store, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        letter = await put_letter(queue="orders")
        assert letter.group_id is not None
        client = await client_for(Role.OPERATOR, queues=("bills",), name="olga")
        for path in (f"/api/v1/messages/{letter.id}", f"/dlq/{letter.id}", f"/api/v1/messages/{letter.id}/body"):
            assert (await client.get(path)).status_code == 404
        assert (await client.get(f"/api/v1/groups/{letter.group_id}")).status_code == 404
        answer = await client.post("/api/v1/messages/delete", json={"ids": [letter.id, "nosuch"]})
        assert answer.json()["done"] == 0
        assert (await client.get("/api/v1/messages/nosuch")).status_code == 404
        entries, _ = await store.audit.page(10, action="access.outside_scope")
        (olga,) = [one for one in await store.tokens.all() if one.name == "olga"]
        assert {(one.who, one.token_id, one.subject) for one in entries} == {
            ("olga", olga.id, "dead letter"),
            ("olga", olga.id, "group"),
        }
        assert [one.detail for one in entries if one.subject == "dead letter"] == [{"id": letter.id, "queue": "orders"}]

    run(scenario())


def test_one_of_the_caller_s_own_that_is_not_there_is_no_probe(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.OPERATOR, queues=("bills",))
        assert (await client.get("/api/v1/messages/nosuch")).status_code == 404
        assert await audited(store, "access.outside_scope") == []

    run(scenario())


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host"])
def test_what_a_proxy_passed_on_has_no_privilege_of_this_machine(
    run: Run, services: Services, store: Store, name: str
) -> None:
    """A proxy on this machine that nobody named as trusted: its clients are anywhere."""

    async def scenario() -> None:
        for settings, path in (
            (ApiSettings(require_auth=False), "/api/v1/messages"),
            (ApiSettings(), "/metrics"),
        ):
            app = create_app(replace(services, settings=settings))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE_URL) as client:
                assert (await client.get(path)).status_code == 200
                passed_on = await client.get(path, headers={name: "203.0.113.7"})
                assert passed_on.status_code in (401, 403), (path, passed_on.status_code)

    run(scenario())


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        (["203.0.113.7"], "203.0.113.7"),
        (["evil, 203.0.113.7"], "203.0.113.7"),
        (["198.51.100.1, 203.0.113.7, 10.0.0.9"], "203.0.113.7"),
        (["<script>"], "10.0.0.5"),
        (["203.0.113.7, unknown"], "10.0.0.5"),
        (["203.0.113.7, unknown, 10.0.0.9"], "10.0.0.9"),
        (["203.0.113.7:4711"], "203.0.113.7"),
        (['"[2001:db8::1]:99"'], "2001:db8::1"),
        (["203.0.113.8", "203.0.113.7"], "203.0.113.7"),
        ([], "10.0.0.5"),
        ([""], "10.0.0.5"),
    ],
)
def test_a_client_s_address_is_an_address_or_the_proxy_s_own(run: Run, lines: list[str], client: str) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    headers = [(b"x-forwarded-for", line.encode()) for line in lines]
    scope = {"type": "http", "scheme": "http", "headers": headers}
    run(TrustedProxies(app, trusted=["10.0.0.0/24"])({**scope, "client": ("10.0.0.5", 1)}, None, None))  # type: ignore[arg-type]
    run(TrustedProxies(app, trusted=["10.0.0.0/24"])({**scope, "client": ("192.0.2.1", 1)}, None, None))  # type: ignore[arg-type]
    assert seen == [client, "192.0.2.1"]


def test_who_read_a_payload_is_in_the_audit_when_asked_for(
    run: Run, client_for: ClientFor, services: Services, store: Store, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        olga, vic = await client_for(Role.OPERATOR, name="olga"), await client_for(Role.VIEWER, name="vic")
        path = f"/api/v1/messages/{letter.id}"
        assert (await olga.get(path)).status_code == 200
        assert await audited(store, "payload.read") == []
        app = create_app(replace(services, settings=replace(services.settings, audit_reads=True)))
        transport = httpx.ASGITransport(app)
        for client in (olga, vic):
            async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=client.headers) as asking:
                for one in (path, f"{path}/body", f"{path}/headers", f"/dlq/{letter.id}", "/api/v1/messages"):
                    await asking.get(one)
        # A viewer without a grant has read none, and a list has none.
        assert await audited(store, "payload.read") == [("olga", letter.id, 1)] * 4

    run(scenario())


def test_where_the_broker_is_is_for_admins(run: Run, client_for: ClientFor, services: Services) -> None:
    async def scenario() -> None:
        told = {}
        for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
            client = await client_for(role)
            answer = await client.get("/api/v1/queues")
            assert answer.status_code == 200
            told[role] = answer.text
        assert "127.0.0.1" in told[Role.ADMIN]
        assert "127.0.0.1" not in told[Role.VIEWER] + told[Role.OPERATOR]

    run(scenario())


HALF = "\\ud800"
"""Half a surrogate pair, as JSON writes it: no UTF-8 has it."""


def test_half_a_surrogate_pair_breaks_no_answer(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body=b'{"name": "\\ud800", "card": 1}', headers={"x-user": "a"})
        admin = await client_for(Role.ADMIN)
        headers = {"Content-Type": "application/json"}
        asked = [
            ("POST", "/api/v1/tokens", f'{{"name": "a{HALF}", "role": "viewer"}}'),
            ("POST", "/api/v1/tokens", f'{{"name": "b", "role": "viewer", "queues": ["{HALF}"]}}'),
            ("POST", "/api/v1/tokens", f'{{"name": "c", "role": "viewer", "why": "{HALF}"}}'),
            ("POST", "/api/v1/redactions", f'{{"kind": "header", "path": "{HALF}", "hidden_from": "viewer"}}'),
            ("POST", "/api/v1/redactions", '{"kind": "body", "path": "card", "hidden_from": "admin"}'),
            ("POST", f"/api/v1/messages/{letter.id}/resolve", f'{{"why": "{HALF}"}}'),
            ("POST", "/api/v1/messages/delete", f'{{"ids": ["{HALF}"]}}'),
            ("POST", "/api/v1/messages/reopen", f'{{"q": "error_type:{HALF}"}}'),
            ("POST", f"/dlq/{letter.id}/resolve", f'{{"resolvedBy": "{HALF}", "resolution": "{HALF}"}}'),
            ("GET", "/api/v1/messages?q=body.name:%ED%A0%80", ""),
            ("GET", f"/api/v1/messages/{letter.id}", ""),
            ("GET", f"/api/v1/messages/{letter.id}/body", ""),
            ("GET", f"/dlq/{letter.id}", ""),
            ("GET", "/api/v1/audit?who=%ED%A0%80", ""),
            ("GET", "/api/v1/audit", ""),
            ("GET", "/api/v1/tokens", ""),
        ]
        for method, path, body in asked:
            answer = await admin.request(method, path, content=body.encode(), headers=headers)
            assert answer.status_code < 500, (method, path, answer.status_code, answer.text)
            answer.content.decode("utf-8")
        assert (await store.audit.verify()).findings == ()

    run(scenario())


def test_one_network_of_many_addresses_fills_no_audit(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        for number in range(20):
            client = await client_for(None, address=f"2001:db8::{number:x}")
            assert (await client.get("/dlq")).status_code == 401
        assert await audited(store, "access.unauthenticated") == [("address 2001:db8::/64", "api", 1)]

    run(scenario())


@pytest.mark.parametrize("proxy", ["foo", "10.0.0.5/8", "", "proxy.example:80"])
def test_a_proxy_that_is_no_address_is_refused(proxy: str) -> None:
    with pytest.raises(InvalidSettings, match=r"neither an address nor a network; write it like 10\.0\.0\.5"):
        ApiSettings(trusted_proxies=("10.0.0.0/24", "::1", proxy))
