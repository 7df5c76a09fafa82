"""The command line, by click: a command is loaded when it is asked for."""

#: Command -> the module that has it, and what it answers; in the order in which they are shown.
COMMANDS = {
    "bstar": ("theory", "Every bound on |Error| for given divergences, and B*."),
    "largest": ("theory", "The largest delta, T, ... that proves a target."),
    "certify": ("questions", "Estimates, guarantees and bounds from a log."),
    "steps": ("questions", "A run over time: one row for each step."),
    "masks": ("questions", "What a mask keeps of a log, and what that costs."),
    "objectives": ("questions", "TIS, PPO clip, ... against L'."),
    "explain": ("questions", "Where kl_seq comes from: tokens, positions, prompts."),
    "compare": ("questions", "How two logs differ: two precisions, two engines."),
    "metrics": ("questions", "What verl and ms-swift log, with intervals."),
    "plan": ("questions", "How many prompts it takes to show a gain."),
    "split": ("package", "Set prompts aside before a training."),
    "formats": ("package", "The logs that are read, and how to export them."),
    "figures": ("package", "Draw figures and the tables of the paper."),
    "glossary": ("package", "What a name in an output or an option means."),
    "verify": ("package", "Check every rule in symbols and on examples."),
}

__all__ = ["COMMANDS"]
