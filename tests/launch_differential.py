"""Calls generated functions and writes down what came of it, for comparison.

Run as a script in two processes, once on the stock release and once with the
adapter, with the same seed: signatures, values and order of calls are the same,
and so must be everything in the two reports, but how many calls took the
release's way.

    python launch_differential.py --mode stock|fast --seed N --count N --out FILE
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import enum
import importlib
import importlib.util
import json
import random
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = """\
from typing import NamedTuple
import dataclasses
import cutlass
import cutlass.cute as cute
from cutlass import *
import cuda.bindings.driver as cuda
from launch_differential_types import Argument, Record, Row, put

"""

TYPES = """\
import dataclasses
from typing import NamedTuple
import cutlass.cute as cute
from cutlass import Float32, Int32

#: What user-defined arguments did, in order.
LOG = []


def put(out, slot, cls, value):
    cute.make_tensor(cute.recast_ptr(out + 16 * slot, dtype=cls), cute.make_layout(1))[0] = value


class Argument:
    \"\"\"A user's JitArgument of some scalars; may launch something when asked.\"\"\"

    def __init__(self, *fields, name="", within=None):
        self.fields = fields
        self.name = name
        self.within = within

    def __c_pointers__(self):
        LOG.append(f"pointers of {self.name}")
        if self.within is not None:
            self.within()
        return [p for field in self.fields for p in field.__c_pointers__()]

    def __get_mlir_types__(self):
        return [t for field in self.fields for t in field.__get_mlir_types__()]

    def __new_from_mlir_values__(self, values):
        fields = zip(self.fields, values)
        return Argument(*[field.__new_from_mlir_values__([v]) for field, v in fields])

    def __extract_mlir_values__(self):
        return [v for field in self.fields for v in field.__extract_mlir_values__()]


class Row(NamedTuple):
    x: Int32
    y: Float32


@dataclasses.dataclass
class Record:
    x: Int32
    y: Float32
"""

INTEGERS = {
    "Boolean": (0, 1),
    "Int8": (-(2**7), 2**7 - 1),
    "Int16": (-(2**15), 2**15 - 1),
    "Int32": (-(2**31), 2**31 - 1),
    "Int64": (-(2**63), 2**63 - 1),
    "Uint8": (0, 2**8 - 1),
    "Uint16": (0, 2**16 - 1),
    "Uint32": (0, 2**32 - 1),
    "Uint64": (0, 2**64 - 1),
}
FLOATS = ("Float16", "BFloat16", "Float32", "TFloat32", "Float64")
PATTERN = 0xCC


class Small(int):
    """An int that is not exactly one."""


class Choice(enum.IntEnum):
    """Likewise, and an enumeration."""

    ONE = 1


@dataclasses.dataclass
class Parameter:
    """A parameter of a generated function.

    Attributes:
        kind: What it takes, see ``_values``.
        cls: Class that it is annotated with, or becomes without annotation.
        annotation: Source of the annotation, or empty.
        default: Source of the default, or empty.
        keyword_only: Whether it is.
    """

    name: str
    kind: str
    cls: str = ""
    annotation: str = ""
    default: str = ""
    keyword_only: bool = False


class Generator:
    """Makes signatures, and calls of them, out of a seed."""

    def __init__(self, seed: int, release: str) -> None:
        self.random = random.Random(seed)
        self.release = tuple(int(part) for part in release.split("."))
        self.kinds = ["number"] * 8 + ["plain"] * 3 + ["constexpr", "tuple", "argument"]
        self.kinds += ["pointer", "stream", "within"]
        self.floats = list(FLOATS)
        if self.release >= (4, 5):
            self.kinds += ["row", "record"]
        else:
            self.floats.remove("BFloat16")

    def signature(self) -> list[Parameter]:
        """Return 1 to 24 parameters, besides the one for results."""
        pick = self.random
        count = min(pick.choice([1, 2, 3, 4, 6, 8, 12, 24]), 24)
        parameters = [self._parameter(f"a{i}") for i in range(count)]
        if pick.random() < 0.4:
            # Defaults from some place on, as Python wants them.
            start = pick.randrange(count + 1)
            parameters[start:] = [p for p in parameters[start:] if p.kind in ("number", "plain")]
            for parameter in parameters[start:]:
                parameter.default = self._literal(parameter.cls)
        if pick.random() < 0.35:
            for i in range(pick.choice([1, 2])):
                parameter = Parameter(f"k{i}", "number", self._class())
                parameter.annotation = parameter.cls
                parameter.keyword_only = True
                if pick.random() < 0.6:
                    parameter.default = self._literal(parameter.cls)
                parameters.append(parameter)
        return parameters

    def _class(self) -> str:
        return self.random.choice([*INTEGERS, *self.floats, "Int32", "Float32"])

    def _parameter(self, name: str) -> Parameter:
        kind = self.random.choice(self.kinds)
        if kind == "number":
            cls = self._class()
            return Parameter(name, kind, cls, cls)
        if kind == "plain":
            return Parameter(name, kind, self.random.choice(["Int32", "Float32", "Boolean"]))
        if kind == "constexpr":
            return Parameter(name, kind, "", "Constexpr")
        if kind == "pointer":
            return Parameter(name, kind, "", "cute.Pointer")
        if kind == "stream":
            return Parameter(name, kind, "", "cuda.CUstream")
        if kind == "row":
            return Parameter(name, kind, "", "Row")
        if kind == "record":
            return Parameter(name, kind, "", "Record")
        return Parameter(name, kind)

    def _literal(self, cls: str) -> str:
        return repr(self.exact(cls))

    def exact(self, cls: str) -> Any:
        """Return a Python number that the class takes without a word."""
        pick = self.random
        if cls == "Boolean":
            return pick.choice([True, False])
        if cls in INTEGERS:
            low, high = INTEGERS[cls]
            return pick.choice([low, high, 0, 1, pick.randint(low, high), pick.randint(0, 100)])
        values = [0.0, -0.0, 1.0, -1.5, 0.1, 2.0**-14, 60000.0, pick.uniform(-100, 100)]
        return pick.choice(values)

    def odd(self, cls: str) -> Any:
        """Return what the class warns of, narrows, or refuses."""
        pick = self.random
        low, high = INTEGERS.get(cls, (-(2**15), 2**15))
        return pick.choice(
            [
                None,
                "x",
                [1],
                object,
                1j,
                True,
                Small(1),
                Choice.ONE,
                float("nan"),
                float("inf"),
                float("-inf"),
                3.7,
                -0.5,
                3,
                1e300,
                -1e300,
                5e-324,
                1e-46,
                65520.0,
                high + 1,
                low - 1,
                2**31,
                2**53 + 1,
                2**70,
                10**400,
            ]
        )

    def source(self, name: str, parameters: list[Parameter]) -> str:
        """Return the function's source; it stores what it got at ``out``."""
        head, body, star = ["out: cute.Pointer"], [], False
        slot = 0
        for p in parameters:
            if p.keyword_only and not star:
                head.append("*")
                star = True
            text = p.name + (f": {p.annotation}" if p.annotation else "")
            head.append(text + (f" = {p.default}" if p.default else ""))
            stored: list[tuple[str, str]] = []
            if p.kind in ("number", "plain"):
                stored = [(p.cls, p.name)]
            elif p.kind == "constexpr":
                stored = [("Int32", f"Int32({p.name})")]
            elif p.kind == "tuple":
                stored = [("Int32", f"{p.name}[0]"), ("Float32", f"{p.name}[1]")]
            elif p.kind in ("argument", "within"):
                stored = [("Int32", f"{p.name}.fields[0]"), ("Float32", f"{p.name}.fields[1]")]
            elif p.kind in ("row", "record"):
                stored = [("Int32", f"{p.name}.x"), ("Float32", f"{p.name}.y")]
            elif p.kind == "pointer":
                body.append(f"    put({p.name}, 0, Int32, Int32({slot + 77}))")
            for cls, value in stored:
                if cls == "Boolean":
                    cls, value = "Int8", f"{value}.to(Int8)"
                body.append(f"    put(out, {slot}, {cls}, {value})")
                slot += 1
        lines = ["@cute.jit", f"def {name}({', '.join(head)}):", *(body or ["    pass"])]
        return "\n".join(lines) + "\n\n"


SLOTS = 64


class Function:
    """A compiled function, and what it may be called with."""

    def __init__(self, generator: Generator, parameters: list[Parameter], env: Any) -> None:
        self.generator = generator
        self.random = generator.random
        self.parameters = parameters
        self.env = env
        self.buffers = [(ctypes.c_uint8 * (16 * SLOTS))() for _ in range(2)]
        self.cells = (ctypes.c_uint8 * (16 * SLOTS))()
        self.compiled: Any = None
        self.depth = 0

    def out(self, which: int = 0) -> Any:
        """Return a new pointer to where results are stored."""
        return self.env.pointer(ctypes.addressof(self.buffers[which]))

    def runtime(self) -> list[Parameter]:
        """Return the parameters that are left at run time."""
        return [p for p in self.parameters if p.kind != "constexpr"]

    def example(self) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments to compile with."""
        args, kwargs = [self.out()], {}
        for i, p in enumerate(self.parameters):
            value = 3 if p.kind == "constexpr" else self.value(i, p, "raw")
            if p.keyword_only:
                kwargs[p.name] = value
            else:
                args.append(value)
        return args, kwargs

    def value(self, i: int, p: Parameter, style: str) -> Any:
        """Return an argument for a parameter; ``style`` is raw, object or odd."""
        types, env, pick = self.env.types, self.env, self.random
        if p.kind in ("number", "plain"):
            if style == "odd" and p.kind == "number":
                if pick.random() < 0.3:
                    # A scalar of another class, as wide or wider: its bytes are read.
                    wider = "Float64" if p.cls in FLOATS else pick.choice(["Int64", "Uint64"])
                    return getattr(env.cutlass, wider)(self.generator.exact(p.cls))
                return self.generator.odd(p.cls)
            number = self.generator.exact(p.cls)
            if style == "object":
                return getattr(env.cutlass, p.cls)(number)
            return number
        x, y = self.generator.exact("Int32"), self.generator.exact("Float32")
        if p.kind == "tuple":
            values = (env.cutlass.Int32(x), env.cutlass.Float32(y)) if style == "object" else (x, y)
            return list(values) if pick.random() < 0.3 else values
        if p.kind in ("argument", "within"):
            fields = env.cutlass.Int32(x), env.cutlass.Float32(y)
            within = self.launch_within if p.kind == "within" else None
            return types.Argument(*fields, name=p.name, within=within)
        if p.kind == "row":
            return types.Row(env.cutlass.Int32(x), env.cutlass.Float32(y))
        if p.kind == "record":
            if style == "object":
                return types.Record(env.cutlass.Int32(x), env.cutlass.Float32(y))
            return types.Record(x, y)
        if p.kind == "pointer":
            return env.pointer(ctypes.addressof(self.cells) + 16 * i)
        if p.kind == "stream":
            return env.stream(pick.choice([0, 1, 7]))
        raise AssertionError(p.kind)

    def launch_within(self) -> None:
        """Launch this very function from inside a launch of it."""
        if self.compiled is None or self.depth:
            return
        self.depth += 1
        # Whatever is drawn in here must leave the outer sequence as it is.
        state = self.random.getstate()
        self.random.seed(5)
        try:
            args, kwargs = self.arguments("raw", which=1)
            self.compiled(*args, **kwargs)
        finally:
            self.random.setstate(state)
            self.depth -= 1

    def arguments(self, style: str, which: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments for a call; ``style`` may also be mixed."""
        pick = self.random
        args: list[Any] = [self.out(which)]
        kwargs: dict[str, Any] = {}
        naming = style in ("keywords",)
        odd_one = pick.choice(self.runtime()).name if style == "odd" and self.runtime() else ""
        for i, p in enumerate(self.parameters):
            if p.kind == "constexpr":
                continue
            own = style
            if style == "mixed" or (style == "odd" and p.name != odd_one):
                own = pick.choice(["raw", "object"])
            if style == "keywords" and (p.keyword_only or pick.random() < 0.3):
                naming = True
            value = self.value(i, p, own)
            # 4.2.0 binds keywords only where they are complete and in order; else it
            # takes one argument for another, and crashes.
            old = self.generator.release < (4, 3)
            if not old and p.default and pick.random() < 0.4:
                naming = True
                continue
            if p.keyword_only or (naming and (style == "keywords" or kwargs or p.default)):
                kwargs[p.name] = value
                naming = True
            else:
                args.append(value)
        # Positional after a named one would land elsewhere: name those too.
        return args, kwargs


class Environment:
    """The DSL, and what the calls need of it."""

    def __init__(self, folder: str) -> None:
        Path(folder, "launch_differential_types.py").write_text(TYPES)
        sys.path.insert(0, folder)
        self.trail: Any = None
        #: Calls bound in the release's way, so far.
        self.release_calls = [0]
        self.cutlass = importlib.import_module("cutlass")
        self.cute = importlib.import_module("cutlass.cute")
        self.types = importlib.import_module("launch_differential_types")
        runtime = importlib.import_module("cutlass.cute.runtime")
        driver = importlib.import_module("cuda.bindings.driver")
        generic = self.cute.AddressSpace.generic

        def pointer(address: int) -> Any:
            return runtime.make_ptr(self.cutlass.Uint8, address, generic, assumed_align=16)

        self.pointer: Callable[[int], Any] = pointer
        self.stream: Callable[[int], Any] = driver.CUstream
        self.release = importlib.import_module("importlib.metadata").version("nvidia-cutlass-dsl")


def plain(text: object) -> str:
    """Return a message without addresses and colours."""
    text = re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", str(text))
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def outcome(function: Function, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call and describe what came of it."""
    for buffer in (*function.buffers, function.cells):
        ctypes.memset(buffer, PATTERN, ctypes.sizeof(buffer))
    function.env.types.LOG.clear()
    found: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            found["result"] = repr(function.compiled(*args, **kwargs))
        except Exception as error:
            chain = []
            while error is not None:
                chain.append([type(error).__qualname__, plain(error)])
                error = error.__cause__ or error.__context__  # type: ignore[assignment]
            found["error"] = chain
    found["warnings"] = [
        [w.category.__qualname__, plain(w.message), Path(w.filename).name, w.lineno] for w in given
    ]
    found["stored"] = [bytes(b).hex().rstrip("c") for b in (*function.buffers, function.cells)]
    found["log"] = list(function.env.types.LOG)
    return found


def calls(function: Function, rounds: int) -> list[dict[str, Any]]:
    """Make the calls of one function, in an order that the seed says."""
    pick, release = function.random, function.generator.release
    found = []

    def call(style: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        for _ in range(1 if style == "too many" else pick.choice([1, 1, 2])):
            if function.env.trail is not None:  # who crashes leaves a trail
                print(style, [*map(describe, args), kwargs], file=function.env.trail, flush=True)
            before = function.env.release_calls[0]
            record = outcome(function, args, kwargs)
            record["release_way"] = function.env.release_calls[0] - before
            record["style"] = style
            record["called"] = [*map(describe, args), *map(describe, kwargs.items())]
            found.append(record)

    styles = ["raw", "raw", "object", "mixed", "odd", "odd", "keywords"]
    for i in range(rounds):
        style = "raw" if i == 0 else pick.choice(styles)
        args, kwargs = function.arguments(style)
        if style == "odd":
            wrong = pick.random()
            if wrong < 0.1:
                args = args[: pick.randrange(len(args))]
                kwargs = {} if release < (4, 3) else kwargs
            elif wrong < 0.15:
                kwargs["nonsense"] = 1
            elif wrong < 0.2:
                kwargs["out"] = args[0]
            elif wrong < 0.3 and (release < (4, 3) or release >= (4, 8)):
                args = [*args, 1]
        call(style, args, kwargs)
    if (4, 3) <= release < (4, 8):
        # Here one too many leaves the release's own packed array in disorder.
        args, kwargs = function.arguments("raw")
        if not kwargs and len(args) == len(function.runtime()) + 1:
            call("too many", [*args, "x"], kwargs)
    return found


def describe(value: object) -> str:
    """Return what an argument is, the same in both processes."""
    inner = getattr(value, "value", None)
    return plain(f"{type(value).__name__}({value!r}, {inner!r})")[:60]


def main() -> None:
    """Write the report of one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("stock", "fast"), required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    folder = tempfile.mkdtemp()
    env = Environment(folder)
    if options.mode == "fast":
        scalarintern = importlib.import_module("scalarintern")
        record = scalarintern.install()
        assert record.launch, record
    execution = importlib.import_module("cutlass.base_dsl.jit_executor")
    owner = getattr(execution, "ExecutionArgs", None) or execution.JitExecutor
    generate = owner.generate_execution_args

    def counted(*args: Any, **kwargs: Any) -> Any:
        env.release_calls[0] += 1
        return generate(*args, **kwargs)

    owner.generate_execution_args = counted

    report: dict[str, Any] = {"release": env.release, "functions": []}
    for number in range(options.count):
        generator = Generator(options.seed * 1_000_003 + number, env.release)
        parameters = generator.signature()
        source = HEADER + generator.source(f"f{number}", parameters)
        name = f"generated_{number}"
        path = Path(folder, f"{name}.py")
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        function = Function(generator, parameters, env)
        args, kwargs = function.example()
        entry: dict[str, Any] = {"source": source[len(HEADER) :]}
        report["functions"].append(entry)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled = env.cute.compile(getattr(module, f"f{number}"), *args, **kwargs)
        except Exception:
            entry["uncompiled"] = traceback.format_exc()
            continue
        function.compiled = compiled
        with Path(f"{options.out}.trail").open("w") as env.trail:
            print(source, file=env.trail)
            entry["calls"] = calls(function, options.rounds)
    Path(options.out).write_text(json.dumps(report))


if __name__ == "__main__":
    sys.exit(main())
