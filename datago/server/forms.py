"""Parses the text of request parameters into numbers, dates and booleans, by the rules of the hosted service's forms.

A request that the hosted service answers with status 400 raises Invalid. Its body is a list of messages about filters, or an object
with the messages about each parameter.
"""

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any

Form = Callable[[str], Any]
COMPARE: dict[str, Callable[[Any, Any], Any]] = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
TRUE, FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class Invalid(Exception):
    """A request that is answered with status 400.

    Attributes:
        body: the JSON of the answer.
    """

    def __init__(self, body: str | dict[str, list[str]]) -> None:
        self.body: list[str] | dict[str, list[str]] = [body] if isinstance(body, str) else body


def read(params: Mapping[str, str], forms: Mapping[str, Form]) -> dict[str, Any]:
    """The parsed values of the parameters in `forms`, which maps a name to one of the functions below. Empty parameters are left out.

    Raises:
        Invalid: names every parameter that is invalid.
    """
    found: dict[str, Any] = {}
    wrong: dict[str, list[str]] = {}
    for name, form in forms.items():
        if params.get(name, "") != "":
            try:
                value = form(params[name])
            except ValueError as error:
                wrong[name] = [str(error)]
            else:
                if value is not None and value != "":
                    found[name] = value
    if wrong:
        raise Invalid(wrong)
    return found


def raw(value: str) -> str:
    """A text. Leading and trailing spaces are kept."""
    if "\0" in value:
        raise ValueError("Null characters are not allowed.")
    return value


def text(value: str) -> str:
    return raw(value.strip())


def filled(value: str) -> str:
    """A text that does not consist of spaces alone."""
    if not value.strip():
        raise ValueError("This field may not be blank.")
    return text(value)


def names(value: str) -> list[str]:
    """A comma-separated list of names."""
    return filled(value).split(",")


def whole(least: int, most: int) -> Form:
    """The form of an integer from `least` to `most`, which may be written as 7 or 7.0."""

    def form(value: str) -> int:
        if len(value) > 1000:
            raise ValueError("String value too large.")
        try:
            number = int(re.sub(r"\.0*\s*$", "", value))
        except ValueError:
            raise ValueError("A valid integer is required.") from None
        if number > most:
            raise ValueError(f"Ensure this value is less than or equal to {most}.")
        if number < least:
            raise ValueError(f"Ensure this value is greater than or equal to {least}.")
        return number

    return form


def number(value: str) -> float:
    """A finite number."""
    try:
        exact = Decimal(value)
    except DecimalException:
        exact = Decimal("NaN")
    if not exact.is_finite():
        raise ValueError("Enter a number.")
    if exact > Decimal("1e50"):
        raise ValueError("Ensure this value is less than or equal to 1e+50.")
    return float(exact)


def moment(value: str) -> str:
    """A date and time in the format of the column `date`. A time without a zone is in UTC."""
    padded = re.sub(r"(?<![\d.,])(\d)(?!\d)", r"0\1", value.strip())
    try:
        found = datetime.fromisoformat(re.sub(r"\s+(?=[-+Z])", "", padded))
    except ValueError:
        raise ValueError("Enter a valid date/time.") from None
    try:
        found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError:  # in UTC its year is below 1 or above 9999
        found = (datetime.min if found.year == 1 else datetime.max).replace(tzinfo=UTC)
    return found.isoformat(timespec="microseconds")


def boolean(value: str) -> bool | None:
    """A filter's boolean. Any other text gives None, which means that there is no such filter."""
    return {"true": True, "True": True, "2": True, "false": False, "False": False, "3": False}.get(value)


def choice(value: str) -> bool:
    """The boolean of a parameter that says which fields are returned."""
    if value.lower() not in TRUE + FALSE:
        raise ValueError("Must be a valid boolean.")
    return value.lower() in TRUE
