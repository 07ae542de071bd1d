"""Tests of a SourceType: what is said and counted before anything is read."""

import json

from datago import config as configuration
from datago.checks import REQUIRED
from datago.keys import keys_of
from datago.testing.given import Given, within_patience


class KindTests(Given):
    def test_defaults_are_allowed(self):
        for name, (check, default, doc, *_) in keys_of(self.kind.settings).items():
            assert default is None or default is REQUIRED or check.test(default), (
                f"{name}: its default is {default!r}, wanted {check.wanted}"
            )
            assert doc.strip(), f"{name}: nothing says what it means"

    def test_every_reason_to_pass_over_something_is_explained(self):
        assert all(reason.strip() and text.strip() for reason, text in self.kind.skips.items())

    def test_the_order_is_settled(self):
        for top in ({}, {"seed": 1} if self.one_order else {}):
            assert isinstance(configuration.parse(self.changed(**top)).source_config.random_sampling, bool)

    def test_it_is_described(self):
        lines = self.kind.describe(configuration.parse(self.config()))
        assert lines and all(isinstance(line, str) and line.strip() for line in lines)

    def test_what_it_does_not_read_is_not_recognised(self):
        assert self.kind.recognise("/nowhere/there is nothing") is None

    def test_the_survey_counts_what_comes(self):
        for world_size in (1, 2):
            config = configuration.parse(self.changed({"rank": 0, "world_size": world_size}))

            survey = self.kind.survey(config, range(world_size), world_size, self._settings, lambda text, count: None)
            assert survey.found["samples"] in (None, self.size) and len(survey.ranks) == world_size
            counts = [row["samples"] for row in survey.ranks]
            assert None in counts or sum(counts) == self.size
            json.dumps([survey.found, survey.ranks, survey.warnings])

    def test_it_can_be_enumerated(self):
        count = within_patience(lambda: sum(self.kind.enumerate(self._settings(0, 1))))
        assert count == self.size if self.kind.listed == "samples" else count > 0
