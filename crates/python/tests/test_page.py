"""The pages about Python are what happens: with BLESS=1 they are rewritten."""

import contextlib
import doctest
import io
import os
import re
import tempfile
import traceback
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / "python.md", ROOT / "docs" / "journeys" / "python.md"]
BLOCK = re.compile(r"(?<=^```pycon\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)

# Pictures that are drawn by what a page runs.
PICTURE = re.compile(r"\]\((?:\.\./)*images/([^)]+\.svg)\)")


def shown(source: str, names: dict[str, object]) -> str:
    """What Python shows of a statement."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source, "page", "single"), names)
        except Exception as error:
            print("".join(traceback.format_exception_only(error)).strip())
    return out.getvalue()


def prompted(source: str) -> str:
    """A statement behind prompts."""
    first, *others = source.splitlines()
    return "".join([f">>> {first}\n", *(f"... {line}\n" for line in others)])


class Pages(unittest.TestCase):
    def test_what_pages_show_is_what_happens(self) -> None:
        for path in PAGES:
            with self.subTest(page=path.name, folder=path.parent.name):
                self.holds(path)

    def holds(self, path: Path) -> None:
        page = path.read_text(encoding="utf-8")
        names: dict[str, object] = {}
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(ROOT / "tests", Path(folder, "tests"))
            os.chdir(folder)
            self.addCleanup(os.chdir, ROOT)

            def written(block: re.Match[str]) -> str:
                statements = doctest.DocTestParser().get_examples(block[0])
                return "".join(prompted(it.source) + shown(it.source, names) for it in statements)

            found = BLOCK.sub(written, page)
            for name in PICTURE.findall(page):
                self.is_kept(Path(folder, name), ROOT / "docs" / "images" / name)
        self.assertIn("shardloom", names)
        if os.environ.get("BLESS"):
            path.write_text(found, encoding="utf-8")
        else:
            self.assertEqual(found, page)

    def is_kept(self, made: Path, kept: Path) -> None:
        """A picture that a page writes is the one that it shows."""
        picture = made.read_text(encoding="utf-8")
        if os.environ.get("BLESS"):
            kept.write_text(picture, encoding="utf-8")
        else:
            self.assertEqual(picture, kept.read_text(encoding="utf-8"), kept.name)


if __name__ == "__main__":
    unittest.main()
