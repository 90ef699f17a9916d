"""`redrive broker` as a process: it says where it is, serves, and ends."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@contextmanager
def running(*arguments: str) -> Iterator[list[str]]:
    """The lines it says when it is up, one for each address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "broker", "--port", "0", *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(2 if "--management-port" in arguments else 1)]
    try:
        yield lines
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        process.stderr.close()


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_it_serves_the_topology_it_was_given(profile: str) -> None:
    with running("--profile", profile, "--definitions", "examples/ladder/redrive.yaml") as (line,):
        url = line.split()[0]
        connection = pika.BlockingConnection(pika.URLParameters(url))
        assert connection.channel().queue_declare("orders.wait.30m", passive=True).method.message_count == 0
        connection.close()


def test_apply_and_its_management_api_show_the_same_queues() -> None:
    with running("--management-port", "0") as (amqp, management):
        applied = subprocess.run(
            [sys.executable, "-m", "redrive", "apply", "examples/freeflow/redrive.yaml", "--yes"],
            cwd=ROOT,
            env={**os.environ, "REDRIVE_URL": amqp.split()[0]},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert applied.returncode == 0, applied.stderr
        request = urllib.request.Request(f"{management.split()[0]}/api/queues/%2F")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urllib.request.urlopen(request, timeout=10) as answer:
            queues = [one["name"] for one in json.load(answer)]
        assert len([name for name in queues if ".retry." in name]) == 21


def test_a_taken_port_is_one_sentence() -> None:
    with running() as (line,):
        found = re.search(r":(\d+)/", line)
        assert found is not None
        second = subprocess.run(
            [sys.executable, "-m", "redrive", "broker", "--port", found[1]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert second.returncode == 2
        assert second.stderr.startswith("error: can't listen on 127.0.0.1:")
        assert second.stderr.count("\n") == 1


def test_it_has_the_users_it_was_given_with_their_tags() -> None:
    given = ("--user", "relay:secret:impersonator", "--user", "plain:pw", "--management-port", "0")
    with running(*given) as (line, management):
        url, api = line.split()[0], management.split()[0]
        outcomes = {}
        for user, password in (("guest", "guest"), ("relay", "secret"), ("plain", "pw")):
            login = pika.URLParameters(url)
            login.credentials = pika.PlainCredentials(user, password)
            connection = pika.BlockingConnection(login)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            try:
                channel.basic_publish("", "q", b"m", pika.BasicProperties(user_id="somebody"))
                outcomes[user] = "taken"
            except pika.exceptions.ChannelClosedByBroker as closed:
                outcomes[user] = str(closed.reply_code)
            connection.close()
            manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
            manager.add_password(None, api, user, password)
            opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
            try:
                outcomes[user] += f", {json.load(opener.open(f'{api}/api/whoami'))['tags']}"
            except urllib.error.HTTPError as refused:
                outcomes[user] += f", {refused.code}"
        assert outcomes == {"guest": "406, ['administrator']", "relay": "taken, 401", "plain": "406, 401"}


def test_a_user_without_a_password_is_refused_with_an_example() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "redrive", "broker", "--port", "0", "--user", "nobody"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "relay:secret:impersonator" in ended.stderr
