"""Two distributions go in, numbers come out; KL is always KL(roll||theta), in nats."""

from bounds.divergence.logits import LogitDivergences, LogitFile, from_logits
from bounds.divergence.shards import LogitShard, from_logits_shard
from bounds.divergence.topk import TopKBrackets, from_topk

__all__ = [
    "LogitDivergences",
    "LogitFile",
    "LogitShard",
    "TopKBrackets",
    "from_logits",
    "from_logits_shard",
    "from_topk",
]
