"""The suites: which version of whose tests, what they need, and which of their tests are left out, with the reason.

Versions are exact and source distributions named by their hash, so that a figure in docs/conformance.md can be had
again. Must not know how a suite is fetched or run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PYTEST = (
    "iniconfig==2.3.1",
    "packaging==26.3",
    "pluggy==1.7.0",
    "pygments==2.21.0",
    "pytest==9.2.0",
    "pytest-timeout==2.4.0",
)
AIO = (
    *PYTEST,
    "aiomisc==18.0.37",
    "aiomisc-pytest==2.0.0",
    "aiothreads==1.1.4",
    "colorlog==6.12.0",
    "idna==3.20",
    "logging-journald==0.6.12",
    "multidict==7.2.1",
    "pamqp==4.0.1",
    "propcache==0.5.4",
    "shortuuid==1.0.13",
    "timeout-decorator==0.5.0",
    "yarl==1.25.1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One suite.

    `environment` may use `{host}` and `{port}` of the broker, `{closed_port}` on which nobody listens, and `{docker}`,
    the address of the Docker stand-in. `plugin` is a module of `plugins/` that supplies fixtures the source
    distribution leaves out. `passes_min` is what the embedded broker must reach. `unsteady` are tests, by the beginning
    of their names, that pass and fail by chance on the real broker too, with what was measured.
    """

    name: str
    distribution: str
    version: str
    sha256: str
    requirements: tuple[str, ...]
    selection: tuple[str, ...]
    environment: Mapping[str, str]
    left_out: str
    passes_min: int
    plugin: str | None = None
    options: tuple[str, ...] = ()
    unsteady: Mapping[str, str] = field(default_factory=dict)

    def is_unsteady(self, test: str) -> bool:
        """Whether a failure of that test says nothing about the broker."""
        return test.startswith(tuple(self.unsteady))

    @property
    def requirement(self) -> str:
        """Its source distribution, exactly."""
        return f"{self.distribution}=={self.version} --hash=sha256:{self.sha256}"


_LIKE_CELERY = {"RABBITMQ_HOST": "{host}", "RABBITMQ_5672_TCP": "{port}"}
_LIKE_DOCKER = {"DOCKER_HOST": "{docker}"}

SUITES = (
    Suite(
        name="py-amqp",
        distribution="amqp",
        version="5.4.2",
        sha256="9362660c4a31150cf18e78cae2ce8aa1e929fc6c6739e69f6dd5dbea9c3edc82",
        requirements=(*PYTEST, "vine==5.1.0"),
        selection=("t/integration", "-k", "not tls"),
        environment=_LIKE_CELERY,
        left_out="TLS; its unit tests, which need no broker",
        passes_min=48,
    ),
    Suite(
        name="kombu",
        distribution="kombu",
        version="5.7.0",
        sha256="31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9",
        requirements=(*PYTEST, "amqp==5.4.2", "python-dateutil==4.0.0", "tzdata==2026.6", "vine==5.1.0"),
        selection=("t/integration/test_py_amqp.py",),
        environment=_LIKE_CELERY,
        left_out="what is for other brokers than RabbitMQ; its unit tests",
        passes_min=51,
    ),
    Suite(
        name="aiormq",
        distribution="aiormq",
        version="7.2.4",
        sha256="5fd20bb9583d73de85572198496b65cf028f27527c1733c9840d458e0b40e8fa",
        requirements=AIO,
        selection=("tests", "-k", "not amqps"),
        environment={
            "CONFORMANCE_HOST": "{host}",
            "CONFORMANCE_PORT": "{port}",
            "CONFORMANCE_TLS_PORT": "{closed_port}",
        },
        left_out="TLS; two more that need it (`test_ssl_…`) are counted and fail everywhere",
        passes_min=540,
        plugin="aiormq_fixtures",
        unsteady={
            "tests.test_connection::test_closing_waiter_cancellation": "a race in the client between its own close and "
            "the end of its socket: failed 16 of 24 times on RabbitMQ 3.10.8 and 12 of 24 on the embedded broker",
            "tests.test_connection_futures::test_connection_close_during_publish_drain": "the same race: failed 7 of "
            "16 times on RabbitMQ 3.10.8 and 5 of 16 on the embedded broker",
        },
    ),
    Suite(
        name="aio-pika",
        distribution="aio-pika",
        version="10.2.1",
        sha256="e4f77afd9179a3cca5a904c3b0a1190256a36d9f90650db908b1b2245eb27487",
        requirements=(*AIO, "aiormq==7.2.4", "pytest-rst==0.2.3"),
        selection=("tests", "-k", "not amqps", "--ignore", "tests/test_robust_recovery.py"),
        environment=_LIKE_DOCKER,
        left_out="TLS; 7 tests that stop and restart the broker inside its container (`test_robust_recovery.py`)",
        passes_min=920,
        options=("-o", "log_cli=false"),
        unsteady={
            "tests.test_memory_leak::test_leak_unclosed_channel": "depends on when the client's objects are collected: "
            "failed 39 of 54 times on RabbitMQ 3.10.8 and 35 of 54 on the embedded broker",
            "tests.test_reconnect_channel_snapshot::test_create_channels_during_reconnect": "a race with the broker's "
            "answer: failed 22 of 27 times on RabbitMQ 3.10.8 and 27 of 27 on the embedded broker, and passed 8 of 8 "
            "times on both behind a proxy that adds 2 ms to each answer",
        },
    ),
)
