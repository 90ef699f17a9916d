"""`redrive serve`: the admin API, and beside it the collector, the redriver and auto-retry."""

import sys
from typing import Literal, cast

import click

from redrive.cli.console import say
from redrive.cli.dlq.output import print_json_line, print_line, print_table
from redrive.cli.secret_files import with_secret_files
from redrive.cli.text_tables import TableColumn, moment_text
from redrive.records import moment_json
from redrive.serving import ServeConfig, ServeOptions, ServerStarted, check_configuration, find_configuration, run_serve
from redrive.wiring import TelemetryOptions


@click.command("serve")
@click.argument("file", required=False)
@click.option("--url", help="The broker: amqp(s)://user:password@host:port/vhost.")
@click.option("--management-url", metavar="URL", help="Its management API; guessed from --url.")
@with_secret_files
@click.option("--database", metavar="DB", help="sqlite:///redrive.db, sqlite:////var/lib/… or postgresql://…")
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free one.  [default: 8025]")
@click.option("--match", multiple=True, metavar="GLOB", help="Dead-letter queues by name, '*.dlq'; repeatable.")
@click.option("--observe", multiple=True, metavar="GLOB", help="Queues that are never taken from; repeatable.")
@click.option("--no-collect", is_flag=True, help="Take nothing out of queues here.")
@click.option("--no-auto-retry", is_flag=True, help="Leave auto-retry to another process, and settling with it.")
@click.option("--no-auth", is_flag=True, help="Ask for no token; on this machine's own addresses only.")
@click.option("--audit-payloads", is_flag=True, help="Note in the audit who read which payload.")
@click.option(
    "--first-token-file",
    metavar="FILE",
    help="Where the first token of a database goes.  [default: a terminal, else the file redrive-first-token]",
)
@click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (PEM, with its chain).")
@click.option("--tls-key", metavar="FILE", help="Its key, where it is not in the same file.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Whose X-Forwarded-For is believed; repeatable.",
)
@click.option("--print-config", is_flag=True, help="Print the configuration with its sources, and end.")
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
)
@click.option("--log-format", type=click.Choice(("json", "text")), help="By default text on a terminal, else json.")
def serve_command(
    file: str | None,
    url: str | None,
    management_url: str | None,
    database: str | None,
    host: str | None,
    port: int | None,
    match: tuple[str, ...],
    observe: tuple[str, ...],
    no_collect: bool,
    no_auto_retry: bool,
    no_auth: bool,
    audit_payloads: bool,
    first_token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    proxies: tuple[str, ...],
    print_config: bool,
    log_level: str,
    log_format: str | None,
) -> None:
    """Serve the admin API, and collect, redrive and auto-retry beside it, until Ctrl-C.

    One process does it all, and any number of them may share a PostgreSQL database. Where the database has no token
    yet, it makes an admin token for 30 days, and shows it on a terminal, else writes it into a file for its owner
    alone; never into a log.
    Settings come from flags, else from the environment (REDRIVE_URL, _MANAGEMENT_URL, _DATABASE, _HOST, _PORT, _MATCH,
    _OBSERVE, _COLLECT, _AUTO_RETRY, _AUTH, _AUDIT_PAYLOADS, _FIRST_TOKEN_FILE, _TLS_CERT, _TLS_KEY, _TRUSTED_PROXIES),
    else from FILE. Secrets may be in files: REDRIVE_URL_FILE, _DATABASE_FILE, _MANAGEMENT_URL_FILE, _PASSWORD_FILE.

    While the broker is away everything stored can be read, and redrives wait for it. Ctrl-C or SIGTERM ends what is in
    progress first; a second one ends it at once.

    \b
    Exit codes: 0 stopped in order; 1 ended at once by a second signal; 2 could not.

    \b
    Examples:
      redrive serve redrive.yaml
      redrive serve --match '*.dlq' --port 3000
      redrive serve redrive.yaml --database postgresql://redrive@db/redrive --host 0.0.0.0
    """
    options = ServeOptions(
        file=file,
        url=url,
        management_url=management_url,
        database=database,
        host=host,
        port=port,
        match=match,
        observe=observe,
        no_collect=no_collect,
        no_auto_retry=no_auto_retry,
        no_auth=no_auth,
        audit_payloads=audit_payloads,
        first_token_file=first_token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        proxies=proxies,
    )
    config = find_configuration(options)
    _print_configuration(config)
    if print_config:
        check_configuration(config)
        return
    telemetry_options = TelemetryOptions(
        log_level=log_level, log_format=cast(Literal["json", "text"] | None, log_format)
    )
    run_serve(config, telemetry_options=telemetry_options, started=_greet)


def _print_configuration(config: ServeConfig) -> None:
    if sys.stdout.isatty():
        columns = [TableColumn(title="setting"), TableColumn(title="value", shrinks=True), TableColumn(title="from")]
        print_table(columns, [(name, value or "-", source) for name, value, source in config.shown()])
    else:
        print_json_line({"config": {name: {"value": value, "from": source} for name, value, source in config.shown()}})


def _greet(started: ServerStarted) -> None:
    token = started.token
    if not sys.stdout.isatty():
        shown = None
        if token is not None:
            expires = moment_json(token.expires_at_ms)
            shown = {"name": token.name, "role": "admin", "file": token.file, "expires_at": expires}
        print_json_line({"listening": started.address, "new_token": shown})
        return
    if token is not None:
        until = moment_text(token.expires_at_ms)
        print_line("")
        if token.text is None:
            print_line(
                f"This database had no token: its first one, with the role admin until {until}, is in {token.file}",
                bold=True,
            )
        else:
            said = f"This database had no token. Its first one, with the role admin until {until}, is not shown again:"
            print_line(said, bold=True)
            print_line(f"  {token.text}")
        print_line("Make others with: redrive token create NAME --role viewer|operator|admin")
        print_line("")
    print_line(f"Listening on {started.address}; the API is described at {started.address}/docs")
    say("Ctrl-C ends it.")
