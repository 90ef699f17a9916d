"""The file pipeline's compose file: its init service waits for the broker and declares all of it; no container runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.cli import main
from tests.unit.free_ports import free_port

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "file-pipeline"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    assert set(found) == {"services", "volumes"}
    return dict(found["services"])


def test_what_consumes_starts_after_the_init_service_has_declared() -> None:
    found = services()
    assert set(found) == {"rabbitmq", "rabbitmq-init", "admin"}
    assert found["rabbitmq-init"]["depends_on"] == ["rabbitmq"]
    assert found["admin"]["depends_on"] == {"rabbitmq-init": {"condition": "service_completed_successfully"}}
    assert found["rabbitmq-init"]["restart"] == "no"
    for service in ("rabbitmq-init", "admin"):
        assert "./redrive.yaml:/etc/redrive/redrive.yaml:ro" in found[service]["volumes"]
        assert not any("@" in one for one in found[service]["command"]), "a password in `ps`"


@pytest.mark.parametrize("service", ["rabbitmq-init", "admin"])
def test_a_services_command_is_one_that_redrive_knows(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option is parsed by the command itself; --help then ends it before it does anything."""
    monkeypatch.setattr(sys, "argv", ["redrive", *services()[service]["command"], "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)


def test_the_image_has_what_its_files_name() -> None:
    build = services()["rabbitmq-init"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT
    lines = (context / build["dockerfile"]).read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name


@pytest.mark.slow
def test_the_init_service_waits_for_a_broker_that_comes_up_later_and_declares_everything(tmp_path: Path) -> None:
    port = free_port()
    command = [one.replace("/etc/redrive/", f"{FOLDER}/") for one in services()["rabbitmq-init"]["command"]]
    environment = {**os.environ, "NO_COLOR": "1", "REDRIVE_URL": f"amqp://guest:guest@127.0.0.1:{port}/"}
    environment["REDRIVE_MANAGEMENT_URL"] = f"http://127.0.0.1:{free_port()}"
    init = subprocess.Popen(
        [sys.executable, "-m", "redrive", *command],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert init.stderr is not None
    assert init.stderr.readline() == (
        f"Waiting up to 60s for the broker: 127.0.0.1:{port}: the connection was refused; does a broker run there?\n"
    )
    broker = subprocess.Popen(
        [sys.executable, "-m", "redrive", "broker", "--port", str(port)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        out, rest = init.communicate(timeout=60)
        assert (init.returncode, rest) == (0, "")
        assert "  + queue q.thumbnail.retry\n" in out
        # 2 exchanges; for each of 7 queues itself, 2 exchanges, 2 queues and 2 bindings; 9 bindings lead in.
        assert out.endswith("60 declared, 23 bindings in place (RabbitMQ 4.3.6).\n")
    finally:
        broker.terminate()
        broker.wait(timeout=20)
