"""Which tests `make quick` chooses for a change."""

from tests import quick


def test_what_changed_comes_first() -> None:
    """A test file that changed is run before what imports a changed source."""
    chosen = quick.tests_for(["src/parley/core/append.py", "tests/unit/wire/test_vectors.py"])
    assert chosen[0] == "tests/unit/wire/test_vectors.py"
    assert "tests/contracts/test_log_decisions.py" in chosen


def test_faults_in_what_changed_choose_their_tests() -> None:
    """A source in which faults are planted brings the tests that catch them, whatever those import."""
    writer = "src/parley/store/sqlite/writer.py"
    caught_by = {path for path, _ in quick.tests_of_faults([writer])}
    assert caught_by
    assert caught_by <= set(quick.tests_for([writer]))


def test_a_change_of_a_client_chooses_the_tests_of_clients() -> None:
    """What is written in TypeScript has its tests beside it, and is run by tests/clients."""
    assert "tests/clients/test_typescript.py" in quick.tests_for(["clients/typescript/src/index.ts"])
    assert not quick.is_of_clients(["src/parley/model.py"])


def test_long_layers_are_left_to_the_whole_run() -> None:
    """Processes that are killed and clusters take longer than all of it may."""
    chosen = quick.tests_for(["src/parley/model.py", "tests/harness/server.py"])
    assert chosen
    assert not [path for path in chosen if path.startswith(("tests/simulation/", "tests/acceptance/"))]
