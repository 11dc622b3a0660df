"""The short way to a running server."""

import pytest

from parley.cli.startup import ServeOptions, plain_options


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], ServeOptions()),
        (["--data", "here", "--port", "0"], ServeOptions(data="here", port=0)),
        (["--host=::1", "--port=8081"], ServeOptions(host="::1", port=8081)),
        (["--config", "a=b.toml", "--roles", "all"], ServeOptions(config="a=b.toml", roles="all")),
    ],
)
def test_plain_options_go_the_short_way(arguments: list[str], options: ServeOptions) -> None:
    """Options that are well formed are read without the command line's library."""
    assert plain_options(arguments) == options


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--data"],
        ["--data", ""],
        ["--data", "--port"],
        ["--port", "eighty"],
        ["--port", "-1"],
        ["--port", "65536"],
        ["--port", "٣"],
        ["--frobnicate", "x"],
        ["data"],
        ["--count", "1"],
    ],
)
def test_anything_else_goes_the_long_way(arguments: list[str]) -> None:
    """Questions and mistakes are left to whoever can explain them."""
    assert plain_options(arguments) is None
