"""Quarantined to the structure of JSON: of a document, of each line, and of JSON text inside its strings.

JSON is taken apart into trees that keep what `dict` would lose: the order and repetition of keys, and tokens that are
no JSON at all. A tree is a `list`, a `Pairs`, a scalar, or `Raw` text.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

from tests.fuzz import hostile
from tests.fuzz.byte_damage import MAX_BYTES

Chance = random.Random
MAX_DEPTH = 60
Place: TypeAlias = tuple[list[Any], int]
"""A list (of items, or of [key, value] pairs' two parts) and a position in it."""


class Raw(str):
    """Text that is written as it is."""

    __slots__ = ()


class Pairs(list):
    """An object: a list of `[key, value]`."""


def damage_json(data: bytes, others: list[bytes], chance: Chance) -> bytes:
    """The dump with one to six values, keys or names replaced. `others` are not needed: a tree feeds on itself."""
    del others
    text = data.decode("utf-8", "surrogateescape")
    trees = _documents(text)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        _damage_tree(trees, chance)
    if chance.random() < 0.05:
        chance.shuffle(trees)
    ascii_only = chance.random() < 0.5
    newline = chance.choice(("\n",) * 20 + ("", " ", "\r\n", ",", "\n\n"))
    return newline.join(_written(tree, ascii_only) for tree in trees).encode("utf-8", "surrogatepass")


def _documents(text: str) -> list[Any]:
    """The JSON values of a text one after the other; what is none of them is `Raw`."""
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: Pairs(list(pair) for pair in pairs), parse_int=Raw)
    found: list[Any] = []
    at = 0
    while at < len(text):
        start = next((place for place in range(at, len(text)) if text[place] in "[{"), len(text))
        if text[at:start].strip():
            found.append(Raw(text[at:start].strip()))
        try:
            tree, at = decoder.raw_decode(text, start)
        except RecursionError:
            tree, at = Raw(text[start:]), len(text)
        except ValueError:
            if start < len(text):
                found.append(Raw(text[start]))
            tree, at = None, start + 1
        if tree is not None:
            found.append(Raw(text[start:at]) if _is_deep(tree) else tree)
    return found


def _is_deep(tree: Any) -> bool:
    """Whether a tree is too deep to be walked: what earlier damage made so."""
    level, depth = [tree], 0
    while level and depth <= MAX_DEPTH:
        level = [inner for holder in level for item in holder if isinstance(inner := _inner(holder, item), list)]
        depth += 1
    return depth > MAX_DEPTH


def _inner(holder: list[Any], item: Any) -> Any:
    return item[1] if isinstance(holder, Pairs) else item


def _places(tree: Any) -> Iterator[Place]:
    """Where values stand, without recursion."""
    todo = [tree]
    while todo:
        holder = todo.pop()
        for at, item in enumerate(holder):
            place = (item, 1) if isinstance(holder, Pairs) else (holder, at)
            yield place
            if isinstance(place[0][place[1]], list):
                todo.append(place[0][place[1]])


def _damage_tree(trees: list[Any], chance: Chance) -> None:
    places = list(_places(trees))
    if not places:
        trees.append(Raw(hostile.value(chance)))
        return
    texts = [place for place in places if _is_text_of_values(place[0][place[1]])] if chance.random() < 0.4 else []
    holder, at = chance.choice(texts or places)
    found = holder[at]
    if _is_text_of_values(found) and chance.random() < 0.8:
        holder[at] = _damaged_text(found, chance)
    elif isinstance(found, list) and found and chance.random() < 0.6:
        _damage_members(found, chance)
    elif chance.random() < 0.3:
        other, there = chance.choice(places)
        holder[at] = other[there] if not isinstance(other[there], list) else _copied(other[there])
    else:
        _replace(holder, at, chance)


def _is_text_of_values(value: Any) -> bool:
    """JSON text, or token ids and logprobs."""
    return isinstance(value, str) and value[:1] in ("[", "{", "i", "f")


def _replace(holder: list[Any], at: int, chance: Chance) -> None:
    """A hostile value, or the value in another type."""
    found = holder[at]
    match chance.randrange(6):
        case 0 if not isinstance(found, list):
            holder[at] = str(found)
        case 1:
            holder[at] = [found]
        case 2:
            holder[at] = Pairs([[hostile.name(chance), found]])
        case 3 if isinstance(found, str):
            holder[at] = _sliced(found, chance)
        case _:
            holder[at] = Raw(hostile.value(chance))


def _damage_members(found: list[Any], chance: Chance) -> None:
    at = chance.randrange(len(found))
    match chance.randrange(6):
        case 0:
            del found[at]
        case 1:
            found.insert(chance.randrange(len(found) + 1), _copied(found[at]))
        case 2:
            chance.shuffle(found)
        case 3 if isinstance(found, Pairs):
            found[at][0] = chance.choice((hostile.name(chance), "", "\ud800", "__proto__", found[-1][0]))
        case 4:
            value = Raw(hostile.value(chance))
            found.insert(at, [found[at][0], value] if isinstance(found, Pairs) else value)
        case _:
            _swap(found, at, chance.randrange(len(found)))


def _swap(found: list[Any], one: int, other: int) -> None:
    if isinstance(found, Pairs):
        found[one][1], found[other][1] = found[other][1], found[one][1]
    else:
        found[one], found[other] = found[other], found[one]


def _damaged_text(text: str, chance: Chance) -> str:
    """JSON text inside a string, damaged as JSON; other text, sliced."""
    if text[:1] not in ("[", "{") or chance.random() < 0.2:
        return _sliced(text, chance)
    trees = _documents(text)
    for _ in range(chance.choice((1, 1, 2))):
        _damage_tree(trees, chance)
    damaged = "".join(_written(tree, chance.random() < 0.5) for tree in trees)
    return damaged if len(damaged) <= MAX_BYTES else text  # each text inside a text has twice the backslashes


def _sliced(text: str, chance: Chance) -> str:
    start = chance.randrange(len(text) + 1)
    end = chance.randrange(start, len(text) + 1)
    return chance.choice((text[:start], text[start:], text[:start] + text[end:], text[:end] + text[start:]))


def _copied(tree: Any) -> Any:
    if isinstance(tree, list):
        return type(tree)(_copied(item) for item in tree)
    return tree


def _written(tree: Any, ascii_only: bool) -> str:
    if isinstance(tree, Raw):
        return tree.encode("ascii", "backslashreplace").decode() if ascii_only and not tree.isascii() else str(tree)
    if isinstance(tree, Pairs):
        members = (f"{_written(str(key), ascii_only)}:{_written(value, ascii_only)}" for key, value in tree)
        return "{" + ",".join(members) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(_written(item, ascii_only) for item in tree) + "]"
    return json.dumps(tree, ensure_ascii=ascii_only)
