"""The command line as a whole: help, wrong usage, missing packages, files written whole."""

from __future__ import annotations

import json
import os

import pytest
from cli_support import ROOT, command, needs, needs_dsl, python, without

from scalarintern.cli import terminal
from scalarintern.cli.main import main
from scalarintern.tools._child import ToolError


@pytest.mark.parametrize("name", ["repro", "doctor", "run", "bench"])
def test_every_command_explains_itself(name, capsys):
    """``--help`` of each command says what it does and ends with 0."""
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])

    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: scalarintern {name}" in said
    assert len(said.splitlines()) > 8


def test_the_help_names_every_command(capsys):
    """``scalarintern --help`` lists the commands and the exit codes."""
    with pytest.raises(SystemExit):
        main(["--help"])

    said = capsys.readouterr().out
    assert all(name in said for name in ("repro", "doctor", "run", "bench", "exit codes"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["repro", "--steps", "many"], "'many' is not a whole number of at least 1"),
        (["repro", "--steps", "0"], "'0' is not a whole number of at least 1"),
        (["repro", "--plot", "growth.gif"], "must end in one of .png, .svg, .pdf"),
        (["repro", "--plot", "/no/such/folder/growth.png"], "does not exist"),
        (["bench", "--rounds", "-1"], "'-1' is not a whole number"),
        (["run", "--watch", "never", "x.py"], "'never' is not a number of seconds"),
    ],
)
def test_wrong_usage_is_a_sentence(arguments, message, capsys):
    """Wrong usage ends with 2 and one sentence on standard error."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 2


@needs("rich")  # each is hidden in turn, so the others must be there
@needs("pyperf")
@needs("matplotlib")
@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("rich", ["repro"]),
        ("rich", ["doctor"]),
        ("rich", ["bench"]),
        ("pyperf", ["bench", "--json"]),
        ("matplotlib", ["repro", "--plot", "growth.png"]),
        ("matplotlib", ["bench", "--plot", "speed.png"]),
    ],
)
def test_a_missing_extra_says_what_to_install(missing, arguments, tmp_path):
    """Without a package of the extra: its name, the command that installs it, 2, no file."""
    done = without([missing], *arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert f"needs {missing}" in done.stderr
    assert "pip install 'scalarintern[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs("pyperf")
@pytest.mark.parametrize("name", ["repro", "doctor", "bench"])
def test_without_the_dsl_the_message_says_what_to_install(name, tmp_path):
    """Where the DSL is not installed: the command that installs it, and 2."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'cutlass':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden)\n"
    )

    done = command(name, "--json", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))

    assert done.returncode == 2, done.stderr
    assert "pip install 'scalarintern[dsl]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_loads_none_of_this():
    """``import scalarintern`` loads no tool, no rich, no pympler, no plotting library."""
    done = python("-c", "import scalarintern, sys; print(*sys.modules)")

    loaded = set(done.stdout.split())
    assert "scalarintern" in loaded
    unwanted = {"rich", "psutil", "matplotlib", "pyperf", "pympler", "prometheus_client"}
    assert not unwanted & loaded
    tools = ("scalarintern.cli", "scalarintern.tools", "scalarintern.testing", "argparse")
    assert not [name for name in loaded if name.startswith(tools)]


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """A failure while writing leaves the old file as it was, and nothing beside it."""
    target = tmp_path / "growth.png"
    target.write_text("old")

    with pytest.raises(RuntimeError), terminal.written_whole(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError

    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["growth.png"]


def test_a_file_that_cannot_be_written_is_a_tool_error(tmp_path):
    """A folder that is not there is said in a sentence."""
    written = terminal.written_whole(tmp_path / "none" / "growth.png")

    with pytest.raises(ToolError, match="could not be written"), written:
        pass


@needs_dsl
def test_the_json_of_doctor_is_json():
    """``doctor --json`` prints one JSON object, with nothing but the core installed."""
    done = without(["rich", "psutil", "matplotlib", "pyperf"], "doctor", "--json")

    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["facts"]["stock"]["release"]


def test_a_reader_that_leaves_is_no_traceback(tmp_path):
    """Output into a pipe that nobody reads any more ends quietly."""
    code = (
        "import os, sys; from scalarintern.cli import main; "
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
        "main.build_parser().parse_args(['doctor']); "
        "from scalarintern.cli import doctor, terminal; "
        "doctor.run = lambda options: terminal.print_json({'x': 'y' * 100_000}) or 0; "
        "sys.exit(main.main(['doctor']))"
    )

    done = python("-c", code)

    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def test_the_module_and_the_command_are_the_same():
    """``python -m scalarintern`` is the command."""
    done = command("--help")

    assert done.returncode == 0
    assert done.stdout.startswith("usage: scalarintern ")
