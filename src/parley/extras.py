"""How a package that is not installed is added to this installation, from where it came.

`parley-chat` is on no index, so its name alone finds nothing there, or what somebody else has put there.
"""

from __future__ import annotations

import shlex
import sys
from urllib.parse import unquote, urlsplit

import msgspec

DISTRIBUTION = "parley-chat"
ORIGIN_FILE = "direct_url.json"
"""What pip notes of an installation that comes from no index (PEP 610)."""
UNKNOWN = (
    "build the wheel from Parley's source tree and install 'parley_chat-{version}-py3-none-any.whl[{extra}]'"
)


class Folder(msgspec.Struct):
    editable: bool = False


class Origin(msgspec.Struct):
    url: str
    dir_info: Folder | None = None


def how_to_install(extra: str) -> str:
    """A command that installs an extra beside this Parley, in this Python."""
    from importlib import metadata  # nothing is loaded for it where nothing is missing

    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return UNKNOWN.format(version="VERSION", extra=extra)
    return command_for(extra, found.read_text(ORIGIN_FILE), found.version)


def command_for(extra: str, origin_file: str | None, version: str) -> str:
    """`origin_file`: what pip has noted, if it has."""
    try:
        origin = msgspec.json.decode(origin_file or "", type=Origin)
    except msgspec.DecodeError:
        return UNKNOWN.format(version=version, extra=extra)
    path = unquote(urlsplit(origin.url).path)
    if origin.dir_info is not None and origin.dir_info.editable:
        return f"make -C {shlex.quote(path)} setup"
    wanted = f"{path}[{extra}]" if origin.dir_info is not None else f"{DISTRIBUTION}[{extra}] @ {origin.url}"
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(wanted)}"
