"""The database role of docs/how-to/audit.md: it does all of Redrive's work, and can't rewrite the audit."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from redrive.stores import open_store
from tests.unit.stores.arrivals import collect, database_of, make_arrival
from tests.unit.stores.audit_entries import entry
from tests.unit.stores.conftest import Run

PAGE = Path(__file__).parents[3] / "docs/how-to/audit.md"


def statements() -> list[str]:
    found = re.search(r"<!-- role -->\n```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return [one.strip() for one in found[1].split(";") if one.strip()]


@pytest.mark.slow
def test_the_documented_role_works_and_can_t_rewrite_the_audit(postgres_url: str, run: Run) -> None:
    place = urlsplit(postgres_url)
    role = f"redrive_app_{place.path.strip('/')}"[:60]
    url = place._replace(netloc=f"{role}:change me@{place.hostname}:{place.port}".replace(" ", "%20")).geturl()

    async def scenario() -> None:
        async with await open_store(postgres_url) as owner:
            await owner.audit.add(entry(1))
        connection = await asyncpg.connect(postgres_url)
        try:
            for statement in statements():
                await connection.execute(statement.replace("redrive_app", role))
            async with await open_store(url) as store:
                (id,) = await collect(store, make_arrival(1))
                assert await store.letters.get(id) is not None
                await store.audit.add(entry(2))
                report = await store.audit.verify()
                assert (report.head.place, report.findings) == (2, ())
                for forbidden in (
                    "UPDATE audit SET who = 'eve'",
                    "DELETE FROM audit",
                    "TRUNCATE audit",
                    "DELETE FROM audit_head",
                    "UPDATE audit_head SET is_adopted = 0",
                    "INSERT INTO audit (seq, at_ms, who, action, subject, n, why, detail) "
                    "VALUES (-5, 1, 'eve', 'a', '', 1, '', '{}')",
                    "DELETE FROM token_names",
                    "DROP TABLE audit",
                    "ALTER TABLE audit DISABLE TRIGGER ALL",
                    "CREATE TABLE mine (a INTEGER)",
                ):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        async with database_of(store).write() as tx:
                            await tx.run(forbidden)
        finally:
            await connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')
            await connection.close()

    run(scenario())
