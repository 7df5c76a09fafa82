"""Make the second half of a log: the trained weights score the token ids that a server sampled.

    python score.py MODEL sampled.jsonl scored.jsonl
    trm-bounds certify sampled.jsonl --train scored.jsonl --horizon T

sampled.jsonl is any log of one half that trm-bounds reads (``trm-bounds formats``) and that has the ids of prompts and
responses (vLLM: ``return_token_ids: true``). Nothing is tokenised again: other ids would be another response. Use the
precision, the temperature and the weights that the certificate is to be about.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

import bounds


def score(
    model: Any, prompts: Sequence[list[int]], responses: Sequence[list[int]], temperature: float = 1.0
) -> list[list[float]]:
    """Return the log-prob of each token of each response, after its prompt and what precedes it; all at once."""
    rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
    ids, mask = torch.zeros(2, len(rows), max(map(len, rows)), dtype=torch.long, device=model.device)
    for i, row in enumerate(rows):  # padded on the right, where a causal model does not look
        ids[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), 1
    found = []
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits
        for i, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
            drawn = slice(len(prompt), len(row))
            before = logits[i, drawn.start - 1 : drawn.stop - 1].float() / temperature
            found.append(before.log_softmax(-1).gather(-1, ids[i, drawn, None]).squeeze(-1).tolist())
    return found


def rows_of(path: str, vocabulary: int) -> Iterator[tuple[dict[str, Any], list[int], list[int]]]:
    """Yield what names each row of a log of one half, the ids of its prompt, and those of its response."""
    for where, row in bounds.open_log(path).rows():
        ids = []
        for name, meant in (("prompt_tokens", "prompt"), ("tokens", "response")):
            values = row.get(name)
            if values is None or (name == "prompt_tokens" and not len(values)):
                raise SystemExit(
                    f"{where}: no token ids of the {meant}: ask the server for them (return_token_ids: true)"
                )
            odd = next((v for v in list(values) if isinstance(v, str) or not 0 <= v < vocabulary), None)
            if odd is not None:
                raise SystemExit(f"{where}: {odd} in the {meant} is no token id of this model (0 to {vocabulary - 1})")
            ids.append([int(v) for v in values])
        yield {"row_id": row["row_id"]} if row.get("row_id") is not None else {}, ids[0], ids[1]


def main() -> None:
    """Score a log, in its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder or a name on the Hugging Face Hub")
    parser.add_argument("sampled")
    parser.add_argument("scored", help="is written; it must not be there yet")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=8, help="responses at once")
    parser.add_argument("--temperature", type=float, default=1.0, help="that of the sampler")
    asked = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(asked.model, dtype=getattr(torch, asked.dtype)).to(asked.device).eval()
    rows = rows_of(asked.sampled, model.config.vocab_size)
    with open(asked.scored, "x", encoding="utf-8") as file:
        while some := list(itertools.islice(rows, asked.batch)):
            names, prompts, responses = zip(*some, strict=True)
            for name, response, values in zip(
                names, responses, score(model, prompts, responses, asked.temperature), strict=True
            ):
                file.write(json.dumps({**name, "train_logprobs": values, "tokens": response}) + "\n")


if __name__ == "__main__":
    main()
