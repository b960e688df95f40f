# SPDX-License-Identifier: Apache-2.0
"""Configurations in docs/howto and examples/engines: the same, and read by the engines' modules."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import real_lmcache_mp
import real_sglang
import real_vllm
import wheels

ROOT = Path(__file__).parents[3]


def shown(page: str) -> Any:
    """The first configuration of a page, in JSON."""
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    found = re.search(r"(?s)'(\{.*?\})'|```json\n(.*?)```", text)
    assert found is not None
    return json.loads(found[1] or found[2])


def example(name: str) -> Any:
    return json.loads((ROOT / "examples" / "engines" / name).read_text())


def in_mib(budget: str) -> str:
    """A thousandth: a table of 500 GiB of the tests' small blocks takes seconds to open."""
    assert budget.endswith("GiB")
    return budget.replace("GiB", "MiB")


@pytest.mark.parametrize("name", ["vllm", "lmcache", "sglang"])
def test_docstrings_and_examples_show_what_the_page_shows(name: str) -> None:
    module = "lmcache_mp" if name == "lmcache" else name
    assert example(f"{module}.json") == shown(name)
    source = (ROOT / "python" / "headrace" / f"{module}.py").read_text()
    doc = (ast.get_docstring(ast.parse(source)) or "").replace("'", "")
    in_doc = json.JSONDecoder().raw_decode(doc[doc.index('{"') :])[0]
    page = shown(name)
    if name == "vllm":  # without a revision
        del page["kv_connector_extra_config"]["secondary_tiers"][0]["revision"]
    assert in_doc == page


def test_the_yaml_of_lmcache_is_that_of_the_page() -> None:
    page = (ROOT / "docs" / "howto" / "lmcache.md").read_text()
    found = re.search(r"(?s)```yaml\n(.*?)```", page)
    assert found is not None
    assert (ROOT / "examples" / "engines" / "lmcache.yaml").read_text().endswith(found[1])


@pytest.mark.skipif(not real_vllm.WHEEL.exists(), reason="needs vLLM's wheel: tools/engines.sh")
def test_vllm_opens_the_tier_of_the_page(tmp_path: Path) -> None:
    given = shown("vllm")["kv_connector_extra_config"]
    (tier,) = given["secondary_tiers"]
    assert Path(tier["folder"]).is_absolute()
    with wheels.undone():
        real_vllm.install()
        import test_vllm

        settings = {name: each for name, each in tier.items() if name != "folder"}
        settings["budget"] = in_mib(settings["budget"])
        engine = test_vllm.Engine(tmp_path / "kv", **settings)
        assert engine.store(range(4)).success and engine.load(range(4)).success
        engine.tier.shutdown()


@pytest.mark.skipif(
    not real_lmcache_mp.WHEEL.exists(), reason="needs LMCache's wheel: tools/engines.sh"
)
def test_lmcache_opens_the_adapter_of_the_page(tmp_path: Path) -> None:
    given = shown("lmcache")
    given["adapter_params"]["folder"] = str(tmp_path / "kv")
    with wheels.undone():
        real_lmcache_mp.install()
        from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found]
            parse_args_to_l2_adapters_config,
        )
        from lmcache.v1.distributed.l2_adapters.factory import (  # type: ignore[import-not-found]
            create_l2_adapter_from_registry,
        )

        read = parse_args_to_l2_adapters_config(SimpleNamespace(l2_adapter=[json.dumps(given)]))
        (config,) = read.adapters
        adapter = create_l2_adapter_from_registry(config, None)
        assert adapter.get_usage().total_capacity_bytes == 500 << 30
        adapter.close()


@pytest.mark.skipif(
    not real_sglang.WHEEL.exists(), reason="needs SGLang's wheel: tools/engines.sh"
)
@pytest.mark.parametrize("from_file", [False, True])
def test_sglang_opens_the_backend_of_the_page(tmp_path: Path, from_file: bool) -> None:
    text = json.dumps(shown("sglang"))
    if from_file:
        text = f"@{ROOT / 'examples' / 'engines' / 'sglang.json'}"
    with wheels.undone():
        real_sglang.install()
        import test_sglang
        from sglang.srt.mem_cache.hybrid_cache import (  # type: ignore[import-not-found]
            hybrid_cache_controller,
        )

        controller = hybrid_cache_controller.HybridCacheController
        read, *_ = controller.parse_storage_backend_extra_config(text)
        assert read.pop("folder") == "/mnt/ssd/kv"
        config = real_sglang.config()
        config.extra_config = read
        rank = test_sglang.Rank(tmp_path / "kv", config, budget=in_mib(read["budget"]))
        assert rank.store([1, 2]) and rank.load([1, 2, 3]) == 2
        assert numpy.any(rank.pool.kv_buffer)
        rank.storage.close()
