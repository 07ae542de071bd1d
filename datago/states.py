"""What a state dict holds, whether a given one holds it, and whether it is of the config that it shall go on with."""

import json

from datago import filters
from datago.checks import BOOL, MOST, OBJECT, choice, integer
from datago.config import TOP
from datago.sources.ledger import BITS, NUMBERS

VERSION = 1


def ranges(most):
    """A set of numbers below `most`, as Progress.ranges gives it."""

    def check(value):
        ends = [0]
        for pair in value if isinstance(value, list) else [None]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(map(integer(0, most)[0], pair)):
                return False
            ends += pair
        return ends == sorted(ends) and all(begin < end for begin, end in value)

    return check, "a list of [begin, end], in order"


def list_of(length, *checks):
    def check(value):
        return isinstance(value, list) and len(value) == length and all(one[0](item) for one, item in zip(checks, value, strict=True))

    return check, "[" + ", ".join(wanted for _, wanted in checks) + "]"


def or_none(check):
    return (lambda value: value is None or check[0](value)), f"{check[1]}, or null"


def _is_identity(value):
    try:
        return isinstance(value, str) and value.encode() != b""
    except UnicodeEncodeError:
        return False


NATURAL, CRC, UNEVEN = integer(0), integer(0, 2**32 - 1), TOP["uneven"][0]
IDENTITY = _is_identity, "an id"
# A dict has these keys, a list any number of such things; a pair is a check and what it wants.
SOURCE = {
    "file": {
        "done": ranges(MOST),
        "listing": list_of(3, NATURAL, CRC, BOOL),
        "phases": [{"world_size": integer(1), "uneven": UNEVEN, "done": [ranges(MOST)]}],
    },
    "webdataset": {
        "shards": NATURAL,
        "listing": CRC,
        "done": ranges(2 ** (63 - BITS) - 1),
        "partial": [list_of(3, integer(0, 2 ** (63 - BITS) - 1), integer(0, NUMBERS), integer(0, NUMBERS))],
        "last": integer(-1),
    },
    "db": {"last": or_none(IDENTITY), "after": or_none(IDENTITY), "missing": [IDENTITY]},
}
STATE = {
    "source_type": choice(*SOURCE), "selection": OBJECT, "epoch": TOP["epoch"][0], "seed": or_none(TOP["seed"][0]), "drawn": BOOL,
    "shuffled": BOOL, "uneven": UNEVEN, "rank": NATURAL, "world_size": integer(1), "worker": NATURAL, "workers": integer(1),
    "delivered": NATURAL, "spent": integer(-MOST), "ended": BOOL, "source": or_none(OBJECT),
}  # fmt: skip


def checked(states, config):
    """The states, a list, copied and found to be whole, of one run, and of the config's. Raises ValueError."""
    given = states if isinstance(states, list | tuple) else [states]
    if not given:
        raise ValueError("state: got an empty list")
    found = []
    for number, state in enumerate(given):
        what = "state" if given is not states else f"state: number {number} of the list"
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise ValueError(f"{what}: wanted what state_dict gave (version {VERSION}), got {state!r:.80}")
        try:
            found.append(json.loads(json.dumps(state)))
            _check(found[-1])
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{what}: damaged: {error}") from None
    first = found[0]
    for name in ("source_type", "selection", "epoch", "world_size", "workers", "shuffled", "drawn", "uneven"):
        if any(state[name] != first[name] for state in found):
            raise ValueError(f"state: the states are not of one run: they differ in {name}")
    _check_fits(first, config)
    return found


def selection(config):
    """Which records a database is asked for: the keys of source_config that say it, and are not left at their default. A walk over
    other records cannot be told from this one by what comes; what there is of files and shards, their listings say."""
    return filters.chosen(config.source_config) if config.source_type == "db" else {}


def _check_fits(state, config):
    if state["source_type"] != config.source_type:
        raise ValueError(f"source_type: the state is of {state['source_type']!r}, the config of {config.source_type!r}")
    then, now = state["selection"], selection(config)
    config_has = {"random_sampling": config.source_config.random_sampling, "uneven": config.uneven, "seed": config.seed}
    state_has = {"random_sampling": state["shuffled"], "uneven": state["uneven"], "seed": state["seed"]}
    config_has |= {key: now.get(key) for key in then | now}
    state_has |= {key: then.get(key) for key in then | now}
    for name, value in config_has.items():
        if state_has[name] != value and not (name == "seed" and None in (value, state_has[name])):
            raise ValueError(f"{name}: {state_has[name]!r} when the state was taken, {value!r} in the config")


def _check(state):
    """Raises ValueError where a key is missing, or its value is none that it can have."""
    _check_form("", state, STATE)
    source, kind = state["source"], state["source_type"]
    for name, bound in (("rank", "world_size"), ("worker", "workers")):
        _require(state[name] < state[bound], name, state[name], f"less than {bound}, which is {state[bound]}")
    if source is None:
        _require(state["delivered"] == 0, "source", None, f"where those {state['delivered']} delivered samples were")
        return
    _check_form("source", source, SOURCE[kind])
    if kind != "db":  # where a server draws, there is no order and no seed: the source says so
        _require(state["seed"] is not None or not state["shuffled"], "seed", None, "that of the order")
    if kind == "file":
        for phase in source["phases"]:
            streams = len(phase["done"])
            _require(streams and streams % phase["world_size"] == 0, "source.phases", phase, "as many streams on each rank")
    elif kind == "db" and source["last"] is None:
        _require(source["after"] is None and not source["missing"], "source.last", None, "an id, as there are some before it")


def _check_form(where, value, form):
    if isinstance(form, dict):
        _require(isinstance(value, dict), where, value, "an object")
        for key, part in form.items():
            inside = f"{where}.{key}".lstrip(".")
            if key not in value:
                raise ValueError(f"{inside}: missing")
            _check_form(inside, value[key], part)
    elif isinstance(form, list):
        _require(isinstance(value, list), where, value, "a list")
        for number, item in enumerate(value):
            _check_form(f"{where}[{number}]", item, form[0])
    else:
        _require(form[0](value), where, value, form[1])


def _require(good, where, value, wanted):
    if not good:
        raise ValueError(f"{where}: got {value!r:.80}, wanted {wanted}")
