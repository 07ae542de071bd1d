"""Random draws from a database: chooses how many hash prefixes to ask for, so that all images that a draw finds fit into a page."""

FIRST_SHARE = 100 / 16**5  # the share of all images that the first draw finds if the server gives no count: few of any collection
FILL = 1 / 2  # the share of a page that a draw should fill
MAX_CUT_OFF = 16  # consecutive draws cut off, each an eighth as large as the one before; then the server must ignore the parameters
LONG = 32  # If a page has at least this many records, a draw that should fill half of it does not fill all of it by chance.


class Draws:
    """A draw finds the images whose hashes begin with one of several random prefixes, and returns the first `page_size` of them in the
    order of their ids. If a draw finds more than that, images with late ids are missing, so that its result would not be random: it is
    not used, and the next draw has to find fewer images.

    Args:
        page_size: the most images that a draw returns.
        counted: how many images the server counts; None if that has to be estimated from the draws.
    """

    def __init__(self, page_size: int, counted: int | None) -> None:
        self._page_size, self._counted = page_size, counted
        self._found = self._tried = 0.0  # of draws that were not cut off: the images found, and the sum of the shares asked for
        self._short = self._cut_off = 0  # draws since one was cut off; consecutive draws that were cut off
        self._share: float = FIRST_SHARE
        self._aim()

    @property
    def whole(self) -> bool:
        """Whether a draw finds all images."""
        return self._share >= 1

    def parameters(self) -> list[tuple[str, int]]:
        """The query parameters for images/random/, with the shortest prefixes that still leave a choice."""
        length, share = 1, self._share
        while not self.whole and share * 16**length < 16 and length < 64:
            length += 1
        return [("prefix_length", length), ("num_prefixes", max(1, min(300, round(share * 16**length))) if not self.whole else 300)]

    def note(self, found: int) -> bool:
        """Records that a draw returned `found` images. Returns whether they can be used."""
        full = found >= self._page_size and found != self._counted  # If they are equal, the draw has all images.
        by_chance = self._page_size < LONG and (self._counted is not None or self._short)
        if full and not by_chance and self._cut_off < MAX_CUT_OFF:
            # The draw found at least a page. This estimate has little weight, so that the next draw outweighs it.
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
        """Chooses the share of all images that the next draw should find."""
        if self._counted is not None:
            self._share = 1 if self._counted <= self._page_size else FILL * self._page_size / self._counted
        elif self._tried:
            self._share = min(1, FILL * self._page_size * self._tried / max(self._found, FILL))
