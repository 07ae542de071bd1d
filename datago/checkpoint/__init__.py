"""States: what a pass has handed out, as a dict that JSON can write, and the way back."""
