"""Turns what the processes wrote into one table, JSON and plots. Needs no GPU and no DSL."""

from __future__ import annotations

import datetime
import json
import os
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .driver import Outcome

MB = 1e6
Rows = list[tuple[str, ...]]


def table(title: str, head: tuple[str, ...], rows: Rows) -> str:
    """A plain-text table: the first column to the left, the others to the right."""
    if not rows:
        return ""
    widths = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        first, *rest = row
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([title, "", line(head), rule, *map(line, rows), ""])


def _columns(outcomes: Iterable[Outcome], kind: str) -> list[tuple[str, Outcome, dict[str, Any]]]:
    """Label, outcome and line of each result of a kind, by release and mode.

    Of the figures that a process gave more than once, only the last, which has most.
    """
    found = []
    for outcome in outcomes:
        label = f"{outcome.release} {outcome.job.mode}"
        lines = outcome.of(kind)
        if kind in ("launch", "busy", "scalars"):
            lines = list({line.get("number"): line for line in lines}.values())
        found += [(label, outcome, line) for line in lines]
    return sorted(found, key=lambda item: (item[1].release, _order(item[1].job.mode)))


def _order(mode: str) -> int:
    return ("stock", "interned", "fast").index(mode)


def _same(values: list[Any]) -> str:
    if len(values) == 1:
        return "alone"
    return "yes" if len({json.dumps(value) for value in values}) == 1 else "NO"


def checks(outcomes: list[Outcome]) -> str:
    lines = _columns(outcomes, "check")
    by_scenario: dict[tuple[str, str], list[str]] = {}
    for _, outcome, line in lines:
        by_scenario.setdefault((outcome.release, line["scenario"]), []).append(line["digest"])
    rows: Rows = [
        (
            line["scenario"],
            label,
            f"{line['checked']:,}",
            f"{line['differ']:,}",
            _same(by_scenario[outcome.release, line["scenario"]]),
        )
        for label, outcome, line in lines
    ]
    head = ("launches", "release, mode", "values", "differ from CPU", "same in all modes")
    text = table("What kernels received, bit by bit, 14 types", head, rows)
    examples = [
        f"  {label}, {line['scenario']}: {example}"
        for label, _, line in lines
        for example in line["examples"][:4]
    ]
    return text + "".join(f"{example}\n" for example in examples)


def training(outcomes: list[Outcome]) -> str:
    lines = _columns(outcomes, "train")
    digests: dict[str, list[Any]] = {}
    for _, outcome, line in lines:
        digests.setdefault(outcome.release, []).append(line["digests"])
    errors = {
        label: f"{line['relative_error']:.1e}"
        for label, _, line in _columns(outcomes, "train_reference")
    }
    rows: Rows = []
    for label, outcome, line in lines:
        samples = line["samples"]
        half = samples[len(samples) // 2]
        first, last = samples[0], samples[-1]
        rows.append(
            (
                label,
                f"{line['launches']:,}",
                f"{line['seconds'] / line['launches'] * 1e6:.1f}",
                f"{(last[1] - first[1]) / MB:+.1f}",
                f"{(last[1] - half[1]) / MB:+.1f}",
                f"{(last[2] - first[2]) / MB:+.1f}",
                f"{(last[3] - first[3]) / MB:+.1f}",
                errors.get(label, "-"),
                _same(digests[outcome.release]) if line["finite"] else "NOT FINITE",
            )
        )
    head = (
        "training loop, collector off",
        "launches",
        "us each",
        "RSS MB",
        "2nd half",
        "torch MB",
        "card MB",
        "error, 5 steps",
        "same bits",
    )
    return table("100,000 launches of a training-shaped loop", head, rows)


def _cost_rows(columns: list[dict[str, Any]]) -> Rows:
    names: list[str] = []
    for column in columns:
        names += [name for name in column if name not in names]
    rows: Rows = []
    for name in names:
        cells = []
        for column in columns:
            taken, bare = column.get(name), column.get("bare C call")
            if not taken:
                cells.append("-")
            elif bare and name != "bare C call":
                cells.append(f"{taken['median']:.2f} ({taken['median'] / bare['median']:.2f}x)")
            else:
                cells.append(f"{taken['median']:.2f}")
        rows.append((name, *cells))
    return rows


def launches(outcomes: list[Outcome]) -> str:
    lines = _columns(outcomes, "launch")
    head = ("us a launch, median", *(label for label, _, _ in lines))
    text = table(
        "Launch of 2 tensors, 3 scalars, a stream (ratio to the bare C call of the same process)",
        head,
        _cost_rows([line["us"] for _, _, line in lines]),
    )
    worst: dict[str, float] = {}
    for label, _, line in _columns(outcomes, "numbers"):
        worst[label] = max(worst.get(label, 0.0), line["relative_error"])
    if worst:
        errors = ", ".join(f"{label} {error:.1e}" for label, error in worst.items())
        text += f"Largest relative error against float64, of all variants: {errors}\n"
    return text


def by_scalars(outcomes: list[Outcome]) -> str:
    found = _columns(outcomes, "scalars")
    labels = list(dict.fromkeys(label for label, _, _ in found))
    numbers = sorted({line["number"] for _, _, line in found})
    at = {(label, line["number"]): line for label, _, line in found}
    rows: Rows = []
    for label in labels:
        for name in ("raw", "bare C call", "TVM-FFI raw"):
            cells = []
            for number in numbers:
                us = at.get((label, number), {}).get("us", {}).get(name)
                cells.append(f"{us['median']:.2f}" if us else "-")
            rows.append((f"{label}, {name}", *cells))
        wrong = [number for number in numbers if not at.get((label, number), {}).get("right", True)]
        if wrong:
            rows.append((f"{label}: WRONG SUM at {wrong}", *("" for _ in numbers)))
    head = ("us a launch by number of scalars", *(str(number) for number in numbers))
    return table("1 tensor, raw scalars, a stream", head, rows)


def business(outcomes: list[Outcome]) -> str:
    rows: Rows = [
        (
            f"{label}, {name}",
            f"{line['kernel_us']:.2f}",
            f"{share['wall_us']:.2f}",
            f"{share['share']:.0%}",
        )
        for label, _, line in _columns(outcomes, "busy")
        for name, share in line["shares"].items()
    ]
    head = ("loop of small kernels", "us on the GPU", "us of wall time", "GPU at work")
    text = table("Share of the wall time in which the GPU works", head, rows)
    return text and text + (
        "us on the GPU: replay of a graph of 200 of the launches, event to event, over 200.\n"
        "us of wall time: host clock over 2,000 launches and the wait for the last, over 2,000.\n"
    )


def trouble(outcomes: list[Outcome]) -> str:
    lines = []
    for outcome in outcomes:
        name = outcome.job.name
        if outcome.ended != "ok":
            lines.append(f"{name}: {outcome.ended}")
        if outcome.job.mode == "fast" and outcome.facts and not outcome.facts.get("launch"):
            lines.append(f"{name}: the fast launch path is off: {outcome.facts.get('reason')}")
        for kind in ("error", "ffi", "variant"):
            for line in outcome.of(kind):
                what = line.get("part") or line.get("function") or line.get("name")
                error = " ".join(line["error"].split())
                lines.append(f"{name}, {what}: {error[:300]}")
    if not lines:
        return ""
    return "".join(f"{line}\n" for line in ["What did not run as meant", "", *lines])


def text(outcomes: list[Outcome]) -> str:
    """Everything there is, as one piece of text."""
    facts = next((outcome.facts for outcome in outcomes if outcome.facts), {})
    releases = ", ".join(dict.fromkeys(o.release for o in outcomes if o.facts))
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    head = (
        f"{facts.get('card', 'no card')}, driver {facts.get('driver', '?')}, "
        f"nvidia-cutlass-dsl {releases or '?'}, torch {facts.get('torch', '?')}, {today}\n"
    )
    parts = [part(outcomes) for part in (launches, training, checks, by_scalars, business, trouble)]
    return "\n".join([head, *(part for part in parts if part)])


def write(outcomes: list[Outcome], folder: Path, name: str) -> str:
    """Write NAME.json, NAME.txt and, where matplotlib is, the plots; return the text."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "date": datetime.datetime.now(tz=datetime.timezone.utc).isoformat(timespec="seconds"),
        "processes": [
            {
                **{k: v for k, v in attrs.asdict(outcome.job).items() if k != "site"},
                "release": outcome.release,
                "ended": outcome.ended,
                "seconds": outcome.seconds,
                "results": outcome.lines,
                **({} if outcome.ended == "ok" else {"output": outcome.output}),
            }
            for outcome in outcomes
        ],
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    written = text(outcomes)
    (folder / f"{name}.txt").write_text(written)
    return written


def plots(outcomes: list[Outcome], folder: Path, name: str) -> list[Path]:
    """Draw memory, cost and utilisation; nothing where matplotlib is missing."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        return []
    drawn = []

    def save(figure: Any, what: str) -> None:
        path = folder / f"{name}-{what}.png"
        figure.tight_layout()
        figure.savefig(path, dpi=110)
        plt.close(figure)
        drawn.append(path)

    styles = {"stock": "-", "interned": "--", "fast": ":"}
    runs = _columns(outcomes, "train")
    if runs:
        figure, (host, card) = plt.subplots(1, 2, figsize=(11, 4))
        for label, outcome, line in runs:
            samples = line["samples"]
            x = [sample[0] for sample in samples]
            style = styles[outcome.job.mode]
            host.plot(x, [(s[1] - samples[0][1]) / MB for s in samples], style, label=label)
            card.plot(x, [(s[3] - samples[0][3]) / MB for s in samples], style, label=label)
        host.set(title="Host memory, collector off", ylabel="resident, MB over the start")
        card.set(title="Device memory", ylabel="in use on the card, MB over the start")
        for axes in (host, card):
            axes.set_xlabel("launches")
            axes.grid(alpha=0.3)
        host.legend()
        save(figure, "memory")

    found = _columns(outcomes, "scalars")
    if found:
        releases = sorted({outcome.release for _, outcome, _ in found})
        figure, panels = plt.subplots(
            1, len(releases), figsize=(5.5 * len(releases), 4), squeeze=False, sharey=True
        )
        for release, axes in zip(releases, panels[0], strict=True):
            series: dict[str, list[tuple[int, float]]] = {}
            for _, outcome, line in found:
                if outcome.release != release:
                    continue
                for variant, us in line["us"].items():
                    fast = outcome.job.mode == "fast"
                    if variant == "raw" or fast:
                        label = outcome.job.mode if variant == "raw" else variant
                        series.setdefault(label, []).append((line["number"], us["median"]))
            for label, points in series.items():
                axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
            axes.set(title=f"Launch cost, {release}", xlabel="raw scalars", ylabel="us a launch")
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend()
        save(figure, "cost")

    shares = _columns(outcomes, "busy")
    if shares:
        bars: dict[str, float] = {}
        for label, outcome, line in shares:
            for variant, share in line["shares"].items():
                if variant == "raw":
                    bars[label] = share["share"]
                elif outcome.job.mode == "fast":
                    bars[f"{outcome.release} {variant}"] = share["share"]
        figure, axes = plt.subplots(figsize=(7, 0.5 * len(bars) + 1.5))
        axes.barh(list(bars)[::-1], [100 * share for share in list(bars.values())[::-1]])
        axes.set(title="Loop of 5 us kernels", xlabel="% of the wall time in which the GPU works")
        axes.set_xlim(0, 105)
        save(figure, "busy")
    return drawn
