"""Compares so many (letter, filter) pairs on both databases. Exit code 0: no difference; 1: some; 2: no PostgreSQL."""

import argparse
import asyncio
import sys
import tempfile
import time

from rig.postgres import NOTHING, Postgres, find_programs
from rig.process_group import ProcessGroup

from redrive.stores import open_store
from tests.selections.auditor import Result, audit_round

_SHOWN_MAX = 10


async def compare(urls: list[str], pairs: int, seed: int) -> Result:
    """Rounds until there are enough pairs."""
    whole = Result()
    stores = [await open_store(url) for url in urls]
    try:
        while whole.pairs < pairs:
            result = await audit_round(stores, seed)
            whole.pairs += result.pairs
            whole.selected += result.selected
            whole.differences += result.differences
            for line in result.differences[:_SHOWN_MAX]:
                print(line, flush=True)
            seed += 1
    finally:
        for store in stores:
            await store.close()
    return whole


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.selections", description=__doc__)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sqlite-only", action="store_true")
    chosen = parser.parse_args()
    programs = None if chosen.sqlite_only else find_programs()
    if programs is None and not chosen.sqlite_only:
        print(NOTHING, file=sys.stderr)
        return 2
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redrive-selections-") as folder, ProcessGroup() as rig:
        urls = [f"sqlite:///{folder}/letters.db"]
        if programs is not None:
            server = Postgres(rig, programs, fsync=False)
            server.start()
            urls.append(server.url(server.create_database("selections")))
        result = asyncio.run(compare(urls, chosen.pairs, chosen.seed))
    print(
        f"{result.pairs:,} pairs of a letter and a filter on {len(urls)} stores, {result.selected:,} of them selected: "
        f"{len(result.differences)} differences, {time.monotonic() - began_s:.0f} s"
    )
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
