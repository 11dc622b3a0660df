"""What a short run leaves out, and what it may not."""

import ast
from collections.abc import Iterator

import msgspec
import pytest

from tests import selection
from tests.contracts.suites import ON_SHARED, SHARED, WHOLE, engines_of
from tests.mutants.faults import ROOT, all_faults

pytest_plugins = ["pytester"]

ENGINES = ("memory-atomic", "memory-two_phase", "sqlite-atomic", "dynamodb-atomic", "dynamodb-redis")
SUITE = "tests/contracts/test_accounts.py"
CAUGHT_BY = (f"{SUITE}::test_caught[dynamodb-redis-3]", "test_walks.py::test_caught[2]")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two planted faults, caught by tests with parameters."""
    made = [msgspec.structs.replace(all_faults()[0], test=test) for test in CAUGHT_BY]
    monkeypatch.setattr(selection, "faults_of_pytest", lambda: made)
    selection.tests_of_faults.cache_clear()
    yield
    selection.tests_of_faults.cache_clear()


@pytest.mark.usefixtures("faults")
def test_thorough_tests_are_left_out_unless_they_catch_a_fault(pytester: pytest.Pytester) -> None:
    """A short run leaves out what is marked, but for the very case that catches a planted fault."""
    pytester.makepyfile(
        test_walks="""
        import pytest

        @pytest.mark.thorough("a longer walk")
        @pytest.mark.parametrize("walk", [1, 2])
        def test_caught(walk): ...

        @pytest.mark.thorough("a longer walk")
        def test_long(): ...

        def test_plain(): ...
        """
    )
    for options, passed in ((), 4), (("--short",), 2):
        ran = pytester.inline_run("-p", "no:cacheprovider", *options, plugins=[selection])
        ran.assertoutcome(passed=passed)


@pytest.mark.usefixtures("faults")
def test_an_engine_runs_what_it_is_there_for() -> None:
    """A short run has every decision on two engines, and on each shared store what that must do itself."""
    assert engines_of(SUITE, "test_of_a_decision", ENGINES) == ["memory-atomic", "sqlite-atomic"]
    assert "dynamodb-atomic" in engines_of(SUITE, ON_SHARED["test_accounts"][0], ENGINES)
    assert "dynamodb-redis" in engines_of("tests/contracts/test_log_counters.py", "test_any", ENGINES)


@pytest.mark.usefixtures("faults")
def test_an_engine_runs_what_catches_a_fault_on_it() -> None:
    """A test that catches a planted fault on an engine runs there."""
    assert "dynamodb-redis" in engines_of(SUITE, "test_caught", ENGINES)
    assert "dynamodb-atomic" not in engines_of(SUITE, "test_caught", ENGINES)


@pytest.mark.usefixtures("faults")
def test_a_fault_without_its_test_is_told() -> None:
    """What catches a planted fault and is not collected is named."""
    assert selection.not_collected([*CAUGHT_BY, "test_walks.py::test_plain"]) == []
    assert selection.not_collected([CAUGHT_BY[0]]) == [CAUGHT_BY[1]]
    assert selection.not_collected([CAUGHT_BY[0], "test_walks.py::test_caught[1]"]) == [CAUGHT_BY[1]]


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_whole_short_run_without_the_test_of_a_fault_says_which(
    pytester: pytest.Pytester, processes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails by a test that names them, also where processes of xdist collect."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.mkdir("tests").joinpath("test_plain.py").write_text("def test_plain(): ...\n", encoding="utf-8")
    ran = pytester.runpytest_subprocess("-p", "tests.selection", "--short", *processes, "tests")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["these catch planted faults and do not run:", all_faults()[0].test])


def test_what_the_tables_name_exists() -> None:
    """Each suite and each test that the tables of a short run name is there."""
    contracts = ROOT / "tests" / "contracts"
    for suite, names in ON_SHARED.items():
        tree = ast.parse((contracts / f"{suite}.py").read_text(encoding="utf-8"))
        functions = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert set(names) <= functions, suite
    for beginning in {beginning for names in WHOLE.values() for beginning in names}:
        assert list(contracts.glob(f"{beginning}*.py")), beginning
    assert set(SHARED) <= set(WHOLE)
