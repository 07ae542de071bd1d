"""The command line: `datago COMMAND` or `python -m datago COMMAND`, one file a command.

A command's module has a docstring (its help), SUMMARY (one line), `add_arguments(parser)` and `run(options)`, which
returns the exit status. A ValueError or OSError that it raises becomes one line on stderr and status 1. What a command needs beyond
the standard library it imports in `run`. With `options.json` it prints one line of JSON on stdout.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = ("bench", "check", "serve")


class Version(argparse.Action):
    """Prints versions and ends. argparse's own action "version" would look them up in every run, and wrap the lines."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from datago.versions import libraries, line

        print(line(), libraries(), sep="\n")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that `arguments` (default: those of the process) name, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="datago", description="datago's tools")
    parser.add_argument("--version", action=Version, nargs=0, help="print the versions of datago and of what it works with")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"datago.cli.{name}")
        command = commands.add_parser(
            name, help=module.SUMMARY, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.add_argument("--json", action="store_true", help="print one line of JSON")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        return status
    except (OSError, ValueError) as error:  # a SourceError is one of them
        print(f"{options.command}: {words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def words(error: Exception) -> str:
    """The message of an exception on one line, without error numbers."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename!r}"
    return " ".join(str(error).split())
