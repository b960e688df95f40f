"""The subcommands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

# Boxes and colours are for terminals only.
_STYLE: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None

app = typer.Typer(
    help="Headrace brings data to the memory that will use it, before it is used.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=_STYLE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(
    help="Measure copying, or a query with its columns fetched ahead.",
    no_args_is_help=True,
    rich_markup_mode=_STYLE,
)
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[
    Optional[Path], typer.Option("--out", metavar="FILE", help="Write the JSON document here too.")
]
Convention = Annotated[
    Optional[str],
    typer.Option(
        "--convention",
        metavar="NAME",
        help="A column with what stream, likwid, mlc or mbw would print for it.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        from headrace import __version__

        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def topo(
    json: Json = False,
    source: Annotated[
        Optional[str],
        typer.Option("--from", metavar="FILE|PRESET", help="A machine other than this one."),
    ] = None,
    xml: Annotated[bool, typer.Option("--xml", help="hwloc XML with the kinds of nodes.")] = False,
) -> None:
    """Show a machine: its memories and what copies between them."""
    from headrace._cli import topo as command

    command.run(json=json, source=source, xml=xml)


@app.command()
def doctor(
    json: Json = False,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIRECTORY", help="Where the data to be moved lies.")
    ] = Path(),
) -> None:
    """Show what is missing for full use, each with its remedy."""
    from headrace._cli import doctor_command as command

    command.run(json=json, data=data)


@app.command()
def measure(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[EXPERIMENT]...", help="Those to run; --list shows them. All."),
    ] = None,
    only: Annotated[
        Optional[str],
        typer.Option("--only", metavar="NAME=VALUE,...", help="Points with these: mix=read."),
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="30s, 5m: what to know first is first.")
    ] = "60s",
    full: Annotated[
        bool, typer.Option("--full", help="All points, however long, until each is certain.")
    ] = False,
    width: Annotated[
        str,
        typer.Option("--width", metavar="SHARE", help="Certain: a 95 % interval narrower than it."),
    ] = "3%",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of points.")] = 1,
    launches: Annotated[
        Optional[int],
        typer.Option("--launches", min=1, max=99, help="Processes, one by one: 1; 3 with --full."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="On the disk to be measured.")
    ] = Path("."),
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only what FILE of --out does not have.")
    ] = False,
    list_them: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    convention: Convention = None,
    json: Json = False,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="Write the profile here.")
    ] = None,
) -> int:
    """Measure memory, links, copies and the disk of this machine into a profile."""
    from headrace._cli.measure import measure as run

    return run(
        names=names,
        only=only,
        budget=budget,
        full=full,
        width=width,
        seed=seed,
        launches=launches,
        directory=directory,
        resume=resume,
        list_them=list_them,
        out=out,
        convention=convention,
        json=json,
    )


@app.command()
def export(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A measured profile, or a preset.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="table; csv; mlc, as latency checkers print; nvbandwidth, copies as a matrix; "
            "hwloc, XML with memory attributes; weights, for the kernel's interleave; memkind; "
            "audit, of what firmware rates.",
        ),
    ],
    convention: Convention = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="Write it here instead.")
    ] = None,
) -> int:
    """Turn a profile into what other tools read."""
    from headrace._cli.export import export as run

    return run(profile=profile, form=form, convention=convention, out=out)


@bench_app.command("copy")
def bench_copy(
    json: Json = False,
    sizes: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="Such as 64KiB,1MiB; default 64 B to 1 GiB by fours."),
    ] = None,
    threads: Annotated[str, typer.Option(metavar="LIST", help="Such as 1,2.")] = "1",
    engines: Annotated[
        str, typer.Option(metavar="LIST", help="Such as memcpy,avx2_nt; all: every kernel.")
    ] = "memcpy,cpu",
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved repetitions.")
    ] = 7,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few sizes and rounds: seconds, less certain.")
    ] = False,
    out: Out = None,
) -> int:
    """Measure copying with cores against memcpy, in and out of the CPU's caches."""
    from headrace._cli import bench

    return bench.copy(
        json=json,
        sizes=sizes,
        threads=threads,
        engines=engines,
        rounds=rounds,
        quick=quick,
        out=out,
    )


Query = Annotated[str, typer.Option(metavar="NAME", help="sum, q6 or q1.")]
Scale = Annotated[float, typer.Option(metavar="NUMBER", help="TPC-H scale factor.")]
Runs = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved runs of each mode.")
]
Data = Annotated[
    Optional[Path],
    typer.Option("--data", metavar="DIRECTORY", help="Where tables are kept and made."),
]
Slow = Annotated[
    Optional[int], typer.Option(metavar="NODE", help="Where the columns start; default storage.")
]
Fast = Annotated[
    Optional[int], typer.Option(metavar="NODE", help="Where they are wanted; default the fastest.")
]


@bench_app.command("query")
def bench_query(
    query: Query = "q6",
    scale: Scale = 3,
    runs: Runs = 5,
    mode: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME", help="resident, direct, mmap, prefetch or duckdb; repeat; default all."
        ),
    ] = None,
    slow: Slow = None,
    fast: Fast = None,
    threads: Annotated[
        Optional[int],
        typer.Option(metavar="NUMBER", min=1, max=1024, help="Of the pipeline; default all CPUs."),
    ] = None,
    block: Annotated[str, typer.Option(metavar="SIZE", help="Of the widest column.")] = "1MiB",
    budget: Annotated[str, typer.Option(metavar="SIZE", help="Of the cache.")] = "256MiB",
    data: Data = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Run a query whose columns are fetched ahead, against the ways without it."""
    from headrace._cli import bench

    return bench.query(
        query=query, scale=scale, runs=runs, modes=mode, slow=slow, fast=fast, threads=threads,
        block=block, budget=budget, data=data, json=json, out=out,
    )  # fmt: skip


@app.command()
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A measured profile.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    least: Annotated[
        str, typer.Option(metavar="SHARE", help="Smaller changes do not count.")
    ] = "5%",
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every row, not only those that changed.")
    ] = False,
) -> int:
    """Show what differs beyond noise between two profiles; exit code 9 if anything does."""
    from headrace._cli import compare as command

    return command.run(old=old, new=new, least=least, json=json, everything=everything)


@app.command()
def report(
    file: Annotated[
        Optional[Path], typer.Argument(metavar="FILE", help="What --out or demo wrote.")
    ] = None,
    machine: Annotated[
        Optional[str],
        typer.Option("--machine", metavar="PRESET", help="Instead: published figures, xeon-max."),
    ] = None,
    html: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Default: beside FILE, report.html.")
    ] = None,
    png: Annotated[Optional[Path], typer.Option(metavar="FILE", help="A picture too.")] = None,
) -> None:
    """Make a page of charts, readable offline, from a document or of a published machine."""
    from headrace._cli import report as command

    command.run(file=file, machine=machine, html=html, png=png)


@app.command()
def demo(
    scale: Scale = 3,
    runs: Runs = 5,
    query: Query = "q6",
    data: Data = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIRECTORY", help="For demo.json and the report.")
    ] = Path("out"),
    png: Annotated[bool, typer.Option(help="A picture of the report too.")] = True,
    json: Json = False,
) -> int:
    """Measure this machine, run a query fetched ahead, report."""
    from headrace._cli import demo as command

    return command.run(scale=scale, runs=runs, query=query, data=data, out=out, png=png, json=json)
