"""Install the built wheel and sdist, each into an empty environment, and try them.

``python scripts/smoke_dist.py [FOLDER]``; the folder is ``dist`` by default. Exit code 0 if all
holds, 1 if something does not, 2 if there is nothing to try.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IN_WHEEL = ("scalarintern/py.typed", "pytest_scalarintern.py", "scalarintern/tools/children/")

ALONE = """
import importlib.metadata, struct, sys
import scalarintern

assert scalarintern.__version__ == importlib.metadata.version("scalarintern")
assert "site-packages" in scalarintern.__file__, scalarintern.__file__
assert not scalarintern.is_installed() and "not imported" in scalarintern.install().reason

class Metres:
    def __init__(self, value):
        self.value = float(value)

registry = scalarintern.ScalarRegistry(lambda cls, value: struct.pack("<d", value))
length = registry.intern(Metres, 1.5)
assert registry.intern(Metres, 1.5) is length
assert registry.pointer(length) is registry.pointer(Metres(1.5))
"""
WITH_DSL = """
import gc
import scalarintern
from cutlass import Float32, Int32

assert scalarintern.install().installed, scalarintern.install().reason
assert Int32.intern(64) is Int32.intern(64)
assert Float32(0.125).__c_pointers__()[0] is Float32(0.125).__c_pointers__()[0]
assert not scalarintern.audit()
gc.disable()
gc.collect()
for _ in range(100):
    Int32(64).__c_pointers__()
assert gc.collect() == 0
assert scalarintern.uninstall() == [] and not hasattr(Int32, "intern")
"""


class Environment:
    """A new virtual environment, with one distribution and what that needs to run."""

    def __init__(self, folder: Path, distribution: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True)
        self.install(str(distribution))

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, away from the checkout and its packages."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SCALARINTERN"))}
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments], cwd=self.folder, env=kept,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def install(self, *requirements: str) -> None:
        """Install with pip."""
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        expect(self.run("python", *pip, *requirements), 0)


def expect(done: subprocess.CompletedProcess[str], code: int, said: str = "") -> None:
    """Fail unless a program ended with this code and said this, without a traceback."""
    output = done.stdout + done.stderr
    if done.returncode != code or said not in output or (code and "Traceback" in output):
        command = " ".join(done.args)[:300]
        sys.exit(f"{command}\nended with {done.returncode}, not {code} and {said!r}:\n{output}")


def try_commands(environment: Environment) -> None:
    """The commands give help, and name the extra where they need it."""
    for command in (("python", "-m", "scalarintern"), ("scalarintern",)):
        expect(environment.run(*command, "--help"), 0, "exit codes:")
        expect(environment.run(*command, "bench"), 2, "pip install 'scalarintern[cli]'")


def main(folder: Path) -> int:
    """Try both; say what was tried."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"{folder} must hold one wheel and one sdist: run make dist", file=sys.stderr)
        return 2
    names = zipfile.ZipFile(wheels[0]).namelist()
    for name in IN_WHEEL:
        if not any(found.startswith(name) for found in names):
            sys.exit(f"{wheels[0].name} has no {name}")
    if strange := [name for name in names if name.startswith("tests/") or name.endswith(".orig")]:
        sys.exit(f"{wheels[0].name} has {strange}")
    with tempfile.TemporaryDirectory(prefix="scalarintern-dist-") as place:
        for distribution in (wheels[0], sdists[0]):
            environment = Environment(Path(place, distribution.name), distribution.resolve())
            expect(environment.run("python", "-W", "error", "-c", ALONE), 0)
            try_commands(environment)
            print(f"{distribution.name}: import, registry and commands work alone", flush=True)
            if distribution is wheels[0]:
                environment.install("nvidia-cutlass-dsl", "pytest")
                expect(environment.run("python", "-c", WITH_DSL), 0)
                print(f"{distribution.name}: scalars of the DSL are interned", flush=True)
                expect(environment.run("python", "-m", "pytest", "--help"), 0, "scalarintern-stats")
                print(f"{distribution.name}: pytest finds the plugin", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
