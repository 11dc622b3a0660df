"""A store to work on, fresh for each test."""

import shutil
from pathlib import Path

import pytest

from tests.integration.cli.stores import fill


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("template") / "data"
    fill(folder)
    return folder


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    """A data folder of its own, with the people and chats of `stores.fill`."""
    folder = tmp_path / "data"
    shutil.copytree(template, folder)
    return folder
