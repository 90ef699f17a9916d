"""Puts the server together: sockets, store, services, the app and the worker beside it; and stops it in order.

SIGTERM or SIGINT: nothing new is accepted, open requests are answered, the worker ends its batch; then the process ends
with 0. A second signal ends it at once.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import uvicorn

from redrive.admin import (
    ApiSettings,
    Services,
    SharedBroker,
    WorkerActivity,
    WorkerState,
    create_app,
    mint_first_token,
    store_first_token,
)
from redrive.deadletters import RedriveService
from redrive.management import ManagementError
from redrive.records import Filter, Role
from redrive.serving.configuration import ServeConfig
from redrive.serving.connection_limits import ConnectionLimits, limited_protocol
from redrive.serving.proxies import TrustedProxies
from redrive.serving.request_monitor import RequestMonitor, ServerLog
from redrive.serving.startup import FirstToken, ServeFailed, ServerStarted
from redrive.serving.worker_loop import WorkerLoop
from redrive.serving.worker_thread import WorkerThread
from redrive.serving.worker_throttle import OpenRequests
from redrive.stores import Store, StoreUnavailable, exposed_mode
from redrive.telemetry import Telemetry
from redrive.wiring import (
    TelemetryOptions,
    dead_letter_service,
    new_id,
    new_random_bits,
    on_stop_signals,
    opened_store,
    rare_garbage_collection,
)

_MANAGEMENT_S_MAX = 10.0
_WORKER_S_MAX = 75.0
_BACKLOG = 2_048
SWITCH_S = 0.0005
_FIRST_TOKEN_FILE = "redrive-first-token"
_CONNECTIONS = 8
"""As many as the store has for the API."""


def run_serve(
    config: ServeConfig, *, telemetry_options: TelemetryOptions, started: Callable[[ServerStarted], None]
) -> None:
    """Serves until SIGTERM or SIGINT. `started` is called once it listens.

    Raises `InvalidSettings`, `InvalidUrl`, `InvalidManagementUrl`, `ServeFailed`, `StoreError`.
    """
    settings = settings_of(config)
    # A search reads bodies in a thread of its own. Python lets it run for so long before another thread may: with the
    # default of 5 ms every request would wait that long after each answer of the database.
    sys.setswitchinterval(SWITCH_S)
    telemetry = telemetry_options.telemetry()
    try:
        with rare_garbage_collection(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_Serving(config, settings, telemetry).run(started))
    finally:
        telemetry.close()


def settings_of(config: ServeConfig) -> ApiSettings:
    """The API's settings. Raises `InvalidSettings`, `InvalidUrl`, `InvalidManagementUrl`."""
    settings = ApiSettings(
        host=config.host.value,
        port=config.port_number,
        require_auth=config.requires_auth,
        audit_reads=config.audits_reads,
        trusted_proxies=config.trusted_proxies,
    )
    _check_tls(config)
    config.connections.management()  # a URL that can't be used fails now, not at every request
    return settings


def _check_tls(config: ServeConfig) -> None:
    """Raises `ServeFailed` where certificate and key can't be used."""
    cert, key = config.tls_cert, config.tls_key
    if not cert.value and not key.value:
        return
    if not cert.value:
        raise ServeFailed(f"{key.source} names a key without a certificate; name that too, with --tls-cert")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert.value, key.value or None, password=lambda: b"")
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or "they do not belong together, or are no PEM files without a passphrase"
        files = cert.value if not key.value else f"{cert.value} and {key.value}"
        raise ServeFailed(f"TLS can't be served with {files}: {reason}; see --tls-cert and --tls-key") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop where there is one: it takes a quarter off what a request costs."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Server(uvicorn.Server):
    """uvicorn's, but it leaves signals to us: it would raise them again after an orderly end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Serving:
    """One run of the server."""

    def __init__(self, config: ServeConfig, settings: ApiSettings, telemetry: Telemetry) -> None:
        self._config = config
        self._settings = settings
        self._telemetry = telemetry
        self._stopping = asyncio.Event()
        self._open_requests = OpenRequests()
        self._worker: WorkerThread | None = None
        self._server: _Server | None = None
        self._starting: asyncio.Task[None] | None = None
        """The task that starts it, until it serves."""

    async def run(self, started: Callable[[ServerStarted], None]) -> None:
        """From the first socket to the last. A signal before it serves ends it too, in order."""
        self._starting = asyncio.current_task()
        on_stop_signals(self._on_signal)
        try:
            await self._serve(started)
        except asyncio.CancelledError:
            if self._starting is None or not self._stopping.is_set():
                raise
        self._telemetry.note("serve.stopped")

    async def _serve(self, started: Callable[[ServerStarted], None]) -> None:
        with _listening(self._config.host.value, self._config.port_number) as sockets:
            async with AsyncExitStack() as stack:
                store = await stack.enter_async_context(
                    opened_store(self._config.connections, observer=self._telemetry)
                )
                mode = exposed_mode(self._config.connections.database.value)
                if mode is not None:
                    self._telemetry.note("store.exposed", mode=mode, address=store.address)
                token = await self._first_token(store)
                broker = SharedBroker(
                    self._config.connections, store, patterns=self._config.request.patterns, observer=self._telemetry
                )
                stack.push_async_callback(broker.close)
                await _warm_up(store)
                self._worker = self._start_worker()
                server = self._server = self._make_server(self._services(store, broker))
                self._starting = None
                serving = asyncio.create_task(server.serve(sockets=sockets), name="redrive serve")
                address = _address(self._config.host.value, sockets, is_tls=bool(self._config.tls_cert.value))
                self._telemetry.note("serve.started", address=address)
                started(ServerStarted(address=address, token=token))
                looking = asyncio.create_task(self._look_at_management(), name="redrive look at the management API")
                try:
                    await self._until_stopped(serving)
                finally:
                    looking.cancel()
                    await asyncio.wait([looking])

    async def _look_at_management(self) -> None:
        """Logs once, at the start, that it does not answer: without it queues are only known by name."""
        try:
            async with asyncio.timeout(_MANAGEMENT_S_MAX), self._config.connections.management() as management:
                await management.version()
        except (ManagementError, TimeoutError) as error:
            reason = str(error) or f"it did not answer in {_MANAGEMENT_S_MAX:g} s"
            self._telemetry.note("serve.management_unavailable", reason=reason)

    async def _until_stopped(self, serving: "asyncio.Task[None]") -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self._stopping.set()
        if self._worker is not None and not await self._worker.stop(_WORKER_S_MAX):
            self._telemetry.note("serve.worker_stuck", reason=f"the worker did not end in {_WORKER_S_MAX:g} s")
        await serving

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._telemetry.close()
            os._exit(1)  # the operator does not want to wait; unfinished work is as after a crash
        self._telemetry.note("serve.stopping")
        self._stopping.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._starting is not None:
            self._starting.cancel()

    async def _first_token(self, store: Store) -> FirstToken | None:
        if not self._settings.require_auth:
            return None
        minted = mint_first_token(store.clock_ms())
        name, until_ms = minted.token.name, minted.token.expires_at_ms
        assert until_ms is not None
        file = self._config.first_token_file.value
        tokens = await store.tokens.all()
        if tokens:
            now_ms = store.clock_ms()
            if not any(one.role is Role.ADMIN and one.is_valid(now_ms) for one in tokens):
                self._telemetry.note("serve.no_admin", reason="make one with: redrive token create NAME --role admin")
            return None
        if not file and sys.stdout.isatty():
            is_made = await store_first_token(store, minted)
            return FirstToken(name=name, expires_at_ms=until_ms, text=minted.text, file=None) if is_made else None
        # Without a terminal, stdout may be a log, where a secret must not be. The file is written first: a token whose
        # text is nowhere would lock everybody out.
        file = file or _FIRST_TOKEN_FILE
        with _private_file(file, minted.text) as keep:
            if not await store_first_token(store, minted):
                return None
            keep()
        return FirstToken(name=name, expires_at_ms=until_ms, text=None, file=file)

    def _start_worker(self) -> WorkerThread:
        config, telemetry = self._config, self._telemetry

        def make() -> WorkerLoop:
            return WorkerLoop(
                config.connections,
                config.request,
                collects=config.collects,
                auto_retries=config.auto_retries,
                telemetry=telemetry,
            )

        worker = WorkerThread(make, open_requests=self._open_requests)
        worker.start()
        return worker

    def _services(self, store: Store, broker: SharedBroker) -> Services:
        worker = self._worker
        assert worker is not None
        return Services(
            connections=self._config.connections,
            store=store,
            dead_letters=dead_letter_service(store),
            redrives=RedriveService(store, clock_ms=store.clock_ms, random_bits=new_random_bits),
            broker=broker,
            settings=self._settings,
            workers=self._state,
            observer=self._telemetry,
            clock_ms=store.clock_ms,
            new_id=new_id,
            wake=worker.wake,
            metrics=self._telemetry.metrics.exposition,
        )

    def _state(self) -> WorkerState:
        assert self._worker is not None
        state = self._worker.state()
        return WorkerState(activity=WorkerActivity.STOPPING, queues=state.queues) if self._stopping.is_set() else state

    def _make_server(self, services: Services) -> _Server:
        _allow_many_connections()
        log = logging.getLogger("uvicorn.error")
        log.handlers, log.propagate = [ServerLog(self._telemetry)], False
        log.setLevel(logging.WARNING)
        settings = self._settings
        limits = ConnectionLimits(
            connections_max=settings.connections_max,
            head_s_max=settings.keep_alive_s,
            sending_s_max=settings.sending_s_max,
            owned_max=settings.token_connections_max,
        )
        app = TrustedProxies(
            RequestMonitor(
                create_app(services),
                observer=self._telemetry,
                stopping=self._stopping,
                open_requests=self._open_requests,
            ),
            trusted=settings.trusted_proxies,
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            proxy_headers=False,
            ssl_certfile=self._config.tls_cert.value or None,
            ssl_keyfile=self._config.tls_key.value or None,
            server_header=False,
            backlog=_BACKLOG,
            http=limited_protocol(limits),
            timeout_keep_alive=int(settings.keep_alive_s),
            timeout_graceful_shutdown=int(settings.shutdown_s),
        )
        return _Server(config)


@contextlib.contextmanager
def _private_file(path: str, text: str) -> Iterator[Callable[[], None]]:
    """A new file for its owner alone, gone at the end of the block unless it is to be kept. Raises `ServeFailed`."""
    is_kept = False

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ServeFailed(
            f"the first token can't be written to {path}: {error.strerror or error}; name a new file with "
            "--first-token-file, or make a token with: redrive token create NAME --role admin"
        ) from None
    try:
        yield keep
    finally:
        if not is_kept:
            with contextlib.suppress(OSError):
                os.unlink(path)


async def _warm_up(store: Store) -> None:
    """Opens the store's connections before a request waits for them: on each of them PostgreSQL's driver first asks for
    the types."""
    with contextlib.suppress(StoreUnavailable):
        await asyncio.gather(
            *(store.letters.page(Filter(), limit=1, now_ms=store.clock_ms()) for _ in range(_CONNECTIONS))
        )


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Sockets on every address of a host, on one port. Raises `ServeFailed`."""
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    try:
        try:
            found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            raise ServeFailed(f"can't listen on {host}: {error}; name an address of this machine with --host") from None
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound = sockets[0].getsockname()[1] if sockets and not port else port
            made = socket.socket(family, kind, protocol)
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind((address[0], bound, *address[2:]))
                made.listen(_BACKLOG)
                made.setblocking(False)
            except OSError as error:
                made.close()
                # A machine without IPv6 still has localhost; a taken port is taken on any of them.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or len(found) == 1:
                    raise ServeFailed(_refusal(host, port, error)) from None
                problem = error
            else:
                sockets.append(made)
        if not sockets:
            raise ServeFailed(_refusal(host, port, problem))
        yield sockets
    finally:
        for one in sockets:
            one.close()


def _refusal(host: str, port: int, error: OSError | None) -> str:
    where = f"can't listen on {host}:{port}"
    match None if error is None else error.errno:
        case errno.EADDRINUSE:
            return f"{where}: the port is taken; choose another with --port"
        case errno.EACCES:
            return f"{where}: this user may not have that port; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{where}: it is no address of this machine; choose another with --host"
        case _:
            return f"{where}: {'no address' if error is None else error.strerror or error}; see --host and --port"


def _address(host: str, sockets: list[socket.socket], *, is_tls: bool) -> str:
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if is_tls else 'http'}://{shown}:{sockets[0].getsockname()[1]}"


def _allow_many_connections() -> None:
    """Raises the limit of open files as far as the machine allows: each connection is one. Windows has none."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass
