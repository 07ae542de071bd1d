"""The filters among a request's parameters: conditions on images, by the protocol's rules."""

import operator

import sqlalchemy as sql

from datago.server import forms
from datago.server.attributes import NULL, type_named
from datago.server.attributes import conditions as on_attributes
from datago.server.forms import COMPARE, Invalid
from datago.server.partition import SHARDS
from datago.server.tables import attributes, datasets, images, latents, tags


def conditions(params, store):
    """The conditions that the filters among `params` (a mapping of text) put on images."""
    values = forms.read(params, {name: form for name, (form, _) in FILTERS.items()})
    return [condition for name, value in values.items() for condition in FILTERS[name][1](name, value, store)]


def partition(params):
    """The condition of `partitions_count` and `partition`, as a list of one or none."""
    count, number = params.get("partitions_count"), params.get("partition")
    if (count is None) != (number is None):
        raise Invalid('Both "partitions_count" and "partition" parameters must be provided')
    if not count or not number:
        return []
    count, number = _natural("partitions_count", count, 1), _natural("partition", number, 0)
    if not 2 <= count <= SHARDS:
        raise Invalid(f'"partitions_count" should be between 2 and {SHARDS}')
    if number >= count:
        raise Invalid(f'"partition" should be between 0 and {count - 1}')
    return [images.c.partition % count == number]


def _natural(name, value, least):
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < least:
        raise Invalid(f'Invalid "{name}" parameter')
    return number


def _has_any(column, values, *more):
    """Whether an image has one of `values` in `column` of a table beside it, in a row that meets the conditions `more`."""
    return sql.exists().where(column.table.c.image_id == images.c.id, column.in_(list(dict.fromkeys(values))), *more)


def _has_all(column, values, *more):
    """Whether it has all of them; one expression for any number, since databases limit how deep these may be."""
    values = list(dict.fromkeys(values))
    found = sql.select(sql.func.count(column.distinct())).where(column.table.c.image_id == images.c.id, column.in_(values), *more)
    return found.scalar_subquery() == len(values)


def _sources(name, value, store):
    listed = images.c.source.in_(list(dict.fromkeys(value.split(","))))
    return [~listed if name.endswith("__ne") else listed]


def _number(name, value, store):
    column, _, comparator = name.partition("__")
    return [COMPARE.get(comparator, operator.eq)(images.c[column], value)]


def _date(name, value, store):
    return [COMPARE[name.rpartition("__")[2]](images.c.date, value)]


def _whether(condition):
    return lambda name, value, store: [condition if value else ~condition]


def _members(column, known, kind):
    """A filter by what an image is in: tags or datasets. `known` gives those that there are."""

    def make(name, value, store):
        wanted = value.split(",")
        if missing := [f"'{one}'" for one in dict.fromkeys(wanted) if one not in known(store)]:
            raise Invalid(f"One or more {kind} do not exist: {','.join(missing)}")
        combined = (_has_all if name.endswith("all") else _has_any)(column, wanted)
        return [~combined if "__ne" in name else combined]

    return make


def _latents(name, value, store):
    wanted = value.split(",")
    for place, kind in enumerate(wanted):
        if wanted.index(kind) < place:
            raise Invalid(f"Duplicate latent type '{kind}'")
        if kind not in store.latent_types:
            raise Invalid(f"Latent type '{kind}' does not exist")
    return [_has_all(latents.c.latent_type, wanted) if name.startswith("has_") else ~_has_any(latents.c.latent_type, wanted)]


def _named(name, value, store):
    wanted = value.split(",")
    for one in [one for one in wanted if type_named(one, store) == "object"]:
        raise Invalid(f"Existance checks on object attributes are not supported. Attribute: {one}")
    has = (attributes.c.name, wanted, attributes.c.type < NULL)
    return [_has_all(*has) if name.startswith("has_") else ~_has_any(*has)]


def _duplicate_state(name, value, store):
    if value == "None":
        return [images.c.duplicate_state.is_(None)]
    try:
        state = int(value)
    except ValueError:
        state = value
    if state not in (1, 2):
        raise Invalid(f"Invalid value for duplicate_state: {state}")
    return [images.c.duplicate_state == state]


def _beside(table):
    return sql.exists().where(table.c.image_id == images.c.id)


_tags = _members(tags.c.tag, lambda store: store.tags, "tags")
_datasets = _members(datasets.c.dataset, lambda store: store.datasets, "datasets")

# In the order in which the hosted service looks at them. A name's form, and what makes conditions of it.
FILTERS = {
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
