"""What a person reads when something went wrong."""

import errno
import os

import pytest

from parley.cli.problems import explain
from parley.errors import ConfigError


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EEXIST, "/srv/chat is a file, not a folder: choose another --data"),
        (errno.ENOTDIR, "/srv/chat cannot be reached: a part of the path is a file, not a folder"),
        (errno.EACCES, "/srv/chat cannot be used by "),
        (errno.EPERM, "/srv/chat cannot be used by "),
        (errno.EROFS, "/srv/chat cannot be written: its file system is read-only"),
        (errno.ENOSPC, "/srv/chat cannot be written: the disk is full"),
        (errno.ENOENT, "/srv/chat does not exist"),
        (errno.EIO, "/srv/chat cannot be used: Input/output error"),
    ],
)
def test_an_error_of_the_system_names_the_path_and_the_remedy(number: int, says: str) -> None:
    """One sentence instead of the system's few words."""
    told = explain(OSError(number, os.strerror(number), "/srv/chat"))
    assert told.startswith(says)
    assert "\n" not in told


def test_a_path_that_may_not_be_used_says_as_whom() -> None:
    """A person learns which user was refused, and what can be done."""
    told = explain(PermissionError(errno.EACCES, "Permission denied", "/srv/chat"))
    assert "run this as its owner" in told


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            "redis.url, kafka.ca",
            "redis.url, kafka.ca (in the environment: PARLEY_REDIS_URL, PARLEY_KAFKA_CA)",
        ),
        ("redis.url is wrong (PARLEY_REDIS_URL)", "redis.url is wrong (PARLEY_REDIS_URL)"),
        ("set server.hosts", "set server.hosts (in the environment: PARLEY_SERVER_HOSTS)"),
        ("Kafka has no topic messages.persisted", "Kafka has no topic messages.persisted"),
    ],
)
def test_a_setting_is_told_with_its_variable(says: str, told: str) -> None:
    """Whoever configures by the environment reads the name that they can set."""
    assert explain(ConfigError(says)) == told
