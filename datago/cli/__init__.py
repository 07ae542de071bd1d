"""The command line: `python -m datago COMMAND`, one file a command.

A command's module has a docstring (its help), SUMMARY (one line), `add_arguments(parser)` and `run(options)`, which
returns the exit status. What a command needs beyond the standard library it imports in `run`.
"""

import argparse
import importlib

COMMANDS = ("serve",)


def main(arguments=None):
    """Runs the command that `arguments` (default: those of the process) name; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m datago", description="datago's tools")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"datago.cli.{name}")
        command = commands.add_parser(
            name, help=module.SUMMARY, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    return options.run(options)
