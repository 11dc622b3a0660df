"""What the generated pages and clients ask of msgspec structs."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, inspect

from parley.gateway.routes import Route, alternatives


def tag_of(kind: type[Struct]) -> str:
    """The `type` of a frame."""
    return str(kind.__struct_config__.tag)


def fields_of(kind: type[Struct]) -> list[inspect.Field]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return list(described.fields)


def default_value(field: inspect.Field) -> Any:
    """What a field that is left out stands for; UNSET without one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return msgspec.UNSET if field.default is msgspec.NODEFAULT else field.default


def answers_of(routes: Iterable[Route]) -> set[Any]:
    """Every body of a good answer."""
    found = {kind for route in routes for kind in route.answers.values() if kind is not None}
    return {one for kind in found for one in alternatives(kind)}


def by_name(kinds: Iterable[Any]) -> list[Any]:
    return sorted(kinds, key=lambda kind: str(kind.__name__))


def structs_within(*kinds: type[Struct]) -> set[type[Struct]]:
    """The structs in the fields of these, and in theirs."""
    found: set[type[Struct]] = set()
    ahead = [field.type for kind in kinds for field in fields_of(kind)]
    while ahead:
        match ahead.pop():
            case inspect.UnionType(types=types):
                ahead.extend(types)
            case inspect.ListType(item_type=item) | inspect.DictType(value_type=item):
                ahead.append(item)
            case inspect.StructType(cls=cls, fields=fields) if cls not in found:
                found.add(cls)
                ahead.extend(field.type for field in fields)
    return found
