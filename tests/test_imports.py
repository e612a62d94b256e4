"""The directions in which packages may know each other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("data", "rl", "fed", "metrics", "scripts")
MAY_IMPORT = {
    "data": set(),
    "rl": {"data"},
    "metrics": set(),
    "fed": {"data", "rl", "metrics"},
    "scripts": {"data", "rl", "fed", "metrics"},
}


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.split(".")[0])
    return names & set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_import_directions_hold(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        foreign = imported_packages(path) - {package} - MAY_IMPORT[package]
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


def test_nothing_is_unpickled():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            assert "import pickle" not in text, path
            assert "torch.load(" not in text, path
