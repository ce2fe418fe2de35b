"""The project keeps its shape: who may import whom, how long a file may be, and that ARCHITECTURE.md is true."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "art_otel"

PACKAGES = [
    "lazy_names",
    "version",
    "errors",
    "notebook",
    "forks",
    "attributes",
    "storage",
    "spans",
    "scrubbing",
    "sampling",
    "calls",
    "spool",
    "sources",
    "conventions",
    "trajectories",
    "store",
    "runlog",
    "live",
    "data",
    "verification",
    "exporting",
    "engines",
    "conversion",
    "exchange",
    "tracing",
    "pytest_plugin",
    "workflows",
    "http",
    "receiver",
    "model_gateway",
    "viewer",
    "demo",
    "cli",
    "testing",
]
"""From the ground up; a package imports only from packages before it."""

FOLDERS = {
    "sources": ["files", "otlp", "backends", "agents"],
    "conventions": ["bodies", "dialects"],
    "tracing": ["api", "sdk", "openai", "setup", "gathering"],
}
"""The folders of a package, from the ground up as well; what they share stands beside them."""

ALLOWED = {
    "opentelemetry.sdk": (
        "tracing/sdk",
        "tracing/setup",
        "testing",
    ),
    "opentelemetry.proto": ("sources", "receiver/ingest.py"),
    "google.protobuf": ("sources", "receiver/otlp_grpc.py"),
    "google.rpc": ("receiver/otlp_grpc.py",),
    "grpc": ("receiver/otlp_grpc.py",),
    "httpx": ("receiver/client.py", "model_gateway"),
    "starlette": ("http", "receiver", "model_gateway", "viewer"),
    "uvicorn": ("http",),
    "pyarrow": (
        "storage",
        "store",
        "engines",
        "exporting",
        "sources",
        "viewer",
        "data/stored_columns",
        "data/stored_plan",
    ),
    "numpy": ("data", "demo", "verification", "viewer"),
    "openai": ("tracing", "demo"),
    "torch": ("data/torch_dataset.py", "verification/model_logprobs.py"),
    "rich": ("cli", "tracing/gathering/gather_many.py"),
    "hypothesis": ("testing",),
    "loky": ("engines/run.py",),
    "filelock": ("store/commit.py", "receiver/receiver.py"),
}
"""Who may import what from outside."""

FOR_EXPORTERS = ("exporting", "trajectories", "calls", "attributes", "errors", "store", "runlog")
"""The modules whose public names an exporter may use, beside art_otel's; docs/reference/extending.md names them."""

FOR_TRACING = ("tracing.internal_errors", "conventions")
"""The same for what traces a framework."""

FOREIGN_NAMES = ("gen_ai.", "llm.", "openinference.", "traceloop.", "input.value", "output.value")
"""How attribute names begin that are not ours."""

KNOWS_FOREIGN_NAMES = ("conventions", "exchange", "tracing", "sources", "demo", "testing")
"""Who may write them out; everyone else asks `conventions`."""

FORBIDDEN_NAMES = {"utils", "helpers", "manager", "base", "common"}

NOT_OURS = {
    "_api_client.py": "google-genai's",
    "art_otel.exporters": "a group of entry points",
    "attributes.llm.model_name": "a column of Phoenix",
    "compute_advantages": "Tinker's",
    "copy_files": "pyarrow's",
    "create_iterable": "instructor's",
    "create_partial": "instructor's",
    "delete_checkpoints": "ART's",
    "entrypoints/openai/serving_chat.py": "SGLang's",
    "entrypoints/scale_out/token_in_token_out/protocol.py": "vLLM's",
    "Experience.deserialize_many": "Trinity's",
    "Experience.serialize_many": "Trinity's",
    "hallucination": "a reward's name",
    "langsmith.schemas.Run": "LangSmith's",
    "logprobsResult": "Gemini's",
    "openai.web_search": "the AI SDK's tool",
    "Origin": "a header",
    "policy12": "a model's name",
    "qwen": "a model's name",
    "SamplingParams": "vLLM's",
    "stores.training_store": "a module of tinker-cookbook",
    "topP": "Gemini's",
    "traces.jsonl": "a file of verifiers",
    "verifiers.v1.trace": "a module of verifiers",
    "with_raw_response": "openai's",
}
"""What docstrings of the core name, and whose it is, where a reader would look for it here. The docstrings of
conventions, sources and exporters name much of others; of these only paths into our own modules and classes count."""


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def everything() -> list[Path]:
    return [*sources(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "exporters").rglob("*.py")]


def exporters() -> list[Path]:
    return sorted(ROOT.glob("exporters/*/art_otel_*/**/*.py"))


def package_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return {"__main__.py": "cli"}.get(parts[0], parts[0].removesuffix(".py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found.append(node.module)
            found.extend(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.long
def test_a_package_imports_only_from_packages_below_it():
    for path in sources():
        package = package_of(path)
        for name in imports(path) if package != "__init__" else []:
            parts = name.split(".")
            if parts[0] == "art_otel" and len(parts) > 1 and parts[1] in PACKAGES:
                assert PACKAGES.index(parts[1]) <= PACKAGES.index(package), f"{path}: {package} may not import {name}"
            assert not parts[0].startswith("art_otel_"), f"{path}: the core never imports an exporter"


@pytest.mark.parametrize("package", FOLDERS)
def test_a_folder_of_a_package_imports_only_from_folders_below_it(package):
    order = FOLDERS[package]
    for folder in order:
        assert (PACKAGE / package / folder / "__init__.py").exists()
        for path in (PACKAGE / package / folder).rglob("*.py"):
            for name in imports(path):
                parts = name.split(".")
                if parts[:2] == ["art_otel", package] and len(parts) > 2 and parts[2] in order:
                    assert order.index(parts[2]) <= order.index(folder), f"{path} may not import {name}"


def test_no_module_imports_itself_by_way_of_others():
    modules = {module_of(path) for path in sources()}
    graph: dict[str, set[str]] = {}
    for path in sources():
        statements = [node for node in parsed(path).body if isinstance(node, ast.ImportFrom)]
        names = {f"{node.module}.{alias.name}" for node in statements for alias in node.names}
        imported = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module_of(path)] = imported - {module_of(path)}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_libraries_are_imported_only_where_they_belong():
    for path in sources():
        where = str(path.relative_to(PACKAGE))
        for name in imports(path):
            for library, places in ALLOWED.items():
                if name == library or name.startswith(f"{library}."):
                    assert where.startswith(places), f"{path}: {library} belongs in {places}"


@pytest.mark.long
def test_an_exporter_uses_public_names_only():
    documented = (ROOT / "docs" / "reference" / "extending.md").read_text(encoding="utf-8")
    for path in exporters():
        modules = FOR_EXPORTERS + (FOR_TRACING if "tracing" in path.parts else ())
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "art_otel":
                names = [alias.name for alias in node.names]
                module = importlib.import_module(node.module)
                public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
                assert node.module == "art_otel" or node.module.removeprefix("art_otel.") in modules, path
                assert set(names) <= {*public, "attributes"}, f"{path}: {names}"
    for module in (*FOR_EXPORTERS, *FOR_TRACING):
        assert f"`art_otel.{module}`" in documented


def test_foreign_attribute_names_stand_in_the_conventions():
    for path in sources():
        if package_of(path) not in KNOWS_FOREIGN_NAMES:
            texts = [node.value for node in ast.walk(parsed(path)) if is_text(node)]
            assert not [text for text in texts if text.startswith(FOREIGN_NAMES)], path


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_every_package_is_in_the_design_and_in_the_architecture():
    listed = set(re.findall(r"^(\w+)(?:/|\.py) ", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE))
    packages = {package_of(path) for path in sources()} - {"__init__"}
    assert packages <= set(PACKAGES)
    assert packages <= listed


def test_architecture_names_no_package_that_does_not_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listing = text.split("```")[3]
    for line in listing.strip().splitlines():
        name = line.split()[0]
        if line.startswith(" " * 10):  # more about the name above
            continue
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"ARCHITECTURE.md names {name}"


def test_the_page_that_leads_through_the_code_names_no_module_that_does_not_exist():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:art_otel/)?[\w/]+/\w+\.py)`", page))
    assert named
    assert not [name for name in named if not ((PACKAGE / name).exists() or (ROOT / name).exists())]


def test_a_reader_finishes_every_file():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in everything()}
    assert max(lengths.values()) <= 600, max(lengths, key=lambda path: lengths[path])


def test_no_name_says_nothing():
    assert not [path for path in sources() if path.stem in FORBIDDEN_NAMES]


def test_a_name_is_that_of_one_class():
    """Classes and type aliases, private ones too. Readers of a format name its parts as the format does."""
    modules: dict[str, list[str]] = {}
    for path in [*sources(), *exporters()]:
        for node in parsed(path).body:
            match node:
                case ast.ClassDef(name=name):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                    pass
                case _:
                    continue
            is_of_format = name.startswith("_") and {"sources", "exporters"} & {*path.relative_to(ROOT).parts}
            if not is_of_format:
                modules.setdefault(name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


def test_docstrings_name_what_exists():
    """`name`, `module.name`, `Class.name` and `file.py` in a docstring: of our own there is such a thing."""
    docstrings: dict[Path, str] = {}
    words: dict[Path, set[str]] = {}
    inside: dict[str, set[str]] = {}
    """The words that stand in the modules, folders and classes of one name, by this name."""
    for path in [*sources(), *exporters()]:
        texts = re.split(r'"""', path.read_text(encoding="utf-8"))
        code, docstrings[path] = "".join(texts[::2]), "".join(texts[1::2])
        words[path] = {path.stem, *re.findall(r"\w+", re.sub(r"  # .*", "", code))}
        for owner in {path.stem, *path.relative_to(ROOT).parts, *re.findall(r"^ *class (\w+)", code, re.MULTILINE)}:
            inside.setdefault(owner, set()).update(words[path])
    everywhere = set().union(inside, *words.values())
    del inside["art"]  # ART, and how the names of our attributes begin

    missing: list[str] = []
    for path, text in docstrings.items():
        is_core = PACKAGE in path.parents and package_of(path) not in ("conventions", "sources")
        for name in re.findall(r"`([A-Za-z_][\w./]*)(?:\(\))?`", text):
            if name.endswith(".py"):
                exists = not is_core or any(str(other).endswith(f"/{name}") for other in docstrings)
            elif "." in name:
                owner, attribute, *_ = name.split(".")
                exists = owner not in inside or attribute in inside[owner] | words[path]
            else:
                exists = not is_core or "/" in name or name in everywhere
            if not exists and name not in NOT_OURS:
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, "\n".join(missing)


def test_the_package_itself_has_few_names():
    names = importlib.import_module("art_otel").__all__
    assert len(names) <= 32, names


def test_importing_the_package_costs_little():
    heavy = "pyarrow numpy openai opentelemetry google rich hypothesis torch"
    code = f"import sys, art_otel; print([n for n in '{heavy}'.split() if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "[]", result.stderr


def test_nothing_private_is_in_the_tree():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "uv.lock" not in listed
