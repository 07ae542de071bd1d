"""Turns the filters of a request into conditions on images, by the protocol's rules."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql

from datago.server import forms
from datago.server.attributes import NULL, Clause, compared, type_named
from datago.server.attributes import conditions as on_attributes
from datago.server.forms import COMPARE, Invalid
from datago.server.partition import SHARDS
from datago.server.tables import attributes, datasets, images, latents, tags

if TYPE_CHECKING:
    from datago.server.store import Store

# makes conditions of a filter's name and its parsed value
Make = Callable[[str, Any, "Store"], list[Clause]]


def conditions(params: Mapping[str, str], store: "Store") -> list[Clause]:
    """The conditions that the filters in `params` put on images."""
    values = forms.read(params, {name: form for name, (form, _) in FILTERS.items()})
    return [condition for name, value in values.items() for condition in FILTERS[name][1](name, value, store)]


def partition(params: Mapping[str, str]) -> list[Clause]:
    """The condition of `partitions_count` and `partition`, as a list of at most one condition."""
    given = params.get("partitions_count"), params.get("partition")
    if (given[0] is None) != (given[1] is None):
        raise Invalid('Both "partitions_count" and "partition" parameters must be provided')
    if not given[0] or not given[1]:
        return []
    count, number = _natural("partitions_count", given[0], 1), _natural("partition", given[1], 0)
    if not 2 <= count <= SHARDS:
        raise Invalid(f'"partitions_count" should be between 2 and {SHARDS}')
    if number >= count:
        raise Invalid(f'"partition" should be between 0 and {count - 1}')
    return [images.c.partition % count == number]


def _natural(name: str, value: str, least: int) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < least:
        raise Invalid(f'Invalid "{name}" parameter')
    return number


def _has_any(column: sql.Column[str], values: Iterable[str], *more: Clause) -> Clause:
    """Whether an image has at least one of `values` in `column` of its rows that meet the conditions `more`."""
    return sql.exists().where(column.table.c.image_id == images.c.id, column.in_(list(dict.fromkeys(values))), *more)


def _has_all(column: sql.Column[str], values: Iterable[str], *more: Clause) -> Clause:
    """Whether an image has all of `values`. One count serves any number of values, because databases limit the depth of expressions."""
    values = list(dict.fromkeys(values))
    found = sql.select(sql.func.count(column.distinct())).where(column.table.c.image_id == images.c.id, column.in_(values), *more)
    return found.scalar_subquery() == len(values)


def _sources(name: str, value: str, store: "Store") -> list[Clause]:
    listed = images.c.source.in_(list(dict.fromkeys(value.split(","))))
    return [~listed if name.endswith("__ne") else listed]


def _number(name: str, value: float, store: "Store") -> list[Clause]:
    column, _, comparator = name.partition("__")
    return [compared(comparator, images.c[column], value)]


def _date(name: str, value: str, store: "Store") -> list[Clause]:
    return [COMPARE[name.rpartition("__")[2]](images.c.date, value)]


def _whether(condition: Clause) -> Make:
    return lambda name, value, store: [condition if value else ~condition]


def _members(column: sql.Column[str], known: Callable[["Store"], Collection[str]], kind: str) -> Make:
    """A filter by tags or datasets. `known` returns the existing ones."""

    def make(name: str, value: str, store: "Store") -> list[Clause]:
        wanted = value.split(",")
        if missing := [f"'{one}'" for one in dict.fromkeys(wanted) if one not in known(store)]:
            raise Invalid(f"One or more {kind} do not exist: {','.join(missing)}")
        combined = (_has_all if name.endswith("all") else _has_any)(column, wanted)
        return [~combined if "__ne" in name else combined]

    return make


def _latents(name: str, value: str, store: "Store") -> list[Clause]:
    wanted = value.split(",")
    for place, kind in enumerate(wanted):
        if wanted.index(kind) < place:
            raise Invalid(f"Duplicate latent type '{kind}'")
        if kind not in store.latent_types:
            raise Invalid(f"Latent type '{kind}' does not exist")
    return [_has_all(latents.c.latent_type, wanted) if name.startswith("has_") else ~_has_any(latents.c.latent_type, wanted)]


def _named(name: str, value: str, store: "Store") -> list[Clause]:
    wanted = value.split(",")
    for one in [one for one in wanted if type_named(one, store) == "object"]:
        raise Invalid(f"Existance checks on object attributes are not supported. Attribute: {one}")
    has_value = attributes.c.type < NULL
    if name.startswith("has_"):
        return [_has_all(attributes.c.name, wanted, has_value)]
    return [~_has_any(attributes.c.name, wanted, has_value)]


def _duplicate_state(name: str, value: str, store: "Store") -> list[Clause]:
    if value == "None":
        return [images.c.duplicate_state.is_(None)]
    try:
        state: int | str = int(value)
    except ValueError:
        state = value
    if state not in (1, 2):
        raise Invalid(f"Invalid value for duplicate_state: {state}")
    return [images.c.duplicate_state == state]


def _beside(table: sql.Table) -> Clause:
    """Whether an image has a row in `table`."""
    return sql.exists().where(table.c.image_id == images.c.id)


_tags = _members(tags.c.tag, lambda store: store.tags, "tags")
_datasets = _members(datasets.c.dataset, lambda store: store.datasets, "datasets")

# name: its form, and the function that makes its conditions. The order is that in which the hosted service checks the filters.
FILTERS: dict[str, tuple[forms.Form, Make]] = {
    "source": (forms.text, lambda name, value, store: [images.c.source == value]),
    **dict.fromkeys(("sources", "sources__ne"), (forms.text, _sources)),
    "source__empty": (forms.boolean, _whether(images.c.source == "")),
    **{
        f"{column}{test}": (forms.number, _number)
        for column in ("short_edge", "pixel_count", "aspect_ratio")
        for test in ("", *(f"__{name}" for name in COMPARE))
    },
    "aspect_ratio_fraction": (forms.text, lambda name, value, store: [images.c.aspect_ratio_fraction == value]),
    "aspect_ratio_fraction__empty": (forms.boolean, _whether(images.c.aspect_ratio_fraction.is_(None))),
    "attributes": (forms.raw, lambda name, value, store: on_attributes(value, store)),
    **dict.fromkeys(("has_attributes", "lacks_attributes"), (forms.text, _named)),
    **dict.fromkeys(("has_latents", "lacks_latents", "has_masks", "lacks_masks"), (forms.text, _latents)),
    **dict.fromkeys(("tags", "tags__ne", "tags__all", "tags__ne_all"), (forms.text, _tags)),
    "tags__empty": (forms.boolean, _whether(~_beside(tags))),
    "coca_embedding__empty": (forms.boolean, _whether(images.c.coca_embedding == "null")),
    "duplicate_state": (forms.text, _duplicate_state),
    **{f"date_{which}__{test}": (forms.moment, _date) for which in ("created", "updated") for test in COMPARE},
    **dict.fromkeys(("datasets", "datasets__ne", "datasets__all", "datasets__ne_all"), (forms.text, _datasets)),
    "datasets__empty": (forms.boolean, _whether(~_beside(datasets))),
}
