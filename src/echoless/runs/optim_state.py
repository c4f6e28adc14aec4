"""How does the state of an optimiser become named tensors plus JSON, and come back exactly?

Any nesting of dicts, lists and tuples of tensors, numbers, strings, booleans and None, which covers every optimiser
that keeps to `state_dict()`. What JSON cannot say is tagged:

    {"$tensor": name}   a tensor, found under this name     {"$tuple": [...]}      a tuple
    {"$float": "nan"}   a float that is not finite          {"$items": [[k, v]]}   a dict with other keys than strings
    {"$permuted": [name, order]}   a tensor stored in the order of its memory

The order in memory is part of the state: the result of LAPACK lies column by column, as the bases of some optimisers
do, and a matrix product with a row-by-row copy of one differs in the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from echoless.errors import RunError, UntrustedFile

_DEEPEST = 32


def flatten_state(state: Any) -> tuple[dict[str, Tensor], Any]:
    """Named tensors, and a JSON value that says where they and everything else belong."""
    tensors: dict[str, Tensor] = {}
    return tensors, _encode(state, (), tensors)


def unflatten_state(tensors: Mapping[str, Tensor], layout: Any) -> Any:
    """What `flatten_state` was given: equal values, equal types, equal bits."""
    return _decode(layout, tensors, 0)


def _encode(value: Any, place: tuple[Any, ...], tensors: dict[str, Tensor]) -> Any:
    if len(place) > _DEEPEST:
        raise RunError(f"{_name(place)} is nested {len(place)} levels deep; allowed: {_DEEPEST}")
    if isinstance(value, Tensor):
        return _encode_tensor(value, _free_name(_name(place), tensors), tensors)
    if isinstance(value, Mapping):
        return _encode_mapping(value, place, tensors)
    if isinstance(value, list | tuple):
        items = [_encode(item, (*place, i), tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RunError(
        f"{_name(place)} is a {type(value).__name__}; allowed: tensors, numbers, strings, booleans, None, and lists, "
        "tuples and dicts of them"
    )


def _encode_tensor(value: Tensor, name: str, tensors: dict[str, Tensor]) -> Any:
    order = sorted(range(value.dim()), key=value.stride, reverse=True)
    if value.is_contiguous() or not value.permute(order).is_contiguous():
        tensors[name] = value
        return {"$tensor": name}
    tensors[name] = value.permute(order)
    return {"$permuted": [name, order]}


def _encode_mapping(value: Mapping[Any, Any], place: tuple[Any, ...], tensors: dict[str, Tensor]) -> Any:
    encoded = {key: _encode(item, (*place, key), tensors) for key, item in value.items()}
    if all(isinstance(key, str) and not key.startswith("$") for key in encoded):
        return encoded
    return {"$items": [[_encode(key, (*place, key), tensors), item] for key, item in encoded.items()]}


def _name(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place)) or "state"


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    """Two places can have one name, such as keys 0 and "0"; the layout, not the name, says which is which."""
    number = 1
    unique = name
    while unique in taken:
        number += 1
        unique = f"{name}#{number}"
    return unique


def _decode(value: Any, tensors: Mapping[str, Tensor], depth: int) -> Any:
    if depth > 2 * _DEEPEST:
        raise UntrustedFile(f"the state is nested deeper than {_DEEPEST} levels")
    if isinstance(value, list):
        return [_decode(item, tensors, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    tags = [key for key in value if key.startswith("$")]
    if not tags:
        return {key: _decode(item, tensors, depth + 1) for key, item in value.items()}
    if len(value) != 1:
        raise UntrustedFile(f"the state has {tags[0]!r} next to other keys")
    return _decode_tagged(tags[0], value[tags[0]], tensors, depth)


def _decode_tagged(tag: str, content: Any, tensors: Mapping[str, Tensor], depth: int) -> Any:
    try:
        if tag == "$tensor":
            return tensors[content]
        if tag == "$permuted":
            name, order = content
            return tensors[name].permute([order.index(i) for i in range(len(order))])
        if tag == "$float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]
        items = _decode(content, tensors, depth + 1)
        if tag == "$tuple" and isinstance(items, list):
            return tuple(items)
        if tag == "$items":
            return {key: item for key, item in items}  # noqa: C416  (dict() would also take a string of pairs)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        pass
    raise UntrustedFile(f"the state has an invalid {tag}: {str(content)[:80]!r}")
