"""`redrive serve` itself: settings and their sources, sentences when it can't, no secret in its log, an orderly end."""

import asyncio
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from rig.serve_process import Served, serving
from starlette.types import Message, Receive, Scope, Send

from redrive.serving import (
    ServeFailed,
    ServeOptions,
    configuration,
    find_configuration,
    require_console,
    server,
)
from redrive.serving.configuration import masked
from redrive.serving.request_monitor import RequestMonitor, ServerLog
from redrive.stores import open_store
from tests.unit.admin.conftest import Noted
from tests.unit.cli.dlq_stage import Ran, redrive
from tests.unit.client.scenario import Notes
from tests.unit.embedded.threaded import broker_in_a_thread

NOWHERE = {"REDRIVE_URL": "amqp://guest:secret-word@127.0.0.1:1/", "NO_COLOR": "1"}


def serve(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A server that should not come up."""
    return subprocess.run(
        [sys.executable, "-m", "redrive", "serve", *arguments],
        cwd=folder,
        env={**os.environ, **NOWHERE, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def serve_here(*arguments: str, **environment: str) -> Ran:
    """The same in this process, which takes no second."""
    with patch.dict(os.environ, {**NOWHERE, **environment}):
        return redrive("serve", *arguments)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server whose broker is nowhere."""
    environment = {**NOWHERE, "REDRIVE_DATABASE": f"sqlite:///{tmp_path / 'redrive.db'}"}
    with serving(tmp_path, environment) as made:
        yield made


def test_a_flag_wins_then_the_environment_then_the_default(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("database: sqlite:///of-the-file.db\nqueues: {orders: {retry: [1s]}}\n")
    config = find_configuration(
        ServeOptions(file=str(file), host="127.0.0.2", match=["a,b", "*.dlq"], no_collect=True),
        environment={
            "REDRIVE_URL": "amqp://me:secret@broker/",
            "REDRIVE_HOST": "0.0.0.0",
            "REDRIVE_PORT": "3000",
            "REDRIVE_OBSERVE": "x, y",
            "REDRIVE_AUTO_RETRY": "off",
        },
    )
    assert {name: (value, source) for name, value, source in config.shown()} == {
        "broker": ("amqp://me:***@broker/", "REDRIVE_URL"),
        "management": ("http://broker:15672", "guessed from the broker's URL"),
        "database": ("sqlite:///of-the-file.db", "the file's database:"),
        "host": ("127.0.0.2", "--host"),
        "port": ("3000", "REDRIVE_PORT"),
        "match": ("a,b, *.dlq", "--match"),
        "observe": ("x, y", "REDRIVE_OBSERVE"),
        "collect": ("no", "--no-collect"),
        "auto-retry": ("no", "REDRIVE_AUTO_RETRY"),
        "auth": ("yes", "the default"),
        "audit payloads": ("no", "the default"),
        "first token file": ("", "the default"),
        "TLS certificate": ("", "the default"),
        "TLS key": ("", "the default"),
        "trusted proxies": ("", "the default"),
    }
    assert (config.request.patterns, config.request.observe) == (("a,b", "*.dlq"), ("x", "y"))
    assert (config.port_number, config.collects, config.auto_retries, config.requires_auth) == (
        3000,
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("sqlite:////var/lib/redrive.db", "sqlite:////var/lib/redrive.db"),
        ("amqp://u:p%40ss@a:1,b:2/v?heartbeat=5", "amqp://u:***@a:1,b:2/v?heartbeat=5"),
        ("amqp://u:p@ss:w@rd@host/", "amqp://u:***@host/"),
        ("postgresql://u@db/x?password=s&sslmode=require", "postgresql://u@db/x?password=***&sslmode=require"),
        ("amqps://h/?keyfile=k.pem&password=a", "amqps://h/?keyfile=***&password=***"),
        ("amqp:/u:sekret@127.0.0.1", "amqp:/u:***@127.0.0.1"),
        ("u:sekret@host", "u:***@host"),
        ("sekret@host", "***@host"),
        ("u:/sekret@host", "u:***@host"),
        ("amqp:/u:sekret", "amqp:/u:***"),
        ("amqp://[::1]:5672/v", "amqp://[::1]:5672/v"),
        ("sqlite:////home/a@b/x.db", "sqlite:////home/a@b/x.db"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("/etc/redrive/tls.pem", "/etc/redrive/tls.pem"),
    ],
)
def test_no_secret_is_shown(value: str, shown: str) -> None:
    assert masked(value) == shown


def test_a_missing_extra_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "find_spec", lambda name: None)
    with pytest.raises(ServeFailed, match=r"pip install 'redrive\[console\]'"):
        require_console()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--no-auth", "--host", "0.0.0.0"), "does not listen on 0.0.0.0 without authentication"),
        (("--no-auth", "--host", "::"), "without authentication"),
        (("--no-auth", "--host", "0.0.0.0", "--print-config"), "without authentication"),
        (("--trusted-proxy", "foo"), "'foo' is neither an address nor a network"),
        (("--host", "203.0.113.1"), "no address of this machine"),
        (("--host", "no such host"), "can't listen on no such host"),
        (("--database", "sqlite:////nowhere/at/all/redrive.db"), "sqlite:////nowhere/at/all/redrive.db"),
        (("--database", "mysql://x"), "mysql"),
        (("--url", "http://x"), "http"),
        (("--management-url", "ftp://x"), "ftp"),
        (("missing.yaml",), "there is no such file"),
    ],
)
def test_what_can_not_be_served_is_said_in_one_sentence(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    ran = serve(tmp_path, "--port", "0", *arguments)
    assert ran.returncode == 2, ran.stderr
    (line,) = [one for one in ran.stderr.splitlines() if not one.startswith("{")]
    assert line.startswith("error: ")
    assert says in line
    assert "secret-word" not in ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_taken_port_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = serve(tmp_path, "--port", port)
    assert ran.returncode == 2
    assert ran.stderr == f"error: can't listen on 127.0.0.1:{port}: the port is taken; choose another with --port\n"
    assert not (tmp_path / "redrive.db").exists()


@pytest.mark.slow
def test_the_configuration_is_printed_and_nothing_begun(tmp_path: Path) -> None:
    ran = serve(tmp_path, "--print-config", REDRIVE_PORT="3000")
    assert (ran.returncode, ran.stderr) == (0, "")
    told = json.loads(ran.stdout)["config"]
    assert told["port"] == {"value": "3000", "from": "REDRIVE_PORT"}
    assert told["broker"]["value"] == "amqp://guest:***@127.0.0.1:1/"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_it_serves_without_a_broker_and_says_what_it_waits_for(served: Served, tmp_path: Path) -> None:
    assert served.token is not None
    assert served.ask("/dlq/stats").json["total"] == 0
    ready = served.ask("/readyz")
    assert ready.status == 503
    assert "waiting" in ready.json["worker"] or "connecting" in ready.json["worker"]
    assert served.ask("/dlq/stats", token="rd_0_nonsense").status == 401
    assert served.ask("/dlq?topic=4111-1111&status=FAILED").status == 200
    assert served.stop(signal.SIGINT) == 0
    lines = served.logged()
    (asked,) = [one for one in lines if one["event"] == "admin.answered" and one.get("query") == "topic,status"]
    assert (asked["method"], asked["path"], asked["status"], asked["who"]) == ("GET", "/dlq", 200, "admin")
    assert [one["event"] for one in lines][-2:] == ["serve.stopping", "serve.stopped"]
    text = served.log.read_text()
    for secret in (served.token, "4111", "secret-word", "nonsense"):
        assert secret not in text
    # A second start finds the token there.
    environment = {**NOWHERE, "REDRIVE_DATABASE": f"sqlite:///{tmp_path / 'redrive.db'}"}
    with serving(tmp_path, environment) as again:
        assert again.token is None
        assert again.ask("/dlq/stats", token=served.token).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_while_it_starts_ends_it_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a database that takes the connection and says nothing
        database = f"postgresql://redrive@127.0.0.1:{silent.getsockname()[1]}/redrive"
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "serve", "--port", "0", "--log-format", "json"],
            cwd=tmp_path,
            env={**os.environ, **NOWHERE, "REDRIVE_DATABASE": database},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(60)
        taken, _ = silent.accept()
        with taken:
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [json.loads(line)["event"] for line in err.splitlines()] == ["serve.stopping", "serve.stopped"]


@pytest.mark.slow
def test_its_log_says_what_to_change_where_the_broker_refuses(tmp_path: Path) -> None:
    with broker_in_a_thread("4.3", time="real") as (broker, _):
        url = broker.url.replace("guest:guest@", "guest:secret-word@")
        environment = {"REDRIVE_URL": url, "REDRIVE_DATABASE": f"sqlite:///{tmp_path / 'redrive.db'}"}
        with serving(tmp_path, environment) as served:
            until_s = time.monotonic() + 60
            while not (waits := [one for one in served.logged() if one["event"] == "serve.waiting"]):
                assert time.monotonic() < until_s
                time.sleep(0.05)
            assert served.stop() == 0
    assert waits[0]["reason"].endswith(" does not accept user guest with this password; check REDRIVE_URL")


@pytest.mark.slow
def test_without_an_admin_it_says_how_to_make_one(tmp_path: Path) -> None:
    environment = {**NOWHERE, "REDRIVE_DATABASE": f"sqlite:///{tmp_path / 'redrive.db'}"}
    made = subprocess.run(
        [sys.executable, "-m", "redrive", "token", "create", "ada", "--role", "operator"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
    )
    assert made.returncode == 0
    with serving(tmp_path, environment) as served:
        assert served.token is None
        assert served.stop() == 0
        (told,) = [one for one in served.logged() if one["event"] == "serve.no_admin"]
    assert told["reason"] == "make one with: redrive token create NAME --role admin"


@pytest.mark.slow
def test_without_auth_it_serves_this_machine_alone(tmp_path: Path) -> None:
    environment = {**NOWHERE, "REDRIVE_DATABASE": f"sqlite:///{tmp_path / 'redrive.db'}"}
    with serving(tmp_path, environment, "--no-auth") as served:
        assert served.token is None
        assert served.ask("/dlq/stats").status == 200
        assert served.ask("/dlq/stats", "-H", "Host: evil.example").status == 403
        assert served.stop() == 0


@pytest.mark.slow
def test_whoever_watches_events_is_not_waited_for(served: Served) -> None:
    command = ["curl", "-sN", f"{served.address}/api/v1/events", "-H", f"Authorization: Bearer {served.token}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("retry:")
        assert served.stop() == 0
        watching.stdout.read()
        assert watching.wait(timeout=30) == 0  # the stream was ended, not cut


def test_a_stream_ends_when_the_server_stops() -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def scenario() -> None:
        stopping, noted = asyncio.Event(), Noted()
        begun = asyncio.Event()
        waiting: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: Message) -> None:
            begun.set()

        scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "query_string": b"", "headers": []}
        answering = asyncio.create_task(
            RequestMonitor(streaming, observer=noted, stopping=stopping)(scope, receive, send)
        )
        await begun.wait()
        assert not answering.done()
        stopping.set()
        async with asyncio.timeout(10):
            await answering
        assert noted.names() == ["admin.answered"]

    asyncio.run(scenario())


def test_the_web_servers_own_words_go_to_the_log_without_an_errors_text() -> None:
    import logging

    noted = Noted()
    log = logging.Logger("uvicorn.error")
    log.addHandler(ServerLog(noted))
    log.info("Started")
    log.warning("Invalid HTTP request received.")
    try:
        raise ValueError("card 4111")
    except ValueError:
        log.exception("Exception in ASGI application\n")
    told: list[tuple[str, dict[str, Any]]] = noted.events
    assert told == [
        ("admin.server", {"reason": "Invalid HTTP request received.", "error": None}),
        ("admin.server", {"reason": "an answer failed", "error": "ValueError"}),
    ]


@pytest.mark.parametrize(
    "password", ["p@ss", "a/b", "a?b", "a#b", "a:b", "a b", "%41", "@", "/@/", "a\nb", "p@h/q?r#s@t"]
)
def test_a_password_is_masked_whatever_characters_it_has(password: str) -> None:
    for scheme in ("amqp", "amqps", "postgresql", "http"):
        shown = masked(f"{scheme}://me:{password}@broker:5672/v")
        assert shown == f"{scheme}://me:***@broker:5672/v"


def test_secrets_may_be_in_files_and_flags_name_them(tmp_path: Path) -> None:
    url, password, database = tmp_path / "url", tmp_path / "password", tmp_path / "database"
    url.write_text("amqp://shop@broker/v\n")
    password.write_text("s3cr@t/?#\n")
    database.write_text(f"sqlite:///{tmp_path / 'x.db'}\n")
    config = find_configuration(
        ServeOptions(),
        environment={
            "REDRIVE_URL_FILE": str(url),
            "REDRIVE_PASSWORD_FILE": str(password),
            "REDRIVE_DATABASE_FILE": str(database),
        },
    )
    assert config.connections.target.password == "s3cr@t/?#"
    assert config.connections.target.user == "shop"
    assert config.connections.database.value == f"sqlite:///{tmp_path / 'x.db'}"
    told = serve_here(
        *("--print-config", "--url-file", str(url), "--password-file", str(password), "--database-file", str(database)),
    )
    assert told.code == 0, told.err
    assert "s3cr" not in told.out + told.err
    settings = told.json["config"]
    assert settings["broker"] == {
        "value": "amqp://shop:***@broker/v",
        "from": "REDRIVE_URL_FILE and REDRIVE_PASSWORD_FILE",
    }
    missing = serve_here("--print-config", "--url-file", str(tmp_path / "none"))
    assert (missing.code, len(missing.err.splitlines())) == (2, 1)


def test_the_first_token_goes_into_a_private_file_and_no_log(served: Served, tmp_path: Path) -> None:
    assert served.token is not None
    (file,) = tmp_path.glob("token-*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert served.ask("/api/v1/tokens").status == 200
    (token,) = served.ask("/api/v1/tokens").json["tokens"]
    assert token["expires_at"] is not None
    assert served.stop() == 0
    assert served.token not in served.log.read_text()


def test_a_first_token_that_can_t_be_written_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SWITCH_S", sys.getswitchinterval())  # this process is not the server's own
    (tmp_path / "there").write_text("mine")
    database = f"sqlite:///{tmp_path / 'redrive.db'}"
    file = str(tmp_path / "there")
    ran = serve_here("--port", "0", "--first-token-file", file, REDRIVE_DATABASE=database)
    assert ran.code == 2
    assert "first token can't be written" in ran.err
    assert (tmp_path / "there").read_text() == "mine"

    async def look() -> None:
        async with await open_store(database) as store:
            assert await store.tokens.all() == ()

    asyncio.run(look())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One for localhost, signed by itself, made by openssl."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", names, "-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.mark.slow
def test_it_serves_tls_itself(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    environment = {**NOWHERE, "REDRIVE_DATABASE": f"sqlite:///{tmp_path / 'redrive.db'}"}
    with serving(tmp_path, environment, "--tls-cert", str(cert), "--tls-key", str(key)) as served:
        assert served.address.startswith("https://")
        assert served.ask("/healthz", "--cacert", str(cert)).json == {"status": "ok"}
        assert served.ask("/api/v1/messages", "--cacert", str(cert)).status == 200
        context = ssl.create_default_context(cafile=str(cert))
        with (
            socket.create_connection(("127.0.0.1", served.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            assert secured.version() in ("TLSv1.2", "TLSv1.3")
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in plain.recv(100)
        assert served.stop() == 0


def test_tls_that_can_t_be_is_one_sentence(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    (tmp_path / "other").write_text("nonsense")
    for arguments in (
        ("--tls-key", str(key)),
        ("--tls-cert", str(tmp_path / "none")),
        ("--tls-cert", str(cert), "--tls-key", str(tmp_path / "other")),
        ("--tls-cert", str(key)),
    ):
        ran = serve_here("--print-config", *arguments)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran.err


def test_the_log_names_parameters_and_nothing_that_may_be_a_secret() -> None:
    token = "rd_1hv7d2m9x0abcdef_0123456789abcdefghjkmnpqrstvwxyz"

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Message) -> None: ...

    def logged(query: bytes) -> object:
        notes = Notes()
        scope = {"type": "http", "method": "GET", "path": "/api/v1/messages", "query_string": query, "headers": []}
        asyncio.run(RequestMonitor(answer, observer=notes, stopping=asyncio.Event())(scope, receive, send))
        return notes.last("admin.answered")["query"]

    assert logged(b"filter=queue:a&limit=5&after_id=") == "filter,limit,after_id"
    assert logged(f"{token}&limit=5&x%20{token}=1".encode()) == "?,limit"
    assert logged(b"") is None


@pytest.mark.slow
def test_a_database_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "redrive.db"
    file.touch()
    file.chmod(0o644)
    with serving(tmp_path, {**NOWHERE, "REDRIVE_DATABASE": f"sqlite:///{file}"}) as served:
        assert served.stop(signal.SIGINT) == 0
        (told,) = [one for one in served.logged() if one["event"] == "store.exposed"]
    assert (told["level"], told["mode"]) == ("warning", "0644")
