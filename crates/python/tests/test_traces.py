"""Traces of the command line, which is `SHARDLOOM`, read by others: by Google's protobuf and by Python's pickle."""

import json
import os
import pickle
import subprocess
import tempfile
import unittest
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

ROOT = Path(__file__).resolve().parents[3]
COMMAND = os.environ["SHARDLOOM"]
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "max_position_embeddings": 128, "torch_dtype": "bfloat16",
}
# Of Chakra's `schema/protobuf/et_def.proto`: messages, and for each field its number and type; `*` is repeated.
SCHEMA = {
    "AttributeProto": {
        "name": (1, "string"), "doc_string": (2, "string"), "double_val": (3, "double"), "float_val": (5, "float"),
        "int32_val": (7, "int32"), "int64_val": (9, "int64"), "uint32_val": (11, "uint32"),
        "uint64_val": (13, "uint64"), "bool_val": (27, "bool"), "string_val": (29, "string"),
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "*AttributeProto")},
    "Node": {
        "id": (1, "uint64"), "name": (2, "string"), "type": (3, "int32"), "ctrl_deps": (4, "*uint64"),
        "data_deps": (5, "*uint64"), "start_time_micros": (6, "uint64"), "duration_micros": (7, "uint64"),
        "attr": (10, "*AttributeProto"),
    },
}


def messages() -> dict:
    """The classes of the schema's messages."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, (number, kind) in fields.items():
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            added = message.field.add(name=field, number=number, label=label)
            if kind in SCHEMA:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if field.endswith("_val"):
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    of = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))  # noqa: E731
    return {name: of(name) for name in SCHEMA}


def parsed(path: Path) -> tuple:
    """The metadata of a trace, and its nodes."""
    classes, data, at, found = messages(), path.read_bytes(), 0, []
    while at < len(data):
        length, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        message = classes["Node" if found else "GlobalMetadata"]()
        assert message.ParseFromString(data[at : at + length]) == length
        for it in (message, *message.attr):
            assert not list(unknown_fields.UnknownFieldSet(it)), "it has what the schema has not"
        found.append(message)
        at += length
    return found[0], found[1:]


def command(*arguments: object) -> dict:
    """What the command line says."""
    done = subprocess.run([COMMAND, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


STAGES = ("--stages", "2", "--mesh", "2", "--schedule", "1f1b")
SPLIT = ("--mesh", "data=2,model=2", "--pin", "*.mlp.down_proj*=[data,-,model,-]")


class Traces(unittest.TestCase):
    """Plans of training on four devices."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        config = self.folder / "config.json"
        config.write_text(json.dumps(CONFIG))
        self.plan = self.folder / "plan.json"

    def planned(self, *more: str) -> dict:
        """Makes a plan; how it is simulated."""
        command(
            "plan", "--config", self.folder / "config.json", "-o", self.plan, "--machine", "h100-80g-4x", "--in-time",
            "never", "--dim", "batch=4", "--dim", "sequence=16", "--mode", "train", "--loss", "loss", "--precision",
            "bf16", "--microbatches", "2", "--force", *more,
        )
        return command("simulate", self.plan)

    def test_protobuf_reads_traces_of_chakra(self) -> None:
        kinds = set()
        for name, more in (("staged", STAGES), ("split", SPLIT)):
            simulated = self.planned(*more)
            command("export", self.plan, "--to", "chakra", "-o", self.folder / name)
            for rank in range(4):
                metadata, nodes = parsed(self.folder / name / f"step.{rank}.et")
                self.assertEqual(metadata.version, "1.0.0")
                self.assertEqual([node.id for node in nodes], list(range(len(nodes))))
                for node in nodes:
                    values = {it.name: getattr(it, it.WhichOneof("value")) for it in node.attr}
                    self.assertIs(values["is_cpu_op"], False)
                    self.assertLessEqual(abs(values["seconds"] * 1e6 - node.duration_micros), 1)
                    self.assertTrue(all(before < node.id for before in node.data_deps))
                    kinds.add(node.type)
                last = max(node.start_time_micros + node.duration_micros for node in nodes)
                self.assertLessEqual(last, round(simulated["seconds"] * 1e6))
        # Computing, sending, receiving, collectives.
        self.assertEqual(kinds, {4, 5, 6, 7})

    def test_pickle_reads_snapshots_of_memory(self) -> None:
        simulated = self.planned(*STAGES)
        command("export", self.plan, "--to", "memory-viz", "-o", self.folder)
        ranks = [it["ranks"][0] for it in simulated["classes"]]
        self.assertEqual(sorted(int(it.name.split(".")[1]) for it in self.folder.glob("*.pickle")), sorted(ranks))
        for rank, kind in zip(ranks, simulated["classes"]):
            snapshot = pickle.loads((self.folder / f"step.{rank}.pickle").read_bytes())
            there, most, names = {}, 0, set()
            for event in snapshot["device_traces"][0]:
                if event["action"] == "alloc":
                    ends = [event["addr"], event["addr"] + event["size"]]
                    apart = all(ends[1] <= at or at + size <= ends[0] for at, size in there.items())
                    self.assertTrue(apart, event)
                    there[event["addr"]] = event["size"]
                    names.add(event["frames"][0]["name"])
                elif event["action"] == "free_completed":
                    self.assertEqual(there.pop(event["addr"]), event["size"])
                most = max(most, sum(there.values()))
            self.assertEqual(most, kind["used_bytes"])
            self.assertTrue(any("layers.0.mlp.down_proj" in it or "layers.1.mlp.down_proj" in it for it in names))
            left = {}
            for segment in snapshot["segments"]:
                at = segment["address"]
                for block in segment["blocks"]:
                    self.assertEqual(block["address"], at)
                    at += block["size"]
                    if block["state"] == "active_allocated":
                        left[block["address"]] = block["size"]
                self.assertEqual(at, segment["address"] + segment["total_size"])
            self.assertEqual(left, there)
            self.assertLessEqual(sum(it["total_size"] for it in snapshot["segments"]), kind["peak_bytes"])


if __name__ == "__main__":
    unittest.main()
