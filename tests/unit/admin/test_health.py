"""Health, metrics and the documentation: open where they must be, and without secrets."""

from dataclasses import replace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive.admin import ApiSettings, Services, WorkerActivity, WorkerState, create_app
from redrive.admin.settings import InvalidSettings
from redrive.records import Role, Status
from redrive.stores import StoreUnavailable
from redrive.stores.tokens import Tokens
from redrive.wiring import RedriveBroker
from tests.unit.admin.conftest import BASE_URL, ClientFor, PutLetter, Run, app_on


def client_of(services: Services) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app_on(services)), base_url=BASE_URL)


def test_healthz_answers_ok(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        answer = await (await client_for(None)).get("/healthz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    run(scenario())


def test_without_a_broker_it_is_not_ready_and_says_so(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        answer = await (await client_for(None)).get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        parts = {"database": "ok", "broker": "out of reach", "worker": "off", "clock": "ok"}
        assert answer.json() == {"status": "not ready", **parts}

    run(scenario())


@pytest.mark.parametrize(
    ("off_ms", "said"),
    [
        (35_000, "35.0 s ahead of the database's, which decides"),
        (-2_100, "2.1 s behind the database's, which decides"),
        (1_900, "ok"),
    ],
)
def test_a_clock_that_is_off_is_said_and_makes_nothing_unready(
    run: Run, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch, off_ms: int, said: str
) -> None:
    monkeypatch.setattr("redrive.stores.store.Store.clock_off_ms", off_ms)

    async def scenario() -> None:
        assert (await (await client_for(None)).get("/readyz")).json()["clock"] == said

    run(scenario())


class TestReadiness:
    """With a broker at hand."""

    @pytest.fixture(autouse=True)
    def _broker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def broker(_: object) -> RedriveBroker:
            return RedriveBroker.__new__(RedriveBroker)

        monkeypatch.setattr("redrive.admin.shared_broker.SharedBroker.get", broker)

    def test_readyz_is_ready_if_database_and_broker_are_reached(self, run: Run, client_for: ClientFor) -> None:
        async def scenario() -> None:
            answer = await (await client_for(None)).get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (200, "ready")

        run(scenario())

    def test_a_database_that_is_gone_is_not_ready(
        self, run: Run, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def gone(*_: object) -> None:
            raise StoreUnavailable("secret-host", "gone", "try again")

        monkeypatch.setattr(Tokens, "find", gone)

        async def scenario() -> None:
            answer = await (await client_for(None)).get("/readyz")
            assert (answer.status_code, answer.json()["database"]) == (503, "out of reach")
            assert "secret-host" not in answer.text

        run(scenario())

    def test_a_worker_that_waits_is_not_ready_and_its_reason_stays_on_this_machine(
        self, run: Run, services: Services
    ) -> None:
        waiting = replace(
            services, workers=lambda: WorkerState(activity=WorkerActivity.WAITING, reason="no answer from broker-7")
        )
        beyond = replace(waiting, settings=ApiSettings(host="0.0.0.0"))

        async def scenario() -> None:
            async with client_of(waiting) as here, client_of(beyond) as there:
                answer = await here.get("/readyz")
                assert (answer.status_code, answer.json()["worker"]) == (503, "waiting: no answer from broker-7")
                assert (await there.get("/readyz")).json()["worker"] == "waiting"

        run(scenario())


def test_metrics_are_prometheus_text(run: Run, services: Services, put_letter: PutLetter) -> None:
    counting = replace(services, metrics=lambda: "# HELP a_total A.\n# TYPE a_total counter\na_total 3\n")

    async def scenario() -> None:
        await put_letter(queue='odd "queue"\n\\')
        await put_letter(status=Status.RESOLVED)
        async with client_of(counting) as client:
            answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {one.name: one for one in text_string_to_metric_families(answer.text)}
        assert families["a"].samples[0].value == 3
        found = {
            (one.labels["queue"], one.labels["status"]): one.value
            for one in families["redrive_queue_dead_letters"].samples
        }
        assert found[('odd "queue"\n\\', "pending")] == 1
        assert found[("orders", "resolved")] == 1

    run(scenario())


def test_beyond_loopback_metrics_need_a_token(
    run: Run, services: Services, client_for: ClientFor, put_letter: PutLetter
) -> None:
    beyond = replace(services, settings=ApiSettings(host="0.0.0.0"), metrics=lambda: "secret_queue 1\n")

    async def scenario() -> None:
        await put_letter(queue="orders", dlq="orders.parked")
        await put_letter(queue="bills", dlq="bills.parked")
        whole, some = await client_for(Role.VIEWER), await client_for(Role.VIEWER, queues=("bills",))
        async with client_of(beyond) as client:
            assert (await client.get("/metrics")).status_code == 401
            answer = await client.get("/metrics", headers={"Authorization": whole.headers["Authorization"]})
            assert "orders" in answer.text
            assert "secret_queue" in answer.text
            answer = await client.get("/metrics", headers={"Authorization": some.headers["Authorization"]})
            assert "bills" in answer.text
            assert "orders" not in answer.text
            assert "secret_queue" not in answer.text
            for path in ("/healthz", "/docs", "/openapi.json"):
                assert (await client.get(path)).status_code == 200

    run(scenario())


def test_the_documentation_needs_nothing_from_elsewhere(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(None)
        page = await client.get("/docs")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "<script" not in page.text
        assert "http://" not in page.text
        assert "https://" not in page.text
        assert "unsafe" not in page.headers["content-security-policy"]
        document = (await client.get("/openapi.json")).json()
        for path in document["paths"]:
            assert path.replace("&", "&amp;") in page.text

    run(scenario())


class TestWhatIsOpenOnThisMachine:
    def test_metrics_are_not_for_a_web_page_under_another_name(
        self, run: Run, client_for: ClientFor, put_letter: PutLetter
    ) -> None:
        async def scenario() -> None:
            await put_letter()
            client = await client_for(None)
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.get("/metrics", headers={"Host": "evil.example:8080"})).status_code == 401

        run(scenario())

    def test_metrics_behind_a_proxy_need_a_token(self, run: Run, services: Services, client_for: ClientFor) -> None:
        async def scenario() -> None:
            app = create_app(replace(services, settings=ApiSettings(trusted_proxies=("127.0.0.1",))))
            viewer = await client_for(Role.VIEWER)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE_URL) as client:
                assert (await client.get("/metrics")).status_code == 401
                headers = {"Authorization": viewer.headers["Authorization"]}
                assert (await client.get("/metrics", headers=headers)).status_code == 200

        run(scenario())

    def test_a_proxy_without_authentication_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="proxy"):
            ApiSettings(require_auth=False, trusted_proxies=("127.0.0.1",))
