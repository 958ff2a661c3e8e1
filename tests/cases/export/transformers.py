"""Prints how transformers splits its models over tensor parallel devices: `python transformers.py FOLDER`, that of an unpacked
package. A row for each rule: family, module, style."""

import ast
import sys
from pathlib import Path

FAMILIES = """llama mistral qwen2 qwen3 smollm3 granite olmo2 phi phi3 glm glm4 gemma gemma2 gemma3 gpt2 gpt_neox mixtral
qwen2_moe qwen3_moe glm4_moe gpt_oss mamba2 qwen3_next deepseek_v2 deepseek_v3"""


def main() -> None:
    models = Path(sys.argv[1]) / "transformers" / "models"
    print("# `base_model_tp_plan` of transformers 5.24.0: tests/cases/export/transformers.py makes this table of the package.")
    for family in FAMILIES.split():
        tree = ast.parse((models / family / f"configuration_{family}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "base_model_tp_plan":
                for module, style in ast.literal_eval(node.value).items():
                    print(family, module, style)


if __name__ == "__main__":
    main()
