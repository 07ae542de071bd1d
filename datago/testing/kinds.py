"""Tests of a SourceType: its description of a config, and what it counts without reading samples."""

import json

from datago import config as configuration
from datago.checks import REQUIRED
from datago.keys import keys_of
from datago.testing.given import Given, within_patience


class KindTests(Given):
    def test_defaults_are_allowed(self) -> None:
        for name, (check, default, doc, *_) in keys_of(self.kind.settings).items():
            assert default is None or default is REQUIRED or check.test(default), (
                f"{name}: its default is {default!r}, wanted {check.wanted}"
            )
            assert doc.strip(), f"{name}: nothing says what it means"

    def test_every_reason_to_pass_over_something_is_explained(self) -> None:
        assert all(reason.strip() and text.strip() for reason, text in self.kind.skips.items())

    def test_the_order_is_settled(self) -> None:
        for config in (self.config(), self.changed(seed=1) if self.one_order else self.config()):
            assert isinstance(configuration.parse(config).source_config.random_sampling, bool)

    def test_it_is_described(self) -> None:
        lines = self.kind.describe(configuration.parse(self.config()))
        assert lines and all(isinstance(line, str) and line.strip() for line in lines)

    def test_what_it_does_not_read_is_not_recognised(self) -> None:
        assert self.kind.recognise("/nowhere/there is nothing") is None

    def test_the_survey_counts_what_comes(self) -> None:
        for world_size in (1, 2):
            config = configuration.parse(self.changed({"rank": 0, "world_size": world_size}))

            survey = self.kind.survey(config, range(world_size), world_size, self._settings, lambda text, count: None)
            assert survey.found["samples"] in (None, self.size) and len(survey.ranks) == world_size
            counts = [row["samples"] for row in survey.ranks]
            assert None in counts or sum(counts) == self.size
            json.dumps([survey.found, survey.ranks, survey.warnings])

    def test_it_can_be_enumerated(self) -> None:
        count = within_patience(lambda: sum(self.kind.enumerate(self._settings(0, 1))))
        assert count == self.size if self.kind.listed == "samples" else count > 0
