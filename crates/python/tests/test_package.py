"""The package against the command line, which is `SHARDLOOM`: the same calls give the same bytes."""

import inspect
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path

import shardloom
from shardloom import _module, _shardloom

ROOT = Path(__file__).resolve().parents[3]
COMMAND = os.environ["SHARDLOOM"]
GPT2 = "tests/models/gpt2-eager-legacy2.9-op17-static/model.onnx"
TRAINED = "tests/models/gpt2-bytes.onnx"
LLAMA = "tests/configs/llama3_8b.json"


def command(*arguments: object) -> str:
    """What the command line prints, in the root of the repository."""
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Case(unittest.TestCase):
    """Works in the root of the repository, with a folder of its own."""

    def setUp(self) -> None:
        os.chdir(ROOT)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refused(self, kind: str, words: str, call) -> str:
        """What an error says, of this kind and with these words."""
        with self.assertRaises(shardloom.Error) as caught:
            call()
        self.assertEqual(caught.exception.kind, kind)
        self.assertIn(words, str(caught.exception))
        return str(caught.exception)


class Plans(Case):
    def test_a_plan_has_the_bytes_of_the_command_line(self) -> None:
        command("plan", GPT2, "--machine", "cpu-4x", "--mesh", "2x2", "-o", self.folder / "there.json")
        plan = shardloom.plan(GPT2, machine="cpu-4x", mesh=(2, 2))
        plan.save(self.folder / "here.json")
        there = (self.folder / "there.json").read_bytes()
        self.assertEqual((self.folder / "here.json").read_bytes(), there)
        self.assertEqual(plan.json(), json.loads(there))

    def test_a_pipeline_has_them_too_with_every_kind_of_argument(self) -> None:
        command(
            *("plan", TRAINED, "--machine", "cpu-4x", "--dim", "batch=4", "--dim", "sequence=16", "--mode", "train"),
            *("--loss", "cross-entropy:logits,labels", "--stages", "2,2", "--cut", "0,3", "--microbatches", "2"),
            *("--betas", "0.9,0.95", "--no-decay", "vectors", "--no-decay", "*wte*", "--weight-decay", "0.1"),
            *("-o", self.folder / "there.json"),
        )
        here = self.folder / "here.json"
        plan = shardloom.plan(
            TRAINED, machine="cpu-4x", dims={"batch": 4, "sequence": 16}, mode="train",
            loss="cross-entropy:logits,labels", stages=[2, "2"], cut=[0, 3], microbatches=2, betas=(0.9, 0.95),
            no_decay=["vectors", "*wte*"], weight_decay=0.1, output=here,
        )  # fmt: skip
        self.assertEqual(here.read_bytes(), (self.folder / "there.json").read_bytes())
        self.assertEqual(plan.kind, "pipeline")
        groups = [sum(it["bytes"] for it in group) for group in plan.json()["pipeline"]["memory"]]
        self.assertEqual(plan.memory_bytes, max(groups))
        self.assertIsNone(plan.gap)
        shown = plan._repr_html_()
        self.assertIn("<svg", shown)
        self.assertIn("cpu-4x", shown)

    def test_numbers_of_a_plan_are_those_of_its_file_and_of_explain(self) -> None:
        plan = shardloom.plan(GPT2, machine="h100-80g-4x", mesh={"a": 4})
        explained = plan.explain()
        self.assertEqual(plan.time_ms, explained["seconds"] * 1e3)
        self.assertEqual(plan.tokens_per_second, explained["tokens_per_second"])
        self.assertEqual(plan.mfu, explained["mfu"])
        self.assertEqual(plan.memory_bytes, sum(it["bytes"] for it in plan.json()["plan"]["memory"]))
        self.assertEqual((plan.mesh, plan.devices, plan.machine), ("a=4", 4, "h100-80g-4x"))
        self.assertEqual(plan.gap == 0, explained["proof"]["optimal"])
        self.assertGreaterEqual(plan.gap, 0)
        self.assertAlmostEqual(sum(plan.terms.values()), plan.time_ms)
        self.assertIn("gpt2", str(plan))
        self.assertIn("model.onnx", repr(plan))
        self.assertNotIn("<svg", plan._repr_html_())

    def test_a_saved_plan_is_looked_at_as_the_command_line_does(self) -> None:
        path = self.folder / "plan.json"
        shardloom.plan(GPT2, machine="cpu-2x", output=path)
        plan = shardloom.load(path)
        self.assertEqual(plan.explain().text, command("explain", path))
        self.assertEqual(plan.explain().json(), json.loads(command("explain", path, "--json")))
        self.assertEqual(plan.simulate().text, command("simulate", path))
        self.assertEqual(plan.check(model=GPT2).text, command("check", path, "--model", GPT2))
        self.assertEqual(plan.diff(path).text, command("diff", path, path))

    def test_files_that_are_there_are_kept(self) -> None:
        path = self.folder / "plan.json"
        path.write_text("mine")
        config = json.loads((ROOT / "tests/configs/gpt2.json").read_text())
        dims = {"batch": 2, "sequence": 8}
        self.refused("usage", "is there already", lambda: shardloom.plan(GPT2, machine="cpu-2x", output=path))
        self.refused(
            "usage", "is there already", lambda: shardloom.plan(config, machine="cpu-2x", dims=dims, output=path)
        )
        self.assertEqual(path.read_text(), "mine")
        shardloom.plan(GPT2, machine="cpu-2x", output=path, force=True)
        shardloom.plan(config, machine="cpu-2x", dims=dims, output=path, force=True)
        self.assertTrue(shardloom.load(path).check()["accepted"])

    def test_a_plan_is_found_again_from_another_working_directory(self) -> None:
        machine = self.folder / "mine.json"
        machine.write_text(command("machines", "show", "cpu-4x", "--json"), encoding="utf-8")
        os.chdir(self.folder)
        plan = shardloom.plan(ROOT / GPT2, machine="./mine.json", devices=4, mesh=4, output="mine-plan.json")
        loaded = shardloom.load("mine-plan.json", machine="./mine.json")
        os.chdir(ROOT)
        for it in (plan, loaded):
            self.assertEqual(it.json(), plan.json())
            self.assertIn("ok", str(it.check()))
            it.save(self.folder / "again.json")

    def test_generation_is_planned_with_roles_that_are_said(self) -> None:
        model = "tests/models/llama-past-dynamo2.9-op18-dyn/model.onnx"
        plan = shardloom.plan(
            model, machine="cpu-2x", mesh=2, mode="generate", context=16, batch=2, role={"tokens": "input_ids"}
        )
        self.assertEqual(plan.kind, "generation")
        explained = plan.explain()
        self.assertEqual(plan.time_ms, explained["decode"]["seconds"] * 1e3)
        self.assertEqual(plan.memory_bytes, explained["held_bytes"])

    def test_a_plan_leaves_as_the_command_line_writes_it(self) -> None:
        path = self.folder / "plan.json"
        plan = shardloom.plan(
            LLAMA, machine="h100-80g-8x", dims={"batch": 8, "sequence": 128}, mode="train", loss="loss",
            precision="bf16", mesh=(8,), for_="megatron", output=path,
        )  # fmt: skip
        command("export", path, "--to", "megatron", "-o", self.folder / "there")
        there = (self.folder / "there" / "megatron.sh").read_text()
        out = plan.to_megatron()
        self.assertEqual(out.files, {"megatron.sh": there})
        self.assertEqual(out.lost, out.json()["lost"])
        self.assertAlmostEqual(out.time_ms, plan.time_ms, delta=0.01 * plan.time_ms)
        plan.to_megatron(self.folder / "here")
        self.assertEqual((self.folder / "here" / "megatron.sh").read_text(), there)
        self.refused("usage", "megatron.sh", lambda: plan.to_megatron(self.folder / "here"))
        plan.to_megatron(self.folder / "here", force=True)

    def test_every_target_has_its_files(self) -> None:
        plan = shardloom.plan(
            LLAMA, machine="h100-80g-2x", dims={"batch": 2, "sequence": 64}, mode="train", loss="loss",
            precision="bf16", mesh=2, memory="1TB",
        )  # fmt: skip
        for export in (
            plan.to_bridge, plan.to_hf, plan.to_torchtitan, plan.to_deepspeed, plan.to_dtensor, plan.to_jax,
            lambda: plan.export("chakra"), lambda: plan.export("memory-viz"),
        ):  # fmt: skip
            self.assertTrue(all(export().files.values()))


class Configurations(Case):
    def planned(self, model: object, output: Path | None = None) -> shardloom.Plan:
        dims = {"batch": 2, "sequence": 128}
        return shardloom.plan(model, machine="h100-80g-2x", mesh=2, dims=dims, output=output)

    def test_a_dictionary_and_an_object_are_planned_as_their_file(self) -> None:
        config = json.loads(Path(LLAMA).read_text())

        class Config:
            """What `transformers` has of a configuration."""

            def to_json_string(self, use_diff: bool = True) -> str:
                return json.dumps({} if use_diff else config)

        of_file = self.planned(LLAMA)
        for model in (config, Config(), Path(LLAMA)):
            plan = self.planned(model)
            self.assertEqual(plan.time_ms, of_file.time_ms)
            self.assertEqual(plan.json()["plan"]["operations"], of_file.json()["plan"]["operations"])

    def test_a_plan_whose_model_was_no_file_is_saved_with_it(self) -> None:
        config = json.loads(Path(LLAMA).read_text())
        plan = self.planned(config)
        plan.save(self.folder / "llama.json")
        self.assertEqual(json.loads((self.folder / "llama.config.json").read_text()), config)
        expected = str(plan.explain()).splitlines()[1:]
        del plan
        again = shardloom.load(self.folder / "llama.json")
        self.assertEqual(again.explain()["model"]["path"], "llama.config.json")
        self.assertEqual(str(again.explain()).splitlines()[1:], expected)
        self.assertTrue(again.check(model=self.folder / "llama.config.json")["accepted"])
        # It is there, too, where the plan is written at once.
        self.planned(config, output=self.folder / "written.json")
        written = shardloom.load(self.folder / "written.json")
        self.assertTrue(written.check(model=self.folder / "written.config.json")["accepted"])


class Commands(Case):
    def test_no_two_dimensions_of_examples_are_alike(self) -> None:
        sizes = [_module._size(number) for number in range(40)]
        self.assertEqual(sizes[:10], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29])
        self.assertEqual(len(set(sizes)), 40)

    def test_every_option_of_plan_is_an_argument(self) -> None:
        options = {it.replace("-", "_") for it in _shardloom.options("plan")}
        options |= {"dims", "for_", "model", "progress"}
        options -= {"dim", "for", "config"}
        self.assertEqual(set(inspect.signature(shardloom.plan).parameters), options)

    def test_every_option_of_other_commands_is_an_argument(self) -> None:
        # `machine` of a plan is known, or given where it is read.
        said = {"machine"}
        for name, call in {
            "explain": shardloom.Plan.explain,
            "simulate": shardloom.Plan.simulate,
            "check": shardloom.Plan.check,
            "score": shardloom.score,
        }.items():
            options = {it.replace("-", "_") for it in _shardloom.options(name)}
            self.assertEqual(set(inspect.signature(call).parameters) - {"self", "progress"} - said, options - said)

    def test_a_number_of_a_machine_is_set(self) -> None:
        settings = {"network.adapter_bandwidth": "1GB/s"}
        arguments = {"machine": "h100-80g-16x", "mesh": "2x8", "dims": {"batch": 16, "sequence": 64}}
        made = shardloom.plan("tests/configs/gpt2.json", set=settings, **arguments)
        self.assertEqual(made.machine, "h100-80g-16x with network.adapter_bandwidth=1GB/s")
        self.assertEqual(made.explain()["machine"], made.machine)
        self.assertAlmostEqual(made.simulate().json()["estimated_seconds"] * 1e3, made.time_ms)
        usual = shardloom.plan("tests/configs/gpt2.json", **arguments)
        again = usual.simulate(set=settings)
        self.assertIn("planned for h100-80g-16x", str(again))
        with self.assertRaises(shardloom.Error) as raised:
            usual.check(set=["network.adapter_bandwith=1GB/s"])
        self.assertIn("did you mean `network.adapter_bandwidth`?", str(raised.exception))

    def test_machines_are_listed_and_shown(self) -> None:
        self.assertIn("h100-80g", shardloom.machines())
        self.assertEqual(
            shardloom.machine("h100-80g-8x").json(), json.loads(command("machines", "show", "h100-80g-8x", "--json"))
        )

    def test_setups_are_predicted_from_files_and_from_dictionaries(self) -> None:
        path = "tests/cases/predict/llama-70b.toml"
        predicted = shardloom.predict(path)
        self.assertEqual(predicted.json(), json.loads(command("predict", "--config", path, "--json")))
        lines = [it.split(" = ", 1) for it in Path(path).read_text().splitlines() if " = " in it]
        keys = {key: json.loads(value) for key, value in lines}
        self.assertEqual(shardloom.predict(keys).json(), predicted.json())
        self.assertIn("<pre>", predicted._repr_html_())

    def test_configurations_of_frameworks_are_scored(self) -> None:
        arguments = (
            "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000 "
            "--micro-batch-size 1 --global-batch-size 8 --bf16"
        )
        found = json.loads(command("score", "--megatron", arguments, "--machine", "h100-80g-2x", "--json"))
        for said in (arguments, arguments.split()):
            scored = shardloom.score(megatron=said, machine="h100-80g-2x")
            self.assertEqual(scored.json(), found)
        self.refused("usage", "--megatron", lambda: shardloom.score(machine="h100-80g-2x"))


class Errors(Case):
    def test_what_is_wrong_is_an_error_with_what_was_expected(self) -> None:
        self.refused("usage", "h100", lambda: shardloom.plan(GPT2, machine="h1000-80g-8x"))
        words = self.refused("usage", "mesh", lambda: shardloom.plan(GPT2, machine="cpu-4x", mesh="2y2"))
        self.assertNotIn("Usage:", words)
        self.refused("usage", "dim batch", lambda: shardloom.plan(TRAINED, machine="cpu-4x"))
        self.refused("input", "nowhere.onnx", lambda: shardloom.plan("nowhere.onnx", machine="cpu-4x"))
        self.refused("usage", "`int`", lambda: shardloom.plan(3, machine="cpu-4x"))
        self.refused("input", "does not fit", lambda: shardloom.plan(GPT2, machine="cpu-4x", memory=1000))
        (self.folder / "plan.json").write_text("{}")
        self.refused("input", "plan.json", lambda: shardloom.load(self.folder / "plan.json"))
        self.assertRaises(TypeError, lambda: shardloom.plan(GPT2, machine="cpu-4x", mash=4))

    def test_a_plan_that_is_changed_is_rejected(self) -> None:
        path = self.folder / "plan.json"
        plan = shardloom.plan(GPT2, machine="cpu-2x", output=path)
        path.write_text(path.read_text().replace('"capacity":', '"capacity": 1, "was":', 1))
        self.refused("input", str(path), plan.check)

    def test_remarks_are_warnings(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            config = json.loads(Path(LLAMA).read_text()) | {"num_hidden_layers": 1, "quantization_config": {}}
            shardloom.plan(config, machine="cpu-1x", memory="1TB", dims={"batch": 1, "sequence": 8})
        self.assertTrue(any("left out" in str(it.message) for it in caught), caught)
        self.assertTrue(all(it.filename == __file__ for it in caught), caught)


class WhileItWorks(Case):
    def test_progress_is_told_and_other_threads_run(self) -> None:
        told: list[str] = []
        ticks = [0]
        done = threading.Event()

        def tick() -> None:
            while not done.wait(0.005):
                ticks[-1] += 1

        def tell(words: str) -> None:
            told.append(words)
            ticks.append(0)

        other = threading.Thread(target=tick)
        other.start()
        shardloom.plan(LLAMA, machine="h100-80g-4x", mesh=4, dims={"batch": 4, "sequence": 128}, progress=tell)
        done.set()
        other.join()
        self.assertIn("planning on mesh 4", told)
        # Were Python held up, the other thread would tick once at most between what is told.
        self.assertGreater(max(ticks), 2, ticks)

    def test_an_error_of_who_is_told_ends_it(self) -> None:
        def tell(words: str) -> None:
            raise ValueError(words)

        self.assertRaises(ValueError, lambda: shardloom.plan(GPT2, machine="cpu-4x", progress=tell))

    def test_an_interrupt_ends_it_and_its_threads(self) -> None:
        def threads() -> int:
            return len(os.listdir("/proc/self/task"))

        # A job in the background ignores interrupts.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        before = threads()
        sent: list[float] = []
        timers: list[threading.Timer] = []

        def interrupt() -> None:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        def tell(words: str) -> None:
            # Setups are priced for much longer.
            if words.startswith("pricing setup") and not timers:
                timers.append(threading.Timer(0.1, interrupt))
                timers[0].start()

        with self.assertRaises(KeyboardInterrupt):
            shardloom.plan(
                LLAMA, machine="h100-80g-64x", dims={"sequence": 4096}, mode="train", loss="loss", precision="bf16",
                stages="auto", global_batch=64, progress=tell,
            )  # fmt: skip
        # Whatever else this host does meanwhile.
        self.assertLess(time.monotonic() - sent[0], 30)
        until = time.monotonic() + 30
        while threads() > before and time.monotonic() < until:
            time.sleep(0.01)
        # Those of what was planned before may have ended meanwhile, too.
        self.assertLessEqual(threads(), before)


if __name__ == "__main__":
    unittest.main()
