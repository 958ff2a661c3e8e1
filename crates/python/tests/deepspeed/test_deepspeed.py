"""What is exported for DeepSpeed, trained by DeepSpeed on four processes of this host: its engine does what the plan
says, and three steps have the losses and parameters that PyTorch has on one process, and, but for experts and bf16,
the parameters of Shardloom's own programs of the plan. The command line is `SHARDLOOM`."""

import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))
from decoders import (  # noqa: E402
    DEEPSEEK, EXAMPLES, LAYERS, LLAMA, MIXTRAL, PHI3, QWEN3, SEQUENCE, Decoder, after, attend, loss_of, tokens,
)  # fmt: skip
from exporting import DEVICES, command  # noqa: E402
from test_dtensor import read  # noqa: E402

MICRO_BATCHES, STEPS, RATE = 2, 3, 0.01
# How steps follow gradients, in a plan and in PyTorch. What is small beside epsilon is not blown up; norms are bounded.
ADAM = ["--betas", "0.8,0.9", "--epsilon", "1e-4", "--weight-decay", "0.1"]
MOMENTUM = ["--optimizer", "sgd-momentum", "--momentum", "0.7", "--weight-decay", "0.1"]
OF_ADAM = {"betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}
OF_MOMENTUM = {"momentum": 0.7, "weight_decay": 0.1}
CLIP = 0.2
BOUNDED = [*ADAM, "--clip", str(CLIP)]


class Kind(NamedTuple):
    """What is planned, and what DeepSpeed is to say of itself."""

    setup: str
    more: list[str] = BOUNDED
    config: dict = LLAMA
    zero: int = 0
    replicas: int = 2
    tensor: int = 1
    precision: str = "fp32"
    # What is split over tensor parallel devices, by the last words of its name.
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def clip(self) -> float:
        return CLIP if "--clip" in self.more else 0.0


GATED = ("gate_proj.weight", "gate_proj.bias", "up_proj.weight", "up_proj.bias")
COLUMNS = (*GATED, "q_proj.weight", "k_proj.weight", "v_proj.weight")
ROWS = ("down_proj.weight", "o_proj.weight")
# Memory is as short as makes them shard what they are to shard.
KINDS = {
    "data": Kind("dp=4 zero=0", replicas=4),
    "ZeRO-1": Kind("dp=4 zero=1", [*BOUNDED, "--memory", "95kB"], zero=1, replicas=4),
    "ZeRO-2": Kind("dp=4 zero=2", [*BOUNDED, "--memory", "80kB"], zero=2, replicas=4),
    "ZeRO-3": Kind("dp=4 zero=3", [*BOUNDED, "--memory", "75kB"], zero=3, replicas=4),
    "momentum": Kind("dp=4 zero=1", [*MOMENTUM, "--memory", "90kB"], zero=1, replicas=4),
    "halves": Kind("dp=4 zero=0", replicas=4, precision="bf16"),
    "tensor": Kind("tp=2 dp=2 zero=0", tensor=2, columns=COLUMNS, rows=ROWS),
    "tensor, ZeRO-3": Kind(
        "tp=2 dp=2 zero=3", [*BOUNDED, "--memory", "75kB"], zero=3, tensor=2, columns=COLUMNS, rows=ROWS
    ),
    "norms": Kind("tp=2 dp=2 zero=0", config=QWEN3, tensor=2, columns=COLUMNS, rows=ROWS),
    "packed": Kind("tp=2 dp=2 zero=0", config=PHI3, tensor=2, columns=("gate_up_proj.weight",), rows=ROWS[:1]),
    "latent": Kind("tp=2 dp=2 zero=0", config=DEEPSEEK, tensor=2, columns=GATED, rows=ROWS[:1]),
    "context": Kind("cp=2 dp=2 zero=0"),
    "stages": Kind("pp=2 dp=2 zero=1", [*BOUNDED, "--memory", "105kB"], zero=1),
    "experts": Kind("dp=4 ep=4 zero=1", [*BOUNDED, "--memory", "110kB"], MIXTRAL, 1, 4),
    "experts, tensor": Kind("tp=2 dp=2 ep=2 zero=0", ADAM, MIXTRAL, tensor=2, columns=COLUMNS[-3:], rows=ROWS[1:]),
}


def safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """A checkpoint of f32."""
    header, data = {}, b""
    for name, it in tensors.items():
        numbers = it.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(it.shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def prepare(kind: str, folder: Path) -> None:
    """A plan, its export, and what steps of Shardloom's programs make of the parameters."""
    of = KINDS[kind]
    config, pins = of.config, [word for it in of.setup.split() for word in ("--pin", it)]
    folder.mkdir()
    plan, weights = folder / "plan.json", folder / "checkpoint.safetensors"
    (folder / "config.json").write_text(json.dumps(config))
    source = ["--config", folder / "config.json"]
    if config is not MIXTRAL:
        weights.write_bytes(safetensors(dict(Decoder(config).named_parameters())))
        command("model", *source, "--for", "loss", "--weights", weights, "-o", folder / "model.onnx")
        source = [folder / "model.onnx"]
    command(
        "plan", *source, "--machine", f"h100-80g-{DEVICES}x", "--dim", f"sequence={SEQUENCE}", "--mode", "train",
        "--loss", "loss", "--precision", of.precision, "--stages", "auto", "--global-batch", EXAMPLES, *pins,
        "--pin", f"microbatches={MICRO_BATCHES}", "--for", "deepspeed", "--pin", "recompute=none", "-o", plan, *of.more,
    )  # fmt: skip
    command("export", plan, "--to", "deepspeed", "-o", folder)
    if config is not MIXTRAL:
        np.savez(folder / "data.npz", input_ids=tokens().numpy(), labels=tokens().numpy())
        trained = folder / "weights.safetensors"
        command("train", plan, "--data", folder / "data.npz", "--steps", STEPS, "--lr", RATE, "--weights", trained)


def without_kernels() -> None:
    """Instead of what DeepSpeed would compile for this host: no exchanges by shared memory, and PyTorch's AdamW."""
    adams = (torch.optim.Adam, torch.optim.AdamW)
    deepspeed.ops.adam.FusedAdam = lambda of, adam_w_mode, **more: adams[adam_w_mode](of, **more)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def trained(kind: str, rank: int, folder: Path) -> None:
    """What one process does, and what it then has."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(30400 + os.getppid() % 1000), "WORLD_SIZE": str(DEVICES)}
    os.environ.update(place, RANK=str(rank), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    decoder, file = Decoder(KINDS[kind].config), str(folder / "deepspeed.json")
    names = {it: name for name, it in decoder.named_parameters()}
    of, seen = KINDS[kind].replicas, slice(None)
    share = rank * of // DEVICES
    more = {"lr_scheduler": lambda it: torch.optim.lr_scheduler.LambdaLR(it, lambda _: RATE / it.defaults["lr"])}
    if kind == "stages":
        decoder = deepspeed.PipelineModule(
            [*decoder.in_turn().values()], num_stages=2, loss_fn=loss_of, partition_method="type:Layer"
        )
    if kind == "context":
        parallel_state_sp.initialize_sequence_parallel(json.loads(Path(file).read_text())["sequence_parallel_size"])
        more["mpu"] = parallel_state_sp
    engine, *_ = deepspeed.initialize(model=decoder, config=file, **more)
    if kind == "context":
        length = SEQUENCE // 2
        seen = slice(rank % 2 * length, (rank % 2 + 1) * length)
        for layer in decoder.model["layers"]:
            it, group = layer.self_attn, parallel_state_sp.get_sequence_parallel_group()
            exchanged = DistributedAttention(attend, group, scatter_idx=2, gather_idx=1)
            it.attend, it.first = lambda q, k, v, exchanged=exchanged: exchanged(q, k, v, 0), seen.start
    if kind == "stages":
        share = engine.grid.get_data_parallel_rank()

    def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The micro-batches of this process."""
        mine = tokens().unflatten(0, (MICRO_BATCHES, of, -1))[:, share]
        return [(it[:, seen], after(it)[:, seen]) for it in mine]

    losses = []
    for _ in range(STEPS):
        if kind == "stages":
            losses.append(engine.train_batch(iter(data())).item())
            continue
        each = []
        for mine, labels in data():
            loss = loss_of(engine(mine), labels)
            engine.backward(loss)
            engine.step()
            each.append(loss.item())
        losses.append(sum(each) / len(each))

    optimizer = engine.basic_optimizer
    numbers = {key: it for key, it in optimizer.param_groups[0].items() if key in ("lr", *OF_ADAM, *OF_MOMENTUM)}
    means = ("exp_avg", "momentum_buffer")
    kept = sum(it.numel() for each in optimizer.state.values() for key, it in each.items() if key in means)
    parameters = {names.get(it, name): it for name, it in engine.module.named_parameters()}
    with deepspeed.zero.GatheredParameters(list(parameters.values()), enabled=engine.zero_optimization_stage() == 3):
        whole = {name: it.detach().clone() for name, it in parameters.items()}
    said = {
        "zero": engine.zero_optimization_stage(), "micro_batch": engine.train_micro_batch_size_per_gpu(),
        "micro_batches": engine.gradient_accumulation_steps(), "batch": engine.train_batch_size(),
        "clip": engine.gradient_clipping(), "optimizer": type(optimizer).__name__, "numbers": numbers,
    }  # fmt: skip
    torch.save({"said": said, "losses": losses, "kept": kept, "parameters": whole}, folder / f"{rank}.pt")


def plain(of: Kind) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of steps of PyTorch on one process, and the parameters after them."""
    decoder = Decoder(of.config)
    if "--momentum" in of.more:
        optimizer = torch.optim.SGD(decoder.parameters(), RATE, **OF_MOMENTUM)
    else:
        optimizer = torch.optim.AdamW(decoder.parameters(), RATE, **OF_ADAM)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(decoder(tokens()), after(tokens()))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(decoder.parameters(), of.clip or math.inf)
        assert not of.clip or norm > of.clip
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: it.detach() for name, it in decoder.named_parameters()}


def part(of: Kind, name: str, whole: torch.Tensor, rank: int) -> torch.Tensor:
    """What a tensor parallel device has of a parameter; of two that are one product, of each."""
    if name.endswith(of.rows):
        return whole.chunk(of.tensor, 1)[rank]
    if not name.endswith(of.columns):
        return whole
    products = whole.chunk(2 if "gate_up" in name else 1)
    return torch.cat([it.chunk(of.tensor)[rank] for it in products])


class Trained(unittest.TestCase):
    """What four processes find, which train each kind one after another."""

    @classmethod
    def setUpClass(cls) -> None:
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        for kind in KINDS:
            prepare(kind, cls.folder / kind)
        # Nothing is compiled: importing takes seconds less.
        here = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "DS_ACCELERATOR": "cpu"}
        call = [sys.executable, __file__, cls.folder]
        done = subprocess.run(call, env=here, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def tried(self, kind: str) -> tuple[dict, list[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
        """What is exported, what each process has, and what one process of PyTorch has."""
        of, file = KINDS[kind], json.loads((self.folder / kind / "deepspeed.json").read_text())
        ranks = [torch.load(self.folder / kind / f"{it}.pt") for it in range(DEVICES)]
        losses, parameters = plain(of)
        is_adam = "--momentum" not in of.more
        said = {
            "zero": of.zero, "micro_batch": EXAMPLES // MICRO_BATCHES // of.replicas, "micro_batches": MICRO_BATCHES,
            # DeepSpeed counts tensor parallel devices as replicas in what it says.
            "batch": EXAMPLES * of.tensor, "clip": of.clip, "optimizer": "AdamW" if is_adam else "SGD",
            "numbers": {"lr": RATE, **(OF_ADAM if is_adam else OF_MOMENTUM)},
        }  # fmt: skip
        for it in ranks:
            self.assertEqual(it["said"], said)
        # Devices that share sequences have addends, stages and tensor parallel devices the same.
        sharing = 1 if kind == "context" else DEVICES // of.replicas
        for step, loss in enumerate(losses):
            found = sum(it["losses"][step] for it in ranks) / of.replicas / sharing
            self.assertAlmostEqual(found, loss, places=5 if of.precision == "fp32" else 1, msg=f"step {step}")
        return file, ranks, parameters

    def same(self, found: torch.Tensor, expected: torch.Tensor, name: str, within: float = 1e-5) -> None:
        self.assertEqual(found.shape, expected.shape, name)
        self.assertLess((found.float() - expected).abs().max(), within, name)

    def whole(self, kind: str) -> None:
        """All is on each device, but for what the optimizer keeps; and it is what Shardloom's programs have."""
        _, ranks, parameters = self.tried(kind)
        ours, number = read(self.folder / kind / "weights.safetensors"), sum(it.numel() for it in parameters.values())
        for it in ranks:
            self.assertEqual(set(it["parameters"]), set(parameters))
            self.assertEqual(it["kept"], number // DEVICES if KINDS[kind].zero > 0 else number)
            for name, expected in parameters.items():
                self.same(it["parameters"][name], expected, name)
                self.same(ours[name], expected, name)

    def test_data_parallel(self) -> None:
        for kind in ("data", "ZeRO-1", "ZeRO-2", "ZeRO-3", "momentum"):
            with self.subTest(kind):
                self.whole(kind)

    def test_parts_of_sequences(self) -> None:
        self.whole("context")

    def test_halves(self) -> None:
        _, ranks, parameters = self.tried("halves")
        for name, it in ranks[0]["parameters"].items():
            self.assertEqual(it.dtype, torch.bfloat16, name)
            self.same(it, parameters[name], name, 0.02)

    def test_columns_and_rows(self) -> None:
        for kind, of in KINDS.items():
            if of.tensor == 1 or of.config is MIXTRAL:
                continue
            with self.subTest(kind):
                _, ranks, parameters = self.tried(kind)
                ours = read(self.folder / kind / "weights.safetensors")
                for name, expected in parameters.items():
                    for rank, it in enumerate(ranks):
                        self.same(it["parameters"][name], part(of, name, expected, rank % of.tensor), name)
                    self.same(ours[name], expected, name)
                held = sum(it.numel() for it in ranks[0]["parameters"].values())
                self.assertEqual(ranks[0]["kept"], held // of.replicas if of.zero > 0 else held)

    def test_stages(self) -> None:
        file, ranks, parameters = self.tried("stages")
        self.assertEqual(file["pipeline"], {"stages": 2})
        ours, stages = read(self.folder / "stages" / "weights.safetensors"), [ranks[0], ranks[2]]
        layers = [{it.split(".")[2] for it in stage["parameters"] if ".layers." in it} for stage in stages]
        self.assertEqual(layers, [{"0"}, {"1"}])
        found = {name: it for stage in stages for name, it in stage["parameters"].items()}
        self.assertEqual(set(found), set(parameters))
        for name, expected in parameters.items():
            self.same(found[name], expected, name)
            self.same(ours[name], expected, name)

    def test_experts(self) -> None:
        for kind, sharing in (("experts", 4), ("experts, tensor", 2)):
            with self.subTest(kind):
                file, ranks, parameters = self.tried(kind)
                self.assertEqual(file["expert_parallel"], {"enabled": True, "autoep_size": sharing})
                for rank, it in enumerate(ranks):
                    self.has_experts(KINDS[kind], it["parameters"], parameters, rank, sharing)

    def has_experts(self, of: Kind, found: dict, parameters: dict, rank: int, sharing: int) -> None:
        """A device has its part of the experts, whose gates and ways up lie apart, and the rest as without experts."""
        self.assertEqual(len(found), len(parameters) + LAYERS)
        for name, whole in parameters.items():
            if name.endswith("gate_up_proj"):
                gate, up = (found[name.replace("gate_up_proj", product)] for product in ("w1", "w3"))
                self.same(torch.cat([gate, up], 1), whole.chunk(sharing)[rank % sharing], name)
            elif name.endswith("experts.down_proj"):
                self.same(found[name.replace("down_proj", "w2")], whole.chunk(sharing)[rank % sharing], name)
            else:
                expected = part(of, name, whole, rank % of.tensor)
                self.same(found[name.replace("mlp.gate.", "mlp.router.gate.")], expected, name)


def all_trained(folder: Path) -> None:
    """Each kind on processes of its own, which begin with all imported."""
    without_kernels()
    fork = multiprocessing.get_context("fork")
    for kind in KINDS:
        processes = [fork.Process(target=trained, args=(kind, rank, folder / kind)) for rank in range(DEVICES)]
        for it in processes:
            it.start()
        for it in processes:
            it.join(120)
        ended = [it.exitcode for it in processes]
        for it in processes:
            it.kill()
        assert ended == [0] * DEVICES, f"{kind}: {ended}"


if __name__ == "__main__":
    import logging

    import deepspeed
    import deepspeed.ops.adam
    import torch._dynamo
    from deepspeed.runtime.sequence_parallel import parallel_state_sp
    from deepspeed.sequence.layer import DistributedAttention
    from deepspeed.utils.logging import logger

    logger.setLevel(logging.ERROR)
    all_trained(Path(sys.argv[1]))
