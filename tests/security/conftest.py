"""A server in the test's own process, and stores for commands, as in the tests of the gateway and the CLI."""

from tests.integration.cli.conftest import data, template
from tests.integration.gateway.conftest import cheap_hashing, either, place

__all__ = ["cheap_hashing", "data", "either", "place", "template"]
