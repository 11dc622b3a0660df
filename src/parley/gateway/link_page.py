"""The page that links of operators open: a person registers, or sets a new password, in a browser.

It is one page for both, without a word of the token to the server before it is used: the token is in the
fragment of the address, which browsers do not send.
"""

from __future__ import annotations

from typing import Literal

from aiohttp import web

from parley.errors import NOT_FOUND, Refused
from parley.gateway.docs_page import ASK_AGAIN, CONTENT_TYPES, HTML, STATIC, file_response
from parley.gateway.routes import Operation, Parameter

PATH = "/link"
FileName = Literal["link.css", "link.js"]
FILES = ("link.css", "link.js")

PAGE = Operation(
    method="GET",
    path=PATH,
    tag="Server",
    name="link_page",
    summary="The page that links open",
    description="For people, in a browser: to register by an invitation, or to set a new password.",
    answers={200: str},
    needs="nothing",
    cost=1,
    media=HTML,
)
FILE = Operation(
    method="GET",
    path=f"{PATH}/{{file}}",
    tag="Server",
    name="link_file",
    summary="A file of that page",
    description="Scripts and styles.",
    answers={200: str},
    path_parameters=(Parameter("file", FileName, "The file.", "link.js", is_required=True),),
    refusals=(NOT_FOUND,),
    needs="nothing",
    cost=1,
    media="text/*",
)


def path_of(token: str) -> str:
    """Where a link with this token leads, on this server."""
    return f"{PATH}#{token}"


async def show_page(request: web.Request) -> web.StreamResponse:
    return file_response(STATIC / "link.html", HTML, ASK_AGAIN)


async def show_file(request: web.Request) -> web.StreamResponse:
    name = request.match_info["file"]
    if name not in FILES:
        raise Refused(NOT_FOUND)
    path = STATIC / name
    return file_response(path, CONTENT_TYPES[path.suffix], ASK_AGAIN)
