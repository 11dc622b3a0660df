"""The contract for the TypeScript SDK, written from the structs that the server encodes and decodes with.

`contract.ts` has types (nothing of them is in a bundle), and the few values that frames are written with.
Every limit and close code is a constant of its own: a bundle has those that it uses, and importing them does
nothing.
"""

from __future__ import annotations

import inspect as python
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, get_args, get_origin

from msgspec import UNSET, Struct, inspect

from docs.structs import answers_of, by_name, default_value, fields_of, structs_within, tag_of
from parley.errors import Refusal
from parley.gateway.api import ROUTES
from parley.gateway.fields import FIELDS
from parley.gateway.routes import Parameter, Route, alternatives
from parley.wire import codec, codes, frames, limits
from parley.wire.bodies import Problem

FOLDER = Path(__file__).resolve().parents[1] / "clients/typescript/src"
HEADER = "// Written by `make docs` from the contract in src/parley: change it there.\n"
COLUMNS = 110
OTHER_NAMES_OF_A_CHAT = ("conversation_id", "conv_id")

REQUESTS: Sequence[type[Struct]] = get_args(frames.Request)
ANSWERS: Sequence[type[Struct]] = get_args(frames.ServerFrames)
BODIES = {route.body for route in ROUTES if route.body is not None}
SAID = answers_of(ROUTES) | {Problem}
ASKED = {*REQUESTS, *BODIES, *structs_within(*REQUESTS, *BODIES)}


# Types


def type_of(kind: inspect.Type) -> str:
    """A type as TypeScript writes it."""
    match kind:
        case inspect.UnionType(types=types):
            return " | ".join(dict.fromkeys(type_of(part) for part in types))
        case inspect.ListType(item_type=item):
            return f"readonly {_grouped(type_of(item))}[]"
        case inspect.DictType(value_type=value):
            return f"Readonly<Record<string, {type_of(value)}>>"
        case inspect.StructType(cls=cls) | inspect.EnumType(cls=cls):
            return name_of(cls)
        case inspect.LiteralType(values=values):
            return " | ".join(map(json.dumps, values))
        case inspect.RawType():
            return frames.Entry.__name__
        case _:
            return PLAIN_TYPES[type(kind)]


PLAIN_TYPES: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.AnyType: "unknown",
}


def _grouped(written: str) -> str:
    return f"({written})" if " | " in written else written


def name_of(kind: type[Any]) -> str:
    return str(kind.__name__)


def enums_within(kinds: Iterable[type[Struct]]) -> set[type[Enum]]:
    found: set[type[Enum]] = set()
    ahead = [field.type for kind in kinds for field in fields_of(kind)]
    while ahead:
        match ahead.pop():
            case inspect.UnionType(types=types):
                ahead.extend(types)
            case inspect.ListType(item_type=item) | inspect.DictType(value_type=item):
                ahead.append(item)
            case inspect.EnumType(cls=cls):
                found.add(cls)
    return found


def comment(text: str, indent: str = "") -> str:
    """A comment that editors show; nothing for no text."""
    words = re.sub(r"\s*\n\s*", " ", text.strip()).replace("*/", "* /")
    if not words:
        return ""
    if len(line := f"{indent}/** {words} */\n") <= COLUMNS + 1:
        return line
    lines = textwrap.wrap(words, COLUMNS - len(indent) - 3)
    return "".join(f"{indent}{part}\n" for part in ["/**", *(f" * {line}" for line in lines), " */"])


def interface(kind: type[Struct], *, is_asked: bool) -> str:
    """A struct. What a client may leave out is optional in what it says, and UNSET in what it is told."""
    declared = get_origin(kind) or kind
    tag = declared.__struct_config__.tag
    lines = [f"  readonly type: {json.dumps(tag)};\n"] if tag else []
    lines += [
        line
        for field in fields_of(kind)
        if not _is_left_out(declared, field.name)
        for line in _property(declared, field, is_asked=is_asked)
    ]
    text = python.cleandoc(declared.__doc__ or "") if "__doc__" in vars(declared) else ""
    return f"{comment(text)}export interface {name_of(kind)} {{\n{''.join(lines)}}}\n"


def _is_left_out(kind: type[Struct], field: str) -> bool:
    """A client has one name for a chat; only frames name the request that they answer."""
    if field in OTHER_NAMES_OF_A_CHAT:
        return issubclass(kind, frames.ChatFrame)
    return field == "re" and not kind.__struct_config__.tag


def _property(kind: type[Struct], field: inspect.Field, *, is_asked: bool) -> Iterator[str]:
    is_chat = field.name == "chat_id" and issubclass(kind, frames.ChatFrame)
    is_always = field.required or is_chat or (not is_asked and default_value(field) is not UNSET)
    known = FIELDS.get(f"{name_of(kind)}.{field.encode_name}") or FIELDS.get(field.encode_name)
    is_frame = issubclass(kind, frames.ClientFrame) or bool(kind.__struct_config__.tag)
    if known is not None and not is_frame:
        yield comment(known.description, "  ")
    name = f"{field.encode_name}{'' if is_always else '?'}"
    yield f"  readonly {name}: {type_of(field.type)};\n"


# Values


def union(name: str, members: Iterable[str], text: str = "") -> str:
    """A type that is one of these."""
    found = list(members)
    line = f"export type {name} = {' | '.join(found)};\n"
    if len(line) > COLUMNS + 1:
        line = f"export type {name} =\n" + "".join(f"  | {one}\n" for one in found)[:-1] + ";\n"
    return comment(text) + line


def request_fields() -> str:
    """The one table that exists at run time: by it frames are written as the server's encoder would.

    All requests share it: their fields have one order, and nearly all have one default wherever they are.
    """
    before: dict[str, list[str]] = {}
    defaults: dict[str, list[str]] = {}
    for kind in REQUESTS:
        last: list[str] = []
        for field in fields_of(kind):
            before.setdefault(field.encode_name, []).extend(last)
            defaults.setdefault(field.encode_name, []).append(_default(field))
            last = [field.encode_name]
    usual = {name: max(given, key=given.count) for name, given in defaults.items()}
    fields = ", ".join(f"{name}: {usual[name]}" for name in TopologicalSorter(before).static_order())
    others = {
        f"{tag_of(kind)}.{field.encode_name}": _default(field)
        for kind in REQUESTS
        for field in fields_of(kind)
        if _default(field) != usual[field.encode_name]
    }
    written = ", ".join(f"{json.dumps(name)}: {value}" for name, value in others.items())
    shape = "Readonly<Record<string, unknown>>"
    text = (
        "The fields of all requests, in the order in which they are written, with the value that is left out."
    )
    return (
        f"{comment(text)}export const REQUEST_FIELDS: {shape} = {{ {fields} }};\n"
        f"{comment('What is left out instead, of these fields of these requests.')}"
        f"export const OTHER_DEFAULTS: {shape} = {{ {written} }};\n"
    )


def _subprotocol(encoding: str) -> str:
    name = f"{encoding}_PROTOCOL"
    return f"export const {name} = {json.dumps(getattr(codec, name))};\n"


def _default(field: inspect.Field) -> str:
    value = default_value(field)
    return "undefined" if value is UNSET else json.dumps(value)


def close_codes() -> str:
    """`closeCodes.ts`."""
    found = {name: value for name, value in vars(codes).items() if isinstance(value, codes.Close)}
    lines = [f"{comment(_close_text(one))}export const {name} = {one.code};\n" for name, one in found.items()]
    return "\n".join([HEADER, *lines])


def _close_text(close: codes.Close) -> str:
    return close.reason[0].upper() + close.reason[1:] + "."


def limit_constants() -> str:
    """`limits.ts`."""
    found = {
        name: value
        for name, value in vars(limits).items()
        if name.isupper() and isinstance(value, int) and name not in {"KIB", "MIB"}
    }
    lines = [f"export const {name} = {_number(value)};\n" for name, value in found.items()]
    return HEADER + "\n" + "".join(lines)


def _number(value: int) -> str:
    return f"{value:_}" if value >= 10_000 else str(value)


# Routes


def route_table() -> str:
    text = "Every request over HTTP by its method and path: what it takes, and the body of each good status."
    entries = "".join(_route(route) for route in ROUTES)
    return f"{comment(text)}export interface Routes {{\n{entries}}}\n"


def _route(route: Route) -> str:
    found = route.parameters
    body = "undefined" if route.body is None else name_of(route.body)
    answers = "; ".join(f"{status}: {_answer(kind)}" for status, kind in route.answers.items())
    is_keyed = any(one.name == "Idempotency-Key" for one in found["header"])
    lines = [
        f"path: {_parameters(found['path'])};",
        f"query: {_parameters(found['query'])};",
        f"body: {body};",
        f"answers: {{ {answers} }};",
        f"keyed: {json.dumps(is_keyed)};",
    ]
    inside = "".join(f"    {line}\n" for line in lines)
    return f'{comment(route.summary + ".", "  ")}  "{route.method} {route.path}": {{\n{inside}  }};\n'


def _parameters(found: Sequence[Parameter]) -> str:
    if not found:
        return "NoParameters"
    return (
        "{ " + "; ".join(f"{one.name}{'' if one.is_required else '?'}: {_kind(one)}" for one in found) + " }"
    )


def _kind(one: Parameter) -> str:
    return type_of(inspect.type_info(one.kind))


def _answer(kind: Any) -> str:
    """What a request may leave out of a body that is also an answer is always in the answer."""
    if kind is None:
        return "undefined"
    if kind is str:
        return "string"
    if kind == dict[str, Any]:
        return "Record<string, unknown>"
    return " | ".join(
        f"Required<{name_of(one)}>" if one in ASKED else name_of(one) for one in alternatives(kind)
    )


# The whole


def contract(refusals: Iterable[Refusal]) -> str:
    """`contract.ts`."""
    told = (SAID | structs_within(*SAID, *ANSWERS)) - ASKED - set(ANSWERS)
    structs = [
        *(interface(kind, is_asked=True) for kind in REQUESTS),
        union("ClientFrame", map(name_of, REQUESTS), "What a client says on a WebSocket."),
        *(interface(kind, is_asked=False) for kind in ANSWERS),
        union("ServerFrame", map(name_of, ANSWERS), "What the server says on a WebSocket."),
        *(interface(kind, is_asked=True) for kind in by_name(ASKED - set(REQUESTS))),
        *(interface(kind, is_asked=False) for kind in by_name(told)),
    ]
    enums = by_name(enums_within({*ASKED, *told, *ANSWERS}))
    parts = [
        'export * as CLOSE_CODES from "./closeCodes.js";\nexport * as LIMITS from "./limits.js";\n',
        f"{_subprotocol('JSON')}{_subprotocol('MSGPACK')}",
        union(
            "RefusalCode",
            (json.dumps(code) for code in dict.fromkeys(one.code for one in refusals)),
            "Why something was refused. A newer server may have more.",
        ),
        *(
            union(kind.__name__, (json.dumps(one.value) for one in kind), python.cleandoc(kind.__doc__ or ""))
            for kind in enums
        ),
        *structs,
        request_fields(),
        "export type NoParameters = Record<never, never>;\n",
        route_table(),
    ]
    return "\n".join([HEADER, *parts])


def files(refusals: Iterable[Refusal]) -> dict[Path, str]:
    return {
        FOLDER / "contract.ts": contract(refusals),
        FOLDER / "closeCodes.ts": close_codes(),
        FOLDER / "limits.ts": limit_constants(),
    }
