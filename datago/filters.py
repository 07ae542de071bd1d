"""What a database can be asked for: the config's key of each filter of the protocol, its check, and its parameter.

Keys that the Rust package has keep their names, where a bound is min_… or max_…. The others are the parameter's name, with one underscore
where that has two.
"""

from datetime import datetime

from datago.checks import TEXT, UNIQUENESS, YES_OR_NO, integer, number

COMPARATORS = ("gt", "gte", "lt", "lte")


def is_sendable(value):
    """Whether it is text that can stand in a url, and that the protocol takes."""
    return TEXT[0](value) and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def names(value):
    """The list with commas without blanks around its items, and without items that are empty: "a, b," is "a,b"."""
    return ",".join(filter(None, map(str.strip, value.split(","))))


def pairs(value):
    """The same of name:value pairs. Blanks around a value belong to it."""
    found = (pair.partition(":") for pair in value.split(",") if pair.strip())
    return ",".join(f"{name.strip()}{colon}{text}" for name, colon, text in found)


def is_list(value):
    return is_sendable(value) and (value == "" or names(value) != "")


def is_date(value):
    try:
        return is_sendable(value) and (value == "" or bool(datetime.fromisoformat(value.strip())))
    except ValueError:
        return False


def is_fraction(value):
    parts = value.split(":") if is_sendable(value) else []
    return value == "" or len(parts) == 2 and all(part.isascii() and part.isdigit() and int(part[:9]) for part in parts)


WORD = (lambda value: is_sendable(value) and value.strip() != "" or value == ""), "one name"
NAMES = is_list, "names with commas between them"
PAIRS = is_list, "name:value pairs with commas between them"
DATE = is_date, "an ISO 8601 date, or date and time"
FRACTION = is_fraction, 'width:height in whole numbers, such as "3:4"'
SIDES = {"short_edge": integer(0), "pixel_count": integer(0), "aspect_ratio": number(0)}
# In the order in which they are sent: (key, parameter, check, what stands for no filter)
TABLE = [
    ("sources", "sources", NAMES, None),  # always said: "" is all of them
    ("sources_ne", "sources__ne", NAMES, ""),
    ("tags", "tags", NAMES, ""),
    ("tags_all", "tags__all", NAMES, ""),
    ("tags_ne", "tags__ne", NAMES, ""),
    ("tags_ne_all", "tags__ne_all", NAMES, ""),
    ("has_attributes", "has_attributes", NAMES, ""),
    ("lacks_attributes", "lacks_attributes", NAMES, ""),
    ("has_masks", "has_masks", NAMES, ""),
    ("lacks_masks", "lacks_masks", NAMES, ""),
    ("has_latents", "has_latents", NAMES, ""),
    ("lacks_latents", "lacks_latents", NAMES, ""),
    ("attributes", "attributes", PAIRS, ""),
    ("min_short_edge", "short_edge__gte", integer(0, 2**31 - 1), 0),
    ("max_short_edge", "short_edge__lte", integer(0, 2**31 - 1), 0),
    ("min_pixel_count", "pixel_count__gte", integer(0, 2**31 - 1), 0),
    ("max_pixel_count", "pixel_count__lte", integer(0, 2**31 - 1), 0),
    ("tags_empty", "tags__empty", YES_OR_NO, ""),
    ("duplicate_state", "duplicate_state", UNIQUENESS, 0),
    ("source", "source", WORD, ""),
    ("source_empty", "source__empty", YES_OR_NO, ""),
    *((side, side, check, None) for side, check in SIDES.items()),
    *((f"{side}_{end}", f"{side}__{end}", integer(0), None) for side in ("short_edge", "pixel_count") for end in ("gt", "lt")),
    *((f"aspect_ratio_{end}", f"aspect_ratio__{end}", number(0), None) for end in COMPARATORS),
    ("aspect_ratio_fraction", "aspect_ratio_fraction", FRACTION, ""),
    ("aspect_ratio_fraction_empty", "aspect_ratio_fraction__empty", YES_OR_NO, ""),
    ("coca_embedding_empty", "coca_embedding__empty", YES_OR_NO, ""),
    *((f"date_{which}_{end}", f"date_{which}__{end}", DATE, "") for which in ("created", "updated") for end in COMPARATORS),
    ("datasets", "datasets", NAMES, ""),
    *((f"datasets_{end}", f"datasets__{end}", NAMES, "") for end in ("ne", "all", "ne_all")),
    ("datasets_empty", "datasets__empty", YES_OR_NO, ""),
]
KEYS = {key: (check, nothing) for key, _, check, nothing in TABLE if key != "sources"}


def settle(source):
    """Makes equal what means the same, in a checked source_config."""
    for key, _, check, _ in TABLE:
        value = getattr(source, key)
        if check in (NAMES, PAIRS):
            setattr(source, key, (names if check is NAMES else pairs)(value))
        elif check in (DATE, WORD):
            setattr(source, key, value.strip())
        elif check is YES_OR_NO and value != "":
            setattr(source, key, value in (True, "true"))
    source.return_latents = names(source.return_latents)


def chosen(source):
    """key -> value of the filters that are set."""
    return {key: getattr(source, key) for key, _, _, nothing in TABLE if getattr(source, key) != nothing}


def parameters(source):
    """The (name, value) pairs of the query that say which records are wanted."""
    found = chosen(source)
    state = {"none": "None", -1: ""}  # -1 asks for less of each record, not for fewer of them
    found = {key: state.get(value, value) if key == "duplicate_state" else value for key, value in found.items()}
    found = {key: str(value).lower() if isinstance(value, bool) else value for key, value in found.items()}
    return [(name, found[key]) for key, name, _, _ in TABLE if found.get(key, "") != ""]
