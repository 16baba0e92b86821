"""`orca`: which commands there are, their options, and how an error is told."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.orca.command import MODE_OF
from zoo.orca.errors import OrcaError
from zoo.orca.optional import DISTRIBUTION
from zoo.orca.version import __version__

EXIT_CODES = "exit code: 0 if all is well, 1 if something is wrong, 2 if the command was mistyped"
# What a shell gives when a program ends by Ctrl-C.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code; an error of ours is one line, without a traceback.

    Example:
        >>> main(["doctor", "--quick"])  # doctest: +SKIP
        0
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know the marks
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "bench":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return _run(options, rest)
    except OrcaError as error:
        print(f"orca {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # as with `orca doctor | head`; what is still to be flushed must not raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(options: argparse.Namespace, rest: list[str]) -> int:
    if options.command == "doctor":
        from zoo.orca.command.doctor import doctor

        return doctor(quick=options.quick, as_json=options.json, seconds=options.timeout)
    if options.command == "demo":
        from zoo.orca.command.demo import run_demo

        return run_demo(options.engine, options.output)
    from zoo.orca.command.bench import bench

    return bench(rest)


def make_parser() -> argparse.ArgumentParser:
    """The options of every command."""
    parser = argparse.ArgumentParser(
        prog="orca",
        description="One Estimator for a laptop, Spark and Ray: look at what is installed, try it, and measure.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"{DISTRIBUTION} {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_doctor(commands)
    _add_demo(commands)
    # Its options are those of the benchmarks, which answer --help themselves.
    commands.add_parser("bench", help="measure us beside others (from a checkout)", add_help=False)
    return parser


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what is installed, what works, and what to type where it does not",
        description="Look at Python, the machine, Java, GPUs, every extra and every engine. Libraries are loaded and "
        "engines started in processes of their own. An extra that is not installed is not an error.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--quick", action="store_true", help="load no library and start no engine: versions alone")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.add_argument(
        "--timeout", type=float, default=120, metavar="SECONDS", help="for each thing that is tried (default: 120)"
    )


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        help="learn to read handwritten digits on 2 workers",
        description="Learn to read handwritten digits on 2 workers of the engine you name. It needs the extra demo "
        "(and spark or ray for those engines), and takes less than a minute.",
    )
    parser.add_argument("--engine", choices=MODE_OF, default="local", help="where to run (default: local)")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="FOLDER", help="for the plot (default: demo-output)"
    )
