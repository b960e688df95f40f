"""headrace measure"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.launches import measure_again

#: Of --full: the best of twenty runs of STREAM varied by a quarter over launches on one machine.
_LAUNCHES_OF_ALL = 3


def measure(
    *,
    names: list[str] | None,
    only: str | None,
    budget: str,
    full: bool,
    width: str,
    seed: int,
    launches: int | None,
    directory: Path,
    resume: bool,
    list_them: bool,
    out: Path | None,
    json: bool,
) -> int:
    if list_them:
        output.print_table(
            ("experiment", "what it measures"),
            ((each.name, each.description) for each in headrace.experiments()),
            left=2,
        )
        return exit_codes.SUCCESS
    if launches is not None and launches > 1 and resume:
        raise headrace.InvalidError("--resume goes on in one launch; leave --launches out")
    count = launches or (_LAUNCHES_OF_ALL if full and not resume else 1)
    seconds = None if full else parse.duration(budget) / count
    share = parse.share(width)
    if out is not None:
        output.check_writable(out)
    machine = headrace.Machine.discover(storage=[directory])
    with Interrupt() as interrupt, output.ProgressBar("measuring") as bar:
        profile = headrace.measure(
            machine,
            experiments=names or [],
            only=parse.settings(only),
            budget=seconds,
            width=share,
            seed=seed,
            directory=directory,
            known=_known(out, resume, machine),
            stop=interrupt,
            progress=bar,
        )
        found = [profile]
        for launch in range(1, count):
            if interrupt.requested:
                break
            bar(launch, count, f"launch {launch + 1} of {count}")
            arguments = [*(names or []), "--seed", str(seed + launch), "--width", width]
            arguments += ["--directory", str(directory), "--launches", "1"]
            arguments += ["--full"] if seconds is None else ["--budget", f"{seconds:.1f}s"]
            arguments += ["--only", only] if only else []
            found.append(measure_again(arguments, interrupt))
        profile = headrace.merge(found) if len(found) > 1 else profile
    if out is not None:
        profile.save(out)
    if json:
        output.print_text(profile.to_json())
    else:
        print_profile(profile)
        if out is not None:
            print(f"\nprofile: {out}")
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _known(out: Path | None, resume: bool, machine: headrace.Machine) -> list[headrace.Row]:
    """The rows of the profile that --resume goes on with."""
    if not resume:
        return []
    if out is None:
        raise headrace.InvalidError("--resume needs the profile to go on with; name it with --out")
    if not out.exists():
        return []
    known = headrace.Profile.load(out)
    if known.machine.name != machine.name:
        raise headrace.InvalidError(
            f"{out} is of machine '{known.machine.name}', not of this one; write another --out"
        )
    return known.rows


def print_profile(profile: headrace.Profile) -> None:
    """A table per experiment; what was not measured is counted by its reason."""
    measured = [row for row in profile.rows if row.median is not None]
    for name in dict.fromkeys(row.experiment for row in measured):
        _print_experiment(name, [row for row in measured if row.experiment == name])
    reasons: dict[str, int] = {}
    for row in profile.rows:
        if row.median is None:
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
    _print_findings(profile)
    noisy = sum("noisy" in row.flags for row in measured)
    conditions = profile.conditions
    print(
        f"{len(measured)} of {len(profile.rows)} points measured, {noisy} of them in noisy "
        f"moments; {conditions['looks_disturbed']} looks at the machine found it disturbed"
    )
    for reason, count in reasons.items():
        print(f"not measured, {count}: {reason}")


def _print_experiment(name: str, rows: list[headrace.Row]) -> None:
    columns = list(rows[0].parameters)
    # A parameter that is the same in all rows is said once.
    fixed = {c: rows[0].parameters[c] for c in columns if len(rows) > 1 and _same(rows, c)}
    shown = [c for c in columns if c not in fixed]
    print(f"{name}" + "".join(f"  {c} {_parameter(c, v)}" for c, v in fixed.items()))
    output.print_table(
        (*shown, "median", "95 % interval", "mappings", ""),
        (
            (
                *(_parameter(c, row.parameters[c]) for c in shown),
                value(row.median, row.unit),
                f"{value(row.low, row.unit)} to {value(row.high, row.unit)}",
                str(len(row.samples)),
                " ".join(row.flags),
            )
            for row in rows
        ),
        left=len(shown),
    )
    print()


def _print_findings(profile: headrace.Profile) -> None:
    """What the rows say together."""
    steps = headrace.cache_steps(profile)
    if steps:
        print("caches, by latency against size")
        output.print_table(
            ("cpu_node", "memory_node", "step", "from", "to", "latency"),
            (
                (str(s.cpu_node), str(s.memory_node), s.name, headrace.format_bytes(s.from_size),
                 headrace.format_bytes(s.to_size), value(s.latency_ns, "ns"))
                for s in steps
            ),
            left=3,
        )  # fmt: skip
        print()
    if bends := headrace.knees(profile):
        print("loaded latency bends at")
        output.print_table(
            ("observer", "traffic", "mix", "bandwidth", "latency", "unloaded"),
            (
                (f"{k.cpu_node}>{k.memory_node}", f"{k.traffic_cpu_node}>{k.traffic_memory_node}",
                 k.mix, value(k.bandwidth, "B/s"), value(k.latency_ns, "ns"),
                 value(k.idle_ns, "ns"))
                for k in bends
            ),
            left=3,
        )  # fmt: skip
        print()
    if fits := [fit for fit in headrace.copy_fits(profile) if fit.engine in ("cpu", "memcpy")]:
        print("copies as T = a + V / b")
        output.print_table(
            ("engine", "from", "to", "state", "threads", "a", "b", "median error", "largest"),
            (
                (f.engine, str(f.from_node), str(f.to_node), f.state, str(f.threads),
                 value(f.latency_ns, "ns"), value(f.bandwidth, "B/s"), f"{f.median_error:.0%}",
                 f"{f.largest_error:.0%}")
                for f in fits
            ),
            left=4,
        )  # fmt: skip
        print()


def _same(rows: list[headrace.Row], column: str) -> bool:
    return len({row.parameters.get(column) for row in rows}) == 1


def _parameter(name: str, setting: int | str) -> str:
    if name in ("bytes", "window") and isinstance(setting, int):
        text: str = headrace.format_bytes(setting)
        return text
    return str(setting)


def value(number: float | None, unit: str) -> str:
    """ "142 ns", "24.1 GB/s"."""
    if number is None:
        return "-"
    if unit == "B/s":
        rate: str = headrace.format_rate(number)
        return rate
    if unit == "x":
        return f"{number:.2f} x"
    return f"{number:.{1 if number < 100 else 0}f} {unit}"
