"""A push over TLS trusts whom the system trusts, and nobody else."""

import asyncio
import os
import ssl
import sys
from pathlib import Path

import pytest

from tests.live.client.certificates import Authority
from tests.unit.runtime_push.services import Service, always

PROGRAM = """
import asyncio, sys
from redrive.runtime import Pusher, PushTarget
from tests.unit.runtime_push.messages import PlainMessage

async def main():
    async with Pusher(PushTarget(url=sys.argv[1])) as push:
        try:
            for _ in range(3):
                await push(b"{}", PlainMessage())
                await asyncio.sleep(0.05)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
        else:
            print("done")

asyncio.run(main())
"""
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_certificate_is_verified_by_the_authorities_of_ssl_cert_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("service", alternative_names="IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.certificate, server.key)

    async def run() -> None:
        async with Service(always(204), tls=tls) as service:
            # aiohttp makes its TLS settings when it is imported, so each is a process of its own.
            assert await pushed(service.url, SSL_CERT_FILE=str(authority.certificate)) == "done"
            assert [one.connection for one in service.requests] == [1, 1, 1]  # kept: tickets of TLS are no answers
            refused = await pushed(service.url)
            assert refused.startswith("Unreachable: can't connect to https://127.0.0.1:")
            assert "certificate" in refused.lower()
            assert len(service.requests) == 3

    asyncio.run(run())


async def pushed(url: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, url),
        env={**os.environ, **environment},
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return output.decode().strip()
