"""The file source: images below a folder."""
