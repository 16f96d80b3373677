"""Fuzz one target, guided by the code of netbench that the inputs reach.

    python -m tests.fuzz TARGET DIRECTORY [LIBFUZZER-OPTION…]

Inputs that reach new code are kept in DIRECTORY/corpus and reused in the next run. Inputs that break a target are kept
in DIRECTORY as crash-…, timeout-… or oom-…; pass one instead of options to reproduce the failure.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["netbench", "yaml"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run libFuzzer, which ends this process: with 0 when nothing was found."""
    name, directory, *options = sys.argv[1:]
    target = TARGETS[name]
    corpus = Path(directory, "corpus")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:02}").write_bytes(seed)
    own = [f"-artifact_prefix={directory}/", f"-max_len={target.longest}", "-timeout=20"]
    if target.words:
        dictionary = Path(directory, "words")
        dictionary.write_text("".join(f'"{word}"\n' for word in target.words))
        own.append(f"-dict={dictionary}")
    inputs = [] if any(not option.startswith("-") for option in options) else [str(corpus)]
    atheris.Setup([f"fuzz {name}", *own, *options, *inputs], target.check)
    atheris.Fuzz()


main()
