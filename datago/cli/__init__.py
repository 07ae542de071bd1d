"""The command line: `datago COMMAND` or `python -m datago COMMAND`, one file a command.

A command's module has a docstring (its help), SUMMARY (one line), `add_arguments(parser)` and `run(options)`, which
returns the exit status; a ValueError or OSError that it raises is one line on stderr and status 1. What a command needs beyond
the standard library it imports in `run`. `options.json`: what is printed on stdout is to be one line of JSON.
"""

import argparse
import importlib
import sys

COMMANDS = ("bench", "check", "serve")


class Version(argparse.Action):
    """Prints versions and ends, as argparse's own "version" does; they are looked up only then, and not wrapped into lines."""

    def __call__(self, parser, *_):
        from datago.versions import line

        print(line())
        parser.exit()


def main(arguments=None):
    """Runs the command that `arguments` (default: those of the process) name; the exit status."""
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
        return options.run(options)
    except (OSError, ValueError) as error:  # a SourceError is one of them
        print(f"{options.command}: {words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def words(error):
    """What an exception says, on one line, without numbers of errors."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename!r}"
    return " ".join(str(error).split())
