"""The commands `netbench image build` and `netbench image list`."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from netbench.cli.output import LastingOutput, say
from netbench.errors import ExitCode

image_app = typer.Typer(
    name="image",
    help="Guest images, the same for every VMM.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Where images and packages are kept. Default: $NETBENCH_CACHE, for root /var/cache/netbench, "
        "else ~/.cache/netbench.",
    ),
]


@image_app.command()
def build(
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call the image.")] = "micro",
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE|FILE",
            help="A kernel package (PACKAGE or PACKAGE=VERSION), a .deb, or a kernel file with --modules. "
            "Default: Debian's linux-image-amd64 or linux-image-arm64.",
        ),
    ] = None,
    modules: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The modules of a kernel file: /lib/modules/RELEASE.")
    ] = None,
    package: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A package to add whole; may be repeated.")
    ] = None,
    cache: CacheOption = None,
    force: Annotated[bool, typer.Option("--force", help="Build even what is up to date.")] = False,
) -> None:
    """Build a guest image from Debian packages; no root needed."""
    from netbench.images.build import ImageOrder
    from netbench.images.build import build as carry_out
    from netbench.images.library import cache_directory
    from netbench.signals import stopping_on_signals

    order = ImageOrder(name, (cache or cache_directory()).absolute(), kernel, modules, tuple(package or ()))
    with stopping_on_signals():
        image = carry_out(order, partial(print, file=LastingOutput(sys.stdout)), force=force)
    if absent := image.manifest["modules"]["absent"]:
        say(f"this kernel lacks: {', '.join(absent)}")
    say(f"{image.directory}: Linux {image.kernel_release}, {_megabytes(image.size)}, {image.digest}")


@image_app.command("list")
def list_(cache: CacheOption = None) -> None:
    """List the images that were built."""
    from netbench.images.library import Image, list_images

    found = list_images(cache)
    images = [image for image in found if isinstance(image, Image)]
    for image in images:
        words = f"Linux {image.kernel_release}, {image.architecture}, {_megabytes(image.size)}, {image.digest[:12]}"
        say(f"{image.name}: {words}")
    damaged = [error for error in found if not isinstance(error, Image)]
    for error in damaged:
        print(error, file=sys.stderr)
    if not found:
        say("no guest image is built; run `netbench image build`")
    if damaged:
        raise typer.Exit(ExitCode.MISSING)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
