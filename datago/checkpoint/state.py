"""The keys of a state dict, and the checks that a given state is complete and fits the config with which it is resumed."""

import json
from collections.abc import Mapping
from typing import Any

from datago import sources
from datago.checks import BOOL, MAX_INT, NATURAL, OBJECT, UNEVEN, integer, one_of, or_none, require
from datago.keys import keys_of
from datago.settings import Settings

VERSION = 1
TOP = keys_of(Settings)
# A dict has these keys, and may have those that end with a question mark; a list any number of such things.
STATE = {
    "source_type": one_of(sources.registered), "selection": OBJECT, "epoch": TOP["epoch"].check, "seed": or_none(TOP["seed"].check),
    "drawn": BOOL, "shuffled": BOOL, "uneven": UNEVEN, "rank": NATURAL, "world_size": integer(1), "worker": NATURAL, "workers": integer(1),
    "delivered": NATURAL, "spent": integer(-MAX_INT), "ended": BOOL, "source": or_none(OBJECT),
}  # fmt: skip


def checked(states: Any, config: Settings[Any]) -> list[dict[str, Any]]:
    """A list with copies of the states. Raises ValueError if one is damaged, if they are not all of one run, or if they do not fit the
    config."""
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


def selection(config: Settings[Any]) -> dict[str, Any]:
    """Which samples a source is asked for: keys of source_config, and their values."""
    return sources.source_type(config.source_type).selection(config)


def _check_fits(state: dict[str, Any], config: Settings[Any]) -> None:
    if state["source_type"] != config.source_type:
        raise ValueError(f"source_type: {state['source_type']!r} in the state, {config.source_type!r} in the config")
    then, now = state["selection"], selection(config)
    config_has = {"random_sampling": config.source_config.random_sampling, "uneven": config.uneven, "seed": config.seed}
    state_has = {"random_sampling": state["shuffled"], "uneven": state["uneven"], "seed": state["seed"]}
    planned = (state["source"] or {}).get("steps")
    planning = config.batch.planning if config.batch else None
    if state["source"] is not None:
        config_has["steps"], state_has["steps"] = ("planned" if given else "not planned" for given in (planning, planned))
    if planned and planning:
        config_has["remainder"], state_has["remainder"] = planning.remainder, planned["remainder"]
    config_has |= {key: now.get(key) for key in then | now}
    state_has |= {key: then.get(key) for key in then | now}
    for name, value in config_has.items():
        if state_has[name] != value and not (name == "seed" and None in (value, state_has[name])):
            raise ValueError(f"{name}: {state_has[name]!r} when the state was taken, {value!r} in the config")


def _check(state: dict[str, Any]) -> None:
    """Raises ValueError if a key is missing or has an invalid value."""
    _check_form("", state, STATE)
    source, kind = state["source"], sources.source_type(state["source_type"])
    for name, bound in (("rank", "world_size"), ("worker", "workers")):
        require(state[name] < state[bound], name, state[name], f"less than {bound}, which is {state[bound]}")
    if source is None:
        require(state["delivered"] == 0, "source", None, f"the source's state after {state['delivered']} delivered samples")
        return
    _check_form("source", source, kind.state)
    kind.check_state(state)


def _check_form(where: str, value: Any, form: Any) -> None:
    if isinstance(form, Mapping):
        require(isinstance(value, dict), where, value, "an object")
        for key, part in form.items():
            name = key.removesuffix("?")
            inside = f"{where}.{name}".lstrip(".")
            if name in value:
                _check_form(inside, value[name], part)
            elif name == key:
                raise ValueError(f"{inside}: missing")
    elif isinstance(form, list):
        require(isinstance(value, list), where, value, "a list")
        for number, item in enumerate(value):
            _check_form(f"{where}[{number}]", item, form[0])
    else:
        require(form.test(value), where, value, form.wanted)
