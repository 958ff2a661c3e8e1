"""What is exported for torchtitan, taken by torchtitan: its own manager makes the whole configuration of a trainer of a
registry, its models apply their rules, PyTorch reads the schedule; and the table of its models is that of the package."""

import importlib
import importlib.machinery
import logging
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

from exporting import DEVICES, PLANS, Exporting

ROOT = Path(__file__).resolve().parents[4]
# Kernels in Triton.
KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"
# What torchtitan imports for data, tokens, logs and kernels. A configuration has nothing of it.
ABSENT = ("datasets", "tensorboard", "tokenizers", "torch.utils.tensorboard", "torchdata", KERNELS)


class Absent(types.ModuleType):
    """A package of which every name is a class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})


class Absents:
    """Finds packages that are not installed."""

    def find_spec(self, name: str, *_: object) -> object:
        is_absent = any(name == it or name.startswith(it + ".") for it in ABSENT)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Absent(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, Absents())
logging.disable(logging.WARNING)

import torchtitan_models  # noqa: E402
from torch.distributed.pipelining.schedules import _Action, get_schedule_class  # noqa: E402
from torchtitan.config import ConfigManager, ParallelismConfig  # noqa: E402
from torchtitan.distributed.parallel_dims import ParallelDims  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

# Devices that share experts.
SHARED = ["--mesh", "4", "--for", "torchtitan", "--pin", "*.ReduceSum_*=[-,a,-,-,-]"]
PLANS = PLANS | {"experts": ("qwen3_moe", SHARED), "further": ("deepseek_v3_further", SHARED)}
# A registry of configurations, around one of torchtitan's with as many layers as were planned.
REGISTRY = """
from shardloom_torchtitan import configured
from torchtitan.models.{registry}.config_registry import {base} as yours

def planned():
    config = yours()
    config.model_spec.model.layers = config.model_spec.model.layers[:{layers}]
    return configured(config)
"""


class Torchtitan(Exporting):
    def test_the_table_of_models_is_that_of_the_package(self) -> None:
        path = ROOT / "crates" / "export" / "src" / "torchtitan" / "models.txt"
        self.assertEqual(torchtitan_models.table(), path.read_text(), "python torchtitan_models.py prints it")

    def configured(self, of: tuple[str, list[str]]) -> Trainer.Config:
        """What torchtitan makes of the module of a plan, from the command line on."""
        module = self.exported(of, "torchtitan") / "shardloom_torchtitan.py"
        said = module.read_text().split('"""')[1]
        registry = next(it for it in torchtitan_models.REGISTRIES if f"`{it}`" in said)
        base = f"{registry}_debugmodel" + ("_mtp" if "num_mtp_layers" in said else "")
        layers = next(word for word, after in zip(said.split(), said.split()[1:]) if after.startswith("layers"))
        (module.parent / "planned_registry.py").write_text(REGISTRY.format(registry=registry, base=base, layers=layers))
        for name in ("planned_registry", "shardloom_torchtitan"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        with mock.patch.object(sys, "path", [str(module.parent), *sys.path]):
            return ConfigManager().parse_args(["--module", "planned_registry", "--config", "planned"])

    def test_torchtitan_makes_its_configuration(self) -> None:
        for name, of in PLANS.items():
            with self.subTest(name):
                config = self.configured(of)
                self.assertIsInstance(config, Trainer.Config)
                own, training = config.parallelism, config.training
                dims = ParallelDims.from_config(own, DEVICES)
                dense = dims.dp_shard * dims.cp * dims.tp
                self.assertEqual(dense % dims.ep, 0, "experts are over devices that share states")
                # What a model refuses: heads, tables, further tokens.
                config.model_spec.model.update_from_config(config=config)
                data = dims.dp_replicate * dims.dp_shard
                self.assertEqual(training.global_batch_size, 8)
                self.assertEqual(training.global_batch_size % (training.local_batch_size * data), 0)
                self.assertEqual(training.local_batch_size % own.pipeline_parallel_microbatch_size, 0)
                get_schedule_class(own.pipeline_parallel_schedule)
                if own.pipeline_parallel_degree > 1:
                    self.scheduled(own, training.local_batch_size // own.pipeline_parallel_microbatch_size)
                self.assertEqual("MTPLoss" in type(config.loss).__qualname__, name == "further")

    def scheduled(self, own: ParallelismConfig, micro_batches: int) -> None:
        """Stages have all modules, and what a schedule does is read by PyTorch: each micro-batch once in each stage."""
        parts = own.module_fqns_per_model_part
        self.assertEqual([parts[0][0], *parts[-1][-2:]], ["tok_embeddings", "norm", "lm_head"])
        if not own.pipeline_parallel_schedule_csv:
            return
        lines = Path(own.pipeline_parallel_schedule_csv).read_text().splitlines()
        self.assertEqual(len(lines), own.pipeline_parallel_degree)
        actions = [_Action.from_str(word) for line in lines for word in line.split(",")]
        forward = sorted((it.stage_index, it.microbatch_index) for it in actions if it.computation_type.name == "FORWARD")
        self.assertEqual(forward, [(stage, batch) for stage in range(len(parts)) for batch in range(micro_batches)])


if __name__ == "__main__":
    unittest.main()
