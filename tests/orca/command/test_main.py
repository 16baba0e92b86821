"""`orca`: versions, help, mistypes, errors in one line, and the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zoo.orca.command.bench import bench
from zoo.orca.command.main import main
from zoo.orca.errors import OrcaError
from zoo.orca.version import __version__


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"orca-estimator {__version__}\n"


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert [word for word in ("doctor", "demo", "bench", "--version") if word not in said] == []


@pytest.mark.parametrize(
    "line", [[], ["docter"], ["doctor", "--qick"], ["demo", "--engine", "dask"], ["demo", "local"]]
)
def test_a_mistype_ends_with_2_and_says_what_there_is(line, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code == 2
    assert "usage: orca" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line(capsys, monkeypatch):
    def refuse(*_):
        raise OrcaError("expected this, got that. Type: something")

    monkeypatch.setattr("zoo.orca.command.bench.bench", refuse)
    assert main(["bench"]) == 1
    assert capsys.readouterr().err == "orca bench: expected this, got that. Type: something\n"


def test_without_a_checkout_bench_says_where_the_benchmarks_are(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"In a clone of it, type: make bench$"):
        bench([], tmp_path)
    with pytest.raises(OrcaError, match=r'type: make bench ARGS="csv --quick"$'):
        bench(["csv", "--quick"], tmp_path)


def test_bench_hands_its_words_to_the_benchmarks(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "zoo.orca", "bench", "--rounds", "1", "no-such-row"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "no benchmark is called 'no-such-row'; there are csv, " in done.stderr
