"""What README and docs say can be typed, opened and extended, can."""

import importlib
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import data
import fed.aggregators
import fed.config
import rl
import tests.rl.learners
from data.errors import InputError
from data.split_config import split_named
from fed import cli
from fed.config import compose
from tests.rl import test_learner_contract as contract

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
EXAMPLE = re.compile(r"`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)


# -- commands -----------------------------------------------------------------------------------------------------
def commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every `python scripts/…` in a block or in a line of text."""
    for page in PAGES:
        text = page.read_text()
        lines = [line.strip() for _, block in BLOCK.findall(text) for line in block.splitlines()]
        lines += re.findall(r"`(python scripts/[^`\n]+)`", BLOCK.sub("", text))
        yield from ((page.name, line) for line in lines if line.startswith("python scripts/"))


def jobs(words: list[str]) -> list[list[str]]:
    """A sweep as the commands that it stands for; a single command is itself."""
    if "-m" not in words:
        return [words]
    choices = []
    for word in words:
        key, equals, values = word.rpartition("=")
        choices.append([key + equals + value for value in values.split(",")])
    return [[word for word in job if word != "-m"] for job in product(*choices)]


def check_run(words: list[str], root: str, script: str) -> None:
    for job in jobs(words):
        sys.argv = [script, *job, "--show"]
        cli.main(root, script, "")


def check_make_dataset(words: list[str]) -> None:
    parser = importlib.import_module("scripts.make_dataset").parser()
    options, overrides = parser.parse_known_args(words)
    if hasattr(options, "split"):
        split_named(options.split, overrides)
    else:
        assert not overrides


def check_evaluate(words: list[str]) -> None:
    sys.argv = ["evaluate.py", *words]
    importlib.import_module("scripts.evaluate").arguments()


def check_analyze(words: list[str]) -> None:
    """Arguments that are understood get as far as the runs, which are not there."""
    sys.argv = ["analyze.py", *words]
    with pytest.raises(InputError, match="There is no folder"):
        importlib.import_module("scripts.analyze").main()


def check_bench(words: list[str]) -> None:
    sys.argv = ["bench.py", *words]
    importlib.import_module("scripts.bench").arguments()


CHECKS = {
    "scripts/run_fed.py": lambda words: check_run(words, "train", "run_fed.py"),
    "scripts/run_centralized.py": lambda words: check_run(words, "centralized", "run_centralized.py"),
    "scripts/make_dataset.py": check_make_dataset,
    "scripts/evaluate.py": check_evaluate,
    "scripts/analyze.py": check_analyze,
    "scripts/bench.py": check_bench,
}


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_a_command_in_the_docs_is_understood(page, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["test"])
    config = tmp_path / "outputs" / "mine" / "config.yaml"  # what --config names in the docs
    config.parent.mkdir(parents=True)
    config.write_text(OmegaConf.to_yaml(compose("train")))
    _, script, *words = shlex.split(command, comments=True)
    CHECKS[script](words)


def test_the_readme_shows_every_script():
    shown = {command.split()[1] for page, command in commands() if page == "README.md"}
    assert shown >= CHECKS.keys() - {"scripts/bench.py"}


def test_a_command_with_a_typing_error_would_be_noticed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["test"])
    for words in (["--alog", "sac"], ["--algo", "sca"], ["split.client=4"], ["-m", "seed=0,1", "algo=bc,sca"]):
        with pytest.raises(InputError, match="did you mean"):
            check_run(words, "train", "run_fed.py")


# -- links and names ----------------------------------------------------------------------------------------------
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    text = page.read_text()
    examples = {path for other in PAGES for path, _ in EXAMPLE.findall(other.read_text())}
    named = re.findall(r"`((?:data|rl|fed|metrics|scripts|configs|tests)/[\w/]+\.\w+)`", BLOCK.sub("", text))
    missing = [path for path in named if path not in examples and not (ROOT / path).exists()]
    assert not missing, f"{page.name} names {missing}"


# -- examples -----------------------------------------------------------------------------------------------------
@pytest.fixture
def extended(tmp_path, monkeypatch) -> Path:
    """The examples of all pages in a tree of their own, beside the real packages and configs."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "configs", tree / "configs")
    for page in PAGES:
        for path, code in EXAMPLE.findall(page.read_text()):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(code)
    for package in (data, rl, fed.aggregators):
        folder = tree / package.__name__.replace(".", "/")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.setattr(fed.config, "CONFIGS", tree / "configs")
    monkeypatch.setattr(tests.rl.learners, "CONFIGS", tree / "configs")
    before = set(sys.modules)
    yield tree
    for name in set(sys.modules) - before:
        if str(tree) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_pages_hold_an_example_of_each_extension(extended):
    for path in (
        "rl/absolute_bc.py",
        "configs/algo/absolute_bc.yaml",
        "fed/aggregators/square_root.py",
        "configs/fed/square_root.yaml",
        "data/length.py",
        "configs/split/length.yaml",
    ):
        assert (extended / path).exists(), f"no page has {path}"


@pytest.mark.parametrize("promise", [name for name in vars(contract) if name.startswith("test_")])
def test_the_example_learner_keeps_the_contract(extended, promise):
    getattr(contract, promise)("absolute_bc")


def test_the_example_learner_lowers_its_loss(extended):
    learner = tests.rl.learners.make("absolute_bc", 2, lr=1e-2)
    batch = tests.rl.learners.random_batch(learner, 2, 64)
    losses = [learner.update(batch)["actor_loss"] for _ in range(150)]
    assert (losses[-1] < 0.5 * losses[0]).all()


def test_the_example_aggregator_weighs_by_the_root_of_rows(extended):
    import torch

    from fed.update import Update

    rule = importlib.import_module("fed.aggregators.square_root").SquareRoot()
    theta = torch.randn(2, 7)
    for client, rows in ((0, 100), (1, 400)):
        rule.accumulate(Update([client], {"actor": theta[[client]]}, [rows], {}, {}, {}))
    result = rule.finalise({"actor": torch.zeros(7)})
    torch.testing.assert_close(result.state["actor"], theta[0] / 3 + 2 * theta[1] / 3)
    assert result.weights == pytest.approx({0: 1 / 3, 1: 2 / 3})


def test_a_run_with_the_example_learner_aggregator_and_split(extended, configure, run):
    folder = run(configure("algo=absolute_bc", "fed=square_root", "split=length", "rounds=2"))
    assert [record["round"] for record in folder.history()] == [0, 1, 2]
    assert folder.history()[-1]["metrics"]["actor_loss"] > 0
