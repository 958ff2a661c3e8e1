"""The kinds of arguments that exports use, read off the packages of runtimes: `python arguments.py FOLDER.. < arguments.txt`
prints the table again. Folders are unpacked packages; of files that none of them has, rows stay as they are."""

import ast
import sys
from pathlib import Path


def bounds(value: ast.expr | None) -> str:
    """Those of a field of pydantic."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "Field":
        return ""
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return "".join(f"{signs[it.arg]}{ast.unparse(it.value)}" for it in value.keywords if it.arg in signs)


def words(of: str, tree: ast.Module) -> str:
    """A type, with names of types of the same file in full."""
    named = {
        it.targets[0].id: ast.unparse(it.value)
        for it in tree.body
        if isinstance(it, ast.Assign) and isinstance(it.targets[0], ast.Name)
    }
    named |= {it.target.id: ast.unparse(it.value) for it in tree.body if isinstance(it, ast.AnnAssign) and it.value}
    return named.get(of, of)


def choices(text: str) -> str:
    values = ast.literal_eval(text[text.index("[") : text.index("]") + 1])
    return "one-of:" + ",".join(map(str, values))


def kind(annotation: ast.expr, value: ast.expr | None, tree: ast.Module) -> str:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "A":
        # A type, and what the command line says of it.
        of, said = annotation.slice.elts[0], annotation.slice.elts[1]
        if isinstance(said, ast.Call):
            for it in said.keywords:
                if it.arg == "choices" and isinstance(it.value, ast.List):
                    return choices(ast.unparse(it.value))
        annotation = of
    text = ast.unparse(annotation)
    parts = [words(part.strip(), tree) for part in text.removeprefix("Optional[").split(" | ")]
    literal = next((part for part in parts if part.startswith("Literal[")), None)
    if literal:
        return choices(literal)
    first = parts[0].removesuffix("]")
    if first == "bool":
        return "switch"
    if first in ("int", "float"):
        return first + bounds(value)
    return "word"


def read(path: Path, argument: str) -> str | None:
    """Of which kind a field of a file is, by the name of its argument."""
    tree = ast.parse(path.read_text())
    name = argument.removeprefix("--").replace("-", "_")
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for field in node.body:
            if not isinstance(field, ast.AnnAssign):
                continue
            said = ast.unparse(field.value) if field.value else ""
            if field.target.id == name or f"'arg_names': ['{argument}']" in said:
                return kind(field.annotation, field.value, tree)
    return None


def main() -> None:
    folders = [Path(it) for it in sys.argv[1:]]
    for line in sys.stdin.read().splitlines():
        if not line.startswith("#"):
            target, name, known, file = line.split(" ")
            path = next((folder / file for folder in folders if (folder / file).is_file()), None)
            if path and target in ("vllm", "sglang", "megatron") and not known.startswith("some-of:"):
                found = read(path, name)
                if found is None:
                    raise SystemExit(f"{file} has no {name}, expected a field of that name: say where it is now")
                line = f"{target} {name} {found} {file}"
        print(line)


if __name__ == "__main__":
    main()
