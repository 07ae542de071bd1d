"""Random draws from a database: how many hash prefixes to ask for, so that a page holds what a draw finds."""

FIRST_SHARE = 100 / 16**5  # of all images, that a draw finds unless told otherwise: little of any collection
FILL = 1 / 2  # share of a page that a draw should find
DEAF = 16  # draws in a row that were cut off, each of an eighth of the one before: the server does not do as it is told
LONG = 32  # records of a page that a draw, meant to fill half of it, does not fill by chance


class Draws:
    """A draw finds the images whose hashes begin with one of some random prefixes, and gives the first `page_size` of them, in the order
    of ids. So where that cuts it off, only the first ids come, and what it gave cannot be used: the next one has to find less.

    Args:
        page_size: the most that a draw gives.
        counted: how many images the server counts; None: draws have to tell.
    """

    def __init__(self, page_size: int, counted: int | None) -> None:
        self._page_size, self._counted = page_size, counted
        self._found = self._tried = 0.0  # by draws that were not cut off: images, and the sum of their shares
        self._short = self._cut_off = 0  # draws since one was cut off; cut off in a row
        self._share: float = FIRST_SHARE
        self._aim()

    @property
    def whole(self) -> bool:
        """Whether a draw finds all there is."""
        return self._share >= 1

    def parameters(self) -> list[tuple[str, int]]:
        """Those of images/random/: the fewest digits that give a choice of prefixes."""
        length, share = 1, self._share
        while not self.whole and share * 16**length < 16 and length < 64:
            length += 1
        return [("prefix_length", length), ("num_prefixes", max(1, min(300, round(share * 16**length))) if not self.whole else 300)]

    def note(self, found: int) -> bool:
        """What the draw gave. Returns whether it can be used."""
        full = found >= self._page_size and found != self._counted  # else it has everything
        by_chance = self._page_size < LONG and (self._counted is not None or self._short)
        if full and not by_chance and self._cut_off < DEAF:
            # It found that many at least. As a guess that counts little: the next one outweighs it.
            self._counted, self._short, self._cut_off = None, 0, self._cut_off + 1
            self._found, self._tried = 8 * FILL, self._share / self._page_size
            self._aim()
            return False
        self._found, self._tried = self._found + found, self._tried + self._share
        if not full:
            self._short, self._cut_off = self._short + 1, 0
            self._aim()
        return True

    def _aim(self) -> None:
        """Chooses the share of all images that the next draw finds."""
        if self._counted is not None:
            self._share = 1 if self._counted <= self._page_size else FILL * self._page_size / self._counted
        elif self._tried:
            self._share = min(1, FILL * self._page_size * self._tried / max(self._found, FILL))
