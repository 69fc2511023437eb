"""``scalarintern run``: what plain Python does, with the adapter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cli_support import ROOT, command, environment, needs_dsl, python

PROGRAM = """\
import os, sys
print(sys.argv, sys.path, __name__, __file__, sys.flags, __spec__ and __spec__.name)
print("from stdin:", sys.stdin.read())
{}
"""


def _write(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a message')", 1),
        ("raise SystemExit(None)", 0),
        ("1 / 0", 1),
        ("os.kill(os.getpid(), 15)", -15),
        ("os._exit(77)", 77),
        ("raise KeyboardInterrupt", -2),
    ],
)
def test_it_is_as_without(tmp_path, ending, status):
    """Arguments, path, flags, stdin, output, traceback and status are those of plain Python."""
    _write(tmp_path, "program.py", PROGRAM.format(ending))
    arguments = ["program.py", "--stats", "-m", "x y", "--"]

    plain = python(*arguments, cwd=tmp_path, stdin="hello")
    ours = command("run", *arguments, cwd=tmp_path, stdin="hello")

    assert plain.returncode == status
    assert (ours.returncode, ours.stdout, ours.stderr) == (status, plain.stdout, plain.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "package", "one", "--two"],
        ["-m", "package.module"],
        ["-mpackage"],
        ["-c", "import sys; print(sys.argv, sys.path)", "-x"],
        ["-"],
        ["package", "as a folder"],
        ["missing.py"],
        ["-m", "missing"],
    ],
)
def test_every_way_to_name_a_program(tmp_path, arguments):
    """``-m``, ``-c``, standard input, a folder, and what is not there: as plain Python."""
    body = PROGRAM.format("")
    _write(tmp_path, "package/__init__.py", "")
    _write(tmp_path, "package/__main__.py", body)
    _write(tmp_path, "package/module.py", body)
    stdin = "print('read from stdin')"

    plain = python(*arguments, cwd=tmp_path, stdin=stdin)
    ours = command("run", *arguments, cwd=tmp_path, stdin=stdin)

    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.stderr == plain.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_go_to_the_program(tmp_path, number):
    """A signal sent to the command arrives in the program, which is that very process."""
    path = _write(
        tmp_path,
        "wait.py",
        """\
        import os, signal, sys, time
        def on(number, frame):
            print("got", number, flush=True)
            sys.exit(40 + number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, on)
        print(os.getpid(), flush=True)
        time.sleep(60)
        """,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "scalarintern", "run", str(path)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(number)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()

    assert said == f"got {int(number)}\n"
    assert process.returncode == 40 + number


def test_interpreter_options_are_kept(tmp_path):
    """``python -O -X dev -W error -m scalarintern run`` runs the program with them."""
    code = "import sys; print(sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions)"

    plain = python("-O", "-X", "dev", "-W", "error", "-c", code)
    ours = python("-O", "-X", "dev", "-W", "error", "-m", "scalarintern", "run", "-c", code)

    assert ours.stdout == plain.stdout


APPLIED = "import scalarintern, cutlass; print(scalarintern.is_installed())"


@needs_dsl
def test_the_program_and_its_children_have_the_adapter(tmp_path):
    """The program, a subprocess, a spawned and a forked worker: the adapter is on in each."""
    path = _write(
        tmp_path,
        "parent.py",
        """\
        import multiprocessing, subprocess, sys

        def applied(_=None):
            import cutlass
            return sys.modules["scalarintern"].is_installed()

        if __name__ == "__main__":
            assert "scalarintern" in sys.modules
            code = "import sys, cutlass; print(sys.modules['scalarintern'].is_installed())"
            print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
                  .stdout.strip())
            for method in ("spawn", "fork", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(applied, [1])[0])
            print(applied())
        """,
    )

    done = command("run", str(path), cwd=tmp_path)

    assert done.stdout.split() == ["True"] * 5, done.stderr


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_where_it_cannot_work_it_says_so(option):
    """Under -I, -E or -S the environment is not read: a sentence, and 2."""
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), *_packages()]!r}; "
        "from scalarintern.cli.main import main; sys.exit(main(['run', 'x.py']))"
    )

    done = python(option, "-c", code)

    assert done.returncode == 2, done.stderr
    assert "leave it off" in done.stderr


def _packages():
    import attrs
    import wrapt

    return {str(Path(module.__file__).parents[1]) for module in (attrs, wrapt)}


def test_a_hidden_sitecustomize_runs_too(tmp_path):
    """The sitecustomize that ours hides runs first, under its own name, once."""
    _write(tmp_path, "site/sitecustomize.py", "print('theirs', __name__, __file__)\nMARK = 1\n")
    code = "import sys, sitecustomize; print(sitecustomize.MARK, 'scalarintern' in sys.modules)"
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])

    done = command("run", "-c", code, PYTHONPATH=path)

    theirs = tmp_path / "site" / "sitecustomize.py"
    # The command is a Python process, too, with that sitecustomize and without ours.
    assert done.stdout.splitlines()[-2:] == [f"theirs sitecustomize {theirs}", "1 True"]
    assert done.stderr == ""


def test_a_broken_sitecustomize_is_reported_as_ever(tmp_path):
    """An error in the hidden sitecustomize gives Python's own message, and the adapter is on."""
    _write(tmp_path, "site/sitecustomize.py", "1 / 0\n")
    code = "import sys; print('scalarintern' in sys.modules)"
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])

    plain = python("-c", "pass", PYTHONPATH=path)
    ours = command("run", "-c", code, PYTHONPATH=path)

    assert ours.stdout == "True\n"
    assert ours.stderr == plain.stderr * 2


def test_a_child_without_the_dependencies_runs_as_ever(tmp_path):
    """Where attrs and wrapt are missing the child runs on stock and says nothing."""
    blocker = "import sys; sys.modules.update(wrapt=None, attrs=None, attr=None)\n"
    _write(tmp_path, "site/sitecustomize.py", "import os\nif 'BLOCK' in os.environ: " + blocker)
    code = (
        "import subprocess, sys, os; "
        "done = subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True, "
        "env={**os.environ, 'BLOCK': '1'}); print(done)"
    )
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])

    done = command("run", "-c", code, PYTHONPATH=path)

    assert "returncode=0, stdout='5\\n', stderr=''" in done.stdout


def test_the_main_process_says_why_it_is_not_applied(tmp_path):
    """Where it cannot be applied in the program itself, one line says why, and it runs."""
    _write(
        tmp_path,
        "site/sitecustomize.py",
        "import os, sys\n"
        "if 'SCALARINTERN_RUN' in os.environ: sys.modules.update(attr=None, attrs=None)\n",
    )
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])

    done = command("run", "-c", "print(5)", PYTHONPATH=path)

    assert done.stdout == "5\n"
    assert done.stderr.startswith("scalarintern run: not applied: ModuleNotFoundError")
    assert len(done.stderr.splitlines()) == 1


@needs_dsl
def test_stats_at_the_end():
    """``--stats`` prints one line to standard error when the program ends."""
    code = "from cutlass.base_dsl.typing import Int32; Int32(64).__c_pointers__()"

    done = command("run", "--stats", "-c", code)

    assert done.returncode == 0
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("scalarintern[") and "1 misses" in line and "RSS " in line


@needs_dsl
def test_watching_into_a_file(tmp_path):
    """``--watch`` adds a line of JSON every so often, of the program and of its children."""
    code = (
        "import subprocess, sys, time, cutlass; time.sleep(0.5); "
        "subprocess.run([sys.executable, '-c', 'import cutlass, time; time.sleep(0.5)']); "
        "subprocess.run([sys.executable, '-c', 'pass'])"
    )

    done = command("run", "--watch", "0.1", "--watch-file", "w.jsonl", "-c", code, cwd=tmp_path)

    assert done.stderr == ""
    lines = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
    assert len({line["pid"] for line in lines}) == 2
    assert len(lines) > 8
    assert all(line["rss_bytes"] > 1e6 and "misses" in line for line in lines)
    assert lines[-1]["installed"] == 1


def test_watching_on_standard_error():
    """Without a file each reading is a sentence on standard error."""
    done = command("run", "--watch=0.1", "-c", "import time; time.sleep(0.35)")

    assert len(done.stderr.splitlines()) >= 3
    assert all(line.startswith("scalarintern[") for line in done.stderr.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "give the program: a script, -m MODULE or -c CODE"),
        (["run", "--stats"], "give the program"),
        (["run", "-m"], "-m needs an argument"),
        (["run", "--stat", "--frob", "x.py"], "unrecognized arguments: --frob"),
    ],
)
def test_wrong_usage(arguments, message):
    """No program, or an option that there is not: a sentence, and 2."""
    done = command(*arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
