"""What a text in a request means: a number, a moment, yes or no, by the rules that the hosted service's forms have.

What it answers with status 400 raises Invalid, with the body: a list of texts about filters, an object about single parameters.
"""

import operator
import re
from datetime import UTC, datetime
from decimal import Decimal, DecimalException

COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
TRUE, FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class Invalid(Exception):
    """A request to be answered with status 400.

    Attributes:
        body: its JSON.
    """

    def __init__(self, body):
        self.body = [body] if isinstance(body, str) else body


def read(params, forms):
    """What is said by the parameters that `forms` knows (name to one of the functions below); not by empty ones.

    Raises:
        Invalid: names every parameter that is wrong.
    """
    found, wrong = {}, {}
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


def raw(value):
    """A text with the spaces around it."""
    if "\0" in value:
        raise ValueError("Null characters are not allowed.")
    return value


def text(value):
    return raw(value.strip())


def filled(value):
    """A text that is not made of spaces alone."""
    if not value.strip():
        raise ValueError("This field may not be blank.")
    return text(value)


def names(value):
    """A list that says what to show."""
    return filled(value).split(",")


def whole(least, most):
    """A whole number between two others, as 7 or 7.0."""

    def form(value):
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


def number(value):
    """A double."""
    try:
        exact = Decimal(value)
    except DecimalException:
        exact = Decimal("NaN")
    if not exact.is_finite():
        raise ValueError("Enter a number.")
    if exact > Decimal("1e50"):
        raise ValueError("Ensure this value is less than or equal to 1e+50.")
    return float(exact)


def moment(value):
    """A date and time, in UTC where it has no zone, as `store.images` writes them."""
    padded = re.sub(r"(?<![\d.,])(\d)(?!\d)", r"0\1", value.strip())
    try:
        found = datetime.fromisoformat(re.sub(r"\s+(?=[-+Z])", "", padded))
    except ValueError:
        raise ValueError("Enter a valid date/time.") from None
    try:
        found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError:  # the offset leads out of what has a date
        found = (datetime.min if found.year == 1 else datetime.max).replace(tzinfo=UTC)
    return found.isoformat(timespec="microseconds")


def boolean(value):
    """What a filter says; None, which counts as no filter, for what is neither."""
    return {"true": True, "True": True, "2": True, "false": False, "False": False, "3": False}.get(value)


def choice(value):
    """What a parameter about the answer's shape says."""
    if value.lower() not in TRUE + FALSE:
        raise ValueError("Must be a valid boolean.")
    return value.lower() in TRUE
